/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Invariants: (1) the functions of an image are sorted by start, then by descending length
 *                 [test-names: symbols]
 *             (2) a lookup checks no more than SYMBOL_NESTING functions  [test-names: symbols]
 *             (3) a function that many epochs repeat is kept once, even while loading
 *                 [test_readers: memory by length]
 *             (4) the lines of an image are sorted by start; if two have the same start, the later
 *                 one in the file is used
 *             (5) a call's parent has a lower number, so all chains end
 *                 [test-symbolize: lines that lie]
 *             (6) no chain is longer than SYMBOL_ROWS_MAX_CALLS
 *                 [test-symbolize: chain without end]
 */
#include "config.h"

#include "tools/symbols/symbol-rows.h"

#include "base/each.h"
#include "base/order.h"
#include "tools/common/capture-error.h"
#include "tools/common/sorted.h"
#include "tools/symbols/clone-suffix.h"

#include <glib/gi18n.h>

/* A lookup checks at most this many functions, beginning with the nearest one. */
#define SYMBOL_NESTING 16

/* A list of functions is sorted when it has this length, and again whenever it has doubled. */
#define SETTLE_AT 256

struct image_rows {
	GArray *symbols; /* struct symbol_row, or NULL */
	GArray *lines;   /* struct line_row, or NULL */
	guint settle_at; /* length at which `symbols` is sorted next */
	/* name → struct symbol_row, or NULL if several have the name; without symbols that have a
	 * clone suffix; made by the first lookup */
	GHashTable *by_name;
};

struct symbol_rows {
	GArray *images; /* struct image_rows, by image index */
	GArray *calls;  /* struct line_call; number 0 is unused */
};

/* Symbols of the epoch whose lines are being read. */
struct epoch_calls {
	struct symbol_rows *rows;
	struct names_epoch *epoch; /* valid only during a batch, because few epochs are kept */
	uint32_t epoch_number;     /* epoch of `symbols` */
	struct prof_dictionary *symbols; /* NULL: the epoch has none */
	/* indexed by row: number of the call; 0: not looked up yet, or not a call */
	uint32_t *calls;
};

static void image_clear(gpointer image)
{
	struct image_rows *rows = image;

	g_clear_pointer(&rows->symbols, g_array_unref);
	g_clear_pointer(&rows->lines, g_array_unref);
	g_clear_pointer(&rows->by_name, g_hash_table_unref);
}

void symbol_rows_free(struct symbol_rows *rows)
{
	if (!rows)
		return;
	g_array_unref(rows->images);
	g_array_unref(rows->calls);
	g_free(rows);
}

/* Returns the rows of an image, or NULL if it has none. */
static struct image_rows *rows_of(const struct symbol_rows *rows, uint32_t image)
{
	return image < rows->images->len ? &g_array_index(rows->images, struct image_rows, image)
					 : NULL;
}

/* Appends a symbol or a line to an image's rows, which it returns. */
static struct image_rows *append(struct symbol_rows *rows, uint32_t image, bool is_line,
				 const void *row)
{
	struct image_rows *of;
	GArray **array;

	if (rows->images->len <= image)
		g_array_set_size(rows->images, image + 1);
	of = rows_of(rows, image);
	array = is_line ? &of->lines : &of->symbols;
	if (!*array)
		*array = g_array_new(FALSE, FALSE,
				     is_line ? sizeof(struct line_row) : sizeof(struct symbol_row));
	g_array_append_vals(*array, row, 1);
	return of;
}

/* ---- functions ------------------------------------------------------------------------------- */

/* Rows that compare equal are duplicates from different epochs; the later one may be more
 * complete. */
COMPARE_BY(compare_symbols, struct symbol_row, ORDER(a->start, b->start),
	   ORDER(b->length, a->length))

static const uint16_t symbol_columns[] = { PROF_SYMBOL_START,         PROF_SYMBOL_NAME,
					   PROF_SYMBOL_RAW_NAME,      PROF_SYMBOL_FILE,
					   PROF_SYMBOL_LINE,          PROF_SYMBOL_INLINE_PARENT,
					   PROF_SYMBOL_DECLARED_FILE, PROF_SYMBOL_DECLARED_LINE,
					   PROF_SYMBOL_LENGTH,        PROF_SYMBOL_IMAGE };
enum {
	START,
	NAME,
	RAW_NAME,
	SOURCE_FILE,
	LINE,
	INLINE_PARENT,
	DECLARED_FILE,
	DECLARED_LINE,
	LENGTH,
	IMAGE
};

static bool add_symbols(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
			GError **error)
{
	const struct prof_array *c = batch->columns;
	struct symbol_rows *rows = data;

	for (size_t i = 0; i < batch->rows; i++) {
		uint32_t image = names_image(epoch, array_number_or(&c[IMAGE], i, 0));
		struct symbol_row symbol = {
			.start = array_number_or(&c[START], i, 0),
			.length = array_number_or(&c[LENGTH], i, 0),
			.name = names_text(epoch, array_number_or(&c[NAME], i, 0)),
			.raw_name = names_text(epoch, array_number_or(&c[RAW_NAME], i, 0)),
			.file = names_text(epoch, array_number_or(&c[SOURCE_FILE], i, 0)),
			.line = (uint32_t)array_number_or(&c[LINE], i, 0),
		};
		struct image_rows *of;

		if (image <= NAMES_LOST || !symbol.name ||
		    array_number_or(&c[INLINE_PARENT], i, 0) != 0)
			continue;
		if (!symbol.raw_name)
			symbol.raw_name = symbol.name;
		symbol.name = names_function(epoch->names, symbol.name);
		of = append(rows, image, false, &symbol);
		if (of->symbols->len < MAX_OF((guint)SETTLE_AT, of->settle_at))
			continue;
		sorted_finalize(of->symbols, compare_symbols);
		of->settle_at = 2 * of->symbols->len;
	}
	return true;
}

/* ---- inlined calls --------------------------------------------------------------------------- */

static void calls_done(struct epoch_calls *calls)
{
	prof_dictionary_free(calls->symbols);
	g_free(calls->calls);
}

static bool calls_load(struct epoch_calls *calls, struct names_epoch *epoch, GError **error)
{
	int r;

	calls->epoch = epoch;
	if (calls->calls && calls->epoch_number == epoch->epoch)
		return true;
	calls_done(calls);
	*calls = (struct epoch_calls){ .rows = calls->rows,
				       .epoch = epoch,
				       .epoch_number = epoch->epoch };
	/* The length and the image of a call are not used. */
	r = prof_dictionary_load(epoch->names->reader, PROF_TABLE_SYMBOL, epoch->epoch,
				 symbol_columns, LENGTH, &calls->symbols);
	if (r != 0 && r != PROF_NO_TABLE)
		return capture_error(error, r, _("cannot read the symbols of the capture"));
	calls->calls =
		g_new0(uint32_t, calls->symbols ? prof_dictionary_rows(calls->symbols) + 1 : 1);
	return true;
}

static uint64_t number_of(const struct epoch_calls *calls, size_t column, size_t row)
{
	return array_number_or(prof_dictionary_column(calls->symbols, column), row, 0);
}

static uint32_t add_call(const struct epoch_calls *calls, size_t row, uint32_t parent)
{
	struct names_epoch *epoch = calls->epoch;
	GArray *all = calls->rows->calls;
	struct line_call call = {
		.name = names_text(epoch, number_of(calls, NAME, row)),
		.raw_name = names_text(epoch, number_of(calls, RAW_NAME, row)),
		.file = names_text(epoch, number_of(calls, SOURCE_FILE, row)),
		.line = (uint32_t)number_of(calls, LINE, row),
		.declared_file = names_text(epoch, number_of(calls, DECLARED_FILE, row)),
		.declared_line = (uint32_t)number_of(calls, DECLARED_LINE, row),
		.parent = parent,
		.start = number_of(calls, START, row),
	};

	if (!call.name || all->len == UINT32_MAX)
		return parent;
	if (parent)
		call.depth = symbol_rows_call(calls->rows, parent)->depth;
	if (call.depth == SYMBOL_ROWS_MAX_CALLS)
		call.depth = call.parent = 0;
	call.depth++;
	if (!call.raw_name)
		call.raw_name = call.name;
	call.name = names_function(epoch->names, call.name);
	g_array_append_val(all, call);
	return all->len - 1;
}

/* Returns the number of the symbol's call, or 0 if the symbol is a function. */
static uint32_t call_of(struct epoch_calls *calls, uint64_t id)
{
	size_t chain[SYMBOL_ROWS_MAX_CALLS], n = 0;
	uint32_t call = 0;

	while (calls->symbols && id != 0 && n < SYMBOL_ROWS_MAX_CALLS) {
		ssize_t row = prof_dictionary_find(calls->symbols, id);
		uint64_t parent = row < 0 ? 0 : number_of(calls, INLINE_PARENT, (size_t)row);

		if (parent == 0 || parent >= id)
			break;
		call = calls->calls[row];
		if (call)
			break;
		chain[n++] = (size_t)row;
		id = parent;
	}
	while (n-- > 0)
		calls->calls[chain[n]] = call = add_call(calls, chain[n], call);
	return call;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static const uint16_t line_columns[] = { PROF_LINE_IMAGE, PROF_LINE_START, PROF_LINE_LENGTH,
					 PROF_LINE_FILE,  PROF_LINE_LINE,  PROF_LINE_SYMBOL };
enum { LINE_IMAGE, LINE_START, LINE_LENGTH, LINE_FILE, LINE_LINE, LINE_SYMBOL };

static bool add_lines(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
		      GError **error)
{
	const struct prof_array *c = batch->columns;
	struct epoch_calls *calls = data;

	if (!calls_load(calls, epoch, error))
		return false;
	for (size_t i = 0; i < batch->rows; i++) {
		uint32_t image = names_image(epoch, array_number_or(&c[LINE_IMAGE], i, 0));
		const struct line_row line = {
			.start = array_number_or(&c[LINE_START], i, 0),
			.length = array_number_or(&c[LINE_LENGTH], i, 0),
			.file = names_text(epoch, array_number_or(&c[LINE_FILE], i, 0)),
			.line = (uint32_t)array_number_or(&c[LINE_LINE], i, 0),
			.call = call_of(calls, array_number_or(&c[LINE_SYMBOL], i, 0)),
		};

		if (image > NAMES_LOST && line.length > 0)
			append(calls->rows, image, true, &line);
	}
	return true;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* Returns the epochs that have symbols or lines, as a sorted array of uint64_t. */
static GArray *find_epochs(const struct names *names, GError **error)
{
	g_autoptr(GArray) epochs = g_array_new(FALSE, FALSE, sizeof(uint64_t));
	struct prof_chunks *chunks = NULL;
	struct prof_chunk chunk;
	int r = prof_chunks_new(names->reader, 0, &chunks);

	while (r == 0 && (r = prof_chunks_next(chunks, &chunk)) == 0) {
		uint64_t epoch = chunk.epoch;

		if (chunk.table == PROF_TABLE_SYMBOL || chunk.table == PROF_TABLE_LINE)
			g_array_append_val(epochs, epoch);
	}
	prof_chunks_free(chunks);
	if (r != PROF_END) {
		capture_error(error, r, _("cannot read the symbols of the capture"));
		return NULL;
	}
	sorted_finalize(epochs, sorted_compare);
	return g_steal_pointer(&epochs);
}

/* Reads both tables of an epoch together, so that the epoch's names are loaded only once. */
static bool read_epoch(struct epoch_calls *calls, struct names *names, uint32_t epoch,
		       GError **error)
{
	const struct prof_cursor_options symbols = { .table = PROF_TABLE_SYMBOL,
						     .columns = symbol_columns,
						     .n_columns = ARRAY_SIZE(symbol_columns),
						     .epoch = epoch };
	const struct prof_cursor_options lines = { .table = PROF_TABLE_LINE,
						   .columns = line_columns,
						   .n_columns = ARRAY_SIZE(line_columns),
						   .epoch = epoch };

	return names_each_batch(names, &symbols, add_symbols, calls->rows, error) &&
	       names_each_batch(names, &lines, add_lines, calls, error);
}

struct symbol_rows *symbol_rows_load(struct names *names, GError **error)
{
	g_autoptr(GArray) epochs = find_epochs(names, error);
	struct symbol_rows *rows;
	struct epoch_calls calls = { 0 };
	bool ok = true;

	if (!epochs)
		return NULL;
	calls.rows = rows = g_new0(struct symbol_rows, 1);
	rows->images = g_array_new(FALSE, TRUE, sizeof(struct image_rows));
	g_array_set_clear_func(rows->images, image_clear);
	rows->calls = g_array_new(FALSE, TRUE, sizeof(struct line_call));
	g_array_set_size(rows->calls, 1);
	for (guint i = 0; ok && i < epochs->len; i++)
		ok = read_epoch(&calls, names, (uint32_t)g_array_index(epochs, uint64_t, i), error);
	calls_done(&calls);
	if (!ok) {
		symbol_rows_free(rows);
		return NULL;
	}
	ARRAY_EACH(struct image_rows, of, rows->images) {
		if (of->symbols)
			sorted_finalize(of->symbols, compare_symbols);
		if (of->lines)
			sorted_finalize(of->lines, sorted_compare);
	}
	return rows;
}

bool symbol_rows_any(const struct symbol_rows *rows, uint32_t image)
{
	const struct image_rows *of = rows_of(rows, image);

	return of && of->symbols;
}

struct symbol_row *symbol_rows_find(const struct symbol_rows *rows, uint32_t image, uint64_t offset)
{
	const struct image_rows *of = rows_of(rows, image);
	const guint n = of ? sorted_array_upto(of->symbols, sizeof(struct symbol_row), offset) : 0;

	for (guint i = n; i > 0 && n - i < SYMBOL_NESTING; i--) {
		struct symbol_row *s = &g_array_index(of->symbols, struct symbol_row, i - 1);

		/* A symbol without a length ends at the next symbol, whose index is n. */
		if (s->length ? offset - s->start < s->length : i == n)
			return s;
	}
	return NULL;
}

/* Compares pointers, because names are interned. */
struct symbol_row *symbol_rows_named(const struct symbol_rows *rows, uint32_t image,
				     const char *name)
{
	struct image_rows *of = rows_of(rows, image);

	if (!of || !of->symbols)
		return NULL;
	if (of->by_name)
		return g_hash_table_lookup(of->by_name, name);
	of->by_name = g_hash_table_new(NULL, NULL);
	ARRAY_EACH(struct symbol_row, row, of->symbols) {
		gpointer key = (gpointer)row->name;

		if (!row->raw_name[clone_suffix_skip(row->raw_name)])
			g_hash_table_insert(of->by_name, key,
					    g_hash_table_contains(of->by_name, key) ? NULL : row);
	}
	return g_hash_table_lookup(of->by_name, name);
}

const struct line_row *symbol_rows_line(const struct symbol_rows *rows, uint32_t image,
					uint64_t offset)
{
	const struct image_rows *of = rows_of(rows, image);
	const guint n = of ? sorted_array_upto(of->lines, sizeof(struct line_row), offset) : 0;
	const struct line_row *line;

	if (n == 0)
		return NULL;
	line = &g_array_index(of->lines, struct line_row, n - 1);
	return offset - line->start < line->length ? line : NULL;
}

const struct line_call *symbol_rows_call(const struct symbol_rows *rows, uint32_t number)
{
	return &g_array_index(rows->calls, struct line_call, number);
}
