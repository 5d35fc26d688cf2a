/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Invariants: (1) a row is copied once per epoch, and a cycle of references is cut where it closes
 *                 [test-rewrite: cycle]
 *             (2) chains within a table (stacks) are followed in a loop; between tables, recursion
 *                 is bounded
 */
#include "config.h"

#include "tools/profcapture/row-copier.h"

#include "tools/common/capture-error.h"

#include <glib/gi18n.h>

/* Id of a row whose references are being copied. */
#define BUSY (NEW_CAPTURE_LOST - 1)
#define MAX_DEPTH 32

void copied_row_done(struct copied_row *row)
{
	for (unsigned i = 0; i < row->n_lists; i++)
		g_free(row->lists[i]);
	row->n_lists = 0;
}

void row_copier_init(struct row_copier *copier, const struct capture *from, struct new_capture *to)
{
	*copier = (struct row_copier){ .from = from, .to = to };
	copier->tables = prof_reader_tables(from->reader, &copier->n_tables);
	copier->dictionaries = g_new0(struct copied_dictionary, copier->n_tables + 1);
	copier->used_images = g_byte_array_new();
}

void row_copier_use(struct row_copier *copier, uint32_t epoch)
{
	if (copier->epoch == epoch)
		return;
	for (size_t i = 0; i < copier->n_tables; i++) {
		prof_dictionary_free(copier->dictionaries[i].rows);
		g_free(copier->dictionaries[i].ids);
		copier->dictionaries[i] = (struct copied_dictionary){ 0 };
	}
	copier->epoch = epoch;
}

void row_copier_done(struct row_copier *copier)
{
	if (!copier->dictionaries)
		return;
	row_copier_use(copier, UINT32_MAX);
	row_copier_use(copier, 0);
	g_free(copier->dictionaries);
	g_byte_array_unref(copier->used_images);
	g_clear_error(&copier->error);
	*copier = (struct row_copier){ 0 };
}

void row_copier_forget(struct row_copier *copier)
{
	for (size_t i = 0; i < copier->n_tables; i++) {
		struct copied_dictionary *dictionary = &copier->dictionaries[i];

		if (dictionary->ids)
			memset(dictionary->ids, 0,
			       prof_dictionary_rows(dictionary->rows) * sizeof(*dictionary->ids));
	}
}

static struct copied_dictionary *dictionary_of(struct row_copier *copier, size_t table)
{
	struct copied_dictionary *dictionary = &copier->dictionaries[table];
	int r;

	if (dictionary->loaded || copier->error)
		return dictionary;
	r = prof_dictionary_load(copier->from->reader, copier->tables[table]->id, copier->epoch,
				 NULL, 0, &dictionary->rows);
	dictionary->loaded = true;
	if (r == 0)
		dictionary->ids = g_new0(uint32_t, prof_dictionary_rows(dictionary->rows) + 1);
	else if (r != PROF_NO_TABLE)
		capture_error(&copier->error, r, _("cannot read table '%s' of '%s'"),
			      copier->tables[table]->name, copier->from->file);
	return dictionary;
}

/* Returns the index of a table; SIZE_MAX: the capture lacks it. Tables are sorted by id and have
 * nearly all ids from 1 on, so the search rarely takes a step. */
static size_t index_of(const struct row_copier *copier, unsigned id)
{
	size_t i = MIN_OF(copier->n_tables, (size_t)id);

	while (i > 0 && copier->tables[i - 1]->id > id)
		i--;
	return i > 0 && copier->tables[i - 1]->id == id ? i - 1 : SIZE_MAX;
}

/* ---- one row --------------------------------------------------------------------------------- */

static struct prof_value translate_list(struct row_copier *copier,
					const struct prof_column_def *column,
					const struct prof_array *array, size_t row,
					struct copied_row *copied)
{
	uint64_t start = array->offsets[row], n = array->offsets[row + 1] - start;
	uint64_t *items;

	if (column->type != PROF_TYPE_REF)
		return PROF_BYTES(array->numbers + start, n);
	items = g_new(uint64_t, n + 1);
	copied->lists[copied->n_lists++] = items;
	for (uint64_t i = 0; i < n; i++)
		items[i] = row_copier_id(copier, column->ref, array->numbers[start + i]);
	return PROF_BYTES(items, n);
}

static struct prof_value translate_value(struct row_copier *copier,
					 const struct prof_column_def *column,
					 const struct prof_array *array, size_t row,
					 struct copied_row *copied)
{
	bool nullable = column->flags & PROF_COLUMN_NULLABLE;

	if ((array->nulls && array->nulls[row]) || (!array->numbers && !array->bytes))
		return nullable ? PROF_NULL : PROF_NUMBER(0);
	if (array->bytes)
		return PROF_BYTES(array->bytes + array->offsets[row],
				  array->offsets[row + 1] - array->offsets[row]);
	if (column->flags & PROF_COLUMN_LIST)
		return translate_list(copier, column, array, row, copied);
	if (column->type == PROF_TYPE_REF)
		return PROF_NUMBER(row_copier_id(copier, column->ref, array->numbers[row]));
	return PROF_NUMBER(array->numbers[row]);
}

/* Returns whether a row's parent violates the format, which requires a smaller id. Readers ignore
 * such parents. The copy must drop them, because new ids would hide the error. */
static bool is_bad_parent(const struct prof_table_def *def, unsigned column,
			  const struct prof_array *parents, const struct prof_array *ids,
			  size_t row)
{
	const struct prof_column_def *parent = &def->columns[column];

	return (def->flags & PROF_TABLE_DICTIONARY) && parent->type == PROF_TYPE_REF &&
	       parent->ref == def->id && parent->order == PROF_ORDER_DISTANCE &&
	       array_number_or(parents, row, 0) >= array_number_or(ids, row, 1);
}

void row_copier_translate(struct row_copier *copier, const struct prof_table_def *def,
			  const struct prof_array *columns, size_t row, struct copied_row *ret_row)
{
	ret_row->n_lists = 0;
	for (unsigned i = 0; i < def->n_columns; i++)
		ret_row->values[i] = is_bad_parent(def, i, &columns[i], &columns[0], row)
					     ? PROF_NUMBER(NEW_CAPTURE_LOST)
					     : translate_value(copier, &def->columns[i],
							       &columns[i], row, ret_row);
}

/* ---- dictionary rows ------------------------------------------------------------------------- */

static void note_image(struct row_copier *copier, uint64_t id)
{
	struct names_epoch *epoch = names_epoch(copier->from->names, copier->epoch, NULL);
	uint32_t image;
	guint before = copier->used_images->len;

	if (!epoch)
		return;
	image = names_image(epoch, id);
	if (before <= image) {
		g_byte_array_set_size(copier->used_images, image + 1);
		memset(copier->used_images->data + before, 0, image + 1 - before);
	}
	copier->used_images->data[image] = 1;
}

static void copy_dictionary_row(struct row_copier *copier, size_t table, size_t row)
{
	struct copied_dictionary *dictionary = &copier->dictionaries[table];
	const struct prof_table_def *def = copier->tables[table];
	struct prof_array columns[PROF_MAX_COLUMNS];
	CLEANUP_ROW struct copied_row copied;
	uint32_t id = NEW_CAPTURE_LOST;

	for (unsigned i = 0; i < def->n_columns; i++)
		columns[i] = *prof_dictionary_column(dictionary->rows, i);
	copier->depth++;
	row_copier_translate(copier, def, columns, row, &copied);
	copier->depth--;
	if (!copier->error)
		(void)new_capture_intern(copier->to, table, copied.values, &id, &copier->error);
	dictionary->ids[row] = id;
	if (def->id == PROF_TABLE_IMAGE)
		note_image(copier, array_number_or(&columns[0], row, 0));
}

/* Returns the row of the parent if it must be copied; -1 otherwise. */
static ssize_t parent_row(const struct copied_dictionary *dictionary,
			  const struct prof_table_def *def, unsigned column, size_t row)
{
	const struct prof_array *parents = prof_dictionary_column(dictionary->rows, column);
	uint64_t parent;
	ssize_t found;

	if (!array_number(parents, row, &parent) || parent == 0 ||
	    is_bad_parent(def, column, parents, prof_dictionary_column(dictionary->rows, 0), row))
		return -1;
	found = prof_dictionary_find(dictionary->rows, parent);
	return found < 0 || dictionary->ids[found] != 0 ? -1 : found;
}

/* Returns a row and its ancestors, without those that have been copied or are being copied, and
 * without their ancestors. Marks the returned rows as BUSY. */
static GArray *list_chain(struct copied_dictionary *dictionary, const struct prof_table_def *def,
			  size_t row)
{
	GArray *chain = g_array_new(FALSE, FALSE, sizeof(size_t));
	unsigned column = 1;
	ssize_t next;

	/* Find the column in which rows refer to other rows of the same table. */
	while (column < def->n_columns &&
	       (def->columns[column].type != PROF_TYPE_REF || def->columns[column].ref != def->id ||
		(def->columns[column].flags & PROF_COLUMN_LIST)))
		column++;
	for (;; row = (size_t)next) {
		g_array_append_val(chain, row);
		dictionary->ids[row] = BUSY;
		next = column < def->n_columns ? parent_row(dictionary, def, column, row) : -1;
		if (next < 0)
			return chain;
	}
}

uint32_t row_copier_id(struct row_copier *copier, unsigned table_id, uint64_t id)
{
	struct copied_dictionary *dictionary;
	g_autoptr(GArray) chain = NULL;
	size_t table;
	ssize_t row;

	if (id == 0)
		return 0;
	table = index_of(copier, table_id);
	if (table == SIZE_MAX || copier->depth > MAX_DEPTH)
		return NEW_CAPTURE_LOST;
	dictionary = dictionary_of(copier, table);
	row = dictionary->rows ? prof_dictionary_find(dictionary->rows, id) : -1;
	if (row < 0 || dictionary->ids[row] == BUSY) {
		copier->lost++;
		return NEW_CAPTURE_LOST;
	}
	if (dictionary->ids[row] != 0)
		return dictionary->ids[row];
	chain = list_chain(dictionary, copier->tables[table], (size_t)row);
	for (guint i = chain->len; i > 0; i--)
		copy_dictionary_row(copier, table, g_array_index(chain, size_t, i - 1));
	return dictionary->ids[row];
}

bool row_copier_ok(struct row_copier *copier, GError **error)
{
	if (!copier->error)
		return true;
	g_propagate_error(error, steal_ptr(&copier->error));
	return false;
}

bool row_copier_add(struct row_copier *copier, unsigned table_id, const struct prof_value *values,
		    GError **error)
{
	size_t table = index_of(copier, table_id);

	return row_copier_ok(copier, error) &&
	       (table == SIZE_MAX || new_capture_add(copier->to, table, values, error));
}
