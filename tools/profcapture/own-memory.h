/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Own memory - which mapping of its process an address without a name is in
 *
 * Generated code that nothing names would be a row an address; its mapping is one row. From the table mapping, whatever the
 * time: the row that says most about an address is the one that begins last. Immutable once loaded.
 */
#pragma once

#include "tools/common/names.h"

struct own_memory;

struct own_memory *own_memory_load(struct names *names, GError **error);
void own_memory_free(struct own_memory *memory); /* takes NULL */

/* Of a frame in memory of a process's own. */
bool own_memory_is(const struct names_image *image);
/* Where the mapping starts that the address is in; the address itself where the capture has none. `image`: index of names. */
uint64_t own_memory_start(const struct own_memory *memory, uint32_t image, uint64_t address);
