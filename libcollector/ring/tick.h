/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Tick - the processor's counter as the time of a record: docs/ring.md, "Ticks"
 *
 * Reading it takes less than half the time of reading the clock. A processor may read it before
 * earlier instructions are complete. If one thread frees a block and another gets it, that could
 * swap the order of the two records. Some processors make the read wait for all loads, which slows
 * down programs that miss caches.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__)
#define TICK_EXISTS true
static inline uint64_t tick_read(void)
{
	return __builtin_ia32_rdtsc();
}

/* Reads the counter after all earlier loads. */
static inline uint64_t tick_read_ordered(void)
{
	__builtin_ia32_lfence();
	return __builtin_ia32_rdtsc();
}
#else
#define TICK_EXISTS false
static inline uint64_t tick_read(void)
{
	return 0;
}

static inline uint64_t tick_read_ordered(void)
{
	return 0;
}
#endif
