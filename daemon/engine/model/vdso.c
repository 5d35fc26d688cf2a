/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * vdso - reads the shared object that the kernel maps into every process
 *
 * The vdso is not a file, so neither the side band nor /proc reports its build-id. But all 64-bit
 * processes have the same vdso, including the engine. A reader of the capture uses the build-id to
 * check whether the symbols of the reader's own vdso are valid for the capture.
 * Reads memory that only the kernel can change. No state.
 */
#include "daemon/engine/model/vdso.h"

#include <link.h>
#include <string.h>
#include <sys/auxv.h>

static size_t align_note(size_t bytes)
{
	return (bytes + 3) & ~(size_t)3;
}

/* Returns the length of the build-id in the notes of a segment; 0: none. See elf(5), "Notes". */
static size_t find_build_id(const uint8_t *notes, size_t length, uint8_t *build_id, size_t size)
{
	ElfW(Nhdr) note;
	size_t name, data;

	for (; length >= sizeof(note); notes += data, length -= data) {
		memcpy(&note, notes, sizeof(note));
		name = sizeof(note);
		data = name + align_note(note.n_namesz);
		if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof(ELF_NOTE_GNU) &&
		    memcmp(notes + name, ELF_NOTE_GNU, sizeof(ELF_NOTE_GNU)) == 0) {
			if (note.n_descsz > size)
				return 0;
			memcpy(build_id, notes + data, note.n_descsz);
			return note.n_descsz;
		}
		data += align_note(note.n_descsz);
		if (data > length)
			return 0;
	}
	return 0;
}

const uint8_t *vdso_find(size_t *ret_size)
{
	const uint8_t *base = (const uint8_t *)getauxval(AT_SYSINFO_EHDR);
	const ElfW(Ehdr) *header = (const void *)base;
	const ElfW(Phdr) * segment;
	size_t end;

	if (!base)
		return NULL;
	end = header->e_shoff + header->e_shnum * sizeof(ElfW(Shdr));
	segment = (const void *)(base + header->e_phoff);
	for (int i = 0; i < header->e_phnum; i++)
		if (segment[i].p_type == PT_LOAD && segment[i].p_offset + segment[i].p_filesz > end)
			end = segment[i].p_offset + segment[i].p_filesz;
	*ret_size = end;
	return base;
}

size_t vdso_read_build_id(uint8_t *build_id, size_t size)
{
	const uint8_t *base = (const uint8_t *)getauxval(AT_SYSINFO_EHDR);
	const ElfW(Ehdr) *header = (const void *)base;
	const ElfW(Phdr) * segment;
	size_t found = 0;

	if (!base)
		return 0;
	segment = (const void *)(base + header->e_phoff);
	for (int i = 0; i < header->e_phnum && found == 0; i++)
		if (segment[i].p_type == PT_NOTE)
			found = find_build_id(base + segment[i].p_offset, segment[i].p_filesz,
					      build_id, size);
	return found;
}
