/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/record.h"
#include "daemon/engine/tasks.h"

/* The thread that runs on one CPU. */
struct switches {
	struct thread *thread; /* referenced; NULL: idle, not in the session, or unknown */
	int32_t tid;           /* 0 = idle, -1 = unknown */
	uint64_t start_ns;
	uint64_t ran_ns; /* the total of all rows */
};

void switches_init(struct switches *switches, uint64_t start_ns);
void switches_done(struct switches *switches);
/* The total run time of threads with rows, including the one that still runs. */
uint64_t switches_ran_ns(const struct switches *switches, uint64_t now_ns);
/* Applies a record of PERF_RECORD_SWITCH or PERF_RECORD_SWITCH_CPU_WIDE. */
void switches_apply(struct switches *switches, struct tasks *tasks, const struct record *record);
/* The thread on the CPU has become another instance, by exec; `tid` is its new number. */
void switches_exec(struct switches *switches, struct tasks *tasks, uint32_t cpu, int32_t tid,
		   uint64_t time_ns);
/* By task: the events of a thread end with it, before it leaves the CPU. */
void switches_exit(struct switches *switches, struct tasks *tasks, uint32_t cpu, int32_t tid,
		   uint64_t time_ns);
/* A thread that is not on a CPU, as far as is known, is in `state` from time_ns on. */
void switches_note(struct tasks *tasks, struct thread *thread, enum prof_switch_state state,
		   uint64_t time_ns);
/* Adds the final states of all threads that are not on a CPU. Call it after switches_end() for each
 * CPU. Unless `all_known`, threads that have been ready since the beginning may have run all the
 * time on a CPU that reported nothing, and are skipped. */
void switches_note_all(struct tasks *tasks, bool all_known, uint64_t time_ns);
/* A sample names the thread on the CPU. If the CPU has reported no switch since begin_ns, the
 * thread has been on it since then. */
void switches_seen(struct switches *switches, struct tasks *tasks, int32_t tid, uint64_t begin_ns);
/* Writes the interval that is still open. */
void switches_end(struct switches *switches, struct tasks *tasks, uint32_t cpu, uint64_t time_ns);
