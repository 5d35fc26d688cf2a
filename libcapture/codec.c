/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Codec - encodes and decodes the parts of a column: numbers and bytes
 *
 * One codec for all columns: residues against a base, in byte planes, each plane in a separate zstd
 * block. Planes separate noise (low bytes) from repetition (high bytes), and each block has its own
 * entropy table. A constant column has width 0 and no bytes. Loops over planes have a constant
 * width, so that compilers vectorize them.
 *
 * Invariants: (1) decode(encode(v)) == v for every v and order, mod 2^64
 *                 [test-capture-codec: numbers]
 *             (2) decoding writes exactly n numbers, whatever the bytes are
 *                 [test-capture-codec: hostile parts]
 *             (3) a part is never larger than n x 8 bytes  [test-capture-codec: numbers]
 */
#include "libcapture/codec.h"

/* From this number of rows on, separate blocks for the planes save more than their headers cost. */
#define FLUSH_ROWS 1024u
/* Minimum size for which a zstd frame is worthwhile. */
#define COMPRESS_BYTES 24u

int codec_encoder_init(struct codec_encoder *encoder, int level)
{
	*encoder = (struct codec_encoder){ .zstd = ZSTD_createCCtx() };
	if (!encoder->zstd)
		return -ENOMEM;
	if (ZSTD_isError(ZSTD_CCtx_setParameter(encoder->zstd, ZSTD_c_compressionLevel, level)) ||
	    ZSTD_isError(ZSTD_CCtx_setParameter(encoder->zstd, ZSTD_c_contentSizeFlag, 0))) {
		codec_encoder_done(encoder);
		return -EINVAL;
	}
	return 0;
}

void codec_encoder_done(struct codec_encoder *encoder)
{
	ZSTD_freeCCtx(encoder->zstd);
	free(encoder->residues);
	free(encoder->planes);
	*encoder = (struct codec_encoder){ 0 };
}

static int encoder_reserve(struct codec_encoder *encoder, size_t n)
{
	size_t capacity = MAX_OF(n, (size_t)GROUP_ROWS_DEFAULT);
	uint64_t *residues;
	uint8_t *planes;

	if (n <= encoder->capacity)
		return 0;
	residues = realloc(encoder->residues, capacity * sizeof(uint64_t));
	if (!residues)
		return -ENOMEM;
	encoder->residues = residues;
	planes = realloc(encoder->planes, capacity * sizeof(uint64_t));
	if (!planes)
		return -ENOMEM;
	encoder->planes = planes;
	encoder->capacity = capacity;
	return 0;
}

/* The fit_ functions set base and step if the order has them. They return a number that has as many
 * bits as the largest residue (fit_distance(): in *ret_max). All except fit_offset() also store the
 * residues in `r`. */
static uint64_t fit_offset(const uint64_t *values, size_t n, struct codec_part *part)
{
	uint64_t min[2] = { values[0], values[n - 1] }, max[2] = { values[0], values[n - 1] };

	for (size_t i = 0; i + 2 <= n; i += 2) {
		for (size_t k = 0; k < 2; k++) {
			min[k] = MIN_OF(min[k], values[i + k]);
			max[k] = MAX_OF(max[k], values[i + k]);
		}
	}
	part->base = MIN_OF(min[0], min[1]);
	return MAX_OF(max[0], max[1]) - part->base;
}

static uint64_t fit_delta(const uint64_t *values, size_t n, uint64_t *r, struct codec_part *part)
{
	int64_t min = INT64_MAX;
	uint64_t max = 0;

	for (size_t i = 1; i < n; i++) {
		int64_t delta = (int64_t)(values[i] - values[i - 1]);

		min = MIN_OF(min, delta);
	}
	part->base = values[0];
	part->step = n > 1 ? (uint64_t)min : 0;
	r[0] = 0;
	for (size_t i = 1; i < n; i++) {
		r[i] = values[i] - values[i - 1] - part->step;
		max |= r[i];
	}
	return max;
}

static uint64_t fit_running(const uint64_t *values, size_t n, uint64_t *r, struct codec_part *part)
{
	uint64_t top = values[0], max = 0;

	part->base = top;
	for (size_t i = 0; i < n; i++) {
		uint64_t d = top - values[i];

		r[i] = d << 1 ^ -(d >> 63);
		max |= r[i];
		top = MAX_OF(top, values[i]);
	}
	return max;
}

/* Returns false if the rows have no ids, or if a value is not less than its row's id. With this
 * order, an equal value would be read as 0, and the residue of a larger value would take eight
 * bytes. */
static bool fit_distance(const uint64_t *values, size_t n, const uint64_t *first_id, uint64_t *r,
			 struct codec_part *part, uint64_t *ret_max)
{
	uint64_t max = 0;

	if (!first_id)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (values[i] != 0 && values[i] >= *first_id + i)
			return false;
		r[i] = values[i] ? *first_id + i - values[i] : 0;
		max |= r[i];
	}
	part->step = *first_id;
	*ret_max = max;
	return true;
}

/* Two numbers. Every x86_64 and aarch64 has 16-byte vectors; elsewhere, compilers split them. */
typedef uint64_t pair __attribute__((vector_size(16)));

static pair pair_bytes(const uint64_t *values, uint64_t base, unsigned int shift)
{
	pair loaded;

	memcpy(&loaded, values, sizeof(loaded));
	return ((loaded - base) >> shift) & UINT8_MAX;
}

/* Extracts byte k of each residue. */
static void plane_split(const uint64_t *values, size_t n, uint64_t base, unsigned int k,
			uint8_t *restrict plane)
{
	unsigned int shift = 8 * k;
	size_t i = 0;

	for (; i + 8 <= n; i += 8) {
		pair bytes = pair_bytes(values + i, base, shift) |
			     pair_bytes(values + i + 2, base, shift) << 16 |
			     pair_bytes(values + i + 4, base, shift) << 32 |
			     pair_bytes(values + i + 6, base, shift) << 48;

		store_le64(plane + i, bytes[0] | bytes[1] << 8);
	}
	for (; i < n; i++)
		plane[i] = (values[i] - base) >> shift;
}

/* Compresses raw bytes in `blocks` blocks of equal size, or stores them if that saves nothing. */
static int store_raw(struct codec_encoder *encoder, const uint8_t *raw, size_t size, size_t blocks,
		     struct buffer *out, uint32_t *ret_stored)
{
	ZSTD_outBuffer output;
	int r;

	*ret_stored = 0;
	if (size == 0)
		return 0;
	r = buffer_reserve(out, size);
	if (r)
		return r;
	output = (ZSTD_outBuffer){ .dst = out->data + out->size, .size = size - 1 };
	if (size >= COMPRESS_BYTES) {
		size_t left = 1, block = size / blocks;

		ZSTD_CCtx_reset(encoder->zstd, ZSTD_reset_session_only);
		ZSTD_CCtx_setPledgedSrcSize(encoder->zstd, size);
		for (size_t i = 0; i < blocks; i++) {
			ZSTD_inBuffer input = { .src = raw + i * block, .size = block };
			ZSTD_EndDirective end = i + 1 < blocks ? ZSTD_e_flush : ZSTD_e_end;

			left = ZSTD_compressStream2(encoder->zstd, &output, &input, end);
			if (left != 0)
				break;
		}
		if (left == 0) {
			*ret_stored = output.pos;
			out->size += output.pos;
			return 0;
		}
	}
	*ret_stored = size;
	return buffer_add(out, raw, size);
}

int codec_encode_numbers(struct codec_encoder *encoder, const uint64_t *values, size_t n,
			 unsigned int order, const uint64_t *first_id, struct buffer *out,
			 struct codec_part *ret_part)
{
	struct codec_part part = { .order = PROF_ORDER_OFFSET };
	const uint64_t *residues;
	uint64_t max = 0;
	int r = encoder_reserve(encoder, n);

	if (r)
		return r;
	residues = encoder->residues;
	if (n == 0 || memcmp(values, values + 1, (n - 1) * sizeof(*values)) == 0) {
		part.base = n ? values[0] : 0;
	} else if (order == PROF_ORDER_DELTA) {
		part.order = order;
		max = fit_delta(values, n, encoder->residues, &part);
	} else if (order == PROF_ORDER_RUNNING) {
		part.order = order;
		max = fit_running(values, n, encoder->residues, &part);
	} else if (order == PROF_ORDER_DISTANCE &&
		   fit_distance(values, n, first_id, encoder->residues, &part, &max)) {
		part.order = order;
	} else {
		max = fit_offset(values, n, &part);
		residues = values;
	}
	part.width = max ? (71 - __builtin_clzll(max)) / 8 : 0;
	for (unsigned int k = 0; k < part.width; k++)
		plane_split(residues, n, residues == values ? part.base : 0, k,
			    encoder->planes + k * n);
	r = store_raw(encoder, encoder->planes, n * part.width,
		      n >= FLUSH_ROWS ? MAX_OF(part.width, 1) : 1, out, &part.stored);
	if (r)
		return r;
	*ret_part = part;
	return 0;
}

int codec_encode_bytes(struct codec_encoder *encoder, const uint8_t *bytes, size_t n,
		       struct buffer *out, struct codec_part *ret_part)
{
	struct codec_part part = { .order = PROF_ORDER_OFFSET, .width = 1 };
	int r = store_raw(encoder, bytes, n, 1, out, &part.stored);

	if (!r)
		*ret_part = part;
	return r;
}

void codec_decoder_done(struct codec_decoder *decoder)
{
	ZSTD_freeDCtx(decoder->zstd);
	buffer_done(&decoder->planes);
	*decoder = (struct codec_decoder){ 0 };
}

bool codec_part_known(const struct codec_part *part)
{
	return part->part < PARTS && part->order <= PROF_ORDER_DISTANCE && part->flags == 0;
}

/* Returns the raw bytes of a part: in place, or decompressed into `room`, which must have `size`
 * bytes. */
static int load_raw(struct codec_decoder *decoder, const struct codec_part *part,
		    const uint8_t *stored, size_t size, uint8_t *room, const uint8_t **ret_raw)
{
	if (part->stored > size)
		return PROF_DAMAGED;
	if (part->stored == size) {
		*ret_raw = stored;
		return 0;
	}
	if (!decoder->zstd)
		decoder->zstd = ZSTD_createDCtx();
	if (!decoder->zstd)
		return -ENOMEM;
	if (ZSTD_decompressDCtx(decoder->zstd, room, size, stored, part->stored) != size)
		return PROF_DAMAGED;
	*ret_raw = room;
	return 0;
}

#define JOIN_PLANES(width)                                           \
	for (size_t i = 0; i < n; i++) {                             \
		uint64_t v = planes[i];                              \
                                                                     \
		for (unsigned int k = 1; k < (width); k++)           \
			v |= (uint64_t)planes[k * n + i] << (8 * k); \
		out[i] = base + v;                                   \
	}

static void planes_join(const uint8_t *restrict planes, size_t n, unsigned int width, uint64_t base,
			uint64_t *restrict out)
{
	switch (width) {
	case 0:
		for (size_t i = 0; i < n; i++)
			out[i] = base;
		break;
	case 1:
		JOIN_PLANES(1);
		break;
	case 2:
		JOIN_PLANES(2);
		break;
	case 3:
		JOIN_PLANES(3);
		break;
	case 4:
		JOIN_PLANES(4);
		break;
	case 5:
		JOIN_PLANES(5);
		break;
	case 6:
		JOIN_PLANES(6);
		break;
	case 7:
		JOIN_PLANES(7);
		break;
	default:
		JOIN_PLANES(8);
		break;
	}
}

static void undo_running(const struct codec_part *part, size_t n, uint64_t *values)
{
	uint64_t top = part->base;

	for (size_t i = 0; i < n; i++) {
		uint64_t r = values[i];

		values[i] = top - (r >> 1 ^ -(r & 1));
		top = MAX_OF(top, values[i]);
	}
}

int codec_decode_numbers(struct codec_decoder *decoder, const struct codec_part *part,
			 const uint8_t *stored, size_t n, uint64_t *ret_values)
{
	size_t size = n * part->width;
	uint64_t v = part->base - part->step;
	const uint8_t *planes;
	int r;

	if (part->width > sizeof(uint64_t))
		return PROF_DAMAGED;
	decoder->planes.size = 0;
	r = buffer_reserve(&decoder->planes, size);
	if (r)
		return r;
	r = load_raw(decoder, part, stored, size, decoder->planes.data, &planes);
	if (r)
		return r;
	planes_join(planes, n, part->width, part->order == PROF_ORDER_OFFSET ? part->base : 0,
		    ret_values);
	if (part->order == PROF_ORDER_RUNNING)
		undo_running(part, n, ret_values);
	for (size_t i = 0; part->order == PROF_ORDER_DELTA && i < n; i++)
		ret_values[i] = v += part->step + ret_values[i];
	for (size_t i = 0; part->order == PROF_ORDER_DISTANCE && i < n; i++)
		ret_values[i] = ret_values[i] ? part->step + i - ret_values[i] : 0;
	return 0;
}

int codec_decode_bytes(struct codec_decoder *decoder, const struct codec_part *part,
		       const uint8_t *stored, size_t n, uint8_t *ret_bytes)
{
	const uint8_t *raw;
	int r;

	if (part->width != 1)
		return PROF_DAMAGED;
	r = load_raw(decoder, part, stored, n, ret_bytes, &raw);
	if (!r && raw != ret_bytes && n > 0)
		memcpy(ret_bytes, raw, n);
	return r;
}

void codec_part_store(const struct codec_part *part, uint8_t bytes[DESCRIPTOR_BYTES])
{
	store_le16(bytes, part->column);
	bytes[2] = part->order | part->part << 4;
	bytes[3] = part->width | part->flags << 4;
	store_le32(bytes + 4, part->stored);
	store_le64(bytes + 8, part->base);
	store_le64(bytes + 16, part->step);
}

struct codec_part codec_part_load(const uint8_t bytes[DESCRIPTOR_BYTES])
{
	return (struct codec_part){
		.column = load_le16(bytes),
		.order = bytes[2] & 15,
		.part = bytes[2] >> 4,
		.width = bytes[3] & 15,
		.flags = bytes[3] >> 4,
		.stored = load_le32(bytes + 4),
		.base = load_le64(bytes + 8),
		.step = load_le64(bytes + 16),
	};
}
