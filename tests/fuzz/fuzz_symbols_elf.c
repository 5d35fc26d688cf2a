/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of the readers of ELF files (elf-image.c, elf-frames.c, symbols*.c): the input is one
 * file. Looks up names all over its executable segments. Each row must contain the addresses that
 * it names.
 */
#include "arch/base.h"
#include "tools/symbols/elf-image.h"
#include "tools/symbols/symbols.h"

#include <stdlib.h>
#include <sys/mman.h>

#define PLACES 256

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t pick_offsets(int fd, size_t size, uint64_t *offsets)
{
	struct elf_image *elf = elf_image_open(fd);
	size_t n = 0;

	for (size_t i = 0; elf && i < elf->n_segments && n < PLACES / 2; i++)
		for (uint64_t part = 0; part < 32 && elf->segments[i].executable && n < PLACES / 2;
		     part++)
			offsets[n++] = elf->segments[i].offset + elf->segments[i].size / 32 * part;
	elf_image_free(elf);
	for (uint64_t part = 0; n < PLACES; part += 2)
		offsets[n++] = size * part / PLACES;
	return n;
}

static void check(const struct symbols *symbols, const uint64_t *offsets)
{
	for (size_t i = 0; i < symbols->n_offsets; i++) {
		const struct symbol *row;

		if (symbols->row_of[i] == SYMBOLS_NONE)
			continue;
		if (symbols->row_of[i] >= symbols->n_rows)
			abort();
		row = &symbols->rows[symbols->row_of[i]];
		if (row->start > offsets[i] || offsets[i] - row->start >= row->length ||
		    row->name[0] == '\0' || !g_utf8_validate(row->name, -1, NULL))
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct symbols_image image = { .path = "/usr/bin/x" };
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	struct symbols *symbols = NULL;
	uint64_t offsets[PLACES];

	if (fd >= 0 && write(fd, data, size) == (ssize_t)size) {
		size_t n = pick_offsets(fd, size, offsets);

		if (symbols_read(&image, fd, offsets, n, &symbols, NULL))
			check(symbols, offsets);
		symbols_free(symbols);
	}
	if (fd >= 0)
		close(fd);
	return 0;
}
