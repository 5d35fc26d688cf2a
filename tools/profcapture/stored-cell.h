/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Stored-cell - a capture's values as cells: texts, names of enums, times since its start
 *
 * The functions are inline, because `dump` and `sql` spend most of their time in them.
 */
#pragma once

#include "tools/present/table.h"
#include "tools/profcapture/capture.h"

#include <inttypes.h>

/* Where a row is. `epoch` may be NULL if no column of the row refers to texts. */
struct stored_row {
	const struct capture *capture;
	struct names_epoch *epoch;
	uint32_t segment;
};

/* Returns the name of an enum's value; NULL if a later version defines it. */
static inline const char *stored_enum_name(const struct prof_column_def *column, uint64_t value)
{
	for (uint64_t i = 0; column->values && column->values[i]; i++)
		if (i == value)
			return column->values[i];
	return NULL;
}

/* Returns the name of an enum's value, or its number as a string. */
static inline struct cell stored_enum(const struct prof_column_def *column, uint64_t value)
{
	const char *name = stored_enum_name(column, value);

	return name ? cell_text(name) : cell_own_text(g_strdup_printf("%" PRIu64, value));
}

static inline struct cell stored_double(uint64_t bits)
{
	double value;

	memcpy(&value, &bits, sizeof(value));
	return cell_double(value);
}

/* Returns the cell of a column's number, or of an item of its list. */
static inline struct cell stored_number(const struct stored_row *at,
					const struct prof_column_def *column, uint64_t value)
{
	struct cell cell = cell_uint(value);

	switch (column->type) {
	case PROF_TYPE_ENUM:
		return stored_enum(column, value);
	case PROF_TYPE_BOOL:
		return cell_bool(value != 0);
	case PROF_TYPE_INT:
		return cell_int((int64_t)value);
	case PROF_TYPE_FLOAT:
		return stored_double(value);
	case PROF_TYPE_TIME:
		cell = cell_int(capture_time(at->capture, at->segment, value));
		cell.format = COLUMN_SECONDS;
		return cell;
	case PROF_TYPE_REF:
		if (column->ref == PROF_TABLE_STRING)
			return cell_text(names_text(at->epoch, value));
		return value ? cell : cell_unknown();
	default:
		if (column->unit == PROF_UNIT_ADDRESS)
			cell.kind = CELL_HEX;
		return cell;
	}
}

/* Returns the cell of a row's value; an unknown cell for a list. */
static inline struct cell stored_cell(const struct stored_row *at,
				      const struct prof_column_def *column,
				      const struct prof_array *array, size_t row)
{
	bool is_binary = column->type == PROF_TYPE_BINARY;
	struct cell cell = { .kind = is_binary ? CELL_BYTES : CELL_SLICE };

	if (array->nulls && array->nulls[row])
		return cell_unknown();
	if (array->bytes && array->offsets) {
		cell.text = (const char *)array->bytes + array->offsets[row];
		cell.number = array->offsets[row + 1] - array->offsets[row];
		return is_binary && cell.number == 0 ? cell_unknown() : cell;
	}
	if (!array->numbers || (column->flags & PROF_COLUMN_LIST))
		return cell_unknown();
	return stored_number(at, column, array->numbers[row]);
}

/* Returns the cell of a mark's argument or of an event's field. `kind`: enum prof_argument_kind */
static inline struct cell stored_argument(uint64_t kind, uint64_t value, const char *text)
{
	switch (kind) {
	case PROF_ARGUMENT_S64:
		return cell_int((int64_t)value);
	case PROF_ARGUMENT_U64:
		return cell_uint(value);
	case PROF_ARGUMENT_DOUBLE:
		return stored_double(value);
	case PROF_ARGUMENT_STRING:
		return cell_text(text);
	default: /* an address, or a value of a kind that a later version defines */
		return (struct cell){ .kind = CELL_HEX, .number = value };
	}
}
