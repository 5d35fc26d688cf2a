/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Module id - what tells a module from another one, as it stands in memory
 *
 * Async-signal-safe, allocates nothing, takes no lock of the loader's. Nothing of a module is
 * loaded but through `read`.
 */
#pragma once

#include "arch/base.h"

#define MODULE_MAX_ID 32

/* Memory of a module that begins with its ELF header. */
struct module_memory {
	uint64_t start, end;
	bool (*read)(void *data, uint64_t address, void *buffer, size_t size);
	void *data;
};

static inline bool module_read(const struct module_memory *memory, uint64_t address, void *buffer,
			       size_t size)
{
	return address >= memory->start && address < memory->end && memory->end - address >= size &&
	       memory->read(memory->data, address, buffer, size);
}

/* Whether the loader has a module at pc, and from where to where. Where it cannot be asked it
 * has one, of no length. */
bool module_find_loaded(uint64_t pc, uint64_t *ret_start, uint64_t *ret_end);
/* Whether there is an ELF header of this kind of machine's. */
bool module_is_elf(const struct module_memory *memory);
/* Where its build-id stands, and how much of that is to be looked at, up to MODULE_MAX_ID bytes;
 * 0: it has none. */
uint64_t module_find_build_id(const struct module_memory *memory, uint32_t *ret_bytes);
