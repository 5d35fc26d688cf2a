/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of libcapture/chunk.c: a byte that selects a table of version 1 or a table with every
 * kind of column, and the payload of a data chunk. Reads every array that the decoder returns to
 * its end.
 */
#include "libcapture/chunk.h"
#include "tests/fuzz/capture.h"

#define GROUPS 8

static const char *const names[] = { "no", "yes", NULL };

static const struct prof_column_def every_kind[] = {
	{ .id = 0, .name = "time", .type = PROF_TYPE_TIME },
	{ .id = 1, .name = "number", .type = PROF_TYPE_UINT, .flags = PROF_COLUMN_NULLABLE },
	{ .id = 2, .name = "list", .type = PROF_TYPE_INT, .flags = PROF_COLUMN_LIST },
	{ .id = 3,
	  .name = "lists",
	  .type = PROF_TYPE_ENUM,
	  .flags = PROF_COLUMN_LIST | PROF_COLUMN_NULLABLE,
	  .values = names },
	{ .id = 4, .name = "text", .type = PROF_TYPE_TEXT },
	{ .id = 5, .name = "binary", .type = PROF_TYPE_BINARY, .flags = PROF_COLUMN_NULLABLE },
	{ .id = 6, .name = "new", .type = 77 },
	{ .id = 7, .name = "until", .type = PROF_TYPE_TIME, .flags = PROF_COLUMN_NULLABLE },
	{ .id = 8,
	  .name = "took",
	  .type = PROF_TYPE_UINT,
	  .unit = PROF_UNIT_NS,
	  .flags = PROF_COLUMN_NULLABLE },
};
static const struct prof_table_def every_kind_table = {
	.name = "every",
	.columns = every_kind,
	.n_columns = ARRAY_SIZE(every_kind),
	.id = PROF_TABLE_FIRST_FOREIGN,
	.flags = PROF_TABLE_TIMED,
};

static void decode(const struct prof_table_def *def, const uint16_t *ids, size_t n_ids,
		   const uint8_t *payload, size_t size)
{
	CLEANUP(chunk_decoder_done) struct chunk_decoder decoder = { 0 };
	const uint8_t *at = payload;
	struct chunk_group group;

	if (chunk_decoder_init(&decoder, def, ids, n_ids))
		return;
	for (size_t i = 0; i < GROUPS && chunk_group_next(&at, payload + size, &group); i++) {
		uint64_t t_min = UINT64_MAX, t_max = 0;

		if (chunk_decode(&decoder, &group) != 0)
			return;
		for (size_t c = 0; c < decoder.n_columns; c++)
			capture_touch(&decoder.arrays[c], group.rows);
		if (!ids)
			chunk_times(def, decoder.arrays, group.rows, &t_min, &t_max);
		capture_sink += t_min ^ t_max;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint16_t some[] = { 4, 1, 4, 999 };
	const struct prof_table_def *def;
	uint8_t *payload;

	if (size < 1)
		return 0;
	def = prof_table_v1(data[0]);
	payload = malloc(size);
	if (!payload)
		return 0;
	memcpy(payload, data + 1, size - 1);
	(void)!chunk_groups_valid(payload, size - 1, 2, 7);
	decode(def ? def : &every_kind_table, NULL, 0, payload, size - 1);
	decode(&every_kind_table, some, ARRAY_SIZE(some), payload, size - 1);
	free(payload);
	return 0;
}
