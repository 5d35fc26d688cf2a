/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Safe read - reads memory of this process that may not be mapped
 *
 * All functions are async-signal-safe, take no lock and allocate nothing. No address makes them
 * fault.
 */
#pragma once

#include "arch/base.h"

#include <sys/uio.h>

#define SAFE_READ_PAGE 4096u /* the smallest page size of Linux */

enum safe_read_way {
	SAFE_READ_UNKNOWN,
	SAFE_READ_BY_KERNEL, /* process_vm_readv() on itself */
	SAFE_READ_BY_PROBE,  /* checks that the memory is readable, then loads */
};

/* How memory is read during one walk. Initialize with zeros. */
struct safe_read {
	uint8_t way;
	int32_t pid; /* PID of the caller, because a child that shares memory is another process */
};

/* Returns false unless all bytes could be read. */
bool safe_read(struct safe_read *memory, uint64_t address, void *buffer, size_t size);

/* Reads n ranges, one after another, with one system call. Returns how many bytes could be read
 * before the first unreadable one; 0 if memory must be probed. */
size_t safe_read_ranges(struct safe_read *memory, const struct iovec *ranges, size_t n,
			void *buffer, size_t size);

/* Returns how many of the n pages right below `end` are readable without a gap. `end` must be
 * page-aligned. */
size_t safe_read_count_below(struct safe_read *memory, uint64_t end, size_t n);
