/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Run-times - how long each thread ran, waited, and was ready but on no CPU
 *
 * From the table of context switches, whose rows say from when to when a thread was on a CPU and
 * why it left. The gap to the thread's next row is what the row before it says. What is before a
 * thread's first and behind its last row is unknown and counts as nothing: a recording has rows
 * without a length where a thread that is on no CPU begins and ends. Where wake-ups were not
 * recorded, a thread that waits does so until it runs, and one that was forked is preempted until
 * then. So the times of a thread come to how long it was there, one way or the other.
 * What damage took, and each gap around that, counts as nothing either: times are lower bounds
 * where capture_lacks_rows() says so of the table  [test_damage: times_are_lower_bounds]
 */
#pragma once

#include "tools/profcapture/reader.h"

struct run_time {
	uint64_t run_ns, wait_ns, preempted_ns;
	uint64_t runnable_ns; /* from when it was woken or forked until it ran */
	int64_t left_ns;      /* relative time at which it left the CPU last */
	uint32_t left_how;    /* enum prof_switch_state */
	bool is_there;        /* it has a row */
	bool known;           /* something came of them */
};

/* Whether a capture says when threads were woken; else runnable_ns is nothing that was measured. */
bool run_times_have_wakeups(const struct capture *capture);

/* struct run_time by thread index of names; `known` is false where nothing is. NULL: failure. */
GArray *run_times_read(struct reader *reader, GError **error);
