/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Debug package - a .dwp file: the split DWARF of all units of a program in one file
 *
 * libdw does not read packages, so a requested unit becomes a file of its own, like the one that
 * the compiler wrote.
 */
#pragma once

#include "tools/common/elf-image.h"

#include <glib.h>

struct debug_package;

/* Takes the fd; NULL if it is not a package. */
struct debug_package *debug_package_open(int fd);
void debug_package_free(struct debug_package *package);

/* Returns the .dwo file of the unit with that id; NULL if the package does not have it or is
 * malformed. */
GByteArray *debug_package_extract(const struct debug_package *package, uint64_t id);
