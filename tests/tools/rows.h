/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Rows - generates rows of any table from their number
 *
 * Row i depends only on the table and on i, so that a reader can check rows without stored copies.
 * Values resemble those of a recording: times increase with jitter, some threads and stacks are
 * frequent, parents are a few rows before their children. These values do not show how well
 * recordings compress; benchmarks use recordings.
 */
#pragma once

#include "arch/base.h"
#include "libcapture/prof-capture.h"

#include <stdio.h>

#define ROWS_START UINT64_C(5000000000000) /* CLOCK_MONOTONIC of row 0 */
#define ROWS_STEP UINT64_C(500000)
#define ROWS_ITEMS 8

/* One row and the memory of its items. */
struct row {
	struct prof_value values[PROF_MAX_COLUMNS];
	uint64_t lists[PROF_MAX_COLUMNS][ROWS_ITEMS];
	char texts[PROF_MAX_COLUMNS][96];
};

/* Prefix of every non-empty text, to test text that a program puts into other users' recordings. */
static const char *rows_prefix = "";

/* splitmix64 */
static inline uint64_t rows_mix(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static inline uint64_t rows_time(uint64_t i)
{
	return ROWS_START + i * ROWS_STEP + rows_mix(i) % (ROWS_STEP / 2);
}

/* Returns the number of rows of a dictionary table. References are to these rows. */
static inline uint64_t rows_of_dictionary(unsigned int table)
{
	if (table == PROF_TABLE_SOURCE)
		return 1; /* one source, because samples of several are not counted together */
	return table == PROF_TABLE_STACK ? 400 : 40;
}

/* Returns a number from 1 to n; small numbers are much more frequent. */
static inline uint64_t rows_skewed(uint64_t random, uint64_t n)
{
	uint64_t a = random % n, b = (random >> 20) % n, c = (random >> 40) % n;

	return 1 + MIN_OF(MIN_OF(a, b), c);
}

static inline uint64_t rows_number(const struct prof_column_def *column, uint64_t i,
				   uint64_t random)
{
	uint64_t n = 0;
	double d = (double)(int64_t)(random % 2000000) / 16.0 - 1000.0;

	switch (column->type) {
	case PROF_TYPE_TIME:
		return rows_time(i) + (column->id ? random % 5000 : 0);
	case PROF_TYPE_BOOL:
		return random & 1;
	case PROF_TYPE_ENUM:
		while (column->values[n])
			n++;
		return rows_skewed(random, n) - 1;
	case PROF_TYPE_REF:
		if (column->order == PROF_ORDER_DISTANCE)
			return i > 0 ? i + 1 - rows_skewed(random, MIN_OF(i, (uint64_t)40)) : 0;
		return rows_skewed(random, rows_of_dictionary(column->ref));
	case PROF_TYPE_INT:
		return random % 8 ? 0 : (uint64_t) - (int64_t)(random % 100);
	case PROF_TYPE_FLOAT:
		memcpy(&n, &d, sizeof(n));
		return n;
	default:
		break;
	}
	if (column->order == PROF_ORDER_DELTA)
		return i + 1;
	if (column->unit == PROF_UNIT_ADDRESS)
		return UINT64_C(0x7f0000000000) + rows_skewed(random, 1 << 20) * 16;
	if (column->unit == PROF_UNIT_NS)
		return random % 100000;
	if (strcmp(column->name, "weight") == 0)
		return 1;
	return rows_skewed(random, strcmp(column->name, "cpu") == 0 ? 2 : 4000);
}

/* Makes every second mark the end of one of the four previous marks that may be starts. Half of
 * the ends have no id; some of the other ends are on another thread. */
static inline void rows_pair_marks(const struct prof_table_def *def, uint64_t i, struct row *row)
{
	static const uint16_t same[] = { PROF_MARK_GROUP, PROF_MARK_NAME, PROF_MARK_ID,
					 PROF_MARK_THREAD };
	uint64_t of = i % 2 && i > 8 ? i - 1 - rows_mix(i) % 4 * 2 : i;
	bool plain = rows_mix(of) % 2, elsewhere = !plain && i % 3 == 0;

	for (size_t k = 0; k < ARRAY_SIZE(same) - elsewhere; k++) {
		uint64_t random = rows_mix(of * 64 + same[k] + ((uint64_t)def->id << 40));

		row->values[same[k]].number = rows_number(&def->columns[same[k]], of, random);
	}
	if (plain)
		row->values[PROF_MARK_ID].number = 0;
	row->values[PROF_MARK_KIND].number = of == i ? rows_mix(i + 1) % 4 : PROF_MARK_END;
}

/* Makes row i of a table. */
static inline void rows_make(const struct prof_table_def *def, uint64_t i, struct row *row)
{
	for (size_t c = 0; c < def->n_columns; c++) {
		const struct prof_column_def *column = &def->columns[c];
		uint64_t random = rows_mix(i * 64 + c + ((uint64_t)def->id << 40));
		bool text = column->type == PROF_TYPE_TEXT || column->type == PROF_TYPE_BINARY;

		if (column->flags & PROF_COLUMN_NULLABLE && random % 3 == 0) {
			row->values[c] = PROF_NULL;
		} else if (column->flags & PROF_COLUMN_LIST) {
			/* all lists of a row have the same length */
			size_t n = rows_mix(i ^ (uint64_t)def->id << 40) % (ROWS_ITEMS + 1);

			for (size_t k = 0; k < n; k++)
				row->lists[c][k] = rows_number(column, i, rows_mix(random + k));
			row->values[c] = PROF_BYTES(row->lists[c], n);
		} else if (text) {
			int n = snprintf(row->texts[c], sizeof(row->texts[c]),
					 "%s/usr/lib/%s/module-%u.so.%u", rows_prefix, def->name,
					 (unsigned int)(random % 1000), (unsigned int)(i % 7));

			n = MIN_OF(n, (int)sizeof(row->texts[c]) - 1);
			row->values[c] = PROF_BYTES(row->texts[c], random % 11 ? (size_t)n : 0);
		} else {
			row->values[c] = PROF_NUMBER(rows_number(column, i, random));
		}
	}
	if (def->id == PROF_TABLE_MARK)
		rows_pair_marks(def, i, row);
}

/* Returns whether row r of a batch's column has this value; false if the column is missing. */
static inline bool rows_equal(const struct prof_array *array, size_t r,
			      const struct prof_column_def *column, const struct prof_value *value)
{
	bool null = array->nulls && array->nulls[r];
	uint64_t first, n;

	if (value->data == &prof_null_marker)
		return null;
	if (null)
		return false;
	if (!array->offsets)
		return array->numbers && array->numbers[r] == value->number;
	first = array->offsets[r];
	n = array->offsets[r + 1] - first;
	if (n != value->number)
		return false;
	if (column->flags & PROF_COLUMN_LIST)
		return n == 0 ||
		       memcmp(array->numbers + first, value->data, n * sizeof(uint64_t)) == 0;
	return n == 0 || memcmp(array->bytes + first, value->data, n) == 0;
}

/* Returns a table that version 1 does not define, with most types and orders, lists and nulls. */
static inline const struct prof_table_def *rows_foreign_table(void)
{
	static const char *const colours[] = { "red", "green", "blue", NULL };
	static const struct prof_column_def columns[] = {
		{ .id = 0,
		  .name = "time",
		  .type = PROF_TYPE_TIME,
		  .unit = PROF_UNIT_NS,
		  .order = PROF_ORDER_DELTA },
		{ .id = 1, .name = "temperature", .type = PROF_TYPE_FLOAT },
		{ .id = 3, .name = "colour", .type = PROF_TYPE_ENUM, .values = colours },
		{ .id = 4, .name = "on", .type = PROF_TYPE_BOOL, .flags = PROF_COLUMN_NULLABLE },
		{ .id = 9, .name = "balance", .type = PROF_TYPE_INT, .order = PROF_ORDER_RUNNING },
		{ .id = 10,
		  .name = "blob",
		  .type = PROF_TYPE_BINARY,
		  .flags = PROF_COLUMN_NULLABLE },
		{ .id = 11,
		  .name = "readings",
		  .type = PROF_TYPE_UINT,
		  .flags = PROF_COLUMN_LIST | PROF_COLUMN_NULLABLE },
		{ .id = 12, .name = "note", .type = PROF_TYPE_TEXT },
	};
	static const struct prof_table_def def = {
		.name = "sensor",
		.columns = columns,
		.n_columns = ARRAY_SIZE(columns),
		.id = PROF_TABLE_FIRST_FOREIGN,
		.flags = PROF_TABLE_TIMED,
	};

	return &def;
}

/* Writes rows [first, first + n) of a table in chunks of chunk_rows. */
static inline int rows_write(struct prof_writer *writer, const struct prof_table_def *def,
			     uint64_t first, uint64_t n, uint64_t chunk_rows, uint32_t epoch)
{
	struct prof_block *block;
	struct row row;
	int r = prof_block_new(def, &block);

	if (r)
		return r;
	prof_block_set_epoch(block, epoch);
	for (uint64_t i = first; !r && i < first + n; i++) {
		rows_make(def, i, &row);
		r = prof_block_add(block, row.values);
		if (!r && (prof_block_rows(block) == chunk_rows || i + 1 == first + n)) {
			r = prof_writer_write(writer, block);
			prof_block_reset(block);
		}
	}
	prof_block_free(block);
	return r;
}
