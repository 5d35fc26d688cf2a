/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of arch/jit-dump.c: the bytes of a dump. Reads every name to its end, and looks names
 * up like `symbolize` does.
 */
#include "arch/jit-dump.h"
#include "tools/symbols/jit-names.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint64_t addresses[] = { 0, 0x1000, 0x7f0000001000, UINT64_MAX };
	GStringChunk *texts = g_string_chunk_new(64);
	/* a copy, so that a sanitizer detects reads past its end */
	uint8_t *bytes = g_memdup2(data, size);
	struct jit_dump_entry entry;
	struct jit_dump_line line;
	struct jit_dump dump;
	size_t sum = 0;

	if (bytes && jit_dump_open(&dump, bytes, size))
		while (jit_dump_next(&dump, &entry)) {
			while (entry.kind == JIT_DUMP_LINES &&
			       jit_dump_next_line(&entry.lines, &line))
				sum += line.file ? strlen(line.file) : 1;
			for (size_t i = 0;
			     entry.kind == JIT_DUMP_UNWINDING && i < entry.eh_frame_bytes; i++)
				sum += entry.eh_frame[i];
			if (!jit_dump_is_code(entry.kind))
				continue;
			if (entry.size == 0 || entry.address + entry.size < entry.address)
				abort();
			sum += entry.kind == JIT_DUMP_LOAD ? strlen(entry.name) : 1;
		}
	g_array_unref(jit_names_of_dump(bytes, size, addresses, G_N_ELEMENTS(addresses), sum % 3,
					UINT64_MAX, texts));
	g_array_unref(jit_lines_of_dump(bytes, size, addresses, G_N_ELEMENTS(addresses), sum % 3,
					UINT64_MAX, texts));
	g_free(bytes);
	g_string_chunk_free(texts);
	return 0;
}
