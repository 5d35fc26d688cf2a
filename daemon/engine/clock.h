/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_read(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* All records and deadlines use this clock, in ns. */
static inline uint64_t clock_now(void)
{
	return clock_read(CLOCK_MONOTONIC);
}
