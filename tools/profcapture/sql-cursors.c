/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Invariants: (1) constraints only skip rows: SQLite checks each row again     [test_sql: ranges]
 *             (2) a row is resolved with the dictionaries of its own epoch     [test_sql: epochs]
 */
#include "config.h"

#include "tools/profcapture/sql-cursors.h"

#include "tools/common/capture-error.h"
#include "tools/profcapture/sql-vtab.h"
#include "tools/profcapture/stored-cell.h"
#include "tools/profile/wait-causes.h"

#include <glib/gi18n.h>
#include <math.h>
#include <string.h>

/* Returns whether a value means unknown: 0 in these columns and in times, or PROF_SWITCH_NO_CPU. */
static bool is_unknown(const struct prof_table_def *def, unsigned position, uint64_t value)
{
	static const uint16_t zeros[][2] = {
		{ PROF_TABLE_SAMPLE, PROF_SAMPLE_WEIGHT },
		{ PROF_TABLE_LOSS, PROF_LOSS_COUNT },
		{ PROF_TABLE_SYMBOL, PROF_SYMBOL_LINE },
		{ PROF_TABLE_SYMBOL, PROF_SYMBOL_DECLARED_LINE },
		{ PROF_TABLE_LINE, PROF_LINE_LINE },
		{ PROF_TABLE_SOURCE, PROF_SOURCE_PERIOD },
		{ PROF_TABLE_SOURCE, PROF_SOURCE_FREQUENCY },
	};

	if (value == 0 && def->columns[position].type == PROF_TYPE_TIME)
		return true;
	for (size_t i = 0; value == 0 && i < ARRAY_SIZE(zeros); i++)
		if (def->id == zeros[i][0] && position == zeros[i][1])
			return true;
	return value == PROF_SWITCH_NO_CPU &&
	       ((def->id == PROF_TABLE_SWITCH && position == PROF_SWITCH_CPU) ||
		(def->id == PROF_TABLE_WAIT && position == PROF_WAIT_CPU));
}

/* ---- the cursor of a table of the capture ---------------------------------------------------- */

struct row_cursor {
	sqlite3_vtab_cursor base;
	struct prof_cursor *cursor;
	size_t segments_done; /* number of segments read, if each has its own cursor */
	/* the columns that are read */
	uint16_t ids[PROF_MAX_COLUMNS];
	unsigned positions[PROF_MAX_COLUMNS];
	size_t n_ids;
	/* the current rows */
	struct prof_array columns[PROF_MAX_COLUMNS]; /* by position */
	size_t row, rows;
	uint64_t sequence; /* sequence number of the rows' chunk */
	uint32_t segment, epoch, first_row;
	/* the dictionary of one epoch, kept for the next lookup */
	struct prof_dictionary *dictionary;
	uint32_t dictionary_epoch;
	bool is_done;
	/* constraints */
	int64_t from_ns, to_ns;
	bool has_pid, has_tid;
	uint64_t pid, tid;
	uint32_t only_epoch; /* 0: all */
};

static struct sql_vtab *vtab_of(const struct row_cursor *cursor)
{
	return (struct sql_vtab *)cursor->base.pVtab;
}

static const struct capture *capture_of(const struct row_cursor *cursor)
{
	return vtab_of(cursor)->tables->reader->capture;
}

static uint64_t number_of(const struct row_cursor *cursor, unsigned position)
{
	const struct prof_table_def *def = vtab_of(cursor)->table->def;

	if (position == CAPTURE_NO_COLUMN || (def->columns[position].flags & PROF_COLUMN_LIST))
		return 0;
	return array_number_or(&cursor->columns[position], cursor->row, 0);
}

static int64_t time_of(const struct row_cursor *cursor)
{
	return capture_time(capture_of(cursor), cursor->segment, number_of(cursor, 0));
}

static struct names_epoch *names_of(const struct row_cursor *cursor, GError **error)
{
	return names_epoch(capture_of(cursor)->names, cursor->epoch, error);
}

/* Stores the row's thread and process, as indexes in names. */
static bool find_owner(const struct row_cursor *cursor, uint32_t *ret_thread, uint32_t *ret_process,
		       GError **error)
{
	const struct sql_table *table = vtab_of(cursor)->table;
	const bool has_thread = table->thread != CAPTURE_NO_COLUMN;
	const uint64_t id = number_of(cursor, has_thread ? table->thread : table->process);
	struct sql_owner *last = &vtab_of(cursor)->tables->last_owner;
	struct names_epoch *epoch;

	if (last->table != table || last->epoch != cursor->epoch || last->id != id) {
		epoch = names_of(cursor, error);
		if (!epoch)
			return false;
		*last = (struct sql_owner){ .table = table, .epoch = cursor->epoch, .id = id };
		if (has_thread)
			last->thread = names_thread(epoch, id);
		last->process = has_thread ? names_thread_at(epoch->names, last->thread)->process
					   : names_process(epoch, id);
	}
	*ret_thread = last->thread;
	*ret_process = last->process;
	return true;
}

/* ---- the columns ----------------------------------------------------------------------------- */

/* Chooses the columns of the capture from which the values of this query come. */
static void choose_columns(struct row_cursor *cursor, uint64_t mask, bool has_owner)
{
	const struct sql_table *table = vtab_of(cursor)->table;
	const struct prof_table_def *def = table->def;
	bool reads[PROF_MAX_COLUMNS + 1] = { false };

	/* Some column must be read, to know how many rows there are. */
	reads[0] = true;
	for (guint i = 0; i < table->columns->len; i++) {
		const struct sql_column *column = sql_column_at(table, (int)i);

		/* The mask's last bit covers all columns from 63 on. */
		if (!(mask >> MIN_OF(i, 63u) & 1))
			continue;
		has_owner |= column->field < SQL_THREAD_FIELDS;
		reads[column->field == SQL_STORED ? column->position
		      : column->field == SQL_CALL || column->field == SQL_CAUSE
			      ? MIN_OF(table->stack, def->n_columns)
		      : column->field == SQL_WAKER_CALL ? PROF_WAIT_WAKER_STACK
		      : column->field == SQL_EVENT      ? MIN_OF(table->source, def->n_columns)
							: 0] = true;
		if (column->field == SQL_CAUSE)
			reads[PROF_WAIT_STATE] = reads[PROF_WAIT_STACK_SOURCE] =
				reads[PROF_WAIT_SYSCALL] = reads[PROF_WAIT_OBJECT] = true;
		if (column->field == SQL_AMOUNT)
			reads[table->source] = reads[table->weight] = true;
		if (column->field == SQL_FIELDS)
			reads[table->source] = reads[PROF_SAMPLE_VALUES] =
				reads[PROF_SAMPLE_TEXTS] = true;
		if (def->id == PROF_TABLE_SAMPLE && column->field == SQL_STORED &&
		    column->position == PROF_SAMPLE_VALUES)
			reads[PROF_SAMPLE_TEXTS] = true;
	}
	if (has_owner && table->thread != CAPTURE_NO_COLUMN)
		reads[table->thread] = true;
	if (has_owner && table->process != CAPTURE_NO_COLUMN)
		reads[table->process] = true;
	cursor->n_ids = 0;
	memset(cursor->columns, 0, sizeof(cursor->columns));
	for (unsigned i = 0; i < def->n_columns; i++) {
		if (!reads[i])
			continue;
		cursor->ids[cursor->n_ids] = def->columns[i].id;
		cursor->positions[cursor->n_ids++] = i;
	}
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool by_segment(const struct row_cursor *cursor)
{
	return cursor->from_ns != INT64_MIN || cursor->to_ns != INT64_MAX;
}

/* Opens the rows of the capture, or of its next segment. Returns PROF_END if no segment is left. */
static int open_rows(struct row_cursor *cursor)
{
	const struct capture *capture = capture_of(cursor);
	struct prof_cursor_options options = { .table = vtab_of(cursor)->table->def->id,
					       .columns = cursor->ids,
					       .n_columns = cursor->n_ids,
					       .epoch = cursor->only_epoch };

	prof_cursor_free(cursor->cursor);
	cursor->cursor = NULL;
	if (by_segment(cursor)) {
		if (cursor->segments_done == capture->n_segments)
			return PROF_END;
		options.segment = capture->segments[cursor->segments_done++].number;
		options.t_from = cursor->from_ns == INT64_MIN
					 ? 0
					 : capture_clock(capture, options.segment, cursor->from_ns);
		options.t_to =
			cursor->to_ns == INT64_MAX
				? UINT64_MAX
				: MAX_OF(capture_clock(capture, options.segment, cursor->to_ns),
					 UINT64_C(1)); /* 0 to 0 would select all */
	}
	return prof_cursor_new(capture->reader, &options, &cursor->cursor);
}

static int next_batch(struct row_cursor *cursor)
{
	struct prof_batch batch;
	int r = cursor->cursor ? prof_cursor_next(cursor->cursor, &batch) : PROF_END;

	while (r == PROF_END && cursor->cursor && by_segment(cursor))
		if ((r = open_rows(cursor)) == 0)
			r = prof_cursor_next(cursor->cursor, &batch);
		else
			break;
	if (r != 0)
		return r;
	for (size_t i = 0; i < cursor->n_ids; i++)
		cursor->columns[cursor->positions[i]] = batch.columns[i];
	cursor->row = 0;
	cursor->rows = batch.rows;
	cursor->sequence = batch.sequence;
	cursor->first_row = batch.first_row;
	cursor->segment = batch.segment;
	cursor->epoch = batch.epoch;
	return 0;
}

/* Stores whether the current row satisfies the constraints. */
static bool check_row(const struct row_cursor *cursor, bool *ret_passes, GError **error)
{
	const struct names *names = capture_of(cursor)->names;
	uint32_t thread, process;

	*ret_passes = true;
	if (by_segment(cursor)) {
		int64_t time = time_of(cursor);

		*ret_passes = time >= cursor->from_ns && time <= cursor->to_ns;
	}
	if (!*ret_passes || (!cursor->has_pid && !cursor->has_tid))
		return true;
	if (!find_owner(cursor, &thread, &process, error))
		return false;
	*ret_passes =
		(!cursor->has_pid ||
		 (process > NAMES_LOST && names_process_at(names, process)->pid == cursor->pid)) &&
		(!cursor->has_tid ||
		 (thread > NAMES_LOST && names_thread_at(names, thread)->tid == cursor->tid));
	return true;
}

static int next_row(sqlite3_vtab_cursor *base)
{
	struct row_cursor *cursor = (struct row_cursor *)base;
	const struct sql_table *table = vtab_of(cursor)->table;
	GError *error = NULL;
	bool passes = false;

	while (!passes) {
		int r = ++cursor->row < cursor->rows ? 0 : next_batch(cursor);

		if (r == 0 && cursor->rows == 0)
			continue;
		if (r == PROF_END) {
			cursor->is_done = true;
			return SQLITE_OK;
		}
		if (r != 0)
			capture_error(&error, r, _("cannot read table '%s' of '%s'"), table->name,
				      capture_of(cursor)->file);
		if (r != 0 || !check_row(cursor, &passes, &error))
			return sql_vtab_fail(base->pVtab, error);
	}
	return SQLITE_OK;
}

/* Selects only the dictionary row with an id. */
static int find_row(struct row_cursor *cursor, uint64_t id)
{
	const struct capture *capture = capture_of(cursor);
	const struct sql_table *table = vtab_of(cursor)->table;
	GError *error = NULL;
	ssize_t found;

	if (!cursor->dictionary || cursor->dictionary_epoch != cursor->only_epoch) {
		struct prof_dictionary *dictionary = NULL;
		int r = prof_dictionary_load(capture->reader, table->def->id, cursor->only_epoch,
					     cursor->ids, cursor->n_ids, &dictionary);

		if (r != 0) {
			capture_error(&error, r, _("cannot read table '%s' of '%s'"), table->name,
				      capture->file);
			return sql_vtab_fail(cursor->base.pVtab, error);
		}
		prof_dictionary_free(cursor->dictionary);
		cursor->dictionary = dictionary;
		cursor->dictionary_epoch = cursor->only_epoch;
	}
	found = prof_dictionary_find(cursor->dictionary, id);
	cursor->is_done = found < 0;
	cursor->row = found < 0 ? 0 : (size_t)found;
	cursor->rows = cursor->row + 1;
	cursor->epoch = cursor->only_epoch;
	cursor->segment = 0;
	for (size_t i = 0; i < capture->n_segments; i++)
		if (capture->segments[i].first_epoch <= cursor->epoch)
			cursor->segment = capture->segments[i].number;
	for (size_t i = 0; i < cursor->n_ids; i++)
		cursor->columns[cursor->positions[i]] =
			*prof_dictionary_column(cursor->dictionary, i);
	return SQLITE_OK;
}

static int filter_rows(sqlite3_vtab_cursor *base, int number, const char *plan, int argc,
		       sqlite3_value **argv)
{
	struct row_cursor *cursor = (struct row_cursor *)base;
	const struct sql_table *table = vtab_of(cursor)->table;
	uint64_t id = 0;
	bool has_id = false;
	int r;

	cursor->from_ns = INT64_MIN;
	cursor->to_ns = INT64_MAX;
	cursor->has_pid = cursor->has_tid = cursor->is_done = false;
	cursor->only_epoch = 0;
	cursor->row = cursor->rows = cursor->segments_done = 0;
	prof_cursor_free(cursor->cursor);
	cursor->cursor = NULL;
	for (int i = 0; i < argc; i++) {
		int type = sqlite3_value_numeric_type(argv[i]);
		int64_t value = sqlite3_value_int64(argv[i]);

		if (type == SQLITE_NULL)
			cursor->is_done = true;
		/* Round a floating-point bound outward. SQLite also checks the rows. */
		if (type == SQLITE_FLOAT && fabs(sqlite3_value_double(argv[i])) < 9e18 &&
		    (plan[i] == SQL_PLAN_FROM || plan[i] == SQL_PLAN_TO))
			type = SQLITE_INTEGER, value += plan[i] == SQL_PLAN_TO ? 1 : -1;
		if (type != SQLITE_INTEGER)
			continue;
		if (plan[i] == SQL_PLAN_FROM || plan[i] == SQL_PLAN_AT)
			cursor->from_ns = MAX_OF(cursor->from_ns, value);
		if (plan[i] == SQL_PLAN_TO || plan[i] == SQL_PLAN_AT)
			cursor->to_ns = MIN_OF(cursor->to_ns, value);
		if (plan[i] == SQL_PLAN_PID)
			cursor->has_pid = true, cursor->pid = (uint64_t)value;
		if (plan[i] == SQL_PLAN_TID)
			cursor->has_tid = true, cursor->tid = (uint64_t)value;
		if (plan[i] == SQL_PLAN_ID)
			has_id = true, id = (uint64_t)value;
		if (plan[i] == SQL_PLAN_EPOCH && (value < 0 || value > UINT32_MAX))
			cursor->is_done = true;
		if (plan[i] == SQL_PLAN_EPOCH)
			cursor->only_epoch = (uint32_t)value;
	}
	/* No row can match the constraints, or the capture lacks this table. */
	if (cursor->is_done || !prof_reader_table(capture_of(cursor)->reader, table->def->id)) {
		cursor->is_done = true;
		return SQLITE_OK;
	}
	/* The columns of a query never change, so they are chosen once. */
	if (cursor->n_ids == 0)
		choose_columns(cursor, g_ascii_strtoull(strchr(plan, ' '), NULL, 16),
			       plan[strcspn(plan, "pd ")] != ' ');
	if (has_id && cursor->only_epoch)
		return find_row(cursor, id);
	r = open_rows(cursor);
	if (r != 0 && r != PROF_END) {
		GError *error = NULL;

		capture_error(&error, r, _("cannot read table '%s' of '%s'"), table->name,
			      capture_of(cursor)->file);
		return sql_vtab_fail(base->pVtab, error);
	}
	return next_row(base);
}

static int next_found(sqlite3_vtab_cursor *base)
{
	struct row_cursor *cursor = (struct row_cursor *)base;

	if (cursor->cursor)
		return next_row(base);
	cursor->is_done = true;
	return SQLITE_OK;
}

/* ---- the values of a row --------------------------------------------------------------------- */

/* Sets the result to the JSON in tables->list (UTF-8), without the final newline. */
static void put_json(const struct sql_tables *tables, sqlite3_context *context)
{
	sqlite3_result_text64(context, tables->list.text->str, tables->list.text->len - 1,
			      SQLITE_TRANSIENT, SQLITE_UTF8);
}

/* Writes a cell in JSON, in which addresses are numbers. Frees the data of the cell. */
static void write_cell(struct json *json, const char *key, struct cell *cell)
{
	if (cell->kind == CELL_HEX)
		cell->kind = CELL_UINT;
	cell_write(json, key, cell);
	if (cell->owned)
		cell_done(cell);
}

static bool is_name_column(const struct prof_column_def *column)
{
	return column->type == PROF_TYPE_REF && column->ref == PROF_TABLE_STRING;
}

/* Sets the result to a list as JSON, which SQLite's json_each() can read. */
static void put_list(const struct row_cursor *cursor, sqlite3_context *context,
		     const struct stored_row *at, unsigned position)
{
	const struct prof_column_def *column = &vtab_of(cursor)->table->def->columns[position];
	const struct prof_array *array = &cursor->columns[position];
	struct sql_tables *tables = vtab_of(cursor)->tables;
	struct json *json = &tables->json;

	if (array->offsets[cursor->row] == array->offsets[cursor->row + 1]) {
		sql_put_text(tables, context, "[]");
		return;
	}
	g_string_truncate(tables->list.text, 0);
	json_begin_array(json, NULL);
	for (uint64_t i = array->offsets[cursor->row]; i < array->offsets[cursor->row + 1]; i++) {
		struct cell cell;

		if (capture_has_no_number(vtab_of(cursor)->table->def, position,
					  &cursor->columns[PROF_SAMPLE_TEXTS], cursor->row,
					  i - array->offsets[cursor->row])) {
			json_null(json, NULL);
		} else if (is_name_column(column)) {
			json_string(json, NULL, names_text(at->epoch, array->numbers[i]));
		} else {
			cell = stored_number(at, column, array->numbers[i]);
			write_cell(json, NULL, &cell);
		}
	}
	json_end(json);
	put_json(tables, context);
}

static bool put_stored(const struct row_cursor *cursor, sqlite3_context *context, unsigned position,
		       GError **error)
{
	const struct prof_table_def *table = vtab_of(cursor)->table->def;
	const struct prof_column_def *column = &table->columns[position];
	const struct prof_array *array = &cursor->columns[position];
	struct stored_row at = { capture_of(cursor), NULL, cursor->segment };
	const bool is_list = column->flags & PROF_COLUMN_LIST;
	const bool is_name = array->numbers && is_name_column(column);
	/* most values are known texts or numbers, which need no cell */
	const bool is_usual = array->numbers && !array->nulls && !is_list;
	const uint64_t value = is_usual ? array->numbers[cursor->row] : 0;
	const char *text = NULL;
	struct cell cell;

	if (is_name && !(at.epoch = names_of(cursor, error)))
		return false;
	if (is_usual && is_name)
		text = names_text(at.epoch, value);
	else if (is_usual && column->type == PROF_TYPE_ENUM)
		text = stored_enum_name(column, value);
	if (text) {
		sql_put_text(vtab_of(cursor)->tables, context, text);
	} else if (array->numbers && is_list) {
		if (array->offsets && !(array->nulls && array->nulls[cursor->row]))
			put_list(cursor, context, &at, position);
	} else if (array->numbers && is_unknown(table, position, array->numbers[cursor->row])) {
		return true;
	} else if (is_usual && (column->type == PROF_TYPE_UINT ||
				(column->type == PROF_TYPE_REF && !is_name && value > 0))) {
		sql_put_uint(context, value);
	} else {
		cell = stored_cell(&at, column, array, cursor->row);
		sql_put_cell(vtab_of(cursor)->tables, context, &cell);
	}
	return true;
}

/* Stores the name, unit, period and frequency of the row's event in tables->event; all zeros if the
 * event is unknown. */
static bool find_event(const struct row_cursor *cursor, GError **error)
{
	static const uint16_t columns[] = { PROF_SOURCE_NAME,   PROF_SOURCE_UNIT,
					    PROF_SOURCE_PERIOD, PROF_SOURCE_FREQUENCY,
					    PROF_SOURCE_FIELDS, PROF_SOURCE_FIELD_KINDS };
	struct sql_tables *tables = vtab_of(cursor)->tables;
	const uint64_t source = number_of(cursor, vtab_of(cursor)->table->source);
	struct sampled_event *event = &tables->event;
	uint64_t values[4];
	struct names_epoch *epoch;
	ssize_t row;
	int r;

	if (tables->event_epoch == cursor->epoch && tables->event_source == source)
		return true;
	epoch = names_of(cursor, error);
	if (!epoch)
		return false;
	*event = (struct sampled_event){ 0 };
	tables->event_row = -1;
	tables->event_epoch = cursor->epoch;
	tables->event_source = source;
	if (!tables->sources || tables->sources_epoch != cursor->epoch) {
		prof_dictionary_free(tables->sources);
		tables->sources = NULL;
		r = prof_dictionary_load(epoch->names->reader, PROF_TABLE_SOURCE, cursor->epoch,
					 columns, ARRAY_SIZE(columns), &tables->sources);
		if (r == PROF_NO_TABLE)
			return true;
		if (r != 0)
			return capture_error(error, r, _("cannot read the events of the capture"));
		tables->sources_epoch = cursor->epoch;
	}
	row = prof_dictionary_find(tables->sources, source);
	if (row < 0)
		return true;
	tables->event_row = row;
	for (size_t i = 0; i < ARRAY_SIZE(values); i++)
		values[i] =
			array_number_or(prof_dictionary_column(tables->sources, i), (size_t)row, 0);
	event->name = names_text(epoch, values[0]);
	event->unit = g_strcmp0(names_text(epoch, values[1]), "ns") == 0 ? "ns" : "events";
	event->period = values[2];
	event->frequency = values[3];
	return true;
}

/* Sets the result to the fields of an event as a JSON object, or to NULL if they were not recorded.
 * A number that has a text could not be read, and is null. */
static bool put_fields(const struct row_cursor *cursor, sqlite3_context *context, GError **error)
{
	const struct sql_tables *tables = vtab_of(cursor)->tables;
	const struct prof_array *values = &cursor->columns[PROF_SAMPLE_VALUES],
				*texts = &cursor->columns[PROF_SAMPLE_TEXTS], *names, *kinds;
	struct names_epoch *epoch = names_of(cursor, error);
	struct json *json = &vtab_of(cursor)->tables->json;
	uint64_t first, n;

	if (!epoch)
		return false;
	if (tables->event_row < 0 || !values->numbers || !values->offsets || !texts->numbers ||
	    !texts->offsets)
		return true;
	names = prof_dictionary_column(tables->sources, 4);
	kinds = prof_dictionary_column(tables->sources, 5);
	if (!names->numbers || !names->offsets || !kinds->numbers || !kinds->offsets)
		return true;
	first = values->offsets[cursor->row];
	n = values->offsets[cursor->row + 1] - first;
	n = MIN_OF(n, texts->offsets[cursor->row + 1] - texts->offsets[cursor->row]);
	n = MIN_OF(n, names->offsets[tables->event_row + 1] - names->offsets[tables->event_row]);
	n = MIN_OF(n, kinds->offsets[tables->event_row + 1] - kinds->offsets[tables->event_row]);
	if (n == 0)
		return true;
	g_string_truncate(vtab_of(cursor)->tables->list.text, 0);
	json_begin_object(json, NULL);
	for (uint64_t i = 0; i < n; i++) {
		const char *name =
			names_text(epoch, names->numbers[names->offsets[tables->event_row] + i]);
		const char *text =
			names_text(epoch, texts->numbers[texts->offsets[cursor->row] + i]);
		uint64_t value = values->numbers[first + i];
		uint64_t kind = kinds->numbers[kinds->offsets[tables->event_row] + i];

		struct cell cell;

		if (text && kind != PROF_ARGUMENT_STRING) {
			json_null(json, name ? name : "");
			continue;
		}
		cell = stored_argument(kind, value, text ? text : "");
		write_cell(json, name ? name : "", &cell);
	}
	json_end(json);
	put_json(tables, context);
	return true;
}

/* Sets the result to the name of a wait's cause. The cause comes from the system call if the stack
 * lacks that call, else from the stack, which ends in `call`. */
static bool put_cause(const struct row_cursor *cursor, sqlite3_context *context, uint32_t call,
		      GError **error)
{
	struct sql_tables *tables = vtab_of(cursor)->tables;
	struct names_epoch *names = names_of(cursor, error);
	const char *name, *label;
	enum wait_cause cause;

	if (!names)
		return false;
	name = wait_call_name(&(struct wait_call){
		.source = number_of(cursor, PROF_WAIT_STACK_SOURCE),
		.state = number_of(cursor, PROF_WAIT_STATE),
		.call = names_text(names, number_of(cursor, PROF_WAIT_SYSCALL)),
		.object = names_text(names, number_of(cursor, PROF_WAIT_OBJECT)),
	});
	if (!name) {
		sql_put_text(tables, context, sql_derived_cause(tables->derived, call));
		return true;
	}
	cause = wait_cause_of(name, &label);
	sql_put_text(tables, context, wait_cause_names[cause == WAIT_UNKNOWN ? WAIT_OTHER : cause]);
	return true;
}

static int put_row_column(sqlite3_vtab_cursor *base, sqlite3_context *context, int index)
{
	const struct row_cursor *cursor = (struct row_cursor *)base;
	struct sql_tables *tables = vtab_of(cursor)->tables;
	const struct sql_table *table = vtab_of(cursor)->table;
	const struct sql_column *column = sql_column_at(table, index);
	uint32_t thread, process, call;
	struct cell cell;
	uint64_t stack;
	int64_t time_ns;
	GError *error = NULL;

	switch (column->field) {
	case SQL_STORED:
		if (!put_stored(cursor, context, column->position, &error))
			return sql_vtab_fail(base->pVtab, error);
		break;
	case SQL_TIME:
		sqlite3_result_int64(context, time_of(cursor));
		break;
	case SQL_CALL:
	case SQL_CAUSE:
	case SQL_WAKER_CALL:
		stack = number_of(cursor, column->field == SQL_WAKER_CALL ? PROF_WAIT_WAKER_STACK
									  : table->stack);
		/* Marks and messages of the log need not have a stack, and not every wait was ended
		 * by a thread. */
		if (stack == 0 &&
		    (column->field == SQL_WAKER_CALL ||
		     (table->def->id != PROF_TABLE_SAMPLE && table->def->id != PROF_TABLE_ALLOC &&
		      table->def->id != PROF_TABLE_LIVE && table->def->id != PROF_TABLE_WAIT)))
			break;
		if (!sql_derived_call(tables->derived, cursor->epoch, stack, cursor->segment,
				      number_of(cursor, 0), &call, &error))
			return sql_vtab_fail(base->pVtab, error);
		if (column->field != SQL_CAUSE)
			sql_put_uint(context, call);
		else if (!put_cause(cursor, context, call, &error))
			return sql_vtab_fail(base->pVtab, error);
		break;
	case SQL_EVENT:
	case SQL_AMOUNT:
	case SQL_FIELDS:
		if (!find_event(cursor, &error))
			return sql_vtab_fail(base->pVtab, error);
		if (column->field == SQL_FIELDS && !put_fields(cursor, context, &error))
			return sql_vtab_fail(base->pVtab, error);
		if (column->field == SQL_FIELDS)
			break;
		if (column->field == SQL_EVENT)
			sql_put_text(tables, context, tables->event.name);
		else
			sql_put_uint(context,
				     sampled_event_weight(&tables->event,
							  number_of(cursor, table->weight)));
		break;
	case SQL_SEGMENT:
		sql_put_uint(context, cursor->segment);
		break;
	case SQL_EPOCH:
		sql_put_uint(context, cursor->epoch);
		break;
	default:
		if (!find_owner(cursor, &thread, &process, &error))
			return sql_vtab_fail(base->pVtab, error);
		time_ns = sql_table_is_timed(table) ? time_of(cursor) : 0;
		if (!sql_thread_cell(tables->reader, thread, process,
				     sql_table_is_timed(table) ? &time_ns : NULL, column->field,
				     &cell, &error))
			return sql_vtab_fail(base->pVtab, error);
		sql_put_cell(tables, context, &cell);
	}
	return SQLITE_OK;
}

/* ---- the module of SQLite -------------------------------------------------------------------- */

static int open_row_cursor(sqlite3_vtab *vtab, sqlite3_vtab_cursor **ret_cursor)
{
	struct row_cursor *cursor = g_new0(struct row_cursor, 1);

	*ret_cursor = &cursor->base;
	return SQLITE_OK;
}

static int close_row_cursor(sqlite3_vtab_cursor *base)
{
	struct row_cursor *cursor = (struct row_cursor *)base;

	prof_cursor_free(cursor->cursor);
	prof_dictionary_free(cursor->dictionary);
	g_free(cursor);
	return SQLITE_OK;
}

static int is_at_end_of_rows(sqlite3_vtab_cursor *base)
{
	return ((struct row_cursor *)base)->is_done;
}

/* A row has the same number in every query, because SQLite drops duplicates by number if two terms
 * of an OR find the row. */
static int put_row_number(sqlite3_vtab_cursor *base, sqlite3_int64 *ret_row)
{
	const struct row_cursor *cursor = (struct row_cursor *)base;

	*ret_row = vtab_of(cursor)->table->def->flags & PROF_TABLE_DICTIONARY
			   ? (sqlite3_int64)((uint64_t)cursor->epoch << 32 ^ number_of(cursor, 0))
			   : (sqlite3_int64)(cursor->sequence * PROF_MAX_ROWS + cursor->first_row +
					     cursor->row);
	return SQLITE_OK;
}

const sqlite3_module sql_row_module = {
	.xCreate = sql_vtab_connect,
	.xConnect = sql_vtab_connect,
	.xBestIndex = sql_vtab_plan,
	.xDisconnect = sql_vtab_disconnect,
	.xDestroy = sql_vtab_disconnect,
	.xOpen = open_row_cursor,
	.xClose = close_row_cursor,
	.xFilter = filter_rows,
	.xNext = next_found,
	.xEof = is_at_end_of_rows,
	.xColumn = put_row_column,
	.xRowid = put_row_number,
};
