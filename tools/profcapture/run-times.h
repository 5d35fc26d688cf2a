/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Run-times - how long each thread ran, waited, and was ready but on no CPU
 *
 * The times come from the table of context switches. Its rows say from when to when a thread was on
 * a CPU and why it left. That reason classifies the gap until the thread's next row. The time
 * before a thread's first row and after its last row is unknown and does not count. A recording has
 * rows without a length where a thread that is on no CPU begins and ends. If wake-ups were not
 * recorded, a waiting thread counts as waiting until it runs, and a forked one as preempted until
 * it runs. So in both cases the times of a thread add up to the time that it existed.
 * Rows lost to damage, and the gaps around them, do not count either: times are lower bounds if
 * capture_lacks_rows() says so for the table  [test_damage: times_are_lower_bounds]
 */
#pragma once

#include "tools/profcapture/reader.h"

struct run_time {
	uint64_t run_ns, wait_ns, preempted_ns;
	uint64_t runnable_ns; /* from its wake-up or fork until it ran */
	int64_t left_ns;      /* relative time at which it last left the CPU */
	uint32_t left_how;    /* enum prof_switch_state */
	bool is_there;        /* it has a row */
	bool known;           /* one of its times is not 0 */
};

/* Returns whether the capture has wake-ups. Otherwise, runnable_ns was not measured. */
bool run_times_have_wakeups(const struct capture *capture);

/* Returns struct run_time by thread index of names, or NULL on error. `known` is false for threads
 * without times. */
GArray *run_times_read(struct reader *reader, GError **error);
