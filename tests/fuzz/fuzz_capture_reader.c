/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of libcapture/index.c: a byte, and a whole file. Bit 0: repair checksums. Bit 1: then
 * cut off the last 96 bytes, where a trailer would be. Opens the capture, reads all of it, and
 * verifies it.
 */
#include "tests/fuzz/capture.h"

static int count(const struct prof_damage *damage, void *data)
{
	(void)prof_damage_reason_name(damage->reason);
	*(uint64_t *)data += damage->bytes;
	return 0;
}

static void read_all(const struct prof_reader *reader)
{
	const struct prof_table_def *const *tables;
	uint64_t chunks = 0, good = 0, bytes = 0;
	size_t n;

	tables = prof_reader_tables(reader, &n);
	for (size_t i = 0; i < n; i++) {
		if (prof_reader_table_by_name(reader, tables[i]->name) == NULL ||
		    prof_reader_table(reader, tables[i]->id) != tables[i])
			abort();
		capture_read_table(reader, tables[i]);
	}
	capture_sink += prof_reader_info(reader)->epochs;
	(void)prof_reader_segments(reader, &n);
	(void)prof_reader_damage(reader, &n);
	capture_check_chunks(reader);
	if (prof_reader_info(reader)->chunks <= CAPTURE_BATCHES &&
	    prof_reader_verify(reader, count, &bytes, &chunks, &good) == 0 && good > chunks)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct prof_reader *reader;
	uint8_t *copy;

	if (size < 1)
		return 0;
	copy = malloc(size);
	if (!copy)
		return 0;
	memcpy(copy, data + 1, size - 1);
	if (data[0] & 1)
		capture_repair(copy, size - 1);
	if (data[0] & 2 && size - 1 > CHUNK_HEADER_BYTES)
		size -= CHUNK_HEADER_BYTES;
	reader = capture_open(copy, size - 1);
	free(copy);
	if (!reader)
		return 0;
	read_all(reader);
	prof_reader_free(reader);
	return 0;
}
