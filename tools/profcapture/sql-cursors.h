/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * SQL cursors - read the rows of a capture's tables for a query of SQLite
 *
 * A query reads only the chunks of its time range (constraints on time_ns) and of its epoch, and
 * decodes only the columns that it uses. Rows of a dictionary are found by epoch and id.
 */
#pragma once

#include "tools/profcapture/sql-tables.h"

/* Modules of tables that are in the capture, and of derived tables. The argument of a virtual table
 * is its index in sql_tables->all. */
extern const sqlite3_module sql_row_module, sql_derived_module;
