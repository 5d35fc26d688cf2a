/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Dictionary - the rows of one dictionary table in one epoch, by id
 *
 * Rows are loaded through a cursor and kept in columns. Ids are usually close together and found
 * through an array. If a file spreads them out, a sorted index is used, so memory is never
 * proportional to the range of ids.
 *
 * Invariants: (1) memory is limited by PROF_MAX_DICTIONARY_ROWS and _BYTES, whatever chunks claim
 *                 [test-capture-writer: dictionary bomb]
 *             (2) the last row of an id wins  [test-capture-writer: hostile ids]
 */
#include "base/order.h"
#include "libcapture/reader.h"

/* Largest range of ids for which n rows are found through an array. */
#define DENSE_RANGE(n) (4 * (uint64_t)(n) + 1024)

struct id_row {
	uint64_t id;
	uint32_t row;
};

/* Column of a dictionary. */
struct collected {
	struct prof_array array;
	uint64_t *numbers;
	uint64_t *offsets;
	uint8_t *bytes;
	uint8_t *nulls;
	size_t items, capacity; /* for LIST, TEXT and BINARY columns */
	enum column_form form;
};

struct prof_dictionary {
	size_t rows, capacity;
	size_t n_columns;
	struct collected *columns; /* n_columns entries, and one for the ids */
	uint64_t item_bytes;
	uint64_t lowest;
	uint64_t range;        /* size of `dense` */
	uint32_t *dense;       /* indexed by id - lowest: row + 1, 0: no row; NULL: use `sorted` */
	struct id_row *sorted; /* sorted by id; each id once */
	size_t n_sorted;
};

static int grow(void *array, size_t capacity, size_t item_size)
{
	void *grown = reallocarray(*(void **)array, capacity, item_size);

	if (!grown)
		return -ENOMEM;
	*(void **)array = grown;
	return 0;
}

static struct collected *ids_of(const struct prof_dictionary *dictionary)
{
	return &dictionary->columns[dictionary->n_columns];
}

/* Reserves `rows` more rows in all columns. */
static int reserve_rows(struct prof_dictionary *dictionary, size_t rows)
{
	size_t need = dictionary->rows + rows, capacity = MAX_OF(dictionary->capacity, (size_t)256);
	int r = 0;

	if (need > PROF_MAX_DICTIONARY_ROWS)
		return PROF_LIMIT;
	if (need <= dictionary->capacity)
		return 0;
	while (capacity < need)
		capacity *= 2;
	for (size_t i = 0; !r && i <= dictionary->n_columns; i++) {
		struct collected *column = &dictionary->columns[i];

		if (column->form == FORM_SCALAR)
			r = grow(&column->numbers, capacity, sizeof(uint64_t));
		else if (column->form != FORM_NONE)
			r = grow(&column->offsets, capacity + 1, sizeof(uint64_t));
		if (!r && column->nulls)
			r = grow(&column->nulls, capacity, 1);
	}
	if (!r)
		dictionary->capacity = capacity;
	return r;
}

static int reserve_items(struct prof_dictionary *dictionary, struct collected *column, size_t items)
{
	size_t item_size = column->form == FORM_LIST ? sizeof(uint64_t) : 1;
	size_t need = column->items + items, capacity = MAX_OF(column->capacity, (size_t)1024);

	if (items * item_size > PROF_MAX_DICTIONARY_BYTES - dictionary->item_bytes)
		return PROF_LIMIT;
	dictionary->item_bytes += items * item_size;
	if (need <= column->capacity)
		return 0;
	while (capacity < need)
		capacity *= 2;
	column->capacity = capacity;
	return column->form == FORM_LIST ? grow(&column->numbers, capacity, item_size)
					 : grow(&column->bytes, capacity, item_size);
}

/* Adds the nulls of a batch. All rows of a column that the chunk does not have are null. */
static int add_nulls(struct prof_dictionary *dictionary, struct collected *column,
		     const struct prof_array *array, size_t rows)
{
	bool absent = !array->numbers && !array->bytes;

	if (!array->nulls && !absent && !column->nulls)
		return 0;
	if (!column->nulls) {
		column->nulls = calloc(dictionary->capacity, 1);
		if (!column->nulls)
			return -ENOMEM;
	}
	if (array->nulls)
		memcpy(column->nulls + dictionary->rows, array->nulls, rows);
	else
		memset(column->nulls + dictionary->rows, absent, rows);
	return 0;
}

static int add_column(struct prof_dictionary *dictionary, struct collected *column,
		      const struct prof_array *array, size_t rows)
{
	size_t at = dictionary->rows, items = array->offsets ? array->offsets[rows] : 0;
	int r;

	if (column->form == FORM_NONE)
		return 0;
	r = add_nulls(dictionary, column, array, rows);
	if (r)
		return r;
	if (column->form == FORM_SCALAR) {
		if (array->numbers)
			memcpy(column->numbers + at, array->numbers, rows * sizeof(uint64_t));
		else
			memset(column->numbers + at, 0, rows * sizeof(uint64_t));
		return 0;
	}
	r = reserve_items(dictionary, column, items);
	if (r)
		return r;
	for (size_t i = 0; i <= rows; i++)
		column->offsets[at + i] = column->items + (array->offsets ? array->offsets[i] : 0);
	if (items > 0 && column->form == FORM_LIST)
		memcpy(column->numbers + column->items, array->numbers, items * sizeof(uint64_t));
	else if (items > 0)
		memcpy(column->bytes + column->items, array->bytes, items);
	column->items += items;
	return 0;
}

static int add_batch(struct prof_dictionary *dictionary, const struct prof_batch *batch)
{
	int r = reserve_rows(dictionary, batch->rows);

	/* If a chunk lacks the id column, drop its rows, because nothing can refer to them. */
	if (r || !batch->columns[dictionary->n_columns].numbers)
		return r;
	for (size_t i = 0; !r && i <= dictionary->n_columns; i++)
		r = add_column(dictionary, &dictionary->columns[i], &batch->columns[i],
			       batch->rows);
	if (!r)
		dictionary->rows += batch->rows;
	return r;
}

COMPARE_BY(compare_id_rows, struct id_row, ORDER(a->id, b->id), ORDER(a->row, b->row))

static int index_sorted(struct prof_dictionary *dictionary)
{
	const uint64_t *ids = ids_of(dictionary)->numbers;
	size_t n = 0;

	dictionary->sorted = calloc(dictionary->rows, sizeof(*dictionary->sorted));
	if (!dictionary->sorted)
		return -ENOMEM;
	for (size_t i = 0; i < dictionary->rows; i++)
		dictionary->sorted[i] = (struct id_row){ .id = ids[i], .row = i };
	qsort(dictionary->sorted, dictionary->rows, sizeof(*dictionary->sorted), compare_id_rows);
	for (size_t i = 0; i < dictionary->rows; i++) {
		n -= n > 0 && dictionary->sorted[n - 1].id == dictionary->sorted[i].id;
		dictionary->sorted[n++] = dictionary->sorted[i];
	}
	dictionary->n_sorted = n;
	return 0;
}

static int index_ids(struct prof_dictionary *dictionary)
{
	const uint64_t *ids = ids_of(dictionary)->numbers;
	uint64_t lowest = UINT64_MAX, highest = 0;

	if (dictionary->rows == 0)
		return 0;
	for (size_t i = 0; i < dictionary->rows; i++) {
		lowest = MIN_OF(lowest, ids[i]);
		highest = MAX_OF(highest, ids[i]);
	}
	if (highest - lowest >= DENSE_RANGE(dictionary->rows))
		return index_sorted(dictionary);
	dictionary->lowest = lowest;
	dictionary->range = highest - lowest + 1;
	dictionary->dense = calloc(dictionary->range, sizeof(*dictionary->dense));
	if (!dictionary->dense)
		return -ENOMEM;
	for (size_t i = 0; i < dictionary->rows; i++)
		dictionary->dense[ids[i] - lowest] = i + 1;
	return 0;
}

/* Sets `ids` to the ids of the requested columns, followed by that of the column with the rows'
 * ids. */
static int dictionary_prepare(struct prof_dictionary *dictionary, const struct prof_table_def *def,
			      const uint16_t *columns, size_t n_columns,
			      uint16_t ids[PROF_MAX_COLUMNS + 1])
{
	dictionary->n_columns = columns ? n_columns : def->n_columns;
	if (dictionary->n_columns > PROF_MAX_COLUMNS)
		return -EINVAL;
	dictionary->columns = calloc(dictionary->n_columns + 1, sizeof(*dictionary->columns));
	if (!dictionary->columns)
		return -ENOMEM;
	for (size_t i = 0; i < dictionary->n_columns; i++)
		ids[i] = columns ? columns[i] : def->columns[i].id;
	ids[dictionary->n_columns] = def->columns[0].id;
	for (size_t i = 0; i <= dictionary->n_columns; i++)
		for (size_t c = 0; c < def->n_columns; c++)
			if (def->columns[c].id == ids[i])
				dictionary->columns[i].form = schema_column_form(&def->columns[c]);
	return 0;
}

static int dictionary_read(struct prof_dictionary *dictionary, const struct prof_reader *reader,
			   const struct prof_cursor_options *options)
{
	struct prof_cursor *cursor;
	struct prof_batch batch;
	int r = prof_cursor_new(reader, options, &cursor);

	if (r)
		return r;
	while (!(r = prof_cursor_next(cursor, &batch))) {
		r = add_batch(dictionary, &batch);
		if (r)
			break;
	}
	prof_cursor_free(cursor);
	return r == PROF_END ? index_ids(dictionary) : r;
}

PROF_PUBLIC int prof_dictionary_load(const struct prof_reader *reader, unsigned int table,
				     uint32_t epoch, const uint16_t *columns, size_t n_columns,
				     struct prof_dictionary **ret_dictionary)
{
	const struct prof_table_def *def = schema_find(&reader->schema, table);
	uint16_t ids[PROF_MAX_COLUMNS + 1];
	struct prof_cursor_options options = { .table = table, .epoch = epoch, .columns = ids };
	struct prof_dictionary *dictionary;
	int r;

	if (!def)
		return PROF_NO_TABLE;
	if (!(def->flags & PROF_TABLE_DICTIONARY))
		return -EINVAL;
	dictionary = calloc(1, sizeof(*dictionary));
	if (!dictionary)
		return -ENOMEM;
	r = dictionary_prepare(dictionary, def, columns, n_columns, ids);
	options.n_columns = dictionary->n_columns + 1;
	if (!r)
		r = dictionary_read(dictionary, reader, &options);
	if (r) {
		prof_dictionary_free(dictionary);
		return r;
	}
	for (size_t i = 0; i < dictionary->n_columns; i++) {
		struct collected *column = &dictionary->columns[i];

		column->array = (struct prof_array){
			.numbers = column->numbers,
			.bytes = column->bytes,
			.offsets = column->offsets,
			.nulls = column->nulls,
		};
	}
	*ret_dictionary = dictionary;
	return 0;
}

PROF_PUBLIC void prof_dictionary_free(struct prof_dictionary *dictionary)
{
	if (!dictionary)
		return;
	for (size_t i = 0; dictionary->columns && i <= dictionary->n_columns; i++) {
		free(dictionary->columns[i].numbers);
		free(dictionary->columns[i].offsets);
		free(dictionary->columns[i].bytes);
		free(dictionary->columns[i].nulls);
	}
	free(dictionary->columns);
	free(dictionary->dense);
	free(dictionary->sorted);
	free(dictionary);
}

PROF_PUBLIC ssize_t prof_dictionary_find(const struct prof_dictionary *dictionary, uint64_t id)
{
	size_t low = 0, high = dictionary->n_sorted;

	if (id == 0)
		return -1;
	if (dictionary->dense)
		return id - dictionary->lowest < dictionary->range
			       ? (ssize_t)dictionary->dense[id - dictionary->lowest] - 1
			       : -1;
	while (low < high) {
		size_t middle = (low + high) / 2;

		if (dictionary->sorted[middle].id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low < dictionary->n_sorted && dictionary->sorted[low].id == id
		       ? (ssize_t)dictionary->sorted[low].row
		       : -1;
}

PROF_PUBLIC size_t prof_dictionary_rows(const struct prof_dictionary *dictionary)
{
	return dictionary->rows;
}

PROF_PUBLIC const struct prof_array *prof_dictionary_column(
	const struct prof_dictionary *dictionary, size_t i)
{
	return &dictionary->columns[i].array;
}
