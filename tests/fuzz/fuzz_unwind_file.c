/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of daemon/engine/unwind/unwind-file.c: the input is one ELF file. Looks up addresses
 * of all executable segments in the file's compiled table, and reads sizes of frames from its code.
 */
#include "daemon/engine/unwind/unwind-file.h"

#include "arch/base.h"

#define MAX_BYTES (UINT64_C(16) << 20)
#define PLACES 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sum;

static void look_up(const struct unwind_file *file, const struct unwind_source *source,
		    const struct unwind_segment *segment)
{
	uint64_t address;
	uint32_t bytes;

	for (uint64_t part = 0; part < PLACES; part++) {
		if (!unwind_file_address(file, segment->offset + segment->size / PLACES * part,
					 &address))
			continue;
		sum += table_get(&file->table, address)->cfa;
		if (unwind_file_frame_bytes(file, source, address, &bytes))
			sum += bytes;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct unwind_source source = { .fd = -1, .bytes = data, .size = size };
	int error;
	struct unwind_file *file = unwind_file_new(&source, MAX_BYTES, &error);

	for (size_t i = 0; file && i < file->n_segments; i++)
		look_up(file, &source, &file->segments[i]);
	unwind_file_free(file);
	return 0;
}
