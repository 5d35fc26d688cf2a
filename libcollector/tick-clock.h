/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Tick clock - what CLOCK_MONOTONIC was when the processor's counter was at some value
 *
 * One for all rings of an engine, as the order of what is in different rings rests on it. One
 * thread.
 */
#pragma once

#include <stdint.h>

struct tick_clock;

/* NULL: ticks are not what the kernel's clock is made of, or there is no memory. Begins a
 * thread, which is over then. */
struct tick_clock *tick_clock_new(void);
void tick_clock_free(struct tick_clock *clock);

/*
 * ns, of ticks that were read before the call. What is asked again is answered the same, and more
 * ticks are never less ns. Ticks that are still to come are now.
 */
uint64_t tick_clock_ns(struct tick_clock *clock, uint64_t ticks);

/* The same of a way to read both: for tests. */
struct tick_reading {
	uint64_t ticks, ns;
};
typedef struct tick_reading tick_clock_read(void *data);
struct tick_clock *tick_clock_new_of(tick_clock_read *read, void *data);
