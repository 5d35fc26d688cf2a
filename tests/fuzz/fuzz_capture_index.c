/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of libcapture/checkpoint.c: offsets of the first entry and of the checkpoint (two
 * u32, in units of 8), and a checkpoint's payload. Accepted entries must ascend, not overlap, and
 * end before the checkpoint.
 */
#include "libcapture/checkpoint.h"
#include "tests/fuzz/capture.h"

struct taken {
	/* `at`, `sequence`: minima for the next entry; `limit`: maximum end of an entry */
	uint64_t at, sequence, limit;
};

static int take(const struct entry *entry, void *data)
{
	struct taken *taken = data;

	if (entry->chunk.offset < taken->at || entry->chunk.sequence < taken->sequence ||
	    entry_end(entry) > taken->limit)
		abort();
	taken->at = entry_end(entry);
	taken->sequence = entry->chunk.sequence + 1;
	return 0;
}

static void check_entries(const struct checkpoint_view *view, uint64_t link, uint64_t end)
{
	CLEANUP(chunk_decoder_done) struct chunk_decoder decoder = { 0 };
	struct taken taken = { .at = FILE_HEADER_BYTES, .limit = end };

	if (chunk_decoder_init(&decoder, &entry_table, NULL, 0) == 0)
		(void)!checkpoint_decode_entries(view, &decoder, link, end,
						 &(struct entry_receiver){ .receive = take,
									   .data = &taken });
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP(schema_done) struct schema schema = { 0 };
	struct checkpoint_view view;
	uint8_t *payload;

	if (size < 8)
		return 0;
	payload = malloc(size);
	if (!payload)
		return 0;
	memcpy(payload, data + 8, size - 8);
	if (checkpoint_parse(payload, size - 8, &view) == 0) {
		for (size_t i = 0; i < view.n_segments; i++)
			capture_sink += checkpoint_segment(&view, i).number;
		for (size_t i = 0; i < view.n_gaps; i++)
			capture_sink += checkpoint_gap(&view, i).bytes;
		(void)!checkpoint_decode_schema(&view, &schema);
		check_entries(&view, (uint64_t)load_le32(data) * 8,
			      (uint64_t)load_le32(data + 4) * 8);
	}
	free(payload);
	return 0;
}
