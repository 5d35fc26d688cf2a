/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Codec - encodes and decodes the parts of a column: numbers and bytes
 *
 * docs/format.md, "Orders", defines the encodings. Encoders and decoders keep their zstd context
 * and scratch memory. Each may be used by one thread at a time.
 */
#pragma once

#include "libcapture/buffer.h"
#include "libcapture/format.h"

#include <zstd.h>

/* A decoded descriptor. */
struct codec_part {
	uint16_t column;
	uint8_t part;  /* enum part, or one of a later version */
	uint8_t order; /* enum prof_order, or one of a later version */
	uint8_t width;
	uint8_t flags;
	uint32_t stored;
	uint64_t base, step;
};

struct codec_encoder {
	ZSTD_CCtx *zstd;
	uint64_t *residues;
	uint8_t *planes;
	size_t capacity; /* in numbers */
};

/* A zeroed structure is valid. */
struct codec_decoder {
	ZSTD_DCtx *zstd; /* NULL until the first compressed part */
	struct buffer planes;
};

MUST_CHECK int codec_encoder_init(struct codec_encoder *encoder, int level);
void codec_encoder_done(struct codec_encoder *encoder);
/* Appends the part's bytes to `out`, and sets *ret_part, with column and part 0. `first_id`: id of
 * values[0]'s row, for PROF_ORDER_DISTANCE; or NULL. Uses another order if `order` does not fit. */
MUST_CHECK int codec_encode_numbers(struct codec_encoder *encoder, const uint64_t *values, size_t n,
				    unsigned int order, const uint64_t *first_id,
				    struct buffer *out, struct codec_part *ret_part);
MUST_CHECK int codec_encode_bytes(struct codec_encoder *encoder, const uint8_t *bytes, size_t n,
				  struct buffer *out, struct codec_part *ret_part);

void codec_decoder_done(struct codec_decoder *decoder);
/* Returns false if this version cannot decode the part. */
bool codec_part_known(const struct codec_part *part);
/* Decode a known part of part->stored bytes. Return 0, PROF_DAMAGED or -ENOMEM. */
MUST_CHECK int codec_decode_numbers(struct codec_decoder *decoder, const struct codec_part *part,
				    const uint8_t *stored, size_t n, uint64_t *ret_values);
MUST_CHECK int codec_decode_bytes(struct codec_decoder *decoder, const struct codec_part *part,
				  const uint8_t *stored, size_t n, uint8_t *ret_bytes);

void codec_part_store(const struct codec_part *part, uint8_t bytes[DESCRIPTOR_BYTES]);
struct codec_part codec_part_load(const uint8_t bytes[DESCRIPTOR_BYTES]);
