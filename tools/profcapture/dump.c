/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profcapture dump - the rows of any table
 *
 * Has no code for single tables: the schema describes the columns, so tables of a later version or
 * of other software are printed like ours. A column that refers to a thread or a process gives the
 * row its pid, tid and comm. Timed tables are merged by (segment, time); dictionaries are printed
 * on request only, before the others.
 *
 * Memory: a row group per table, and the names of two epochs  [test_small_captures: memory]
 */
#include "config.h"

#include "tools/profcapture/dump.h"

#include "tools/common/capture-error.h"
#include "tools/profcapture/verbs.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

/* Rows between two checks for a full disk or a closed pipe. */
#define ROWS_BETWEEN_CHECKS 4096
/* Limit on the images, processes and threads in memory, because a long recording has any number. */
#define MOST_IDENTITIES (1u << 15)

static const struct cli_option options[] = {
	{ "table", 't', CLI_LIST, offsetof(struct dump, tables), N_("TABLE"),
	  N_("Print this table; repeatable (default: every table whose rows have a time)") },
	{ "resolve", 0, CLI_FLAG, offsetof(struct dump, resolve), NULL,
	  N_("Add the frames of stacks with their functions and lines, and the arguments of marks") },
	{ NULL },
};

/* ---- filters --------------------------------------------------------------------------------- */

static bool process_wanted(const struct dump *dump, uint32_t process)
{
	const struct names *names = dump->reader.capture->names;

	if (dump->reader.tids || dump->reader.comms)
		return false;
	for (guint i = 0; i < dump->reader.pids->len; i++)
		if (process > NAMES_LOST && names_process_at(names, process)->pid ==
						    g_array_index(dump->reader.pids, uint32_t, i))
			return true;
	return false;
}

static bool row_wanted(struct dump *dump, const struct dump_stream *stream,
		       const struct dump_owner *owner)
{
	if (stream->timed && dump->reader.timed) {
		int64_t time = dump_time(dump, stream);

		if (time < dump->reader.from_ns || time > dump->reader.to_ns)
			return false;
	}
	if (dump->reader.cpus &&
	    (stream->cpu == NO_COLUMN ||
	     !reader_wants_cpu(&dump->reader, dump_number(stream, stream->cpu))))
		return false;
	if (!reader_filters_threads(&dump->reader))
		return true;
	if (stream->thread != NO_COLUMN)
		return stream->timed ? reader_wants_thread_at(&dump->reader, owner->thread,
							      dump_time(dump, stream))
				     : reader_wants_thread(&dump->reader, owner->thread);
	return stream->process != NO_COLUMN && process_wanted(dump, owner->process);
}

/* ---- merging tables -------------------------------------------------------------------------- */

static unsigned column_referring(const struct prof_table_def *table, unsigned ref)
{
	for (unsigned i = 0; i < table->n_columns; i++)
		if (table->columns[i].type == PROF_TYPE_REF && table->columns[i].ref == ref &&
		    !(table->columns[i].flags & PROF_COLUMN_LIST))
			return i;
	return NO_COLUMN;
}

static unsigned column_named(const struct prof_table_def *table, const char *name)
{
	for (unsigned i = 0; i < table->n_columns; i++)
		if (strcmp(table->columns[i].name, name) == 0)
			return i;
	return NO_COLUMN;
}

static bool has_column(const struct prof_table_def *table, const char *name)
{
	return column_named(table, name) != NO_COLUMN;
}

static void stream_init(struct dump_stream *stream, const struct prof_table_def *table)
{
	*stream = (struct dump_stream){
		.table = table,
		.timed = table->flags & PROF_TABLE_TIMED,
		.thread = column_referring(table, PROF_TABLE_THREAD),
		.process = column_referring(table, PROF_TABLE_PROCESS),
		.stack = column_referring(table, PROF_TABLE_STACK),
		.cpu = column_named(table, "cpu"),
		.own_pid = has_column(table, "pid"),
		.own_tid = has_column(table, "tid"),
		.own_comm = has_column(table, "comm"),
	};
	/* A row of these two is its own owner. */
	if (table->id == PROF_TABLE_THREAD)
		stream->thread = 0;
	if (table->id == PROF_TABLE_PROCESS)
		stream->process = 0;
	if (table->id == PROF_TABLE_STACK)
		stream->stack = NO_COLUMN;
}

static bool stream_fill(struct dump *dump, struct dump_stream *stream, GError **error)
{
	int r;

	stream->row = 0;
	do {
		r = prof_cursor_next(stream->cursor, &stream->batch);
	} while (r == 0 && stream->batch.rows == 0);
	stream->done = r != 0;
	return r == 0 || r == PROF_END ||
	       capture_error(error, r, _("cannot read table '%s' of '%s'"), stream->table->name,
			     dump->reader.capture->file);
}

static bool stream_open(struct dump *dump, struct dump_stream *stream, GError **error)
{
	struct prof_cursor_options cursor = { .table = stream->table->id };
	const struct capture *capture = dump->reader.capture;
	int r;

	if (stream->timed && dump->reader.timed && capture->n_segments == 1)
		reader_clock_range(&dump->reader, capture->segments[0].number, &cursor.t_from,
				   &cursor.t_to);
	prof_cursor_free(stream->cursor);
	stream->cursor = NULL;
	r = prof_cursor_new(capture->reader, &cursor, &stream->cursor);
	if (r != 0)
		return capture_error(error, r, _("cannot read table '%s' of '%s'"),
				     stream->table->name, capture->file);
	return stream_fill(dump, stream, error);
}

/* Orders by segment, then time; dictionaries first. */
static bool comes_before(const struct dump_stream *a, const struct dump_stream *b)
{
	if (a->timed != b->timed)
		return !a->timed;
	if (!a->timed)
		return a->table->id < b->table->id;
	if (a->batch.segment != b->batch.segment)
		return a->batch.segment < b->batch.segment;
	return dump_number(a, 0) < dump_number(b, 0);
}

static struct dump_stream *next_stream(struct dump *dump)
{
	struct dump_stream *next = NULL;

	for (size_t i = 0; i < dump->n_streams; i++)
		if (!dump->streams[i].done && (!next || comes_before(&dump->streams[i], next)))
			next = &dump->streams[i];
	return next;
}

/* Drops identities: a row refers to none of an earlier epoch. Symbols, with --resolve, do. */
static void forget_identities(struct dump *dump)
{
	struct names *names = dump->reader.capture->names;

	if (dump->resolve || names_identities(names) < MOST_IDENTITIES)
		return;
	names_forget(names);
	reader_forget_threads(&dump->reader);
}

static bool use_epoch(struct dump *dump, uint32_t number, GError **error)
{
	if (dump->epoch && dump->epoch->epoch == number)
		return true;
	forget_identities(dump);
	dump->epoch = names_epoch(dump->reader.capture->names, number, error);
	return dump->epoch && names_load_identities(dump->epoch, error) &&
	       (!dump->resolve || (names_load(dump->epoch, NAMES_STACK, error) &&
				   names_load(dump->epoch, NAMES_FRAME, error)));
}

/* Reads the rows that pass; prints at most `limit` (0 = all) if `print` is set. */
static bool each_row(struct dump *dump, bool print, uint64_t limit, uint64_t *ret_rows,
		     GError **error)
{
	struct dump_stream *stream;
	uint64_t rows = 0;

	for (size_t i = 0; i < dump->n_streams; i++)
		if (!stream_open(dump, &dump->streams[i], error))
			return false;
	while ((stream = next_stream(dump)) && !(print && limit && rows == limit)) {
		struct dump_owner owner;

		if (!use_epoch(dump, stream->batch.epoch, error))
			return false;
		owner = dump_owner_of(dump, stream);
		if (row_wanted(dump, stream, &owner)) {
			rows++;
			if (print && dump->reader.format == READER_TEXT)
				dump_print_row(dump, stream, &owner);
			else if (print)
				dump_write_row(dump, stream, &owner);
		}
		if (++stream->row == stream->batch.rows && !stream_fill(dump, stream, error))
			return false;
		if (rows % ROWS_BETWEEN_CHECKS == 0 && out_failed(dump->out))
			break;
	}
	*ret_rows = rows;
	return true;
}

/* ---- the verb -------------------------------------------------------------------------------- */

static int unknown_table(const struct prof_table_def *const *tables, size_t n, const char *name)
{
	g_autoptr(GPtrArray) valid = g_ptr_array_new();

	for (size_t i = 0; i < n; i++)
		g_ptr_array_add(valid, (gpointer)tables[i]->name);
	g_ptr_array_add(valid, NULL);
	return cli_unknown(_("table"), name, (const char *const *)valid->pdata);
}

static bool asked_for(const struct dump *dump, const struct prof_table_def *table)
{
	if (!dump->tables)
		return table->flags & PROF_TABLE_TIMED;
	for (guint i = 0; i < dump->tables->len; i++)
		if (strcmp(dump->tables->pdata[i], table->name) == 0)
			return true;
	return false;
}

static int choose_tables(struct dump *dump)
{
	const struct prof_reader *reader = dump->reader.capture->reader;
	size_t n;
	const struct prof_table_def *const *tables = prof_reader_tables(reader, &n);

	for (guint i = 0; dump->tables && i < dump->tables->len; i++) {
		const char *name = dump->tables->pdata[i];
		bool known = false;

		for (unsigned id = 1; id < PROF_TABLE_FIRST_FOREIGN; id++) {
			const struct prof_table_def *table = prof_table_v1(id);

			known = known || (table && strcmp(table->name, name) == 0);
		}
		/* A table of version 1 that is missing in this capture is empty, not an error. */
		if (!known && !prof_reader_table_by_name(reader, name))
			return unknown_table(tables, n, name);
	}
	dump->streams = g_new0(struct dump_stream, n + 1);
	for (size_t i = 0; i < n; i++)
		if (asked_for(dump, tables[i]))
			stream_init(&dump->streams[dump->n_streams++], tables[i]);
	return CLI_CONTINUE;
}

static void add_column(GPtrArray *columns, const char *name)
{
	for (guint i = 0; i < columns->len; i++)
		if (strcmp(columns->pdata[i], name) == 0)
			return;
	g_ptr_array_add(columns, (gpointer)name);
}

static void list_columns(struct dump *dump)
{
	static const char *const first[] = { "table", "time_ns", "pid", "tid", "comm" };

	dump->columns = g_ptr_array_new();
	for (size_t i = 0; i < ARRAY_SIZE(first); i++)
		add_column(dump->columns, first[i]);
	for (size_t i = 0; i < dump->n_streams; i++) {
		const struct dump_stream *stream = &dump->streams[i];

		for (unsigned c = stream->timed ? 1 : 0; c < stream->table->n_columns; c++) {
			if (stream->table->id == PROF_TABLE_MARK && c == PROF_MARK_ARGUMENTS &&
			    dump->resolve)
				add_column(dump->columns, DUMP_ARGUMENTS);
			add_column(dump->columns, stream->table->columns[c].name);
			if (c == stream->stack && dump->resolve)
				add_column(dump->columns, "frames");
		}
	}
	g_ptr_array_add(dump->columns, NULL);
}

/* Checks first everything that the output depends on, because the envelope is written first and
 * reports what is missing. */
static bool check_tables(struct dump *dump, GError **error)
{
	static const unsigned named[] = { PROF_TABLE_STRING, PROF_TABLE_PROCESS,
					  PROF_TABLE_THREAD };

	for (size_t i = 0; i < dump->n_streams; i++)
		if (!capture_check(dump->reader.capture, dump->streams[i].table->id, error))
			return false;
	for (size_t i = 0; i < ARRAY_SIZE(named); i++) {
		bool done = false;

		for (size_t j = 0; j < dump->n_streams; j++)
			done = done || dump->streams[j].table->id == named[i];
		if (!done && !capture_check(dump->reader.capture, named[i], error))
			return false;
	}
	return true;
}

struct row_count {
	const struct dump *dump;
	uint64_t rows;
};

static bool count_chunk(const struct prof_chunk *chunk, void *data, GError **error)
{
	struct row_count *count = data;

	for (size_t i = 0; i < count->dump->n_streams; i++)
		if (count->dump->streams[i].table->id == chunk->table)
			count->rows += chunk->rows;
	return true;
}

/* Counts the rows that pass: from the headers if all do, else by reading them. */
static bool count_rows(struct dump *dump, uint64_t *ret_rows, GError **error)
{
	const struct capture *capture = dump->reader.capture;
	struct row_count count = { .dump = dump };

	if (dump->reader.timed || dump->reader.cpus || reader_filters_threads(&dump->reader) ||
	    capture_unreadable(capture, 0).rows > 0)
		return each_row(dump, false, 0, ret_rows, error);
	if (!capture_each_chunk(capture, 0, count_chunk, &count, error))
		return false;
	*ret_rows = count.rows;
	return true;
}

static bool dump_rows(struct dump *dump, GError **error)
{
	uint64_t all = 0, shown = 0;

	if (dump->reader.limit && !count_rows(dump, &all, error))
		return false;
	if (dump->reader.format == READER_TEXT) {
		reader_print_losses(&dump->reader, dump->out, READER_LOSSES);
	} else {
		list_columns(dump);
		reader_begin(&dump->reader, &dump->json, "dump",
			     dump->reader.limit && dump->reader.limit < all);
		rows_open(&dump->json, reader_json_format(&dump->reader),
			  (const char *const *)dump->columns->pdata);
	}
	if (!each_row(dump, true, dump->reader.limit, &shown, error))
		return false;
	if (dump->reader.format == READER_TEXT) {
		if (dump->reader.limit)
			reader_print_limit(&dump->reader, dump->out, shown, all);
		return true;
	}
	rows_close(&dump->json);
	reader_end(&dump->reader, &dump->json);
	return true;
}

static bool dump_run(struct dump *dump, GError **error)
{
	if (!check_tables(dump, error))
		return false;
	capture_warn(dump->reader.capture);
	if (dump->resolve) {
		dump->functions = functions_new(dump->reader.capture->names, error);
		if (!dump->functions)
			return false;
		dump->functions->detail = FUNCTIONS_PLACES;
		dump->functions->inlined = true;
	}
	return dump_rows(dump, error);
}

static void dump_done(struct dump *dump)
{
	for (size_t i = 0; i < dump->n_streams; i++)
		prof_cursor_free(dump->streams[i].cursor);
	g_free(dump->streams);
	json_done(&dump->json);
	functions_free(dump->functions);
	if (dump->columns)
		g_ptr_array_unref(dump->columns);
	if (dump->tables)
		g_ptr_array_unref(dump->tables);
	reader_done(&dump->reader);
}

int verb_dump(int argc, char **argv)
{
	static const struct cli_spec spec = { N_("FILE"),
					      N_("Print the rows of a capture in time order."), 1,
					      1 };
	CLEANUP(dump_done) struct dump dump = { .out = out_stdout() };
	const struct cli_group groups[] = { { NULL, options, &dump },
					    { N_("Select"), reader_time_options, &dump.reader },
					    { NULL, reader_process_options, &dump.reader },
					    { NULL, reader_thread_options, &dump.reader },
					    { NULL, reader_cpu_options, &dump.reader },
					    { N_("Output"), reader_output_options, &dump.reader },
					    { NULL } };
	GError *error = NULL;
	int status = cli_parse(&spec, groups, &argc, &argv);

	json_init(&dump.json, dump.out);
	if (status != CLI_CONTINUE)
		return status;
	if (!reader_open(&dump.reader, argv[0], &error) || !reader_load_names(&dump.reader, &error))
		return cli_fail(error);
	status = choose_tables(&dump);
	if (status != CLI_CONTINUE)
		return status;
	return dump_run(&dump, &error) ? CLI_OK : cli_fail(error);
}
