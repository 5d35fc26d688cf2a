/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Tick - the processor's own counter, which a record's time may be told by: docs/ring.md, "Ticks"
 *
 * It is read in less than half the time that the clock takes. A processor may read it before what
 * stands before it is done, which between threads would turn around who freed a block and who got
 * it next; some wait for all loads nevertheless, as programs notice that miss caches.
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

/* Behind all loads that stand before it. */
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
