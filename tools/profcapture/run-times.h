/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Run-times - how long each thread ran, waited, and stood ready but preempted
 *
 * From the table of context switches, whose rows say from when to when a thread was on a CPU and why it left. The gap to
 * the thread's next row is waiting or being preempted, as the row before it says. What is before a thread's first and
 * behind its last row is unknown and counts as nothing.
 */
#pragma once

#include "tools/profcapture/reader.h"

struct run_time {
	uint64_t run_ns, wait_ns, preempted_ns;
	int64_t left_ns;   /* relative time at which it left the CPU last */
	uint32_t left_how; /* enum prof_switch_state */
	bool known;
};

/* By thread index of names; NULL array elements do not exist: `known` is false. NULL: failure. */
GArray *run_times_read(struct reader *reader, GError **error);
