/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Dump - what the files of the verb `dump` share: the verb, filters and the merge of tables
 * (dump.c), one row (dump-row.c)
 */
#pragma once

#include "tools/profcapture/functions.h"
#include "tools/profcapture/reader.h"

#define NO_COLUMN UINT_MAX
/* With --resolve, in addition to the lists of a mark's arguments. */
#define DUMP_ARGUMENTS "named_arguments"

/* A table that is being read. */
struct dump_stream {
	const struct prof_table_def *table;
	struct prof_cursor *cursor;
	struct prof_batch batch;
	size_t row;
	bool done;
	bool timed;
	unsigned thread, process, cpu,
		stack; /* positions of the columns that hold these, or NO_COLUMN */
	bool own_pid, own_tid, own_comm; /* the table has a column of that name */
};

struct dump {
	struct reader reader;
	GPtrArray *tables; /* requested names, or NULL */
	bool resolve;
	struct functions *functions; /* with --resolve */
	struct dump_stream *streams;
	size_t n_streams;
	GPtrArray *columns; /* of CSV */
	struct json json;
	struct out *out;
	struct names_epoch *epoch; /* of the current row */
};

/* The owner of a row: indexes in names. */
struct dump_owner {
	uint32_t thread, process;
};

/* Returns a column of the current row; 0 for NO_COLUMN, lists and nulls. */
uint64_t dump_number(const struct dump_stream *stream, unsigned column);
/* Returns the relative time of a timed row. */
int64_t dump_time(const struct dump *dump, const struct dump_stream *stream);
struct dump_owner dump_owner_of(const struct dump *dump, const struct dump_stream *stream);
/* Write a row as JSON, ndjson or CSV; print it as a line of text. */
void dump_write_row(struct dump *dump, const struct dump_stream *stream,
		    const struct dump_owner *owner);
void dump_print_row(struct dump *dump, const struct dump_stream *stream,
		    const struct dump_owner *owner);
