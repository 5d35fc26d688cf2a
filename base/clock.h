/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Clock - times in ns. Async-signal-safe, and never sets errno for the clocks used here. */
#pragma once

#include <stdint.h>
#include <time.h>

#define CLOCK_NS_PER_S UINT64_C(1000000000)

static inline uint64_t clock_read(clockid_t clock)
{
	struct timespec now = { 0 };

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * CLOCK_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* All records and deadlines use this clock. */
static inline uint64_t clock_now(void)
{
	return clock_read(CLOCK_MONOTONIC);
}

static inline struct timespec clock_timespec(uint64_t ns)
{
	return (struct timespec){ (time_t)(ns / CLOCK_NS_PER_S), (long)(ns % CLOCK_NS_PER_S) };
}
