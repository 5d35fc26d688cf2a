/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Safe read - reads memory of this process that may not be mapped
 *
 * Everything is async-signal-safe, takes no lock, allocates nothing and never faults.
 */
#pragma once

#include "arch/base.h"

#define SAFE_READ_PAGE 4096u /* the smallest of Linux */

enum safe_read_way {
	SAFE_READ_UNKNOWN,
	SAFE_READ_BY_KERNEL, /* process_vm_readv() on itself */
	SAFE_READ_BY_PROBE,  /* checks that it is readable, then loads */
};

/* How memory is read during one walk. All zeros is a valid start. */
struct safe_read {
	uint8_t way;
	int32_t pid; /* of the caller, because a child that shares memory is another process */
};

/* Reads all of it, or returns false. */
bool safe_read(struct safe_read *memory, uint64_t address, void *buffer, size_t size);

/* Returns how many of the `n` pages right below `end`, which is page-aligned, are readable without
 * a hole. */
size_t safe_read_count_below(struct safe_read *memory, uint64_t end, size_t n);
