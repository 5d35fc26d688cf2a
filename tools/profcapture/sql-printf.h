/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * SQL printf - versions of SQLite's printf() and format() that fail if the result is too long
 *
 * If the result is too long, SQLite's own functions return NULL, which looks like an unknown value.
 * They are also slow, because they count to the requested width first.
 */
#pragma once

#include <sqlite3.h>

/* Replaces both functions of a connection. Returns a result code of SQLite. */
int sql_printf_register(sqlite3 *db);
