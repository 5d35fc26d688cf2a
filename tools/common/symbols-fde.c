/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Symbols of stripped code - one row per function, named by its start
 *
 * Without this each address of a stripped function would be a row of its own. The name consists of
 * the image and the file offset of the function's first byte: it is equal in all recordings of the
 * same file.
 */
#include "tools/common/symbols-source.h"

static bool read_fdes(struct symbols_query *query, GError **error)
{
	struct elf_frames *frames = symbols_query_frames(query);

	for (size_t i = 0; i < query->n_places; i++) {
		const struct symbols_place *place = &query->places[i];
		g_autofree char *name = NULL;
		struct elf_range function;
		uint64_t offset;

		if (!elf_frames_get(frames, place->address, &function) ||
		    !elf_image_get_offset(query->elf, function.start, &offset))
			continue;
		name = symbols_offset_name(query->image, offset);
		symbols_query_add(query, place, function.start, function.end, name,
				  SYMBOLS_FROM_FDE);
	}
	return true;
}

const struct symbols_source symbols_fde_source = { "call frame information", read_fdes };
