/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Run-times - how long each thread ran, waited, and was ready without a CPU
 *
 * The times come from the table of context switches. Each row says when a thread was on a CPU and
 * why it left, which classifies the gap until its next row. The time before a thread's first row
 * and after its last row is unknown and does not count. A thread that begins or ends without a CPU
 * has a row of length 0 there. If wake-ups were not recorded, a waiting thread counts as waiting
 * until it runs, and a forked thread as preempted until it runs. Either way, the times of a thread
 * add up to the time from its first row to the end of its last row. Rows lost to damage and the
 * gaps around them do not count, so times are lower bounds if capture_lacks_rows() is true for the
 * table
 * [test_damage: times_are_lower_bounds]
 */
#pragma once

#include "tools/profcapture/reader.h"

struct run_time {
	uint64_t run_ns, wait_ns, preempted_ns;
	uint64_t runnable_ns; /* from the thread's wake-up or fork until it ran */
	int64_t left_ns;      /* when it last left the CPU, since the capture's start */
	uint32_t left_how;    /* enum prof_switch_state */
	bool is_there;        /* the thread has a row */
	bool known;           /* one of its times is not 0 */
};

static inline void run_time_add(struct run_time *to, const struct run_time *from)
{
	to->run_ns += from->run_ns;
	to->wait_ns += from->wait_ns;
	to->preempted_ns += from->preempted_ns;
	to->runnable_ns += from->runnable_ns;
	to->known |= from->known;
}

/* Returns whether the capture has wake-ups. Otherwise, runnable_ns was not measured. */
bool run_times_have_wakeups(const struct capture *capture);

/* Returns an array of struct run_time by thread (index in names); NULL on error. */
GArray *run_times_read(struct reader *reader, GError **error);

/* A known part of a thread's time, longer than 0. */
struct run_state {
	int64_t from_ns, to_ns;
	uint64_t cpu;    /* PROF_SWITCH_NO_CPU: not running, or unknown */
	uint32_t thread; /* index in names */
	uint32_t state;  /* enum prof_switch_state */
};

/* Like run_times_read(), and also calls `found` for each state; the states of one thread are in
 * order. Only the reader's thread filters apply to states; its time range and CPUs do not. */
GArray *run_times_each_state(struct reader *reader,
			     void (*found)(const struct run_state *state, void *data), void *data,
			     GError **error);
