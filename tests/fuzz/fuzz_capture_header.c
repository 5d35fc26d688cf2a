/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of libcapture/format.c: a byte, a file header, and chunk headers. The byte selects
 * which checksums to repair: bits 0 and 1 for the two copies of the file header, bit 2 for the
 * chunk headers. A header that can be decoded must keep its fields when it is encoded.
 */
#include "tests/fuzz/capture.h"

static void check_file_header(uint8_t bytes[FILE_HEADER_BYTES], unsigned int repair,
			      uint64_t *ret_salt)
{
	struct file_header header, again;
	uint8_t encoded[FILE_HEADER_BYTES];
	unsigned int bad;

	for (unsigned int copy = 0; copy < 2; copy++) {
		uint8_t *record = bytes + copy * FILE_RECORD_BYTES;

		if (repair & 1u << copy)
			store_le64(record + 120, format_checksum(record, 120, 0));
	}
	if (file_header_decode(bytes, &header, &bad) != 0)
		return;
	file_header_encode(&header, encoded);
	if (file_header_decode(encoded, &again, &bad) != 0 || bad != 0 ||
	    again.salt != header.salt || again.incompat != header.incompat ||
	    memcmp(again.uuid, header.uuid, sizeof(header.uuid)) != 0)
		abort();
	*ret_salt = header.salt;
}

static void check_chunk_header(uint8_t bytes[CHUNK_HEADER_BYTES], bool repair, uint64_t salt)
{
	struct chunk_header header;
	uint8_t encoded[CHUNK_HEADER_BYTES];

	if (repair)
		store_le64(bytes + 8, format_checksum(bytes + 16, CHUNK_HEADER_BYTES - 16, salt));
	if (!chunk_header_decode(bytes, salt, &header))
		return;
	if (header.stored > PROF_MAX_PAYLOAD)
		abort();
	chunk_header_encode(&header, salt, encoded);
	/* do not compare the reserved bytes, or the checksum that includes them */
	if (memcmp(encoded + 16, bytes + 16, 72) != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t salt = 0;
	uint8_t *copy;

	if (size < 1 + FILE_HEADER_BYTES)
		return 0;
	copy = malloc(size - 1);
	if (!copy)
		return 0;
	memcpy(copy, data + 1, size - 1);
	check_file_header(copy, data[0], &salt);
	for (size_t at = 0; (at = chunk_magic_find(copy, size - 1, at)) != SIZE_MAX; at += 8)
		if (size - 1 - at >= CHUNK_HEADER_BYTES)
			check_chunk_header(copy + at, data[0] & 4, salt);
	free(copy);
	return 0;
}
