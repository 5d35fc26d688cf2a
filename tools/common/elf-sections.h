/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * ELF sections - builds an ELF file of named sections only
 */
#pragma once

#include <glib.h>
#include <stddef.h>

struct elf_section {
	const char *name;
	const void *bytes;
	size_t size; /* 0 = the section is left out */
};

/* Returns a little-endian file of 64 bits, for libelf to read. */
GByteArray *elf_sections_build(const struct elf_section *sections, size_t n);
