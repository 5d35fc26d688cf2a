/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Module id - identifies a module by its bytes in memory
 *
 * Async-signal-safe, allocates nothing, and takes no lock of the loader. Loads from a module only
 * through `read`.
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

/* Returns whether the loader has a module at pc, and its range. If the loader cannot be asked,
 * returns true with an empty range. */
bool module_find_loaded(uint64_t pc, uint64_t *ret_start, uint64_t *ret_end);
/* True if there is an ELF header of this machine's type. */
bool module_is_elf(const struct module_memory *memory);
/* Returns the address of its build-id, and how many bytes of it to use, up to MODULE_MAX_ID; 0:
 * none. */
uint64_t module_find_build_id(const struct module_memory *memory, uint32_t *ret_bytes);
