/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Block - rows of one table, collected in columns
 *
 * The encoder's view of a block. See block.c.
 */
#pragma once

#include "libcapture/prof-capture.h"
#include "libcapture/schema.h"

struct block_column {
	uint64_t *numbers; /* scalars: one a row. LIST: all items */
	uint64_t *lengths; /* LIST, BYTES: one a row */
	uint8_t *bytes;    /* BYTES: all of them */
	uint8_t *nulls;    /* nullable columns: 1 = null */
	size_t n_items;    /* LIST: of numbers, BYTES: of bytes */
	size_t capacity;   /* in items */
	size_t n_nulls;
	enum column_form form;
	bool nullable;
};

struct prof_block {
	const struct prof_table_def *def;
	size_t rows;
	size_t capacity; /* in rows */
	size_t max_rows;
	size_t row_bytes;  /* memory of a row without list items and bytes */
	size_t item_bytes; /* memory of all list items and bytes */
	uint32_t epoch;
	bool is_numbers;   /* only scalars */
	uint64_t nullable; /* bit i: column i */
	uint64_t items;    /* the same, of lists and bytes */
	struct block_column columns[];
};
