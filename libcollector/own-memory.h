/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Own memory - reads memory of this process that may not be mapped
 *
 * Everything is async-signal-safe, takes no lock, allocates nothing and never faults.
 */
#pragma once

#include "arch/base.h"

#define OWN_MEMORY_PAGE 4096u /* the smallest of Linux */

enum own_memory_way {
	OWN_MEMORY_UNKNOWN,
	OWN_MEMORY_BY_KERNEL, /* process_vm_readv() on itself */
	OWN_MEMORY_BY_PROBE,  /* checks that it is readable, then loads */
};

/* How memory is read during one walk. All zeros is a valid start. */
struct own_memory {
	uint8_t way;
	int32_t pid; /* of the caller, because a child that shares memory is another process */
};

/* Reads all of it, or returns false. */
bool own_memory_read(struct own_memory *memory, uint64_t address, void *buffer, size_t size);

/* Returns how many of the `n` pages right below `end`, which is page-aligned, are readable without
 * a hole. */
size_t own_memory_count_below(struct own_memory *memory, uint64_t end, size_t n);
