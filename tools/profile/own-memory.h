/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Own-memory - finds a process's mapping that contains an address without a name
 *
 * Generated code without names gets one row for each mapping, not one for each address. The
 * mappings come from the table `mapping`. Their times are ignored. If several contain an address,
 * the one with the highest start is used. Immutable after loading.
 */
#pragma once

#include "tools/symbols/names.h"

struct own_memory;

struct own_memory *own_memory_load(struct names *names, GError **error);
void own_memory_free(struct own_memory *memory); /* accepts NULL */

/* Returns whether the image is anonymous memory or generated code of one process. */
bool own_memory_is(const struct names_image *image);
/* Returns the start of the mapping that contains an address, or the address itself if the capture
 * has no such mapping. `image`: index in names. */
uint64_t own_memory_start(const struct own_memory *memory, uint32_t image, uint64_t address);
