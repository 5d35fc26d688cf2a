/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * SQL derived - the tables of SQL whose rows need more than a row of the capture
 *
 * These are the calls and functions of stacks, marks with begins and ends paired, blocks with their
 * lifetimes, and the states of threads. Rows are numbered from 0 and are read on first use. Calls
 * and functions are added when a stack is the first to need them, so their numbers are the same for
 * one struct only. Does not know SQLite (see sql-tables.c).
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
	const char *index; /* column by which it is searched; "id" is the row's number */
	struct {
		const char *name, *type;
		unsigned field;
	} columns[16]; /* the last one has no name */
};
extern const struct sql_derived_def sql_derived_defs[SQL_DERIVED_TABLES];

struct sql_derived *sql_derived_new(struct reader *reader); /* borrows the reader */
void sql_derived_free(struct sql_derived *derived);

/* Reads all rows of a table, unless they were read. */
bool sql_derived_read(struct sql_derived *derived, enum sql_derived_table table, GError **error);
/* Call it when all rows of the capture were read: reading calls or functions then reads none. */
void sql_derived_complete(struct sql_derived *derived);
/* Returns the number of a table's rows that have been read. */
uint32_t sql_derived_rows(const struct sql_derived *derived, enum sql_derived_table table);
/* Returns whether a number below that is a row. */
bool sql_derived_is_row(const struct sql_derived *derived, enum sql_derived_table table,
			uint32_t row);
bool sql_derived_cell(struct sql_derived *derived, enum sql_derived_table table, uint32_t row,
		      unsigned field, struct cell *ret_cell, GError **error);
/* Stores the row in SQL_CALLS of a stack of an epoch, at a clock value of a segment. */
bool sql_derived_call(struct sql_derived *derived, uint32_t epoch, uint64_t stack, uint32_t segment,
		      uint64_t time, uint32_t *ret_call, GError **error);

/* The columns of a thread. */
enum sql_thread_field { SQL_PID, SQL_TID, SQL_COMM, SQL_EXE, SQL_THREAD_FIELDS };
/* Stores the value of one, given indexes of names. The name is that of the time, or the last one if
 * `time_ns` is NULL. */
bool sql_thread_cell(struct reader *reader, uint32_t thread, uint32_t process,
		     const int64_t *time_ns, enum sql_thread_field field, struct cell *ret_cell,
		     GError **error);
