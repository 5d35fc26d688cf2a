/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Symbol-rows - the symbols that a capture carries, by image
 *
 * Invariants: (1) the symbols of an image are sorted by start, then by falling length
 *                 [test-names: symbols]
 *             (2) a lookup checks no more than SYMBOL_NESTING symbols  [test-names: symbols]
 *             (3) a symbol that many epochs repeat is kept once, even while loading
 *                 [test_readers: memory by length]
 */
#include "config.h"

#include "tools/common/symbol-rows.h"

#include "tools/common/capture-error.h"
#include "tools/common/clone-suffix.h"

/* How many symbols before the nearest are checked for one that encloses the offset. */
#define SYMBOL_NESTING 16

/* A list is sorted at this length, then whenever it has doubled since. */
#define SETTLE_AT 256

struct image_symbols {
	GArray *rows; /* struct symbol_row, or NULL */
	guint settle_at;
	/* name → struct symbol_row, or NULL if several have it; made by the first lookup */
	GHashTable *by_name;
};

struct symbol_rows {
	GArray *images; /* struct image_symbols, by image index */
};

static struct image_symbols *symbols_at(const struct symbol_rows *rows, uint32_t image)
{
	return &g_array_index(rows->images, struct image_symbols, image);
}

void symbol_rows_free(struct symbol_rows *rows)
{
	if (!rows)
		return;
	g_array_unref(rows->images);
	g_free(rows);
}

static void image_clear(gpointer image)
{
	struct image_symbols *symbols = image;

	if (symbols->rows)
		g_array_unref(symbols->rows);
	if (symbols->by_name)
		g_hash_table_unref(symbols->by_name);
}

static gint compare_symbols(gconstpointer left, gconstpointer right)
{
	const struct symbol_row *a = left, *b = right;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	if (a->length != b->length)
		return a->length > b->length ? -1 : 1;
	return 0;
}

/* Sorts, and drops duplicates from different epochs; the later one is kept because it may be more
 * complete. */
static void settle(GArray *symbols)
{
	struct symbol_row *at = (struct symbol_row *)(void *)symbols->data;
	guint kept = 0;

	g_array_sort(symbols, compare_symbols);
	for (guint i = 0; i < symbols->len; i++) {
		kept -= kept > 0 && compare_symbols(&at[kept - 1], &at[i]) == 0;
		at[kept++] = at[i];
	}
	g_array_set_size(symbols, kept);
}

static void add_symbol(struct symbol_rows *rows, uint32_t image, const struct symbol_row *symbol)
{
	struct image_symbols *symbols;

	if (rows->images->len <= image)
		g_array_set_size(rows->images, image + 1);
	symbols = symbols_at(rows, image);
	if (!symbols->rows) {
		symbols->rows = g_array_new(FALSE, FALSE, sizeof(struct symbol_row));
		symbols->settle_at = SETTLE_AT;
	}
	g_array_append_vals(symbols->rows, symbol, 1);
	if (symbols->rows->len < symbols->settle_at)
		return;
	settle(symbols->rows);
	symbols->settle_at = MAX_OF((guint)SETTLE_AT, 2 * symbols->rows->len);
}

static const uint16_t symbol_columns[] = { PROF_SYMBOL_IMAGE,    PROF_SYMBOL_START,
					   PROF_SYMBOL_LENGTH,   PROF_SYMBOL_NAME,
					   PROF_SYMBOL_RAW_NAME, PROF_SYMBOL_FILE,
					   PROF_SYMBOL_LINE,     PROF_SYMBOL_INLINE_PARENT };
enum { IMAGE, START, LENGTH, NAME, RAW_NAME, SOURCE_FILE, LINE, INLINE_PARENT };

static void add_batch(struct symbol_rows *rows, struct names_epoch *epoch,
		      const struct prof_batch *batch)
{
	const struct prof_array *c = batch->columns;

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

		if (image <= NAMES_LOST || !symbol.name ||
		    array_number_or(&c[INLINE_PARENT], i, 0) != 0)
			continue;
		if (!symbol.raw_name)
			symbol.raw_name = symbol.name;
		symbol.name = names_function(epoch->names, symbol.name);
		add_symbol(rows, image, &symbol);
	}
}

static bool load(struct symbol_rows *rows, struct names *names, struct prof_cursor *cursor,
		 GError **error)
{
	struct prof_batch batch;
	int r;

	while ((r = prof_cursor_next(cursor, &batch)) == 0) {
		struct names_epoch *epoch = names_epoch(names, batch.epoch, error);

		if (!epoch || !names_load_identities(epoch, error))
			return false;
		add_batch(rows, epoch, &batch);
	}
	if (r != PROF_END)
		return capture_error(error, r, "cannot read the symbols of the capture");
	for (guint i = 0; i < rows->images->len; i++)
		if (symbols_at(rows, i)->rows)
			settle(symbols_at(rows, i)->rows);
	return true;
}

struct symbol_rows *symbol_rows_load(struct names *names, GError **error)
{
	const struct prof_cursor_options options = { .table = PROF_TABLE_SYMBOL,
						     .columns = symbol_columns,
						     .n_columns = ARRAY_SIZE(symbol_columns) };
	struct symbol_rows *rows = g_new0(struct symbol_rows, 1);
	struct prof_cursor *cursor;
	bool ok;
	int r;

	rows->images = g_array_new(FALSE, TRUE, sizeof(struct image_symbols));
	g_array_set_clear_func(rows->images, image_clear);
	r = prof_cursor_new(names->reader, &options, &cursor);
	if (r == PROF_NO_TABLE)
		return rows;
	if (r != 0) {
		capture_error(error, r, "cannot read the symbols of the capture");
		symbol_rows_free(rows);
		return NULL;
	}
	ok = load(rows, names, cursor, error);
	prof_cursor_free(cursor);
	if (!ok) {
		symbol_rows_free(rows);
		return NULL;
	}
	return rows;
}

bool symbol_rows_any(const struct symbol_rows *rows, uint32_t image)
{
	return image < rows->images->len && symbols_at(rows, image)->rows;
}

struct symbol_row *symbol_rows_find(const struct symbol_rows *rows, uint32_t image, uint64_t offset)
{
	GArray *symbols = image < rows->images->len ? symbols_at(rows, image)->rows : NULL;
	struct symbol_row *at;
	guint low = 0, high;

	if (!symbols)
		return NULL;
	at = (struct symbol_row *)(void *)symbols->data;
	high = symbols->len;
	while (low < high) {
		guint middle = low + (high - low) / 2;

		if (at[middle].start <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	for (guint i = low; i > 0 && low - i < SYMBOL_NESTING; i--) {
		const struct symbol_row *s = &at[i - 1];

		/* A symbol without a length reaches to the next symbol, which `low` is past. */
		if (s->length ? offset - s->start < s->length : i == low)
			return &at[i - 1];
	}
	return NULL;
}

/* Names are interned, so pointers are compared. */
static void index_names(struct image_symbols *symbols)
{
	symbols->by_name = g_hash_table_new(NULL, NULL);
	for (guint i = 0; i < symbols->rows->len; i++) {
		struct symbol_row *row = &g_array_index(symbols->rows, struct symbol_row, i);
		gpointer name = (gpointer)row->name;

		if (row->raw_name[clone_suffix_skip(row->raw_name)])
			continue;
		g_hash_table_insert(symbols->by_name, name,
				    g_hash_table_contains(symbols->by_name, name) ? NULL : row);
	}
}

struct symbol_row *symbol_rows_named(const struct symbol_rows *rows, uint32_t image,
				     const char *name)
{
	struct image_symbols *symbols = image < rows->images->len ? symbols_at(rows, image) : NULL;

	if (!symbols || !symbols->rows)
		return NULL;
	if (!symbols->by_name)
		index_names(symbols);
	return g_hash_table_lookup(symbols->by_name, name);
}
