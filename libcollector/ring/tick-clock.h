/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Tick clock - maps values of the processor's counter to CLOCK_MONOTONIC
 *
 * An engine has one tick clock for all rings, because the order of records in different rings
 * depends on the clock. For use by one thread.
 */
#pragma once

#include <stdint.h>

struct tick_clock;

/* Returns NULL if the kernel's clock is not derived from ticks, or if there is no memory. Runs a
 * thread, which has exited when this returns. */
struct tick_clock *tick_clock_new(void);
void tick_clock_free(struct tick_clock *clock);

/* Returns the time in ns for ticks that were read before the call. Within a few seconds, calls with
 * the same ticks return the same time. Later ticks never have an earlier time. For ticks in the
 * future, returns a time at most 1 ms after now. */
uint64_t tick_clock_ns(struct tick_clock *clock, uint64_t ticks);

struct tick_reading {
	uint64_t ticks, ns;
};
typedef struct tick_reading tick_clock_read(void *data);
/* Like tick_clock_new(), but reads ticks and clock with `read`: for tests. */
struct tick_clock *tick_clock_new_of(tick_clock_read *read, void *data);
