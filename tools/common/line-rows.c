/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Line-rows - the lines and inlined calls that a capture carries, by image
 *
 * Invariants: (1) the lines of an image are sorted by start; of two with one start the later one in
 *                 the file counts
 *             (2) a call's parent has a lower number, so all chains end
 *                 [test-symbolize: lines that lie]
 *             (3) no chain is longer than LINE_ROWS_MAX_CALLS  [test-symbolize: chain without end]
 */
#include "config.h"

#include "tools/common/line-rows.h"

#include "tools/common/capture-error.h"

#include <glib/gi18n.h>

struct line_rows {
	GPtrArray *images; /* GArray of struct line_row, by image index; NULL = none */
	GArray *calls;     /* struct line_call; number 0 is unused */
};

/* The symbols of the epoch whose lines are read. */
struct symbols_of_epoch {
	struct names_epoch *epoch;
	struct prof_dictionary *rows; /* NULL = the epoch has none */
	uint32_t *calls; /* by row: the number of the call; 0 = not looked up yet, or not a call */
};

static const uint16_t symbol_columns[] = { PROF_SYMBOL_START,    PROF_SYMBOL_NAME,
					   PROF_SYMBOL_RAW_NAME, PROF_SYMBOL_FILE,
					   PROF_SYMBOL_LINE,     PROF_SYMBOL_INLINE_PARENT };
enum { SYMBOL_START, SYMBOL_NAME, SYMBOL_RAW_NAME, SYMBOL_FILE, SYMBOL_LINE, SYMBOL_PARENT };

static const uint16_t line_columns[] = { PROF_LINE_IMAGE, PROF_LINE_START, PROF_LINE_LENGTH,
					 PROF_LINE_FILE,  PROF_LINE_LINE,  PROF_LINE_SYMBOL };
enum { LINE_IMAGE, LINE_START, LINE_LENGTH, LINE_FILE, LINE_LINE, LINE_SYMBOL };

static void free_lines(gpointer lines)
{
	if (lines)
		g_array_unref(lines);
}

void line_rows_free(struct line_rows *rows)
{
	if (!rows)
		return;
	g_ptr_array_unref(rows->images);
	g_array_unref(rows->calls);
	g_free(rows);
}

/* ---- inlined calls --------------------------------------------------------------------------- */

static void symbols_done(struct symbols_of_epoch *symbols)
{
	prof_dictionary_free(symbols->rows);
	g_free(symbols->calls);
	*symbols = (struct symbols_of_epoch){ 0 };
}

static bool symbols_load(struct symbols_of_epoch *symbols, struct names *names, uint32_t number,
			 GError **error)
{
	int r;

	if (symbols->epoch && symbols->epoch->epoch == number)
		return true;
	symbols_done(symbols);
	symbols->epoch = names_epoch(names, number, error);
	if (!symbols->epoch || !names_load_identities(symbols->epoch, error))
		return false;
	r = prof_dictionary_load(names->reader, PROF_TABLE_SYMBOL, number, symbol_columns,
				 G_N_ELEMENTS(symbol_columns), &symbols->rows);
	if (r != 0 && r != PROF_NO_TABLE)
		return capture_error(error, r, _("cannot read the symbols of the capture"));
	symbols->calls =
		g_new0(uint32_t, symbols->rows ? prof_dictionary_rows(symbols->rows) + 1 : 1);
	return true;
}

static uint64_t number_of(const struct symbols_of_epoch *symbols, size_t column, size_t row)
{
	return array_number_or(prof_dictionary_column(symbols->rows, column), row, 0);
}

static uint32_t add_call(struct line_rows *rows, const struct symbols_of_epoch *symbols, size_t row,
			 uint32_t parent)
{
	struct names_epoch *epoch = symbols->epoch;
	struct line_call call = {
		.name = names_text(epoch, number_of(symbols, SYMBOL_NAME, row)),
		.raw_name = names_text(epoch, number_of(symbols, SYMBOL_RAW_NAME, row)),
		.file = names_text(epoch, number_of(symbols, SYMBOL_FILE, row)),
		.line = (uint32_t)number_of(symbols, SYMBOL_LINE, row),
		.parent = parent,
		.start = number_of(symbols, SYMBOL_START, row),
	};

	if (!call.name || rows->calls->len == UINT32_MAX)
		return parent;
	if (parent)
		call.depth = line_rows_call(rows, parent)->depth;
	if (call.depth == LINE_ROWS_MAX_CALLS)
		call.depth = call.parent = 0;
	call.depth++;
	if (!call.raw_name)
		call.raw_name = call.name;
	call.name = names_function(epoch->names, call.name);
	g_array_append_val(rows->calls, call);
	return rows->calls->len - 1;
}

/* Returns the number of the symbol's call; 0 if it is a function. */
static uint32_t call_of(struct line_rows *rows, struct symbols_of_epoch *symbols, uint64_t id)
{
	size_t chain[LINE_ROWS_MAX_CALLS], n = 0;
	uint32_t call = 0;

	while (symbols->rows && id != 0 && n < LINE_ROWS_MAX_CALLS) {
		ssize_t row = prof_dictionary_find(symbols->rows, id);
		uint64_t parent = row < 0 ? 0 : number_of(symbols, SYMBOL_PARENT, (size_t)row);

		if (parent == 0 || parent >= id)
			break;
		call = symbols->calls[row];
		if (call)
			break;
		chain[n++] = (size_t)row;
		id = parent;
	}
	while (n-- > 0)
		symbols->calls[chain[n]] = call = add_call(rows, symbols, chain[n], call);
	return call;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void add_batch(struct line_rows *rows, struct symbols_of_epoch *symbols,
		      const struct prof_batch *batch)
{
	const struct prof_array *c = batch->columns;
	struct names_epoch *epoch = symbols->epoch;

	for (size_t i = 0; i < batch->rows; i++) {
		uint32_t image = names_image(epoch, array_number_or(&c[LINE_IMAGE], i, 0));
		const struct line_row line = {
			.start = array_number_or(&c[LINE_START], i, 0),
			.length = array_number_or(&c[LINE_LENGTH], i, 0),
			.file = names_text(epoch, array_number_or(&c[LINE_FILE], i, 0)),
			.line = (uint32_t)array_number_or(&c[LINE_LINE], i, 0),
			.call = call_of(rows, symbols, array_number_or(&c[LINE_SYMBOL], i, 0)),
		};

		if (image <= NAMES_LOST || line.length == 0)
			continue;
		if (rows->images->len <= image)
			g_ptr_array_set_size(rows->images, (gint)image + 1);
		if (!rows->images->pdata[image])
			rows->images->pdata[image] =
				g_array_new(FALSE, FALSE, sizeof(struct line_row));
		g_array_append_val((GArray *)rows->images->pdata[image], line);
	}
}

static gint compare_lines(gconstpointer left, gconstpointer right)
{
	const struct line_row *a = left, *b = right;

	return (a->start > b->start) - (a->start < b->start);
}

static void settle(GArray *lines)
{
	struct line_row *at = (struct line_row *)(void *)lines->data;
	guint kept = 0;

	g_array_sort(lines, compare_lines); /* a stable sort */
	for (guint i = 0; i < lines->len; i++) {
		kept -= kept > 0 && at[kept - 1].start == at[i].start;
		at[kept++] = at[i];
	}
	g_array_set_size(lines, kept);
}

static bool load(struct line_rows *rows, struct names *names, struct prof_cursor *cursor,
		 GError **error)
{
	struct symbols_of_epoch symbols = { 0 };
	struct prof_batch batch;
	bool ok = true;
	int r = 0;

	while (ok && (r = prof_cursor_next(cursor, &batch)) == 0) {
		ok = symbols_load(&symbols, names, batch.epoch, error);
		if (ok)
			add_batch(rows, &symbols, &batch);
	}
	symbols_done(&symbols);
	if (ok && r != PROF_END)
		return capture_error(error, r, _("cannot read the lines of the capture"));
	for (guint i = 0; i < rows->images->len; i++)
		if (rows->images->pdata[i])
			settle(rows->images->pdata[i]);
	return ok;
}

struct line_rows *line_rows_load(struct names *names, GError **error)
{
	const struct prof_cursor_options options = { .table = PROF_TABLE_LINE,
						     .columns = line_columns,
						     .n_columns = G_N_ELEMENTS(line_columns) };
	struct line_rows *rows = g_new0(struct line_rows, 1);
	struct prof_cursor *cursor = NULL;
	bool ok;
	int r;

	rows->images = g_ptr_array_new_with_free_func(free_lines);
	rows->calls = g_array_new(FALSE, TRUE, sizeof(struct line_call));
	g_array_set_size(rows->calls, 1);
	r = prof_cursor_new(names->reader, &options, &cursor);
	if (r == PROF_NO_TABLE)
		return rows;
	ok = r == 0 ? load(rows, names, cursor, error)
		    : capture_error(error, r, _("cannot read the lines of the capture"));
	prof_cursor_free(cursor);
	if (ok)
		return rows;
	line_rows_free(rows);
	return NULL;
}

const struct line_row *line_rows_find(const struct line_rows *rows, uint32_t image, uint64_t offset)
{
	const GArray *lines = image < rows->images->len ? rows->images->pdata[image] : NULL;
	const struct line_row *line;
	guint low = 0, high = lines ? lines->len : 0;

	while (low < high) {
		guint middle = low + (high - low) / 2;

		if (g_array_index(lines, struct line_row, middle).start <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0)
		return NULL;
	line = &g_array_index(lines, struct line_row, low - 1);
	return offset - line->start < line->length ? line : NULL;
}

const struct line_call *line_rows_call(const struct line_rows *rows, uint32_t number)
{
	return &g_array_index(rows->calls, struct line_call, number);
}
