/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Own memory - reads memory of this process that may not be there
 *
 * Everything is async-signal-safe, takes no lock, allocates nothing and never faults.
 */
#pragma once

#include "arch/base.h"

#define OWN_MEMORY_PAGE 4096u /* the smallest that Linux has */

enum own_memory_way {
	OWN_MEMORY_UNKNOWN,
	OWN_MEMORY_BY_KERNEL, /* process_vm_readv() on itself */
	OWN_MEMORY_BY_PROBE,  /* asks whether it is there, then loads */
};

/* How memory is read, for as long as a walk takes. All zero is a fresh one. */
struct own_memory {
	uint8_t way;
	int32_t pid; /* of the caller, as a child that shares memory is another process */
};

/* All of it, or false. */
bool own_memory_read(struct own_memory *memory, uint64_t address, void *buffer, size_t size);

/* How many of the `n` pages right below `end`, which is a page's start, are readable without a
 * hole. */
size_t own_memory_count_below(struct own_memory *memory, uint64_t end, size_t n);
