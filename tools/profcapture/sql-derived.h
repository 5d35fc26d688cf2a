/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * SQL derived - the tables of SQL whose rows need more than a row of the capture
 *
 * These are the calls and functions of stacks, marks with begins and ends paired, blocks with their
 * lifetimes, and the states of threads. Rows are numbered from 0 and are read on first use. Calls
 * and functions are added when a stack first needs them, so their numbers are valid only for this
 * struct sql_derived. These files do not depend on SQLite; sql-tables.c does.
 */
#pragma once

#include "tools/profcapture/reader.h"

enum sql_derived_table {
	SQL_CALLS,
	SQL_FUNCTIONS,
	SQL_MARKS,
	SQL_BLOCKS,
	SQL_STATES,
	SQL_DERIVED_TABLES
};

struct sql_derived_def {
	const char *name;
	const char *index; /* column by which rows are found; "id": the row's number */
	struct {
		const char *name, *type;
		unsigned field;
	} columns[16]; /* the last one has no name */
};
extern const struct sql_derived_def sql_derived_defs[SQL_DERIVED_TABLES];

struct sql_derived *sql_derived_new(struct reader *reader); /* borrows the reader */
void sql_derived_free(struct sql_derived *derived);

/* Reads all rows of a table, unless this has been done. */
bool sql_derived_read(struct sql_derived *derived, enum sql_derived_table table, GError **error);
/* Call this after all rows of the capture were read. All calls and functions are then known, so
 * sql_derived_read() does not read the capture for them. */
void sql_derived_complete(struct sql_derived *derived);
/* Returns the number of a table's rows that have been read. */
uint32_t sql_derived_rows(const struct sql_derived *derived, enum sql_derived_table table);
/* Returns whether a number below sql_derived_rows() is a row. */
bool sql_derived_is_row(const struct sql_derived *derived, enum sql_derived_table table,
			uint32_t row);
bool sql_derived_cell(struct sql_derived *derived, enum sql_derived_table table, uint32_t row,
		      unsigned field, struct cell *ret_cell, GError **error);
/* Stores the number of the stack's row in SQL_CALLS. `time`: clock value in `segment`. */
bool sql_derived_call(struct sql_derived *derived, uint32_t epoch, uint64_t stack, uint32_t segment,
		      uint64_t time, uint32_t *ret_call, GError **error);
/* Returns the name of the cause of a wait whose stack is this call. */
const char *sql_derived_cause(struct sql_derived *derived, uint32_t call);

/* The columns of a thread. */
enum sql_thread_field { SQL_PID, SQL_TID, SQL_COMM, SQL_EXE, SQL_THREAD_FIELDS };
/* Stores a column's value. `thread`, `process`: indexes in names. SQL_COMM is the thread's name at
 * *time_ns or, if time_ns is NULL, its last name. */
bool sql_thread_cell(struct reader *reader, uint32_t thread, uint32_t process,
		     const int64_t *time_ns, enum sql_thread_field field, struct cell *ret_cell,
		     GError **error);
