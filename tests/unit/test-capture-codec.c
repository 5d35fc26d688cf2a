/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of libcapture/codec.c and chunk.c: every order and width is encoded and decoded, and
 * invalid input is refused.
 */
#include "libcapture/chunk.h"
#include "tests/tools/rows.h"
#include "tests/unit/test.h"

#define MAX_N 5000u

/* Returns number i of a sequence with the shape `kind`. */
static uint64_t shape(unsigned int kind, uint64_t i)
{
	switch (kind) {
	case 0:
		return 7;
	case 1:
		return i;
	case 2:
		return UINT64_MAX - i * 3;
	case 3:
		return rows_time(i);
	case 4:
		return rows_mix(i);
	case 5:
		return i % 2 ? 0 : UINT64_MAX;
	case 6:
		return rows_mix(i) >> (i % 64);
	case 7:
		return i % 100 ? i / 2 : 0;
	default:
		return (UINT64_C(1) << 63) + (rows_mix(i) & 0xffff) - 0x8000;
	}
}

static void check_numbers(const uint64_t *values, size_t n, unsigned int order,
			  const uint64_t *first_id)
{
	static uint64_t decoded[MAX_N];
	CLEANUP(buffer_done) struct buffer out = { 0 };
	CLEANUP(codec_encoder_done) struct codec_encoder encoder = { 0 };
	CLEANUP(codec_decoder_done) struct codec_decoder decoder = { 0 };
	uint8_t descriptor[DESCRIPTOR_BYTES];
	struct codec_part part, loaded;

	REQUIRE(codec_encoder_init(&encoder, 1) == 0);
	CHECK_INT(codec_encode_numbers(&encoder, values, n, order, first_id, &out, &part), 0);
	CHECK_INT(part.stored, out.size);
	CHECK(out.size <= n * 8);
	part.column = 0x1234;
	part.part = PART_VALUES;
	codec_part_store(&part, descriptor);
	loaded = codec_part_load(descriptor);
	CHECK(loaded.column == 0x1234 && loaded.base == part.base && loaded.step == part.step);
	CHECK(codec_part_known(&loaded));
	memset(decoded, 0xee, sizeof(decoded));
	CHECK_INT(codec_decode_numbers(&decoder, &loaded, out.data, n, decoded), 0);
	CHECK(n == 0 || memcmp(decoded, values, n * sizeof(*values)) == 0);
}

static void test_numbers(void)
{
	static const size_t sizes[] = { 0, 1, 2, 3, 24, 1023, 1024, MAX_N };
	static uint64_t values[MAX_N];
	const uint64_t first_id = 100000;

	for (unsigned int kind = 0; kind < 9; kind++) {
		for (size_t i = 0; i < MAX_N; i++)
			values[i] = shape(kind, i);
		for (size_t s = 0; s < ARRAY_SIZE(sizes); s++)
			for (unsigned int order = 0; order < 5; order++) {
				check_numbers(values, sizes[s], order, NULL);
				check_numbers(values, sizes[s], order, &first_id);
			}
	}
}

/* Each width is used, and is not larger than needed. */
static void test_widths(void)
{
	CLEANUP(codec_encoder_done) struct codec_encoder encoder = { 0 };
	CLEANUP(buffer_done) struct buffer out = { 0 };

	REQUIRE(codec_encoder_init(&encoder, 1) == 0);
	for (unsigned int width = 0; width <= 8; width++) {
		uint64_t max = width == 8 ? UINT64_MAX : (UINT64_C(1) << (8 * width)) - 1;
		const uint64_t values[2] = { 0, max };
		struct codec_part part;

		CHECK_INT(codec_encode_numbers(&encoder, values, 2, PROF_ORDER_OFFSET, NULL, &out,
					       &part),
			  0);
		CHECK_INT(part.width, width);
		CHECK_INT(part.stored, 2 * width);
	}
}

/* A parent that is the row itself or a later row cannot be encoded as a distance. */
static void test_distance_falls_back(void)
{
	CLEANUP(codec_encoder_done) struct codec_encoder encoder = { 0 };
	CLEANUP(buffer_done) struct buffer out = { 0 };
	const uint64_t first = 10, good[3] = { 0, 10, 11 }, own[3] = { 0, 11, 11 },
		       later[3] = { 0, 10, 99 };
	struct codec_part part;

	REQUIRE(codec_encoder_init(&encoder, 1) == 0);
	CHECK_INT(codec_encode_numbers(&encoder, good, 3, PROF_ORDER_DISTANCE, &first, &out, &part),
		  0);
	CHECK_INT(part.order, PROF_ORDER_DISTANCE);
	CHECK_INT(codec_encode_numbers(&encoder, own, 3, PROF_ORDER_DISTANCE, &first, &out, &part),
		  0);
	CHECK_INT(part.order, PROF_ORDER_OFFSET);
	CHECK_INT(codec_encode_numbers(&encoder, later, 3, PROF_ORDER_DISTANCE, &first, &out,
				       &part),
		  0);
	CHECK_INT(part.order, PROF_ORDER_OFFSET);
	CHECK_INT(codec_encode_numbers(&encoder, good, 3, PROF_ORDER_DISTANCE, NULL, &out, &part),
		  0);
	CHECK_INT(part.order, PROF_ORDER_OFFSET);
}

static void test_hostile_parts(void)
{
	CLEANUP(codec_encoder_done) struct codec_encoder encoder = { 0 };
	CLEANUP(codec_decoder_done) struct codec_decoder decoder = { 0 };
	CLEANUP(buffer_done) struct buffer out = { 0 };
	static uint64_t values[2000], decoded[2000];
	struct codec_part part, bad;

	REQUIRE(codec_encoder_init(&encoder, 1) == 0);
	for (size_t i = 0; i < 2000; i++)
		values[i] = i % 300;
	CHECK_INT(codec_encode_numbers(&encoder, values, 2000, PROF_ORDER_OFFSET, NULL, &out,
				       &part),
		  0);
	CHECK(part.stored < 2000u * part.width);
	/* The zstd frame unpacks to more bytes than rows x width. */
	CHECK_INT(codec_decode_numbers(&decoder, &part, out.data, 1999, decoded), PROF_DAMAGED);
	CHECK_INT(codec_decode_numbers(&decoder, &part, out.data, 1000, decoded), PROF_DAMAGED);
	bad = part;
	bad.width = 9;
	CHECK_INT(codec_decode_numbers(&decoder, &bad, out.data, 2000, decoded), PROF_DAMAGED);
	bad = part;
	bad.width = 0;
	CHECK_INT(codec_decode_numbers(&decoder, &bad, out.data, 2000, decoded), PROF_DAMAGED);
	bad = part;
	bad.stored = part.stored - 1;
	CHECK_INT(codec_decode_numbers(&decoder, &bad, out.data, 2000, decoded), PROF_DAMAGED);
	bad = part;
	bad.order = 4;
	CHECK(!codec_part_known(&bad));
	bad = part;
	bad.flags = 1;
	CHECK(!codec_part_known(&bad));
	for (size_t i = 0; i < out.size; i++) {
		out.data[i] ^= 0x5a;
		/* Whatever it returns, the decoder must stay within its buffers (sanitizers check
		 * this). */
		if (codec_decode_numbers(&decoder, &part, out.data, 2000, decoded) == 0)
			CHECK(decoded[0] <= UINT64_MAX);
		out.data[i] ^= 0x5a;
	}
}

/* A chunk of any table, with one bit flipped in any byte of its payload, is refused or read within
 * bounds. */
static void test_hostile_payloads(void)
{
	CLEANUP(codec_encoder_done) struct codec_encoder encoder = { 0 };

	REQUIRE(codec_encoder_init(&encoder, 1) == 0);
	for (unsigned int id = 1; id <= PROF_TABLE_LAST + 1; id++) {
		const struct prof_table_def *def = id > PROF_TABLE_LAST ? rows_foreign_table()
									: prof_table_v1(id);
		CLEANUP(buffer_done) struct buffer out = { 0 };
		CLEANUP(chunk_decoder_done) struct chunk_decoder decoder = { 0 };
		struct chunk_extent extent;
		struct prof_block *block;
		struct row row;

		if (!def)
			continue;
		REQUIRE(prof_block_new(def, &block) == 0);
		for (uint64_t i = 0; i < 50; i++) {
			rows_make(def, i, &row);
			CHECK_INT(prof_block_add(block, row.values), 0);
		}
		CHECK_INT(chunk_encode(&encoder, block, 20, &out, &extent), 0);
		prof_block_free(block);
		CHECK_INT(extent.groups, 3);
		CHECK(chunk_groups_valid(out.data, out.size, 3, 50));
		CHECK(!chunk_groups_valid(out.data, out.size, 3, 51));
		CHECK(!chunk_groups_valid(out.data, out.size, 2, 50));
		CHECK(!chunk_groups_valid(out.data, out.size - 1, 3, 50));
		REQUIRE(chunk_decoder_init(&decoder, def, NULL, 0) == 0);
		for (size_t i = 0; i < out.size; i++) {
			const uint8_t *at = out.data, *end = out.data + out.size;
			struct chunk_group group;

			out.data[i] ^= 1u << i % 8;
			if (chunk_groups_valid(out.data, out.size, 3, 50))
				while (at < end && chunk_group_next(&at, end, &group)) {
					int r = chunk_decode(&decoder, &group);

					CHECK(r == 0 || r == PROF_DAMAGED);
				}
			out.data[i] ^= 1u << i % 8;
		}
	}
}

int main(void)
{
	RUN(test_numbers);
	RUN(test_widths);
	RUN(test_distance_falls_back);
	RUN(test_hostile_parts);
	RUN(test_hostile_payloads);
	return test_end();
}
