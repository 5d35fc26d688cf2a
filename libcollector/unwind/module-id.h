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

/* Memory of a module. Its ELF header is at `start`. */
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

/* Returns whether the loader has a module at pc, and the module's range. If glibc cannot answer
 * (before 2.35), returns true with an empty range. */
bool module_find_loaded(uint64_t pc, uint64_t *ret_start, uint64_t *ret_end);
/* Returns whether memory->start has a 64-bit ELF header with program headers. */
bool module_is_elf(const struct module_memory *memory);
/* Returns the address of the module's build-id, or 0. *ret_bytes: its length, cut to
 * MODULE_MAX_ID. */
uint64_t module_find_build_id(const struct module_memory *memory, uint32_t *ret_bytes);
