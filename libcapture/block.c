/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Block - rows of one table, collected in columns
 *
 * A row is split when it is added, so that each column's values are contiguous for the encoder.
 * Capacity doubles, and prof_block_reset() keeps it: a block that is reused allocates nothing after
 * its first chunks.
 *
 * Invariants: (1) a row is added whole or not at all  [test-capture-writer: block limits]
 *             (2) every block can be encoded into one chunk that a reader accepts: rows <=
 *                 PROF_MAX_ROWS, memory <= BLOCK_BYTES_MAX < PROF_MAX_PAYLOAD
 *                 [test-capture-writer: block limits]
 *             (3) a null stores the number of the row before, which compresses well; readers show 0
 * Not thread safe. chunk.c encodes blocks.
 */
#include "libcapture/block.h"

#include <assert.h>

/* Leaves room for descriptors. An encoded column is never larger than a plain one (codec.c). */
#define BLOCK_BYTES_MAX (48u << 20)
#define BLOCK_ROWS_FIRST 256u
#define BLOCK_ITEMS_FIRST 1024u

static_assert(BLOCK_BYTES_MAX + (8u << 20) < PROF_MAX_PAYLOAD, "a full block fits into a chunk");

PROF_PUBLIC const char prof_null_marker = 0;

PROF_PUBLIC int prof_block_new(const struct prof_table_def *def, struct prof_block **ret_block)
{
	struct prof_block *block;

	if (!schema_table_valid(def))
		return -EINVAL;
	block = calloc(1, sizeof(*block) + def->n_columns * sizeof(*block->columns));
	if (!block)
		return -ENOMEM;
	block->def = def;
	block->is_numbers = true;
	for (size_t i = 0; i < def->n_columns; i++) {
		struct block_column *column = &block->columns[i];

		column->form = schema_column_form(&def->columns[i]);
		column->nullable = def->columns[i].flags & PROF_COLUMN_NULLABLE;
		if (column->form == FORM_NONE) {
			free(block);
			return -EINVAL;
		}
		block->is_numbers = block->is_numbers && column->form == FORM_SCALAR;
		block->nullable |= (uint64_t)column->nullable << i;
		block->items |= (uint64_t)(column->form != FORM_SCALAR) << i;
		block->row_bytes += sizeof(uint64_t) + column->nullable;
	}
	block->max_rows = MIN_OF((size_t)PROF_MAX_ROWS, BLOCK_BYTES_MAX / block->row_bytes);
	*ret_block = block;
	return 0;
}

PROF_PUBLIC void prof_block_free(struct prof_block *block)
{
	if (!block)
		return;
	for (size_t i = 0; i < block->def->n_columns; i++) {
		free(block->columns[i].numbers);
		free(block->columns[i].lengths);
		free(block->columns[i].bytes);
		free(block->columns[i].nulls);
	}
	free(block);
}

static int grow(void *array, size_t item_size, size_t capacity)
{
	void *grown = realloc(*(void **)array, item_size * capacity);

	if (!grown)
		return -ENOMEM;
	*(void **)array = grown;
	return 0;
}

static int block_grow(struct prof_block *block)
{
	size_t capacity =
		MIN_OF(block->max_rows, MAX_OF((size_t)BLOCK_ROWS_FIRST, block->capacity * 2));
	int r = 0;

	for (size_t i = 0; !r && i < block->def->n_columns; i++) {
		struct block_column *column = &block->columns[i];

		r = column->form == FORM_SCALAR
			    ? grow(&column->numbers, sizeof(uint64_t), capacity)
			    : grow(&column->lengths, sizeof(uint64_t), capacity);
		if (!r && column->nullable)
			r = grow(&column->nulls, 1, capacity);
	}
	if (!r)
		block->capacity = capacity;
	return r;
}

static int column_reserve(struct block_column *column, size_t items)
{
	size_t need = column->n_items + items,
	       capacity = MAX_OF(column->capacity, (size_t)BLOCK_ITEMS_FIRST);
	int r;

	if (need <= column->capacity)
		return 0;
	while (capacity < need)
		capacity *= 2;
	r = column->form == FORM_LIST ? grow(&column->numbers, sizeof(uint64_t), capacity)
				      : grow(&column->bytes, 1, capacity);
	if (!r)
		column->capacity = capacity;
	return r;
}

/* Reserves a row's items, so that storing the row cannot fail. */
static int reserve_items(struct prof_block *block, const struct prof_value *values, uint64_t items,
			 size_t *ret_bytes)
{
	size_t bytes = 0;

	for (uint64_t rest = items; rest; rest &= rest - 1) {
		unsigned int i = (unsigned int)__builtin_ctzll(rest);
		bool is_list = block->columns[i].form == FORM_LIST;

		if (values[i].number > PROF_MAX_BLOCK_BYTES / (is_list ? sizeof(uint64_t) : 1))
			return PROF_LIMIT;
		bytes += is_list ? values[i].number * sizeof(uint64_t) : values[i].number;
	}
	if (bytes > PROF_MAX_BLOCK_BYTES - block->item_bytes ||
	    (block->rows + 1) * block->row_bytes + block->item_bytes + bytes > BLOCK_BYTES_MAX)
		return PROF_LIMIT;
	for (uint64_t rest = items; rest; rest &= rest - 1) {
		unsigned int i = (unsigned int)__builtin_ctzll(rest);
		int r = column_reserve(&block->columns[i], values[i].number);

		if (r)
			return r;
	}
	*ret_bytes = bytes;
	return 0;
}

/* Stores nulls of nullable columns. A null number is stored as the number of the row before. */
static void store_nulls(struct prof_block *block, size_t row, uint64_t nulls)
{
	for (uint64_t rest = block->nullable; rest; rest &= rest - 1) {
		unsigned int i = (unsigned int)__builtin_ctzll(rest);
		struct block_column *column = &block->columns[i];
		bool null = nulls >> i & 1;

		column->nulls[row] = null;
		column->n_nulls += null;
		if (null && column->form == FORM_SCALAR)
			column->numbers[row] = row > 0 ? column->numbers[row - 1] : 0;
	}
}

/* Reserves a row without its items. */
static int make_room(struct prof_block *block)
{
	if (block->rows == block->max_rows)
		return PROF_LIMIT;
	return block->rows == block->capacity ? block_grow(block) : 0;
}

PROF_PUBLIC int prof_block_add(struct prof_block *block, const struct prof_value *values)
{
	size_t n = block->def->n_columns, row = block->rows, item_bytes = 0;
	uint64_t nulls = 0;
	int r = make_room(block);

	for (size_t i = 0; i < n; i++)
		nulls |= (uint64_t)(values[i].data == &prof_null_marker) << i;
	if (r == 0 && nulls & ~block->nullable)
		r = -EINVAL;
	if (r == 0)
		r = reserve_items(block, values, block->items & ~nulls, &item_bytes);
	if (r != 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		struct block_column *column = &block->columns[i];
		size_t items = nulls >> i & 1 ? 0 : values[i].number;

		if (column->form == FORM_SCALAR) {
			column->numbers[row] = values[i].number;
			continue;
		}
		column->lengths[row] = items;
		if (items == 0)
			continue;
		if (column->form == FORM_LIST)
			memcpy(column->numbers + column->n_items, values[i].data,
			       items * sizeof(uint64_t));
		else
			memcpy(column->bytes + column->n_items, values[i].data, items);
		column->n_items += items;
	}
	store_nulls(block, row, nulls);
	block->item_bytes += item_bytes;
	block->rows = row + 1;
	return 0;
}

PROF_PUBLIC int prof_block_add_numbers(struct prof_block *block, const uint64_t *numbers,
				       uint64_t nulls)
{
	size_t n = block->def->n_columns, row = block->rows;
	int r = make_room(block);

	if (r != 0)
		return r;
	if (!block->is_numbers || nulls & ~block->nullable)
		return -EINVAL;
	for (size_t i = 0; i < n; i++)
		block->columns[i].numbers[row] = numbers[i];
	if (block->nullable)
		store_nulls(block, row, nulls);
	block->rows = row + 1;
	return 0;
}

PROF_PUBLIC size_t prof_block_rows(const struct prof_block *block)
{
	return block->rows;
}

PROF_PUBLIC size_t prof_block_bytes(const struct prof_block *block)
{
	return block->rows * block->row_bytes + block->item_bytes;
}

PROF_PUBLIC const struct prof_table_def *prof_block_table(const struct prof_block *block)
{
	return block->def;
}

PROF_PUBLIC void prof_block_set_epoch(struct prof_block *block, uint32_t epoch)
{
	block->epoch = epoch;
}

PROF_PUBLIC void prof_block_reset(struct prof_block *block)
{
	block->rows = 0;
	block->item_bytes = 0;
	for (size_t i = 0; i < block->def->n_columns; i++) {
		block->columns[i].n_items = 0;
		block->columns[i].n_nulls = 0;
	}
}
