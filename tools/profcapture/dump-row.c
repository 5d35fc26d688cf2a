/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Dump-row - one row of any table, as its schema describes it
 *
 * Everything that comes from the capture, names of tables and columns included, is escaped in text.
 */
#include "config.h"

#include "tools/profcapture/dump.h"

#include "tools/profcapture/stacks.h"

#include <inttypes.h>
#include <string.h>

/* ---- one value ------------------------------------------------------------------------------- */

enum dump_kind {
	DUMP_NULL,
	DUMP_UINT,
	DUMP_INT,
	DUMP_TIME, /* ns; seconds in text */
	DUMP_BOOL,
	DUMP_TEXT,
	DUMP_HEX,
	DUMP_FLOAT,
	DUMP_BYTES
};

struct dump_cell {
	enum dump_kind kind;
	uint64_t number;
	const void *bytes; /* TEXT, BYTES: `number` of them */
};

static struct dump_cell text_cell_of(const char *text)
{
	if (!text)
		return (struct dump_cell){ .kind = DUMP_NULL };
	return (struct dump_cell){ .kind = DUMP_TEXT, .bytes = text, .number = strlen(text) };
}

static struct dump_cell enum_cell(const struct prof_column_def *column, uint64_t value)
{
	for (uint64_t i = 0; column->values && column->values[i]; i++)
		if (i == value)
			return text_cell_of(column->values[i]);
	/* A later version defines this value: writes its number, still as a string. */
	return (struct dump_cell){ .kind = DUMP_UINT, .number = value, .bytes = "" };
}

static struct dump_cell float_cell(uint64_t bits)
{
	return (struct dump_cell){ .kind = DUMP_FLOAT, .number = bits };
}

static struct dump_cell number_cell(const struct dump *dump, const struct dump_stream *stream,
			       const struct prof_column_def *column, uint64_t value)
{
	switch (column->type) {
	case PROF_TYPE_ENUM:
		return enum_cell(column, value);
	case PROF_TYPE_BOOL:
		return (struct dump_cell){ .kind = DUMP_BOOL, .number = value != 0 };
	case PROF_TYPE_INT:
		return (struct dump_cell){ .kind = DUMP_INT, .number = value };
	case PROF_TYPE_FLOAT:
		return float_cell(value);
	case PROF_TYPE_TIME:
		value = (uint64_t)capture_time(dump->reader.capture, stream->batch.segment, value);
		return (struct dump_cell){ .kind = DUMP_TIME, .number = value };
	case PROF_TYPE_REF:
		if (column->ref == PROF_TABLE_STRING)
			return text_cell_of(names_text(dump->epoch, value));
		return value ? (struct dump_cell){ .kind = DUMP_UINT, .number = value }
			     : (struct dump_cell){ .kind = DUMP_NULL };
	default:
		return (struct dump_cell){ .kind = column->unit == PROF_UNIT_ADDRESS ? DUMP_HEX
										: DUMP_UINT,
				      .number = value };
	}
}

static struct dump_cell bytes_cell(const struct prof_column_def *column, const struct prof_array *array,
			      size_t row)
{
	uint64_t length = array->offsets[row + 1] - array->offsets[row];
	bool binary = column->type == PROF_TYPE_BINARY;

	if (binary && length == 0)
		return (struct dump_cell){ .kind = DUMP_NULL };
	return (struct dump_cell){ .kind = binary ? DUMP_BYTES : DUMP_TEXT,
			      .bytes = array->bytes + array->offsets[row],
			      .number = length };
}

static bool is_list(const struct prof_column_def *column, const struct prof_array *array)
{
	return (column->flags & PROF_COLUMN_LIST) && array->numbers && array->offsets;
}

static struct dump_cell cell_of(const struct dump *dump, const struct dump_stream *stream,
			   unsigned column)
{
	const struct prof_column_def *def = &stream->table->columns[column];
	const struct prof_array *array = &stream->batch.columns[column];

	if (array->nulls && array->nulls[stream->row])
		return (struct dump_cell){ .kind = DUMP_NULL };
	if (array->bytes && array->offsets)
		return bytes_cell(def, array, stream->row);
	if (!array->numbers || (def->flags & PROF_COLUMN_LIST))
		return (struct dump_cell){ .kind = DUMP_NULL };
	return number_cell(dump, stream, def, array->numbers[stream->row]);
}

static double as_double(uint64_t bits)
{
	double value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static void write_cell(struct json *json, const char *key, const struct dump_cell *cell)
{
	char number[32];

	switch (cell->kind) {
	case DUMP_UINT:
		if (!cell->bytes) {
			json_uint(json, key, cell->number);
			break;
		}
		g_snprintf(number, sizeof(number), "%" PRIu64, cell->number);
		json_string(json, key, number);
		break;
	case DUMP_INT:
	case DUMP_TIME:
		json_int(json, key, (int64_t)cell->number);
		break;
	case DUMP_BOOL:
		json_bool(json, key, cell->number);
		break;
	case DUMP_TEXT:
		json_string_n(json, key, cell->bytes, cell->number);
		break;
	case DUMP_HEX:
		json_hex(json, key, cell->number);
		break;
	case DUMP_FLOAT:
		json_double(json, key, as_double(cell->number));
		break;
	case DUMP_BYTES:
		json_hex_bytes(json, key, cell->bytes, cell->number);
		break;
	default:
		json_null(json, key);
	}
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

static void print_int(struct out *out, int64_t value)
{
	if (value < 0)
		out_char(out, '-');
	print_uint(out, value < 0 ? -(uint64_t)value : (uint64_t)value);
}

static void print_hex_bytes(struct out *out, const uint8_t *bytes, uint64_t length)
{
	static const char digits[] = "0123456789abcdef";

	for (uint64_t i = 0; i < length; i++) {
		out_char(out, digits[bytes[i] >> 4]);
		out_char(out, digits[bytes[i] & 15]);
	}
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

/* Prints seconds with nine decimals. */
static void print_time(struct out *out, int64_t ns)
{
	uint64_t absolute = ns < 0 ? -(uint64_t)ns : (uint64_t)ns;
	char fraction[10] = ".000000000";
	uint64_t rest = absolute % 1000000000;

	if (ns < 0)
		out_char(out, '-');
	print_uint(out, absolute / 1000000000);
	for (size_t i = 9; i > 0; i--, rest /= 10)
		fraction[i] = (char)('0' + rest % 10);
	out_write(out, fraction, sizeof(fraction));
}

static void print_cell(struct out *out, const struct dump_cell *cell)
{
	switch (cell->kind) {
	case DUMP_UINT:
		print_uint(out, cell->number);
		break;
	case DUMP_INT:
		print_int(out, (int64_t)cell->number);
		break;
	case DUMP_TIME:
		print_time(out, (int64_t)cell->number);
		break;
	case DUMP_BOOL:
		out_text(out, cell->number ? "true" : "false");
		break;
	case DUMP_TEXT:
		print_text(out, cell->bytes, cell->number);
		break;
	case DUMP_HEX:
		out_printf(out, "0x%" PRIx64, cell->number);
		break;
	case DUMP_FLOAT:
		out_printf(out, "%g", as_double(cell->number));
		break;
	case DUMP_BYTES:
		print_hex_bytes(out, cell->bytes, cell->number);
		break;
	default:
		out_char(out, '-');
	}
}

/* ---- one row --------------------------------------------------------------------------------- */

uint64_t dump_number(const struct dump_stream *stream, unsigned column)
{
	if (column == NO_COLUMN || (stream->table->columns[column].flags & PROF_COLUMN_LIST))
		return 0;
	return array_number_or(&stream->batch.columns[column], stream->row, 0);
}

int64_t dump_time(const struct dump *dump, const struct dump_stream *stream)
{
	return capture_time(dump->reader.capture, stream->batch.segment, dump_number(stream, 0));
}

struct dump_owner dump_owner_of(const struct dump *dump, const struct dump_stream *stream)
{
	struct dump_owner owner = { NAMES_NONE, NAMES_NONE };

	if (stream->thread != NO_COLUMN) {
		owner.thread = names_thread(dump->epoch, dump_number(stream, stream->thread));
		owner.process = names_thread_at(dump->reader.capture->names, owner.thread)->process;
	} else if (stream->process != NO_COLUMN) {
		owner.process = names_process(dump->epoch, dump_number(stream, stream->process));
	}
	return owner;
}

static void write_list(const struct dump *dump, const struct dump_stream *stream, unsigned column)
{
	const struct prof_column_def *def = &stream->table->columns[column];
	const struct prof_array *array = &stream->batch.columns[column];
	struct json *json = (struct json *)&dump->json;

	json_begin_array(json, def->name);
	for (uint64_t i = array->offsets[stream->row]; i < array->offsets[stream->row + 1]; i++) {
		struct dump_cell cell = number_cell(dump, stream, def, array->numbers[i]);

		write_cell(json, NULL, &cell);
	}
	json_end(json);
}

static void print_list(const struct dump *dump, const struct dump_stream *stream, unsigned column)
{
	const struct prof_column_def *def = &stream->table->columns[column];
	const struct prof_array *array = &stream->batch.columns[column];

	for (uint64_t i = array->offsets[stream->row]; i < array->offsets[stream->row + 1]; i++) {
		struct dump_cell cell = number_cell(dump, stream, def, array->numbers[i]);

		if (i > array->offsets[stream->row])
			out_char(dump->out, ',');
		print_cell(dump->out, &cell);
	}
}

/* ---- arguments of marks: four lists, one item per argument in each --------------------------- */

static bool is_argument_list(const struct dump_stream *stream, unsigned column)
{
	return stream->table->id == PROF_TABLE_MARK && column >= PROF_MARK_ARGUMENTS &&
	       column <= PROF_MARK_ARGUMENT_TEXTS;
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

static struct dump_cell argument_cell(const struct dump *dump, const struct dump_stream *stream,
				 uint64_t i)
{
	static const enum dump_kind kinds[] = { [PROF_ARGUMENT_S64] = DUMP_INT,
						[PROF_ARGUMENT_U64] = DUMP_UINT,
						[PROF_ARGUMENT_DOUBLE] = DUMP_FLOAT,
						[PROF_ARGUMENT_STRING] = DUMP_TEXT,
						[PROF_ARGUMENT_ADDRESS] = DUMP_HEX };
	uint64_t kind = argument_number(stream, PROF_MARK_ARGUMENT_KINDS, i);

	if (kind == PROF_ARGUMENT_STRING)
		return text_cell_of(names_text(
			dump->epoch, argument_number(stream, PROF_MARK_ARGUMENT_TEXTS, i)));
	/* Kinds of a later version are shown as raw bits. */
	return (struct dump_cell){ .kind = kind < ARRAY_SIZE(kinds) ? kinds[kind] : DUMP_HEX,
			      .number = argument_number(stream, PROF_MARK_ARGUMENT_VALUES, i) };
}

static void write_arguments(const struct dump *dump, const struct dump_stream *stream)
{
	struct json *json = (struct json *)&dump->json;
	uint64_t n = count_arguments(stream);

	json_begin_array(json, DUMP_ARGUMENTS);
	for (uint64_t i = 0; i < n; i++) {
		const struct prof_column_def *kinds =
			&stream->table->columns[PROF_MARK_ARGUMENT_KINDS];
		struct dump_cell kind =
			enum_cell(kinds, argument_number(stream, PROF_MARK_ARGUMENT_KINDS, i));
		struct dump_cell value = argument_cell(dump, stream, i);

		json_begin_object(json, NULL);
		json_string(json, "name",
			    names_text(dump->epoch,
				       argument_number(stream, PROF_MARK_ARGUMENTS, i)));
		write_cell(json, "kind", &kind);
		write_cell(json, "value", &value);
		json_end(json);
	}
	json_end(json);
}

static void print_arguments(const struct dump *dump, const struct dump_stream *stream)
{
	uint64_t n = count_arguments(stream);

	for (uint64_t i = 0; i < n; i++) {
		struct dump_cell name = text_cell_of(
			names_text(dump->epoch, argument_number(stream, PROF_MARK_ARGUMENTS, i)));
		struct dump_cell value = argument_cell(dump, stream, i);

		out_char(dump->out, i ? ',' : '(');
		print_cell(dump->out, &name);
		out_char(dump->out, ':');
		print_cell(dump->out, &value);
	}
	out_text(dump->out, n ? ")" : "-");
}

/* Calls frame() for each frame of the row's stack, leaf first; at most STACKS_MAX_DEPTH. */
typedef void dump_frame(struct dump *dump, uint32_t place, bool is_inlined);

/* Calls frame() for the functions inlined into a frame there, innermost first, then for itself. */
static void each_function(struct dump *dump, const struct dump_stream *stream, size_t row,
			  dump_frame *frame)
{
	uint32_t entities[FUNCTIONS_MAX_AT_ROW];
	size_t n = functions_at_row(dump->functions, dump->epoch, row, stream->batch.segment,
				    dump_number(stream, 0), entities, NULL);

	while (n-- > 0)
		frame(dump, entities[n], n > 0);
}

static void each_frame(struct dump *dump, const struct dump_stream *stream, dump_frame *frame)
{
	uint64_t id = dump_number(stream, stream->stack);

	for (unsigned depth = 0; id != 0 && depth < STACKS_MAX_DEPTH; depth++) {
		ssize_t row = names_row(dump->epoch, NAMES_STACK, id);
		uint64_t parent = 0, frame_id = 0;

		if (row < 0) {
			frame(dump, FUNCTION_LOST, false);
			return;
		}
		(void)names_number(dump->epoch, NAMES_STACK, PROF_STACK_FRAME, (size_t)row,
				   &frame_id);
		(void)names_number(dump->epoch, NAMES_STACK, PROF_STACK_PARENT, (size_t)row,
				   &parent);
		row = names_row(dump->epoch, NAMES_FRAME, frame_id);
		if (row < 0)
			frame(dump, FUNCTION_LOST, false);
		else
			each_function(dump, stream, (size_t)row, frame);
		if (parent >= id)
			return;
		id = parent;
	}
}

/* File and line of a function are its declaration; those of the place are where the frame is. */
static void write_frame(struct dump *dump, uint32_t place, bool is_inlined)
{
	const struct function *at = functions_at(dump->functions, place);

	json_begin_object(&dump->json, NULL);
	functions_write(dump->functions, functions_whole(dump->functions, place), &dump->json);
	json_string(&dump->json, "at_file", at->is_line ? at->file : NULL);
	if (at->is_line && at->line)
		json_uint(&dump->json, "at_line", at->line);
	else
		json_null(&dump->json, "at_line");
	json_bool(&dump->json, "inline", is_inlined);
	json_end(&dump->json);
}

static void print_frame(struct dump *dump, uint32_t place, bool is_inlined)
{
	const char *name = functions_at(dump->functions, place)->name;

	out_text(dump->out, "\t");
	print_text(dump->out, name, strlen(name));
	functions_print_image(dump->functions, place, dump->out);
	functions_print_line(dump->functions, place, dump->out);
	out_text(dump->out, is_inlined ? "  (inline)\n" : "\n");
}

/* Returns the name at the time of the row, if it has a time. */
static const char *comm_of(const struct dump *dump, const struct dump_stream *stream,
			   const struct dump_owner *owner)
{
	return stream->timed ? reader_comm_at(&dump->reader, owner->thread, dump_time(dump, stream))
			     : names_thread_at(dump->reader.capture->names, owner->thread)->comm;
}

static void write_owner(struct dump *dump, const struct dump_stream *stream,
			const struct dump_owner *owner)
{
	const struct names *names = dump->reader.capture->names;
	struct json *json = &dump->json;

	if (!stream->own_pid) {
		if (owner->process > NAMES_LOST)
			json_uint(json, "pid", names_process_at(names, owner->process)->pid);
		else
			json_null(json, "pid");
	}
	if (!stream->own_tid) {
		if (owner->thread > NAMES_LOST)
			json_uint(json, "tid", names_thread_at(names, owner->thread)->tid);
		else
			json_null(json, "tid");
	}
	if (!stream->own_comm)
		json_string(json, "comm", comm_of(dump, stream, owner));
}

void dump_write_row(struct dump *dump, const struct dump_stream *stream,
		    const struct dump_owner *owner)
{
	struct json *json = &dump->json;

	rows_begin(json);
	json_string(json, "table", stream->table->name);
	if (stream->timed)
		json_int(json, "time_ns", dump_time(dump, stream));
	else
		json_null(json, "time_ns");
	write_owner(dump, stream, owner);
	for (unsigned i = stream->timed ? 1 : 0; i < stream->table->n_columns; i++) {
		struct dump_cell cell;

		if (dump->resolve && is_argument_list(stream, i) && i == PROF_MARK_ARGUMENTS)
			write_arguments(dump, stream);
		if (is_list(&stream->table->columns[i], &stream->batch.columns[i])) {
			write_list(dump, stream, i);
			continue;
		}
		cell = cell_of(dump, stream, i);
		write_cell(json, stream->table->columns[i].name, &cell);
		if (i == stream->stack && dump->resolve) {
			json_begin_array(json, "frames");
			each_frame(dump, stream, write_frame);
			json_end(json);
		}
	}
	rows_end(json);
}

static void print_owner(struct dump *dump, const struct dump_stream *stream,
			const struct dump_owner *owner)
{
	const struct names *names = dump->reader.capture->names;
	const char *comm = comm_of(dump, stream, owner);

	if (owner->process > NAMES_LOST)
		print_uint(dump->out, names_process_at(names, owner->process)->pid);
	else
		out_char(dump->out, '-');
	if (owner->thread > NAMES_LOST) {
		out_char(dump->out, '/');
		print_uint(dump->out, names_thread_at(names, owner->thread)->tid);
	}
	if (comm) {
		out_char(dump->out, ' ');
		print_text(dump->out, comm, strlen(comm));
	}
}

void dump_print_row(struct dump *dump, const struct dump_stream *stream,
		    const struct dump_owner *owner)
{
	struct out *out = dump->out;

	if (stream->timed) {
		print_time(out, capture_time(dump->reader.capture, stream->batch.segment,
					     dump_number(stream, 0)));
		out_char(out, ' ');
	}
	print_text(out, stream->table->name, strlen(stream->table->name));
	out_char(out, ' ');
	print_owner(dump, stream, owner);
	for (unsigned i = stream->timed ? 1 : 0; i < stream->table->n_columns; i++) {
		struct dump_cell cell;

		if (is_argument_list(stream, i) && i != PROF_MARK_ARGUMENTS)
			continue;
		out_char(out, ' ');
		print_text(out, stream->table->columns[i].name,
			   strlen(stream->table->columns[i].name));
		out_char(out, '=');
		if (is_argument_list(stream, i)) {
			print_arguments(dump, stream);
			continue;
		}
		if (is_list(&stream->table->columns[i], &stream->batch.columns[i])) {
			print_list(dump, stream, i);
			continue;
		}
		cell = cell_of(dump, stream, i);
		print_cell(out, &cell);
	}
	out_char(out, '\n');
	if (stream->stack != NO_COLUMN && dump->resolve)
		each_frame(dump, stream, print_frame);
}
