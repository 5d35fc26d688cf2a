/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Own memory - which mapping of its process an address without a name is in
 *
 * Generated code without names is one row a mapping instead of one row an address. The mappings
 * come from the table `mapping`; their times are ignored, and of several around an address the one
 * that begins last is taken. Immutable once loaded.
 */
#pragma once

#include "tools/common/names.h"

struct own_memory;

struct own_memory *own_memory_load(struct names *names, GError **error);
void own_memory_free(struct own_memory *memory); /* takes NULL */

/* Whether the image is anonymous memory or generated code of one process. */
bool own_memory_is(const struct names_image *image);
/* The start of the mapping around an address; the address itself if the capture has no such
 * mapping. `image`: index of names. */
uint64_t own_memory_start(const struct own_memory *memory, uint32_t image, uint64_t address);
