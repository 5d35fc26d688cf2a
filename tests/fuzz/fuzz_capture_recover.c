/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of libcapture/recover.c: a range to invert (two u16: start, length), and a whole
 * file. Repairs checksums first, so that there are valid chunks around the damage.
 */
#include "tests/fuzz/capture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct prof_reader *reader;
	size_t from, n;
	uint8_t *copy;

	if (size < 4)
		return 0;
	from = load_le16(data);
	n = load_le16(data + 2);
	data += 4;
	size -= 4;
	copy = malloc(size + 1);
	if (!copy)
		return 0;
	memcpy(copy, data, size);
	capture_repair(copy, size);
	for (size_t i = from; i < size && i - from < n; i++)
		copy[i] ^= 0xff;
	reader = capture_open(copy, size);
	free(copy);
	if (!reader)
		return 0;
	capture_check_chunks(reader);
	prof_reader_free(reader);
	return 0;
}
