/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Debug split - finds the other halves of units whose DWARF the compiler split off (-gsplit-dwarf)
 *
 * Searches for a package (NAME.dwp) beside the program or its debug file, or below the folders of
 * debug files. Then searches for the unit's own file (.dwo) at the path that the unit names, beside
 * the program or its debug file, or below the folders.
 */
#pragma once

#include "tools/symbols/debug-files.h"

#include <glib.h>

/* The search for the other halves of one file's units. For one thread at a time. */
struct debug_split;

/* `path`: path of the program. debug_path: path of its debug file, or NULL. Borrows everything. */
struct debug_split *debug_split_new(const struct debug_files *files, Dwarf *dwarf, const char *path,
				    const char *debug_path);
void debug_split_free(struct debug_split *split);

/* The other half of a unit. */
struct debug_half;

/* Returns NULL if the half is not found. *ret_unit: the half's unit, valid as long as the half. */
struct debug_half *debug_split_open(struct debug_split *split, Dwarf_Die *skeleton,
				    Dwarf_Die *ret_unit);
void debug_half_free(struct debug_half *half);

/* A package: one file with the halves of all units of a program (NAME.dwp). */
struct debug_package;

/* Takes ownership of fd. Returns NULL if it is not a package. */
struct debug_package *debug_package_open(int fd);
void debug_package_free(struct debug_package *package);
/* Returns the .dwo file of the unit with this id, or NULL if the package lacks it or is
 * malformed. */
GByteArray *debug_package_extract(const struct debug_package *package, uint64_t id);

struct elf_section {
	const char *name;
	const void *bytes;
	size_t size; /* 0: omit the section */
};

/* Returns a 64-bit little-endian ELF file with only these sections, for libelf to read. */
GByteArray *elf_sections_build(const struct elf_section *sections, size_t n);
