/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Chunk - the payload of a data chunk: row groups to and from blocks and arrays
 */
#pragma once

#include "libcapture/block.h"
#include "libcapture/codec.h"

/* A row group inside a payload. */
struct chunk_group {
	uint32_t rows;
	uint32_t n_parts;
	uint64_t t_min, t_max;
	const uint8_t *descriptors;
	const uint8_t *stored;
};

/* Properties of a block's rows for their chunk. */
struct chunk_extent {
	uint32_t groups;
	uint32_t raw;
	/* timed tables: range of all times, including the starts of durations; else 0 */
	uint64_t t_min, t_max;
	uint64_t first_id; /* dictionary tables: lowest id; else 0 */
};

/* Appends the row groups of a block (of at least one row) to `out`. */
MUST_CHECK int chunk_encode(struct codec_encoder *encoder, const struct prof_block *block,
			    size_t group_rows, struct buffer *out, struct chunk_extent *ret_extent);

/* Removes the next group from the front of [*at, end). Returns false if there is no valid group. */
bool chunk_group_next(const uint8_t **at, const uint8_t *end, struct chunk_group *ret_group);
/* Returns whether a payload has exactly this many groups with this many rows. */
bool chunk_groups_valid(const uint8_t *payload, size_t size, uint32_t groups, uint32_t rows);

/* A column during decoding. `same`: number of equal rows at the start. Their numbers are `constant`
 * or, for lists and bytes, their offsets are 0. */
struct chunk_column {
	uint64_t *numbers;
	uint64_t *offsets;
	uint8_t *bytes;
	uint8_t *nulls;
	size_t numbers_capacity, offsets_capacity, bytes_capacity, nulls_capacity;
	uint64_t constant;
	size_t same;
};

/* Decodes groups into arrays that are valid until the next group. */
struct chunk_decoder {
	struct codec_decoder codec;
	/* NULL for a column that is not in the schema; such a column is always absent */
	const struct prof_column_def **defs;
	struct chunk_column *columns;
	struct prof_array *arrays;
	size_t n_columns;
	/* limit for the bytes of the items that are still to be decoded from the group */
	size_t budget;
};

/* Decodes the columns `ids`, in that order; NULL: all of the table's. */
MUST_CHECK int chunk_decoder_init(struct chunk_decoder *decoder, const struct prof_table_def *def,
				  const uint16_t *ids, size_t n_ids);
void chunk_decoder_done(struct chunk_decoder *decoder);
/* Fills decoder->arrays. Returns 0, PROF_DAMAGED or -ENOMEM. */
MUST_CHECK int chunk_decode(struct chunk_decoder *decoder, const struct chunk_group *group);

/* Extends the range [*t_min, *t_max] by the times of the rows, and by `time` minus each duration.
 * Encoder and decoder use the same rule. */
void chunk_times(const struct prof_table_def *def, const struct prof_array *arrays, size_t rows,
		 uint64_t *t_min, uint64_t *t_max);
