/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of libcapture/codec.c. The input is the count of values (u16), a descriptor and the
 * encoded bytes. Decodes the bytes; then uses the input as values, encodes them in each order of
 * enum prof_order, and checks that they decode to the same values.
 */
#include "libcapture/codec.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode(struct codec_decoder *decoder, struct codec_part part, const uint8_t *stored,
		   size_t size, size_t n)
{
	uint64_t *values = malloc(n * sizeof(*values) + 1);
	uint8_t *bytes = malloc(n + 1);

	part.stored = part.stored > size ? size : part.stored;
	if (values && bytes && codec_part_known(&part)) {
		(void)!codec_decode_numbers(decoder, &part, stored, n, values);
		(void)!codec_decode_bytes(decoder, &part, stored, n, bytes);
	}
	free(values);
	free(bytes);
}

static void round_trip(struct codec_decoder *decoder, struct codec_encoder *encoder,
		       unsigned int order, const uint64_t *values, size_t n)
{
	CLEANUP(buffer_done) struct buffer out = { 0 };
	uint64_t first_id = n > 0 ? values[0] : 0, *back = malloc(n * sizeof(*back) + 1);
	struct codec_part part;

	if (back && codec_encode_numbers(encoder, values, n, order, &first_id, &out, &part) == 0 &&
	    (part.stored != out.size ||
	     codec_decode_numbers(decoder, &part, out.data, n, back) != 0 ||
	     (n > 0 && memcmp(values, back, n * sizeof(*back)) != 0)))
		abort();
	free(back);
}

static void round_trip_bytes(struct codec_decoder *decoder, struct codec_encoder *encoder,
			     const uint8_t *bytes, size_t n)
{
	CLEANUP(buffer_done) struct buffer out = { 0 };
	uint8_t *back = malloc(n + 1);
	struct codec_part part;

	if (back && codec_encode_bytes(encoder, bytes, n, &out, &part) == 0 &&
	    (codec_decode_bytes(decoder, &part, out.data, n, back) != 0 ||
	     (n > 0 && memcmp(bytes, back, n) != 0)))
		abort();
	free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP(codec_decoder_done) struct codec_decoder decoder = { 0 };
	CLEANUP(codec_encoder_done) struct codec_encoder encoder = { 0 };
	struct codec_part part;
	uint64_t *values;
	size_t n;

	if (size < 2 + DESCRIPTOR_BYTES || codec_encoder_init(&encoder, 1))
		return 0;
	n = load_le16(data);
	part = codec_part_load(data + 2);
	data += 2 + DESCRIPTOR_BYTES;
	size -= 2 + DESCRIPTOR_BYTES;
	decode(&decoder, part, data, size, n);
	values = calloc(size / 2 + 1, sizeof(*values));
	if (!values)
		return 0;
	/* small numbers far apart, and numbers of every width */
	for (size_t i = 0; i < size / 2; i++)
		values[i] = data[2 * i] + ((uint64_t)data[2 * i + 1] << (8 * (part.base & 7)));
	for (unsigned int order = PROF_ORDER_OFFSET; order <= PROF_ORDER_DISTANCE; order++)
		round_trip(&decoder, &encoder, order, values, size / 2);
	round_trip_bytes(&decoder, &encoder, data, size);
	free(values);
	return 0;
}
