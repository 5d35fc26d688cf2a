/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of tools/symbols/jit-names.c: the text of a map. Reads every entry to its end, and
 * looks names up like `symbolize` does.
 */
#include "tools/symbols/jit-names.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint64_t addresses[] = { 0, 0x1000, 0x7f0000001000, UINT64_MAX };
	GStringChunk *texts = g_string_chunk_new(64);
	struct perf_map_entry entry;
	/* a copy, so that a sanitizer detects reads past its end */
	char *text = g_memdup2(data, size);
	size_t at = 0, sum = 0;

	while (perf_map_next(text, size, &at, &entry)) {
		if (entry.size == 0 || entry.start + entry.size < entry.start || !entry.name_bytes)
			abort();
		for (size_t i = 0; i < entry.name_bytes; i++)
			sum += (uint8_t)entry.name[i];
	}
	g_array_unref(jit_names_of_map(text, size, addresses, G_N_ELEMENTS(addresses), sum, texts));
	g_free(text);
	g_string_chunk_free(texts);
	return 0;
}
