/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * SQL tables - a capture as tables of SQLite
 *
 * Each table of the capture is a virtual table, generated from the capture's schema, with the
 * columns of `dump`: refs to texts are texts, enums are names, times are relative, lists are JSON.
 * A table that refers to threads also has pid, tid, comm and exe. Ids are scoped to an epoch, so
 * each table ends with segment and epoch. Further tables have values that need more than one row
 * (sql-derived.h). Views over both answer common questions. An unknown value is NULL. An unsigned
 * number above INT64_MAX is the text 0x and 16 digits, which sorts after all numbers.
 *
 * A query reads only the chunks of its time range (constraints on time_ns) and of its epoch, and
 * decodes only the columns that it uses. Rows of a dictionary are found by epoch and id.
 */
#pragma once

#include "tools/profcapture/sql-derived.h"

#include <sqlite3.h>

struct sql_table {
	char *name;
	const char *index; /* columns by which it is searched, or NULL */
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
	/* from the last row that needed them, because the next row mostly needs the same */
	struct sql_owner last_owner;
	struct sampled_event event;
	ssize_t event_row;    /* row of the event in `sources`; -1: none */
	uint32_t event_epoch; /* 0: no row yet */
	uint64_t event_source;
	struct out list;  /* the last list, as JSON; kept, because it is filled for each row */
	struct json json; /* writes to `list` */
	/* value of names->removed_epochs when `valid` was last emptied */
	uint64_t removed_epochs;
	struct sql_text valid[1024]; /* texts that were found to be UTF-8, by address */
};

/* Creates the tables in the schema "temp" of a database. Borrows the reader, whose capture is open;
 * free the result after closing the database. Returns NULL on error. */
struct sql_tables *sql_tables_new(struct reader *reader, sqlite3 *db, GError **error);
void sql_tables_free(struct sql_tables *tables);
/* Creates the views in a schema. `has_stacks`: the schema's table of calls is the virtual one,
 * which has a hidden column with the stack as text. Returns a result code of SQLite. */
int sql_tables_create_views(const struct sql_tables *tables, sqlite3 *db, const char *schema,
			    bool has_stacks);
