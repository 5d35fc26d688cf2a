/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * SQL tables - a capture as tables of SQLite
 *
 * Each table of the capture is a virtual table, generated from the capture's schema, with the
 * columns of `dump`: refs to texts are texts, enums are names, times count from the start, lists
 * are JSON. A table that refers to threads also has pid, tid, comm and exe. Ids are scoped to an
 * epoch, so each table ends with the columns segment and epoch. Further tables have values that
 * need more than one row (sql-derived.h). An unknown value is NULL. An unsigned number above
 * INT64_MAX is the text 0x and 16 digits, which sorts after all numbers.
 */
#pragma once

#include "tools/profcapture/sql-derived.h"

#include <sqlite3.h>

/* Where the values in a table of the capture come from; continues enum sql_thread_field. Derived
 * tables have the fields of sql-derived.h. */
enum sql_field {
	SQL_STORED = SQL_THREAD_FIELDS, /* a column of the capture */
	SQL_TIME,
	SQL_CALL,
	SQL_CAUSE,
	SQL_WAKER_CALL,
	SQL_EVENT,
	SQL_AMOUNT,
	SQL_FIELDS,
	SQL_SEGMENT,
	SQL_EPOCH,
};

struct sql_column {
	char *name;
	const char *type;
	unsigned field;
	unsigned position; /* position of the capture's column, if SQL_STORED */
};

struct sql_table {
	char *name;
	const char *index; /* columns by which the table is searched, or NULL */
	/* the rest is private */
	char *declaration;                /* the columns of CREATE TABLE, in parentheses */
	const struct prof_table_def *def; /* NULL: not a table of the capture */
	GArray *columns;                  /* struct sql_column */
	uint64_t rows;
	enum sql_derived_table derived; /* if def is NULL */
	unsigned thread, process, stack, source, weight;
};

/* The thread and the process of a row, as indexes in names. */
struct sql_owner {
	const struct sql_table *table;
	uint32_t epoch;
	uint64_t id; /* value of the row's column `thread` or `process` */
	uint32_t thread, process;
};

/* A text that was found to be UTF-8, which SQLite need not copy. */
struct sql_text {
	const char *text;
	size_t length;
};

struct sql_tables {
	GPtrArray *all; /* struct sql_table */
	GError *error;  /* error of the capture that made a query fail; or NULL */
	/* the rest is private */
	struct reader *reader;
	struct sql_derived *derived;
	struct prof_dictionary *sources; /* the sources of one epoch, or NULL */
	uint32_t sources_epoch;
	/* values of the last row that needed them; the next row usually needs the same ones */
	struct sql_owner last_owner;
	struct sampled_event event;
	ssize_t event_row;    /* row of the event in `sources`; -1: none */
	uint32_t event_epoch; /* 0: no row has needed an event yet */
	uint64_t event_source;
	struct out list;  /* the last list, as JSON; its memory is reused for each row */
	struct json json; /* writes to `list` */
	/* value of names->removed_epochs when `valid` was last emptied */
	uint64_t removed_epochs;
	struct sql_text valid[1024]; /* texts that were found to be UTF-8, by address */
};

/* Creates the tables in the schema "temp" of a database. Borrows the reader, whose capture is open;
 * free the result after closing the database. Returns NULL on error. */
struct sql_tables *sql_tables_new(struct reader *reader, sqlite3 *db, GError **error);
void sql_tables_free(struct sql_tables *tables);
/* Returns the number of rows of a table of the capture. */
uint64_t sql_tables_rows(const struct sql_tables *tables, unsigned id);

static inline const struct sql_column *sql_column_at(const struct sql_table *table, int index)
{
	return &g_array_index(table->columns, struct sql_column, index);
}

static inline bool sql_table_is_timed(const struct sql_table *table)
{
	return table->def->flags & PROF_TABLE_TIMED;
}
