/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * SQL printf - SQLite's printf() and format(), which fail if their result is too long
 *
 * SQLite returns NULL then, like for an unknown value, and only after it has counted to any width.
 */
#pragma once

#include <sqlite3.h>

/* Replaces both functions of a connection. Returns a result code of SQLite. */
int sql_printf_register(sqlite3 *db);
