/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/record.h"
#include "daemon/engine/tasks.h"

/* What runs on one CPU. */
struct switches {
	struct thread *thread; /* referenced; NULL: idle, a stranger, or unknown */
	int32_t tid;           /* 0 = idle, -1 = unknown */
	uint64_t start_ns;
	uint64_t ran_ns; /* all rows together */
};

void switches_init(struct switches *switches, uint64_t start_ns);
void switches_done(struct switches *switches);
/* How long those that have rows ran, with the one that still does. */
uint64_t switches_ran_ns(const struct switches *switches, uint64_t now_ns);
/* A record of PERF_RECORD_SWITCH or PERF_RECORD_SWITCH_CPU_WIDE. */
void switches_apply(struct switches *switches, struct tasks *tasks, const struct record *record);
/* What runs on the CPU has become another instance, by exec; `tid` is its number now. */
void switches_exec(struct switches *switches, struct tasks *tasks, uint32_t cpu, int32_t tid,
		   uint64_t time_ns);
/* By task: the events of a thread end with it, before it leaves the CPU. */
void switches_exit(struct switches *switches, struct tasks *tasks, uint32_t cpu, int32_t tid,
		   uint64_t time_ns);
/* A thread that is on no CPU, as far as is known, is in that state from then on. */
void switches_note(struct tasks *tasks, struct thread *thread, enum prof_switch_state state,
		   uint64_t time_ns);
/* What all threads are in the end that are on no CPU; after switches_end() for each CPU. Unless
 * it is known who was on each one, those that were ready from the begin on may have run all the
 * time. */
void switches_note_all(struct tasks *tasks, bool all_known, uint64_t time_ns);
/* A sample says who is on the CPU: where nobody has left it or come since begin_ns, that has
 * been on it since then. */
void switches_seen(struct switches *switches, struct tasks *tasks, int32_t tid, uint64_t begin_ns);
/* Writes the interval that is still open. */
void switches_end(struct switches *switches, struct tasks *tasks, uint32_t cpu, uint64_t time_ns);
