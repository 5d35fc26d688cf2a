/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/present/table.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Names are not cut below this width while the place can be left out instead. */
#define MIN_NAME 24u
#define GAP 2u

void table_add_column(struct table *table, unsigned field, enum column_format format,
		      const char *title)
{
	g_assert(table->n_columns < TABLE_MAX_COLUMNS);
	table->columns[table->n_columns++] =
		(struct table_column){ .field = field, .format = format, .title = title };
}

void cell_done(struct cell *cell)
{
	g_free(cell->owned);
	g_free(cell->prefix);
}

/* ---- text ------------------------------------------------------------------------------------ */

/* The absolute value of a number. `whole` is exact for integers that a double would round. */
struct magnitude {
	double real;
	uint64_t whole;
	bool is_negative;
};

static struct magnitude magnitude_of(const struct cell *cell)
{
	struct magnitude size = { .whole = cell->number };

	if (cell->kind == CELL_INT && (int64_t)cell->number < 0) {
		size.is_negative = true;
		size.whole = -cell->number;
	}
	size.real = (double)size.whole;
	if (cell->kind == CELL_DOUBLE) {
		size.is_negative = cell->real < 0;
		size.real = fabs(cell->real);
		size.whole = size.real < 0x1p64 ? (uint64_t)(size.real + 0.5) : UINT64_MAX;
	}
	return size;
}

static char *format_magnitude(enum column_format format, bool is_coarse, struct magnitude size)
{
	int decimals = size.real < 9.995 ? 2 : size.real < 99.95 ? 1 : 0;
	bool is_whole = size.real == floor(size.real);

	/* Use an exponent for huge values, because a program may set a counter to any value. */
	if (size.real >= 1e15 && (format == COLUMN_REAL || size.real > 0x1p64))
		return g_strdup_printf("%.3g", size.real);
	switch (format) {
	case COLUMN_NUMBER:
		return g_strdup_printf("%" PRIu64, size.whole);
	case COLUMN_SIZE:
		return text_bytes(size.whole);
	case COLUMN_DURATION:
		return text_duration(size.whole);
	case COLUMN_SECONDS:
		return g_strdup_printf("%.2f", size.real / 1e9);
	case COLUMN_PERCENT:
		return text_percent(size.real, !is_coarse);
	case COLUMN_REAL:
		if (is_whole || size.real >= 99.95)
			return text_count(size.whole);
		return size.real < 0.0995 ? g_strdup_printf("%.3g", size.real)
					  : g_strdup_printf("%.*f", decimals, size.real);
	default:
		return text_count(size.whole);
	}
}

static char *format_number(const struct table *table, const struct table_column *column,
			   const struct cell *cell)
{
	enum column_format format = cell->format ? (enum column_format)cell->format
						 : column->format;
	struct magnitude size = magnitude_of(cell);
	const char *sign = size.is_negative ? "-" : column->is_signed && size.real > 0 ? "+" : "";
	g_autofree char *text = NULL;

	if (cell->kind == CELL_HEX)
		return g_strdup_printf("0x%" PRIx64, cell->number);
	if (!isfinite(size.real))
		return g_strdup("-");
	if (size.real == 0 && !cell->is_least &&
	    (format == COLUMN_COUNT || format == COLUMN_SIZE || format == COLUMN_PERCENT))
		return g_strdup("");
	text = format_magnitude(format, table->is_coarse, size);
	/* "At least less than 0.1" would say nothing: show 0 as the lower bound. */
	if (cell->is_least && *text == '<')
		return g_strconcat(text_sign(TEXT_AT_LEAST), sign, table->is_coarse ? "0" : "0.0",
				   NULL);
	/* ">99.9" is a lower bound already. */
	return g_strconcat(cell->is_least ? text_sign(TEXT_AT_LEAST) : "", sign,
			   text + (cell->is_least && *text == '>'), NULL);
}

char *table_number(enum column_format format, double value)
{
	const struct table none = { .rows = 1 };
	const struct table_column column = { .format = format };
	const struct cell cell = cell_double(value);

	return format_number(&none, &column, &cell);
}

/* Returns the escaped text of a cell, without its prefix. */
static char *format_cell(const struct table *table, const struct table_column *column,
			 const struct cell *cell)
{
	switch (cell->kind) {
	case CELL_NONE:
		return g_strdup("");
	case CELL_UNKNOWN:
	case CELL_LIST:
		return g_strdup("-");
	case CELL_TEXT:
		return cell->text ? text_escape(cell->text) : g_strdup("-");
	case CELL_SLICE:
		return text_escape_n(cell->text, cell->number);
	case CELL_BYTES:
		return text_hex(cell->text, cell->number);
	default:
		return format_number(table, column, cell);
	}
}

struct layout {
	unsigned widths[TABLE_MAX_COLUMNS];
	bool hidden[TABLE_MAX_COLUMNS];
	/* on a terminal, by row: the name as it fits, and whether its place is left out */
	char **names;
	bool *is_bare;
};

static unsigned prefix_width(const struct cell *cell)
{
	return cell->prefix ? text_width(cell->prefix) : 0;
}

/* Returns the column with this format, of which there is at most one; or NULL. */
static const struct table_column *find_column(const struct table *table, enum column_format format)
{
	for (unsigned i = 0; i < table->n_columns; i++)
		if (table->columns[i].format == format)
			return &table->columns[i];
	return NULL;
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

/* Fits the columns into a terminal. The sparkline or the place is left out before the name is cut
 * below MIN_NAME columns. */
static void fit_columns(const struct table *table, struct layout *layout, unsigned columns)
{
	const struct table_column *name = find_column(table, COLUMN_NAME);
	const struct table_column *at = find_column(table, COLUMN_PLACE);
	unsigned nothing = 0, *width = name ? &layout->widths[name - table->columns] : &nothing;
	unsigned place = at ? layout->widths[at - table->columns] : 0, room;
	bool has_place;

	place += place ? GAP : 0;
	if (fixed_width(table, layout) + MIN_OF(*width, MIN_NAME) + place > columns)
		hide(table, layout, COLUMN_SPARKLINE);
	if (table->is_tree)
		return;
	room = columns - MIN_OF(columns, fixed_width(table, layout));
	has_place = MIN_OF(*width, MIN_NAME) + place <= room;
	*width = MAX_OF(MIN_OF(*width, has_place ? room - place : room), 1u);
	if (!has_place)
		hide(table, layout, COLUMN_PLACE);
}

/* Returns whether the title may extend to the end of the line, because no title follows. */
static bool has_long_title(const struct table *table, const struct table_column *column,
			   unsigned columns)
{
	const struct table_column *place = find_column(table, COLUMN_PLACE);

	return column->format == COLUMN_NAME && columns > 0 && !(place && place->title);
}

/* Returns whether numbers are padded to the width of their column. */
static bool pads_numbers(const struct table *table, const struct table_style *style)
{
	return style->columns > 0 || style->is_padded || table->is_tree;
}

static void measure(const struct table *table, size_t shown, const struct table_style *style,
		    struct layout *ret_layout)
{
	unsigned columns = style->columns;

	*ret_layout = (struct layout){ 0 };
	if (!pads_numbers(table, style))
		return;
	for (unsigned i = 0; i < table->n_columns; i++) {
		const struct table_column *column = &table->columns[i];

		if (column->title && !has_long_title(table, column, columns))
			ret_layout->widths[i] = text_width(column->title);
		/* Without a terminal, names are not padded, so their width is not needed. */
		if (column->format >= COLUMN_NAME && columns == 0)
			continue;
		for (size_t row = 0; row < shown; row++) {
			struct cell cell = table->get(table->data, row, column->field);
			g_autofree char *text = format_cell(table, column, &cell);
			unsigned width = text_width(text) + prefix_width(&cell);

			ret_layout->widths[i] = MAX_OF(ret_layout->widths[i], width);
			cell_done(&cell);
		}
	}
	if (columns > 0)
		fit_columns(table, ret_layout, columns);
}

/* Appends a cell to a line. Lines are collected, so that spaces at their end can be removed. */
static void put(GString *line, const struct table_column *column, const char *text, unsigned width)
{
	unsigned used = text_width(text), padding = width > used ? width - used : 0;
	bool is_left = column->format >= COLUMN_WORD;

	if (line->len > 0)
		g_string_append(line, "  ");
	g_string_append_printf(line, "%*s%s%*s", is_left ? 0 : (int)padding, "", text,
			       is_left ? (int)padding : 0, "");
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

/* A row's name, and the number of columns that it may have: with the place after it, or alone. */
struct fitting {
	char *name; /* escaped */
	unsigned with_place, alone;
	bool has_place;
	const char *twin; /* name of another row that would look the same; NULL: none */
};

static struct fitting fitting_of(const struct table *table, const struct layout *layout, size_t row,
				 unsigned columns)
{
	const struct table_column *column = find_column(table, COLUMN_NAME);
	const struct table_column *at = find_column(table, COLUMN_PLACE);
	struct cell cell = table->get(table->data, row, column->field);
	struct fitting fitting = { .name = format_cell(table, column, &cell) };
	unsigned place = 0;

	fitting.alone = columns -
			MIN_OF(columns - 1, fixed_width(table, layout) + prefix_width(&cell));
	cell_done(&cell);
	if (at && !layout->hidden[at - table->columns]) {
		g_autofree char *text = NULL;

		cell = table->get(table->data, row, at->field);
		text = format_cell(table, at, &cell);
		place = *text ? text_width(text) + GAP : 0;
		cell_done(&cell);
	}
	fitting.has_place = place > 0;
	fitting.with_place = !place            ? fitting.alone
			     : !table->is_tree ? layout->widths[column - table->columns]
					       : fitting.alone - MIN_OF(fitting.alone, place);
	return fitting;
}

/* Shortens a name to the width. Drops its template arguments first, then its place, then its
 * scopes. */
static char *fit_name(const struct table *table, struct fitting *fitting)
{
	const struct table_fit *fit = table->fit;
	unsigned width = text_width(fitting->name);
	char *name;

	if (width <= fitting->with_place)
		return g_strdup(fitting->name);
	name = fit ? fit->arguments(fitting->name, fitting->with_place) : g_strdup(fitting->name);
	if (text_width(name) <= fitting->with_place)
		return name;
	fitting->has_place = false;
	g_free(name);
	name = fit ? fit->whole(fitting->name, fitting->alone) : g_strdup(fitting->name);
	return name;
}

/* Cuts a name that is still too wide. */
static void cut_name(char **name, unsigned columns, enum text_align align)
{
	char *cut = text_width(*name) > columns ? text_fit(*name, columns, align) : NULL;

	if (cut) {
		g_free(*name);
		*name = cut;
	}
}

/* Shortens a name that would look the same as `other`, so that a part that differs remains. */
static char *fit_apart(const struct table *table, struct fitting *fitting, const char *other)
{
	char *name;

	for (bool has_place = fitting->has_place; table->fit; has_place = false) {
		unsigned columns = has_place ? fitting->with_place : fitting->alone;

		name = table->fit->apart(fitting->name, other, columns);
		if (text_width(name) <= columns) {
			fitting->has_place = has_place;
			return name;
		}
		g_free(name);
		if (!has_place)
			break;
	}
	fitting->has_place = false;
	name = g_strdup(fitting->name);
	cut_name(&name, fitting->alone, TEXT_TAIL);
	return name;
}

/* Fits all names into the terminal. */
static void fit_names(const struct table *table, struct layout *layout, size_t shown,
		      unsigned columns)
{
	g_autoptr(GHashTable) rows = g_hash_table_new(g_str_hash, g_str_equal);
	g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
	g_autofree struct fitting *all = g_new0(struct fitting, shown);

	for (size_t row = 0; row < shown; row++) {
		char *name;
		struct fitting *first;

		all[row] = fitting_of(table, layout, row, columns);
		name = fit_name(table, &all[row]);
		cut_name(&name, all[row].alone, TEXT_LEFT);
		g_ptr_array_add(names, name);
		first = g_hash_table_lookup(rows, name);
		if (!first) {
			g_hash_table_insert(rows, name, &all[row]);
		} else if (strcmp(first->name, all[row].name) != 0) {
			all[row].twin = first->name;
			first->twin = all[row].name;
		}
	}
	layout->names = g_new(char *, shown + 1);
	layout->is_bare = g_new(bool, shown);
	for (size_t row = 0; row < shown; row++) {
		layout->names[row] = all[row].twin ? fit_apart(table, &all[row], all[row].twin)
						   : g_strdup(names->pdata[row]);
		layout->is_bare[row] = !all[row].has_place;
	}
	layout->names[shown] = NULL;
	for (size_t row = 0; row < shown; row++)
		g_free(all[row].name);
}

static void layout_done(struct layout *layout)
{
	g_strfreev(layout->names);
	g_free(layout->is_bare);
}

static void put_cell(const struct table *table, const struct table_style *style,
		     const struct layout *layout, unsigned i, size_t row, GString *line)
{
	const struct table_column *column = &table->columns[i];
	bool is_name = column->format == COLUMN_NAME && layout->names;
	struct cell cell = table->get(table->data, row, column->field);
	g_autofree char *text = is_name ? NULL : format_cell(table, column, &cell);
	bool is_missing = text && !*text && column->format < COLUMN_PLACE &&
			  !pads_numbers(table, style);
	bool is_number = cell.kind == CELL_UINT || cell.kind == CELL_INT ||
			 cell.kind == CELL_DOUBLE;
	g_autofree char *whole = g_strconcat(cell.prefix ? cell.prefix : "",
					     is_name       ? layout->names[row]
					     : !is_missing ? text
					     : is_number   ? "0"
							   : "-",
					     NULL);
	unsigned width = layout->widths[i];

	if (column->format >= COLUMN_NAME && (style->columns == 0 || table->is_tree))
		width = 0;
	if (column->format != COLUMN_PLACE ||
	    (*whole && !(layout->is_bare && layout->is_bare[row])))
		put(line, column, whole, width);
	cell_done(&cell);
}

static void print_titles(const struct table *table, const struct table_style *style,
			 const struct layout *layout, GString *line)
{
	for (unsigned i = 0; i < table->n_columns; i++) {
		const struct table_column *column = &table->columns[i];
		bool is_padded = column->format < COLUMN_NAME ||
				 (style->columns > 0 && !table->is_tree);
		unsigned used = fixed_width(table, layout);
		unsigned room = style->columns > used ? style->columns - used : 1;
		unsigned width = has_long_title(table, column, style->columns) ? room
				 : is_padded                                   ? layout->widths[i]
									       : 0;
		const char *title = column->title ? column->title : "";

		if (layout->hidden[i])
			continue;
		if (width > 0 && text_width(title) > width) {
			g_autofree char *cut = text_fit(title, width, TEXT_LEFT);

			put(line, column, cut, width);
		} else {
			put(line, column, title, width);
		}
	}
	end_line(style, line, true);
}

void table_print(const struct table *table, const struct table_style *style, size_t shown)
{
	g_autoptr(GString) line = g_string_new(NULL);
	CLEANUP(layout_done) struct layout layout = { 0 };

	if (shown == 0)
		return;
	measure(table, shown, style, &layout);
	if (style->columns > 0 && find_column(table, COLUMN_NAME))
		fit_names(table, &layout, shown, style->columns);
	print_titles(table, style, &layout, line);
	for (size_t row = 0; row < shown && !out_failed(style->out); row++) {
		for (unsigned i = 0; i < table->n_columns; i++)
			if (!layout.hidden[i])
				put_cell(table, style, &layout, i, row, line);
		end_line(style, line, table->is_bold && table->is_bold(table->data, row));
	}
}

/* ---- JSON, ndjson and CSV -------------------------------------------------------------------- */

void cell_write(struct json *json, const char *key, const struct cell *cell)
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
	case CELL_SLICE:
		json_string_n(json, key, cell->text, cell->number);
		break;
	case CELL_BYTES:
		json_hex_bytes(json, key, cell->text, cell->number);
		break;
	case CELL_WRITTEN:
		cell->write(json, key, cell->data);
		break;
	case CELL_LIST:
		json_strings(json, key, cell->list);
		break;
	}
}

void table_write_row(const struct table *table, struct json *json, size_t row)
{
	for (const struct table_member *member = table->members; member->key; member++) {
		struct cell cell = table->get(table->data, row, member->field);

		cell_write(json, member->key, &cell);
		cell_done(&cell);
	}
	if (table->write && json->columns == NULL)
		table->write(table->data, row, json);
}

void table_write(const struct table *table, struct json *json, enum json_format format,
		 size_t shown)
{
	g_autoptr(GPtrArray) keys = g_ptr_array_new();

	for (const struct table_member *member = table->members; member->key; member++)
		g_ptr_array_add(keys, (gpointer)member->key);
	g_ptr_array_add(keys, NULL);
	rows_open_as(json, format, table->key ? table->key : "rows",
		     (const char *const *)keys->pdata);
	for (size_t row = 0; row < shown && !out_failed(json->out); row++) {
		rows_begin(json);
		table_write_row(table, json, row);
		rows_end(json);
	}
	rows_close(json);
}

void table_write_array(const struct table *table, struct json *json, const char *key, size_t shown)
{
	json_begin_array(json, key);
	for (size_t row = 0; row < shown && !out_failed(json->out); row++) {
		json_begin_object(json, NULL);
		table_write_row(table, json, row);
		json_end(json);
	}
	json_end(json);
}
