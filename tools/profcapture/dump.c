/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profcapture dump - the rows of any table
 *
 * Has no code for specific tables. The schema describes the columns, so tables of later versions or
 * of other software are printed, too. If a column refers to a thread or a process, the row gets its
 * pid, tid and comm. Timed tables are merged by (segment, time); dictionaries are printed on
 * request only, before timed tables. Rows are printed as they are read, without measuring column
 * widths, so the table code of tools/present/table.h is used only for cells. In text, all strings
 * of the capture are escaped, including the names of tables and columns.
 *
 * Memory: one row group for each table, and the names of two epochs  [test_small_captures: memory]
 */
#include "config.h"

#include "tools/common/capture-error.h"
#include "tools/profcapture/dump.h"
#include "tools/profcapture/stored-cell.h"
#include "tools/profcapture/verbs.h"
#include "tools/profile/functions.h"
#include "tools/profile/stacks.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

/* The member with a mark's arguments by name, which --resolve writes in addition to the lists. */
#define NAMED_ARGUMENTS "named_arguments"
/* Number of rows between two checks for a full disk or a closed pipe. */
#define ROWS_BETWEEN_CHECKS 4096
/* Limit on the images, processes and threads in memory: a long recording may have any number. */
#define MOST_IDENTITIES (1u << 15)

/* A table that is being read. */
struct dump_stream {
	const struct prof_table_def *table;
	struct prof_cursor *cursor;
	struct prof_batch batch;
	size_t row;
	bool done;
	bool timed;
	/* positions of these columns, or CAPTURE_NO_COLUMN */
	unsigned thread, process, cpu, stack;
	bool own_pid, own_tid, own_comm; /* the table has its own column of this name */
	uint32_t of_thread, of_process;  /* the row's thread and process */
};

struct dump {
	struct reader reader;
	GPtrArray *tables; /* requested names, or NULL */
	bool resolve;
	struct functions *functions; /* set with --resolve */
	struct dump_stream *streams;
	size_t n_streams;
	GPtrArray *columns; /* CSV: names of columns */
	struct json json;
	struct out *out;
	struct names_epoch *epoch; /* epoch of the current row */
	uint64_t counted;
};

static const struct cli_option options[] = {
	{ "table", 't', CLI_LIST, offsetof(struct dump, tables), N_("TABLE"),
	  N_("Print this table; repeatable (default: every table whose rows have a time)") },
	{ "resolve", 0, CLI_FLAG, offsetof(struct dump, resolve), NULL,
	  N_("Add the frames of stacks with their functions and lines, and the arguments of marks") },
	{ NULL },
};

/* ---- the current row of a table -------------------------------------------------------------- */

static uint64_t number_of(const struct dump_stream *stream, unsigned column)
{
	if (column == CAPTURE_NO_COLUMN ||
	    (stream->table->columns[column].flags & PROF_COLUMN_LIST))
		return 0;
	return array_number_or(&stream->batch.columns[column], stream->row, 0);
}

static int64_t time_of(const struct dump *dump, const struct dump_stream *stream)
{
	return capture_time(dump->reader.capture, stream->batch.segment, number_of(stream, 0));
}

/* Returns the thread's name: at the time of the row, or the last one if the row has no time. */
static const char *comm_of(const struct dump *dump, const struct dump_stream *stream)
{
	return stream->timed
		       ? reader_comm_at(&dump->reader, stream->of_thread, time_of(dump, stream))
		       : names_thread_at(dump->reader.capture->names, stream->of_thread)->comm;
}

static bool is_wanted(struct dump *dump, const struct dump_stream *stream)
{
	struct reader *reader = &dump->reader;
	int64_t time = stream->timed ? time_of(dump, stream) : 0;

	if (stream->timed && reader->timed && (time < reader->from_ns || time > reader->to_ns))
		return false;
	if (reader->cpus && (stream->cpu == CAPTURE_NO_COLUMN ||
			     !reader_wants_cpu(reader, number_of(stream, stream->cpu))))
		return false;
	if (!reader_filters_threads(reader))
		return true;
	if (stream->thread != CAPTURE_NO_COLUMN)
		return stream->timed ? reader_wants_thread_at(reader, stream->of_thread, time)
				     : reader_wants_thread(reader, stream->of_thread);
	if (stream->of_process <= NAMES_LOST || reader->tids || reader->comms)
		return false;
	for (guint i = 0; i < reader->pids->len; i++)
		if (names_process_at(reader->capture->names, stream->of_process)->pid ==
		    g_array_index(reader->pids, uint32_t, i))
			return true;
	return false;
}

/* ---- values ---------------------------------------------------------------------------------- */

static struct stored_row row_of(const struct dump *dump, const struct dump_stream *stream)
{
	return (struct stored_row){ dump->reader.capture, dump->epoch, stream->batch.segment };
}

static bool is_list(const struct prof_column_def *column, const struct prof_array *array)
{
	return (column->flags & PROF_COLUMN_LIST) && array->numbers && array->offsets;
}

/* ---- text: written by hand, because most of a dump's time is here ---------------------------- */

static void print_uint(struct out *out, uint64_t value)
{
	char digits[20];
	size_t at = sizeof(digits);

	do {
		digits[--at] = (char)('0' + value % 10);
		value /= 10;
	} while (value);
	out_write(out, digits + at, sizeof(digits) - at);
}

static void print_text(struct out *out, const char *bytes, size_t length)
{
	g_autofree char *escaped = NULL;
	size_t plain = 0;

	while (plain < length && bytes[plain] >= ' ' && bytes[plain] < 127 && bytes[plain] != '\\')
		plain++;
	if (plain == length) {
		out_write(out, bytes, length);
		return;
	}
	escaped = text_escape_n(bytes, length);
	out_text(out, escaped);
}

/* Prints an integer, or a time as seconds with nine decimals. */
static void print_int(struct out *out, int64_t value, bool is_time)
{
	uint64_t absolute = value < 0 ? -(uint64_t)value : (uint64_t)value;
	uint64_t rest = absolute % 1000000000;
	char fraction[10] = ".000000000";

	if (value < 0)
		out_char(out, '-');
	print_uint(out, is_time ? absolute / 1000000000 : absolute);
	for (size_t i = 9; i > 0; i--, rest /= 10)
		fraction[i] = (char)('0' + rest % 10);
	if (is_time)
		out_write(out, fraction, sizeof(fraction));
}

static void print_cell(struct out *out, const struct cell *cell)
{
	static const char digits[] = "0123456789abcdef";

	switch (cell->kind) {
	case CELL_UINT:
		print_uint(out, cell->number);
		break;
	case CELL_INT:
		print_int(out, (int64_t)cell->number, cell->format == COLUMN_SECONDS);
		break;
	case CELL_BOOL:
		out_text(out, cell->number ? "true" : "false");
		break;
	case CELL_TEXT:
		print_text(out, cell->text, strlen(cell->text));
		break;
	case CELL_SLICE:
		print_text(out, cell->text, cell->number);
		break;
	case CELL_HEX:
		out_printf(out, "0x%" PRIx64, cell->number);
		break;
	case CELL_DOUBLE:
		out_printf(out, "%g", cell->real);
		break;
	case CELL_BYTES:
		for (uint64_t i = 0; i < cell->number; i++) {
			out_char(out, digits[(uint8_t)cell->text[i] >> 4]);
			out_char(out, digits[cell->text[i] & 15]);
		}
		break;
	default:
		out_char(out, '-');
	}
}

/* ---- rows: as a line of text, or as JSON, ndjson or CSV -------------------------------------- */

static bool is_text(const struct dump *dump)
{
	return dump->reader.format == READER_TEXT;
}

/* Writes a cell. Text does not use the key. */
static void put_cell(struct dump *dump, const char *key, struct cell cell)
{
	if (is_text(dump))
		print_cell(dump->out, &cell);
	else
		cell_write(&dump->json, key, &cell);
	if (cell.owned)
		cell_done(&cell);
}

static void put_list(struct dump *dump, const struct dump_stream *stream, unsigned column)
{
	const struct prof_column_def *def = &stream->table->columns[column];
	const struct prof_array *array = &stream->batch.columns[column];
	uint64_t first = array->offsets[stream->row], end = array->offsets[stream->row + 1];
	const struct stored_row at = row_of(dump, stream);

	if (!is_text(dump))
		json_begin_array(&dump->json, def->name);
	for (uint64_t i = first; i < end; i++) {
		if (is_text(dump) && i > first)
			out_char(dump->out, ',');
		put_cell(dump, NULL,
			 capture_has_no_number(stream->table, column,
					       &stream->batch.columns[PROF_SAMPLE_TEXTS],
					       stream->row, i - first)
				 ? cell_unknown()
				 : stored_number(&at, def, array->numbers[i]));
	}
	if (!is_text(dump))
		json_end(&dump->json);
}

static uint64_t count_arguments(const struct dump_stream *stream)
{
	uint64_t n = UINT64_MAX;

	for (unsigned c = PROF_MARK_ARGUMENTS; c <= PROF_MARK_ARGUMENT_TEXTS; c++) {
		const struct prof_array *array = &stream->batch.columns[c];

		if (!is_list(&stream->table->columns[c], array))
			return 0;
		n = MIN_OF(n, array->offsets[stream->row + 1] - array->offsets[stream->row]);
	}
	return n;
}

static uint64_t argument_number(const struct dump_stream *stream, unsigned column, uint64_t i)
{
	const struct prof_array *array = &stream->batch.columns[column];

	return array->numbers[array->offsets[stream->row] + i];
}

static struct cell argument_cell(const struct dump *dump, const struct dump_stream *stream,
				 uint64_t i)
{
	return stored_argument(argument_number(stream, PROF_MARK_ARGUMENT_KINDS, i),
			       argument_number(stream, PROF_MARK_ARGUMENT_VALUES, i),
			       names_text(dump->epoch,
					  argument_number(stream, PROF_MARK_ARGUMENT_TEXTS, i)));
}

static void put_arguments(struct dump *dump, const struct dump_stream *stream)
{
	const struct prof_column_def *kinds = &stream->table->columns[PROF_MARK_ARGUMENT_KINDS];
	const struct stored_row at = row_of(dump, stream);
	struct json *json = &dump->json;
	uint64_t n = count_arguments(stream);

	if (!is_text(dump))
		json_begin_array(json, NAMED_ARGUMENTS);
	for (uint64_t i = 0; i < n; i++) {
		struct cell name = cell_text(
			names_text(dump->epoch, argument_number(stream, PROF_MARK_ARGUMENTS, i)));

		if (is_text(dump)) {
			out_char(dump->out, i ? ',' : '(');
			put_cell(dump, NULL, name);
			out_char(dump->out, ':');
			put_cell(dump, NULL, argument_cell(dump, stream, i));
			continue;
		}
		json_begin_object(json, NULL);
		put_cell(dump, "name", name);
		put_cell(dump, "kind",
			 stored_number(&at, kinds,
				       argument_number(stream, PROF_MARK_ARGUMENT_KINDS, i)));
		put_cell(dump, "value", argument_cell(dump, stream, i));
		json_end(json);
	}
	if (is_text(dump))
		out_text(dump->out, n ? ")" : "-");
	else
		json_end(json);
}

/* Writes a frame. JSON and CSV have the place of its function's declaration and of the frame
 * itself. */
static void put_frame(struct dump *dump, uint32_t place, bool is_inlined)
{
	const struct function *at = functions_at(dump->functions, place);
	struct json *json = &dump->json;

	if (is_text(dump)) {
		out_char(dump->out, '\t');
		print_text(dump->out, at->name, strlen(at->name));
		functions_print_image(dump->functions, place, dump->out);
		functions_print_line(dump->functions, place, dump->out);
		out_text(dump->out, is_inlined ? "  (inline)\n" : "\n");
		return;
	}
	json_begin_object(json, NULL);
	functions_write(dump->functions, functions_whole(dump->functions, place), json);
	json_string(json, "at_file", at->is_line ? at->file : NULL);
	put_cell(dump, "at_line", at->is_line && at->line ? cell_uint(at->line) : cell_unknown());
	json_bool(json, "inline", is_inlined);
	json_end(json);
}

/* Writes the frames of a stack, leaf first, at most STACKS_MAX_DEPTH. Functions that are inlined
 * into a frame come before it, the innermost first. */
static void put_frames(struct dump *dump, const struct dump_stream *stream)
{
	uint64_t id = number_of(stream, stream->stack);

	for (unsigned depth = 0; id != 0 && depth < STACKS_MAX_DEPTH; depth++) {
		ssize_t row = names_row(dump->epoch, NAMES_STACK, id);
		uint64_t parent = 0, frame = 0;
		uint32_t places[FUNCTIONS_MAX_AT_ROW] = { FUNCTION_LOST };
		size_t n = 1;

		if (row >= 0) {
			(void)names_number(dump->epoch, NAMES_STACK, PROF_STACK_FRAME, (size_t)row,
					   &frame);
			(void)names_number(dump->epoch, NAMES_STACK, PROF_STACK_PARENT, (size_t)row,
					   &parent);
			row = names_row(dump->epoch, NAMES_FRAME, frame);
			if (row >= 0)
				n = functions_at_row(dump->functions, dump->epoch, (size_t)row,
						     stream->batch.segment, number_of(stream, 0),
						     places, NULL);
		}
		while (n-- > 0)
			put_frame(dump, places[n], n > 0);
		if (parent >= id)
			return;
		id = parent;
	}
}

/* Prints the start of a row, such as "1.234567890 sample 12/13 name". */
static void print_row_head(struct dump *dump, const struct dump_stream *stream)
{
	const struct names *names = dump->reader.capture->names;
	const char *comm = comm_of(dump, stream);
	struct out *out = dump->out;

	if (stream->timed) {
		print_int(out, time_of(dump, stream), true);
		out_char(out, ' ');
	}
	print_text(out, stream->table->name, strlen(stream->table->name));
	out_char(out, ' ');
	if (stream->of_process > NAMES_LOST)
		print_uint(out, names_process_at(names, stream->of_process)->pid);
	else
		out_char(out, '-');
	if (stream->of_thread > NAMES_LOST) {
		out_char(out, '/');
		print_uint(out, names_thread_at(names, stream->of_thread)->tid);
	}
	if (comm) {
		out_char(out, ' ');
		print_text(out, comm, strlen(comm));
	}
}

static void write_row_head(struct dump *dump, const struct dump_stream *stream)
{
	const struct names *names = dump->reader.capture->names;
	uint32_t thread = stream->of_thread, process = stream->of_process;

	rows_begin(&dump->json);
	json_string(&dump->json, "table", stream->table->name);
	put_cell(dump, "time_ns", stream->timed ? cell_int(time_of(dump, stream)) : cell_unknown());
	if (!stream->own_pid)
		put_cell(dump, "pid",
			 process > NAMES_LOST ? cell_uint(names_process_at(names, process)->pid)
					      : cell_unknown());
	if (!stream->own_tid)
		put_cell(dump, "tid",
			 thread > NAMES_LOST ? cell_uint(names_thread_at(names, thread)->tid)
					     : cell_unknown());
	if (!stream->own_comm)
		json_string(&dump->json, "comm", comm_of(dump, stream));
}

static void put_row(struct dump *dump, const struct dump_stream *stream)
{
	const struct prof_table_def *table = stream->table;
	const struct stored_row at = row_of(dump, stream);

	if (is_text(dump))
		print_row_head(dump, stream);
	else
		write_row_head(dump, stream);
	for (unsigned i = stream->timed ? 1 : 0; i < table->n_columns; i++) {
		/* one of the four parallel lists with the arguments of a mark */
		bool is_argument = table->id == PROF_TABLE_MARK && i >= PROF_MARK_ARGUMENTS &&
				   i <= PROF_MARK_ARGUMENT_TEXTS;
		const char *name = table->columns[i].name;

		if (is_text(dump) && is_argument && i != PROF_MARK_ARGUMENTS)
			continue;
		if (is_text(dump)) {
			out_char(dump->out, ' ');
			print_text(dump->out, name, strlen(name));
			out_char(dump->out, '=');
		}
		if (is_argument && i == PROF_MARK_ARGUMENTS && (is_text(dump) || dump->resolve))
			put_arguments(dump, stream);
		if (is_text(dump) && is_argument)
			continue;
		if (is_list(&table->columns[i], &stream->batch.columns[i]))
			put_list(dump, stream, i);
		else
			put_cell(dump, name,
				 stored_cell(&at, &table->columns[i], &stream->batch.columns[i],
					     stream->row));
		if (i == stream->stack && dump->resolve && !is_text(dump)) {
			json_begin_array(&dump->json, "frames");
			put_frames(dump, stream);
			json_end(&dump->json);
		}
	}
	if (!is_text(dump))
		rows_end(&dump->json);
	else
		out_char(dump->out, '\n');
	if (is_text(dump) && stream->stack != CAPTURE_NO_COLUMN && dump->resolve)
		put_frames(dump, stream);
}

/* ---- merging tables -------------------------------------------------------------------------- */

static unsigned column_named(const struct prof_table_def *table, const char *name)
{
	for (unsigned i = 0; i < table->n_columns; i++)
		if (strcmp(table->columns[i].name, name) == 0)
			return i;
	return CAPTURE_NO_COLUMN;
}

static void stream_init(struct dump_stream *stream, const struct prof_table_def *table)
{
	*stream = (struct dump_stream){
		.table = table,
		.timed = table->flags & PROF_TABLE_TIMED,
		.thread = capture_column_referring(table, PROF_TABLE_THREAD),
		.process = capture_column_referring(table, PROF_TABLE_PROCESS),
		.stack = capture_column_referring(table, PROF_TABLE_STACK),
		.cpu = column_named(table, "cpu"),
		.own_pid = column_named(table, "pid") != CAPTURE_NO_COLUMN,
		.own_tid = column_named(table, "tid") != CAPTURE_NO_COLUMN,
		.own_comm = column_named(table, "comm") != CAPTURE_NO_COLUMN,
	};
	/* A row of these two tables is the thread or process itself. */
	if (table->id == PROF_TABLE_THREAD)
		stream->thread = 0;
	if (table->id == PROF_TABLE_PROCESS)
		stream->process = 0;
	if (table->id == PROF_TABLE_STACK)
		stream->stack = CAPTURE_NO_COLUMN;
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
	return r == 0 ? stream_fill(dump, stream, error)
		      : capture_error(error, r, _("cannot read table '%s' of '%s'"),
				      stream->table->name, capture->file);
}

/* Returns the stream of the next row: by segment, then time; dictionaries first. */
static struct dump_stream *next_stream(struct dump *dump)
{
	struct dump_stream *next = NULL;

	for (size_t i = 0; i < dump->n_streams; i++) {
		struct dump_stream *at = &dump->streams[i];
		bool is_timed = next && at->timed && next->timed;

		if (at->done)
			continue;
		/* Streams are sorted by table id. */
		if (!next || at->timed < next->timed ||
		    (is_timed && at->batch.segment < next->batch.segment) ||
		    (is_timed && at->batch.segment == next->batch.segment &&
		     number_of(at, 0) < number_of(next, 0)))
			next = at;
	}
	return next;
}

static bool use_epoch(struct dump *dump, uint32_t number, GError **error)
{
	struct names *names = dump->reader.capture->names;

	if (dump->epoch && dump->epoch->epoch == number)
		return true;
	/* Rows refer only to identities of their epoch; --resolve also needs earlier ones. */
	if (!dump->resolve && names_identities(names) >= MOST_IDENTITIES) {
		names_forget(names);
		reader_forget_threads(&dump->reader);
	}
	dump->epoch = names_epoch(names, number, error);
	return dump->epoch && (!dump->resolve || (names_load(dump->epoch, NAMES_STACK, error) &&
						  names_load(dump->epoch, NAMES_FRAME, error)));
}

/* Reads the rows that pass the filters. If `print` is set, prints at most `limit` (0 = all). */
static bool each_row(struct dump *dump, bool print, uint64_t limit, uint64_t *ret_rows,
		     GError **error)
{
	const struct names *names = dump->reader.capture->names;
	struct dump_stream *stream;
	uint64_t rows = 0;

	for (size_t i = 0; i < dump->n_streams; i++)
		if (!stream_open(dump, &dump->streams[i], error))
			return false;
	while ((stream = next_stream(dump)) && !(print && limit && rows == limit)) {
		if (!use_epoch(dump, stream->batch.epoch, error))
			return false;
		stream->of_thread = stream->of_process = NAMES_NONE;
		if (stream->thread != CAPTURE_NO_COLUMN) {
			stream->of_thread =
				names_thread(dump->epoch, number_of(stream, stream->thread));
			stream->of_process = names_thread_at(names, stream->of_thread)->process;
		} else if (stream->process != CAPTURE_NO_COLUMN) {
			stream->of_process =
				names_process(dump->epoch, number_of(stream, stream->process));
		}
		if (is_wanted(dump, stream)) {
			rows++;
			if (print)
				put_row(dump, stream);
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

static bool is_in(const GPtrArray *texts, const char *text)
{
	return g_ptr_array_find_with_equal_func((GPtrArray *)texts, text, g_str_equal, NULL);
}

/* Checks the names of tables. Returns CLI_OK, or an exit status after a message. */
static int check_names(const struct dump *dump)
{
	const struct prof_reader *reader = dump->reader.capture->reader;
	g_autoptr(GPtrArray) valid = g_ptr_array_new(), known = g_ptr_array_new();
	size_t n;
	const struct prof_table_def *const *tables = prof_reader_tables(reader, &n);

	for (size_t i = 0; i < n; i++)
		g_ptr_array_add(valid, (gpointer)tables[i]->name);
	g_ptr_array_add(valid, NULL);
	for (unsigned id = 1; id <= PROF_TABLE_LAST; id++)
		if (prof_table_v1(id))
			g_ptr_array_add(known, (gpointer)prof_table_v1(id)->name);
	for (guint i = 0; dump->tables && i < dump->tables->len; i++) {
		const char *name = dump->tables->pdata[i];

		/* If the capture lacks a table of version 1, the table is empty, not unknown. */
		if (!is_in(known, name) && !prof_reader_table_by_name(reader, name))
			return cli_unknown(_("table"), name, (const char *const *)valid->pdata);
	}
	return CLI_OK;
}

/* Chooses the tables to print, and checks them for damage. Must be called before any output,
 * because the envelope is written first and reports missing data. */
static bool choose_tables(struct dump *dump, GError **error)
{
	size_t n;
	const struct prof_table_def *const *tables =
		prof_reader_tables(dump->reader.capture->reader, &n);

	dump->streams = g_new0(struct dump_stream, n + 1);
	for (size_t i = 0; i < n; i++) {
		unsigned id = tables[i]->id;
		bool is_chosen = dump->tables ? is_in(dump->tables, tables[i]->name)
					      : tables[i]->flags & PROF_TABLE_TIMED;

		if (is_chosen)
			stream_init(&dump->streams[dump->n_streams++], tables[i]);
		if ((is_chosen || id == PROF_TABLE_STRING || id == PROF_TABLE_PROCESS ||
		     id == PROF_TABLE_THREAD) &&
		    !capture_check(dump->reader.capture, id, error))
			return false;
	}
	return true;
}

static void add_column(GPtrArray *columns, const char *name)
{
	if (!is_in(columns, name))
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
				add_column(dump->columns, NAMED_ARGUMENTS);
			add_column(dump->columns, stream->table->columns[c].name);
			if (c == stream->stack && dump->resolve)
				add_column(dump->columns, "frames");
		}
	}
	g_ptr_array_add(dump->columns, NULL);
}

static bool count_chunk(const struct prof_chunk *chunk, void *data, GError **error)
{
	struct dump *dump = data;

	for (size_t i = 0; i < dump->n_streams; i++)
		if (dump->streams[i].table->id == chunk->table)
			dump->counted += chunk->rows;
	return true;
}

static bool dump_rows(struct dump *dump, GError **error)
{
	struct reader *reader = &dump->reader;
	bool all_pass = !reader->timed && !reader->cpus && !reader_filters_threads(reader) &&
			capture_unreadable(reader->capture, 0).rows == 0;
	uint64_t all = 0, shown = 0;

	/* If no filter applies, the headers of the chunks have the number of rows. */
	if (reader->limit &&
	    !(all_pass ? capture_each_chunk(reader->capture, 0, count_chunk, dump, error)
		       : each_row(dump, false, 0, &all, error)))
		return false;
	all += dump->counted;
	if (is_text(dump)) {
		reader_print_losses(reader, dump->out, READER_LOSSES);
	} else {
		list_columns(dump);
		reader_begin(reader, &dump->json, "dump", reader->limit && reader->limit < all,
			     reader->limit ? all : READER_TOTAL_UNKNOWN);
		rows_open(&dump->json, reader_json_format(reader),
			  (const char *const *)dump->columns->pdata);
	}
	if (!each_row(dump, true, reader->limit, &shown, error))
		return false;
	if (!is_text(dump)) {
		rows_close(&dump->json);
		reader_end(reader, &dump->json);
	} else if (reader->limit) {
		reader_print_limit(reader, dump->out, shown, all);
	}
	return true;
}

/* Prints or writes the chosen tables of the open capture. */
static bool run(struct dump *dump, GError **error)
{
	dump->reader.status = check_names(dump);
	if (dump->reader.status != CLI_OK || !choose_tables(dump, error))
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

static void run_done(struct dump *dump)
{
	for (size_t i = 0; i < dump->n_streams; i++)
		prof_cursor_free(dump->streams[i].cursor);
	g_free(dump->streams);
	json_done(&dump->json);
	functions_free(dump->functions);
	g_clear_pointer(&dump->columns, g_ptr_array_unref);
}

bool dump_table(struct reader *reader, const char *table, struct out *out, GError **error)
{
	g_autoptr(GPtrArray) tables = g_ptr_array_new();
	struct dump dump = { .reader = *reader, .tables = tables, .out = out };
	bool ok;

	g_ptr_array_add(tables, (gpointer)table);
	json_init(&dump.json, out);
	ok = run(&dump, error);
	*reader = dump.reader;
	run_done(&dump);
	return ok;
}

static bool dump_query(void *data, char **operands, GError **error)
{
	struct dump *dump = data;

	return reader_open(&dump->reader, operands[0], error) &&
	       reader_load_names(&dump->reader, error) && run(dump, error);
}

static void dump_done(struct dump *dump)
{
	run_done(dump);
	g_clear_pointer(&dump->tables, g_ptr_array_unref);
	reader_done(&dump->reader);
}

int verb_dump(int argc, char **argv)
{
	static const struct reader_verb verb = {
		.spec = { N_("FILE"), N_("Print the rows of a capture in time order."), 1, 1 },
		.query = dump_query,
	};
	CLEANUP(dump_done) struct dump dump = { .out = out_stdout() };
	const struct cli_group groups[] = { { NULL, options, &dump },
					    READER_SELECT(N_("Select"), &dump.reader),
					    { NULL, reader_cpu_options, &dump.reader },
					    { N_("Output"), reader_output_options, &dump.reader },
					    { NULL } };

	json_init(&dump.json, dump.out);
	return reader_run(&verb, groups, &dump, argc, argv);
}
