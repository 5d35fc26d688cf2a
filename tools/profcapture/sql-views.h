/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * SQL views - views of a capture's tables that answer common questions
 */
#pragma once

#include <sqlite3.h>
#include <stdbool.h>

/* Returns whether a view has this name. */
bool sql_views_has(const char *name);
/* Creates the views in a schema. `has_stacks`: the schema's table of calls is the virtual one,
 * which has a hidden column with the stack as text. `has_waits`: the table of waits has rows.
 * Returns a result code of SQLite. */
int sql_views_create(sqlite3 *db, const char *schema, bool has_stacks, bool has_waits);
