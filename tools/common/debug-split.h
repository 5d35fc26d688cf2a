/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Debug split - the other halves of units whose DWARF the compiler split off (-gsplit-dwarf)
 *
 * In this order: a package (NAME.dwp) beside the program or its debug file, or below the folders of
 * debug files; then the unit's own file (.dwo) by the name that the unit has for it, beside the
 * program, and below the folders.
 */
#pragma once

#include "tools/common/debug-files.h"

/* One for a file; not to be used on several threads at once. */
struct debug_split;

/* `path` is that of the program, `debug_path` of its debug file, or NULL. All is borrowed. */
struct debug_split *debug_split_new(const struct debug_files *files, Dwarf *dwarf, const char *path,
				    const char *debug_path);
void debug_split_free(struct debug_split *split);

/* The other half of a unit. */
struct debug_half;

/* NULL where it is not to be found. */
struct debug_half *debug_split_open(struct debug_split *split, Dwarf_Die *skeleton);
void debug_half_free(struct debug_half *half);

/* Its unit, which lasts as long. */
Dwarf_Die debug_half_unit(const struct debug_half *half);
