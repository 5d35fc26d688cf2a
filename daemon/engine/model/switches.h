/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/model/tasks.h"

/* The thread on a CPU. */
struct switches {
	struct thread *thread; /* referenced; NULL: idle, not in the session, or unknown */
	int32_t tid;           /* 0: idle; -1: unknown */
	uint64_t start_ns;
	uint64_t ran_ns; /* total run time of all rows */
};

/* A switch to a thread or, if `out`, from a thread. */
struct switch_event {
	uint64_t time_ns;
	uint32_t cpu;
	int32_t tid;       /* -1: an exiting thread */
	int32_t other_tid; /* `out`: tid of the next thread; 0 for per-task events */
	bool out, preempted;
};

void switches_init(struct switches *switches, uint64_t start_ns);
void switches_done(struct switches *switches);
/* Returns the run time of all rows, plus that of the thread that is running, up to now_ns. */
uint64_t switches_ran_ns(const struct switches *switches, uint64_t now_ns);
void switches_apply(struct switches *switches, struct tasks *tasks,
		    const struct switch_event *event);
/* Called at an exec, which replaces the struct thread on the CPU. `tid`: of the new thread. */
void switches_exec(struct switches *switches, struct tasks *tasks, uint32_t cpu, int32_t tid,
		   uint64_t time_ns);
/* Writes an exiting thread's row, because per-task events end before it leaves the CPU. */
void switches_exit(struct switches *switches, struct tasks *tasks, uint32_t cpu, int32_t tid,
		   uint64_t time_ns);
/* Records that a thread, which is not known to be on a CPU, is in `state` from time_ns on. */
void switches_note(struct tasks *tasks, struct thread *thread, enum prof_switch_state state,
		   uint64_t time_ns);
/* Writes the final states of all threads that are not on a CPU. Call this after switches_end() was
 * called for every CPU. Unless `all_known`, skips threads that have been ready since the beginning,
 * because they may be running on a CPU that reported nothing. */
void switches_note_all(struct tasks *tasks, bool all_known, uint64_t time_ns);
/* Called for each sample, which names the thread on the CPU. If the CPU has reported no switch yet,
 * the thread has been on it since begin_ns. */
void switches_seen(struct switches *switches, struct tasks *tasks, int32_t tid, uint64_t begin_ns);
/* Writes the row of the thread that is still on the CPU. */
void switches_end(struct switches *switches, struct tasks *tasks, uint32_t cpu, uint64_t time_ns);
