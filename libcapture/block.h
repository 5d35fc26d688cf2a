/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Block - rows of one table, collected in columns, as the encoder reads them */
#pragma once

#include "libcapture/prof-capture.h"
#include "libcapture/schema.h"

struct block_column {
	uint64_t *numbers; /* scalars: one per row; LIST: all items */
	uint64_t *lengths; /* LIST, BYTES: one per row */
	uint8_t *bytes;    /* BYTES: the bytes of all rows */
	uint8_t *nulls;    /* nullable columns: 1 = null */
	size_t n_items;    /* LIST: size of numbers; BYTES: size of bytes */
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
	size_t row_bytes;  /* memory of a row without items of LIST and BYTES columns */
	size_t item_bytes; /* memory of all list items and bytes */
	uint32_t epoch;
	bool is_numbers;   /* all columns are scalars */
	uint64_t nullable; /* bit i: column i is nullable */
	uint64_t items;    /* bit i: column i is a LIST or BYTES */
	struct block_column columns[];
};
