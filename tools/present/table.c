/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/present/table.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* A name is not cut below this width as long as the place can be dropped. */
#define MIN_NAME 24u
#define GAP 2u

void table_add_column(struct table *table, unsigned field, enum column_format format,
		      const char *title)
{
	g_assert(table->n_columns < TABLE_MAX_COLUMNS);
	table->columns[table->n_columns++] =
		(struct table_column){ .field = field, .format = format, .title = title };
}

static struct cell get_cell(const struct table *table, size_t row, unsigned field)
{
	struct cell cell = { .kind = CELL_NONE };

	table->get(table->data, row, field, &cell);
	return cell;
}

static void cell_done(struct cell *cell)
{
	g_free(cell->owned);
	g_free(cell->prefix);
}

/* ---- text ------------------------------------------------------------------------------------ */

static double real_of(const struct cell *cell)
{
	switch (cell->kind) {
	case CELL_INT:
		return (double)(int64_t)cell->number;
	case CELL_DOUBLE:
		return cell->real;
	default:
		return (double)cell->number;
	}
}

/* Formats the number without its sign. */
static char *format_magnitude(enum column_format format, bool is_coarse, double value)
{
	int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;

	switch (format) {
	case COLUMN_SIZE:
		return text_bytes((uint64_t)(value + 0.5));
	case COLUMN_DURATION:
		return text_duration((uint64_t)(value + 0.5));
	case COLUMN_SECONDS:
		return g_strdup_printf("%.2f", value / 1e9);
	case COLUMN_PERCENT:
		return text_percent(value, !is_coarse);
	case COLUMN_REAL:
		return g_strdup_printf("%.*f", value == floor(value) ? 0 : decimals, value);
	default:
		return text_count((uint64_t)(value + 0.5));
	}
}

static bool is_empty_zero(enum column_format format)
{
	return format == COLUMN_COUNT || format == COLUMN_SIZE || format == COLUMN_PERCENT;
}

static char *format_number(const struct table *table, const struct table_column *column,
			   const struct cell *cell)
{
	enum column_format format = cell->format ? (enum column_format)cell->format
						 : column->format;
	double value = real_of(cell);
	g_autofree char *magnitude = NULL;
	const char *sign = value < 0 ? "-" : column->is_signed && value > 0 ? "+" : "";

	if (cell->kind == CELL_HEX)
		return g_strdup_printf("0x%" PRIx64, cell->number);
	if (format == COLUMN_NUMBER && cell->kind == CELL_UINT)
		return g_strdup_printf("%" PRIu64, cell->number);
	if (format == COLUMN_COUNT && cell->kind == CELL_UINT && cell->number > 0)
		magnitude = text_count(cell->number); /* a double would round it */
	else if (value == 0 && is_empty_zero(format))
		return g_strdup("");
	else if (!isfinite(value))
		return g_strdup("-");
	else
		magnitude = format_magnitude(format, table->is_coarse, fabs(value));
	return g_strconcat(cell->is_least ? text_sign(TEXT_AT_LEAST) : "", sign, magnitude, NULL);
}

/* Returns the escaped text of a cell, without its prefix. */
static char *format_cell(const struct table *table, const struct table_column *column,
			 const struct cell *cell)
{
	switch (cell->kind) {
	case CELL_NONE:
		return g_strdup("");
	case CELL_UNKNOWN:
		return g_strdup("-");
	case CELL_TEXT:
		return cell->text ? text_escape(cell->text) : g_strdup("-");
	default:
		return format_number(table, column, cell);
	}
}

struct layout {
	unsigned widths[TABLE_MAX_COLUMNS];
	bool hidden[TABLE_MAX_COLUMNS];
};

static unsigned prefix_width(const struct cell *cell)
{
	return cell->prefix ? text_width(cell->prefix) : 0;
}

static bool is_text(enum column_format format)
{
	return format >= COLUMN_WORD;
}

static unsigned fixed_width(const struct table *table, const struct layout *layout)
{
	unsigned width = 0;

	for (unsigned i = 0; i < table->n_columns; i++)
		if (table->columns[i].format < COLUMN_NAME && !layout->hidden[i])
			width += layout->widths[i] + GAP;
	return width;
}

static void hide(const struct table *table, struct layout *layout, enum column_format format)
{
	for (unsigned i = 0; i < table->n_columns; i++)
		if (table->columns[i].format == format)
			layout->hidden[i] = true;
}

/* Makes the columns fit into a terminal: drops the sparkline, then cuts the name, then drops the
 * place. */
static void fit_columns(const struct table *table, struct layout *layout, unsigned columns)
{
	unsigned *name = NULL, place = 0, room;

	for (unsigned i = 0; i < table->n_columns; i++) {
		if (table->columns[i].format == COLUMN_NAME)
			name = &layout->widths[i];
		else if (table->columns[i].format == COLUMN_PLACE)
			place = layout->widths[i] ? layout->widths[i] + GAP : 0;
	}
	if (!name)
		return;
	if (fixed_width(table, layout) + MIN_OF(*name, MIN_NAME) + place > columns)
		hide(table, layout, COLUMN_SPARKLINE);
	room = columns > fixed_width(table, layout) ? columns - fixed_width(table, layout) : 1;
	if (*name + place <= room)
		return;
	if (room < place + MIN_OF(*name, MIN_NAME)) {
		hide(table, layout, COLUMN_PLACE);
		place = 0;
	}
	*name = MIN_OF(*name, MAX_OF(room, place + 1) - place);
}

static void measure(const struct table *table, size_t shown, unsigned columns,
		    struct layout *ret_layout)
{
	*ret_layout = (struct layout){ 0 };
	for (unsigned i = 0; i < table->n_columns; i++) {
		const struct table_column *column = &table->columns[i];

		ret_layout->widths[i] = column->title ? text_width(column->title) : 0;
		/* Only a terminal has an end, so only there does the width of a name matter. */
		if (column->format >= COLUMN_NAME && columns == 0)
			continue;
		for (size_t row = 0; row < shown; row++) {
			struct cell cell = get_cell(table, row, column->field);
			g_autofree char *text = format_cell(table, column, &cell);
			unsigned width = text_width(text) + prefix_width(&cell);

			ret_layout->widths[i] = MAX_OF(ret_layout->widths[i], width);
			cell_done(&cell);
		}
	}
	if (columns > 0)
		fit_columns(table, ret_layout, columns);
}

/* Collects a line, because spaces at its end are dropped. */
static void put(GString *line, const char *text, unsigned width, bool at_end)
{
	unsigned used = text_width(text);

	if (line->len > 0)
		g_string_append(line, "  ");
	for (unsigned i = used; !at_end && i < width; i++)
		g_string_append_c(line, ' ');
	g_string_append(line, text);
	for (unsigned i = used; at_end && i < width; i++)
		g_string_append_c(line, ' ');
}

static void end_line(const struct table_style *style, GString *line, bool is_bold)
{
	while (line->len > 0 && line->str[line->len - 1] == ' ')
		g_string_truncate(line, line->len - 1);
	if (is_bold && style->is_colored)
		out_text(style->out, "\033[1m");
	out_text(style->out, line->str);
	if (is_bold && style->is_colored)
		out_text(style->out, "\033[0m");
	out_char(style->out, '\n');
	g_string_truncate(line, 0);
}

static char *fit_name(const struct table *table, const char *name, unsigned columns)
{
	g_autofree char *shorter =
		table->fit && text_width(name) > columns ? table->fit(name, columns) : NULL;
	const char *best = shorter ? shorter : name;

	return text_width(best) > columns ? text_fit(best, columns, TEXT_LEFT) : g_strdup(best);
}

static void put_cell(const struct table *table, const struct table_style *style,
		     const struct layout *layout, unsigned i, size_t row, GString *line)
{
	const struct table_column *column = &table->columns[i];
	struct cell cell = get_cell(table, row, column->field);
	g_autofree char *text = format_cell(table, column, &cell), *whole = NULL;
	unsigned prefix = prefix_width(&cell), width = layout->widths[i];

	if (column->format == COLUMN_NAME && style->columns > 0) {
		unsigned room = MAX_OF(width, prefix + 1) - prefix;
		g_autofree char *fitted = fit_name(table, text, room);

		whole = g_strconcat(cell.prefix ? cell.prefix : "", fitted, NULL);
	} else {
		whole = g_strconcat(cell.prefix ? cell.prefix : "", text, NULL);
		if (column->format >= COLUMN_NAME)
			width = 0;
	}
	/* A tree's places follow its names. */
	if (column->format == COLUMN_NAME && cell.prefix)
		width = 0;
	if (column->format != COLUMN_PLACE || *whole)
		put(line, whole, width, is_text(column->format));
	cell_done(&cell);
}

void table_print(const struct table *table, const struct table_style *style, size_t shown)
{
	g_autoptr(GString) line = g_string_new(NULL);
	struct layout layout;

	if (shown == 0)
		return;
	measure(table, shown, style->columns, &layout);
	for (unsigned i = 0; i < table->n_columns; i++)
		if (!layout.hidden[i] && table->columns[i].title)
			put(line, table->columns[i].title,
			    table->columns[i].format >= COLUMN_NAME ? 0 : layout.widths[i],
			    is_text(table->columns[i].format));
	end_line(style, line, true);
	for (size_t row = 0; row < shown && !out_failed(style->out); row++) {
		for (unsigned i = 0; i < table->n_columns; i++)
			if (!layout.hidden[i])
				put_cell(table, style, &layout, i, row, line);
		end_line(style, line, table->is_bold && table->is_bold(table->data, row));
	}
}

/* ---- JSON, ndjson and CSV -------------------------------------------------------------------- */

static void write_cell(struct json *json, const char *key, const struct cell *cell)
{
	switch (cell->kind) {
	case CELL_NONE:
	case CELL_UNKNOWN:
		json_null(json, key);
		break;
	case CELL_UINT:
		json_uint(json, key, cell->number);
		break;
	case CELL_INT:
		json_int(json, key, (int64_t)cell->number);
		break;
	case CELL_DOUBLE:
		json_double(json, key, cell->real);
		break;
	case CELL_BOOL:
		json_bool(json, key, cell->number);
		break;
	case CELL_TEXT:
		json_string(json, key, cell->text);
		break;
	case CELL_HEX:
		json_hex(json, key, cell->number);
		break;
	}
}

void table_write(const struct table *table, struct json *json, enum json_format format,
		 size_t shown)
{
	g_autoptr(GPtrArray) keys = g_ptr_array_new();

	for (const struct table_member *member = table->members; member->key; member++)
		g_ptr_array_add(keys, (gpointer)member->key);
	g_ptr_array_add(keys, NULL);
	rows_open(json, format, (const char *const *)keys->pdata);
	for (size_t row = 0; row < shown && !out_failed(json->out); row++) {
		rows_begin(json);
		for (const struct table_member *member = table->members; member->key; member++) {
			struct cell cell = get_cell(table, row, member->field);

			write_cell(json, member->key, &cell);
			cell_done(&cell);
		}
		if (table->write && format != JSON_FORMAT_CSV)
			table->write(table->data, row, json);
		rows_end(json);
	}
	rows_close(json);
}
