/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Debug package - a .dwp file: the split DWARF of all units of a program in one file
 *
 * libdw reads no packages, so the unit that is asked for is made a file of its own, as the compiler
 * had written it.
 */
#pragma once

#include "tools/common/elf-image.h"

#include <glib.h>

struct debug_package;

/* Takes the file; NULL where it is no package. */
struct debug_package *debug_package_open(int fd);
void debug_package_free(struct debug_package *package);

/* The .dwo file of the unit with that id; NULL where the package has none, or it lies. */
GByteArray *debug_package_extract(const struct debug_package *package, uint64_t id);
