/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Module id - identifies a module by its bytes in memory
 *
 * Module data is untrusted: counts and lengths are bounded by the module and by this file's limits.
 */
#include "libcollector/unwind/module-id.h"

#include <dlfcn.h>
#include <elf.h>

#define MAX_SEGMENTS 64
#define MAX_NOTE_BYTES 1024

/* Exists in glibc since 2.35. */
#pragma weak _dl_find_object

bool module_find_loaded(uint64_t pc, uint64_t *ret_start, uint64_t *ret_end)
{
	struct dl_find_object found = { .dlfo_map_start = (void *)(uintptr_t)pc,
					.dlfo_map_end = (void *)(uintptr_t)pc };

	if (_dl_find_object && _dl_find_object((void *)(uintptr_t)pc, &found) != 0)
		return false;
	*ret_start = (uint64_t)(uintptr_t)found.dlfo_map_start;
	*ret_end = (uint64_t)(uintptr_t)found.dlfo_map_end;
	return true;
}

static bool read_header(const struct module_memory *memory, Elf64_Ehdr *ret_header)
{
	return module_read(memory, memory->start, ret_header, sizeof(*ret_header)) &&
	       memcmp(ret_header->e_ident, ELFMAG, SELFMAG) == 0 &&
	       ret_header->e_phentsize == sizeof(Elf64_Phdr);
}

bool module_is_elf(const struct module_memory *memory)
{
	Elf64_Ehdr header;

	return read_header(memory, &header);
}

/* Finds the build-id in the notes of a segment. Returns 0 if the notes have no build-id. */
static uint64_t find_in_notes(const struct module_memory *memory, uint64_t at, uint64_t size,
			      uint32_t *ret_bytes)
{
	Elf64_Nhdr note;
	char name[4];

	size = MIN_OF(size, (uint64_t)MAX_NOTE_BYTES);
	for (uint64_t end = at + size; at + sizeof(note) + sizeof(name) <= end;) {
		uint64_t name_bytes, id_bytes;

		if (!module_read(memory, at, &note, sizeof(note)) ||
		    !module_read(memory, at + sizeof(note), name, sizeof(name)))
			return 0;
		name_bytes = ((uint64_t)note.n_namesz + 3) & ~UINT64_C(3);
		id_bytes = ((uint64_t)note.n_descsz + 3) & ~UINT64_C(3);
		if (note.n_type == NT_GNU_BUILD_ID && name_bytes == 4 &&
		    memcmp(name, ELF_NOTE_GNU, 4) == 0 && note.n_descsz > 0) {
			*ret_bytes = MIN_OF(note.n_descsz, (uint32_t)MODULE_MAX_ID);
			return at + sizeof(note) + name_bytes;
		}
		at += sizeof(note) + name_bytes + id_bytes;
	}
	return 0;
}

uint64_t module_find_build_id(const struct module_memory *memory, uint32_t *ret_bytes)
{
	uint64_t bias = memory->start, found = 0;
	Elf64_Ehdr header;
	uint32_t n;

	if (!read_header(memory, &header))
		return 0;
	n = MIN_OF((uint32_t)header.e_phnum, (uint32_t)MAX_SEGMENTS);
	for (uint32_t i = 0; i < n && found == 0; i++) {
		Elf64_Phdr segment;

		if (!module_read(memory, memory->start + header.e_phoff + i * sizeof(segment),
				 &segment, sizeof(segment)))
			return 0;
		if (segment.p_type == PT_LOAD && segment.p_offset == 0)
			bias = memory->start - segment.p_vaddr;
		if (segment.p_type == PT_NOTE)
			found = find_in_notes(memory, bias + segment.p_vaddr, segment.p_memsz,
					      ret_bytes);
	}
	return found;
}
