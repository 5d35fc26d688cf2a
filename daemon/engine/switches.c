/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Switches - when threads ran
 *
 * Each CPU reports who leaves it and who comes. A row is written when a thread leaves: it ran from `start` to `time`.
 * Idle has no rows, and neither have strangers of a filtered session, which are not in the task tables. Events of tasks
 * do not say who else it was: between two of ours the CPU is taken as idle.
 * Invariants: (1) rows of one CPU do not overlap                    [test-engine-tasks: switches]
 *             (2) what still runs at the end, or when it becomes another program, has a row as `running`
 *                                                               [test-engine-tasks: switches, switch_exec]
 * Runs on the drain thread only.
 */
#include "daemon/engine/switches.h"

void switches_init(struct switches *switches, uint64_t start_ns)
{
	*switches = (struct switches){ .tid = -1, .start_ns = start_ns };
}

static void set_thread(struct switches *switches, struct thread *thread)
{
	if (switches->thread == thread)
		return;
	if (thread)
		row_ref(&thread->row);
	if (switches->thread)
		row_unref(&switches->thread->row);
	switches->thread = thread;
}

void switches_done(struct switches *switches)
{
	set_thread(switches, NULL);
}

static void add_row(struct switches *switches, struct tasks *tasks, uint32_t cpu,
		    enum prof_switch_state state, uint64_t time_ns)
{
	switches->ran_ns += time_ns - MIN(switches->start_ns, time_ns);
	tasks_need(tasks, switches->thread);
	output_add(tasks->output, PROF_TABLE_SWITCH,
		   (const struct prof_value[]){
			   [PROF_SWITCH_TIME] = PROF_NUMBER(time_ns),
			   [PROF_SWITCH_THREAD] = PROF_NUMBER(switches->thread->row.id),
			   [PROF_SWITCH_CPU] = PROF_NUMBER(cpu),
			   [PROF_SWITCH_START] = PROF_NUMBER(MIN(switches->start_ns, time_ns)),
			   [PROF_SWITCH_STATE] = PROF_NUMBER(state),
		   });
}

uint64_t switches_ran_ns(const struct switches *switches, uint64_t now_ns)
{
	if (!switches->thread)
		return switches->ran_ns;
	return switches->ran_ns + now_ns - MIN(switches->start_ns, now_ns);
}

static void enter(struct switches *switches, struct tasks *tasks, int32_t tid, uint64_t time_ns)
{
	switches->tid = tid;
	switches->start_ns = time_ns;
	set_thread(switches, tid > 0 ? tasks_thread(tasks, tid) : NULL);
}

void switches_apply(struct switches *switches, struct tasks *tasks, const struct record *record)
{
	const struct record_switch *change = &record->switched;
	uint64_t time_ns = record->time_ns;

	if (!change->out) {
		enter(switches, tasks, record->tid, time_ns);
		return;
	}
	/* An exiting task has lost its number: it is who came last. */
	if (record->tid >= 0 && record->tid != switches->tid && switches->tid != -1)
		enter(switches, tasks, record->tid, time_ns);
	else if (record->tid > 0 && !switches->thread)
		set_thread(switches, tasks_thread(tasks, record->tid));
	if (switches->thread)
		add_row(switches, tasks, record->cpu,
			change->preempted ? PROF_SWITCH_PREEMPTED : PROF_SWITCH_WAIT, time_ns);
	enter(switches, tasks, change->other_tid, time_ns);
}

void switches_exec(struct switches *switches, struct tasks *tasks, uint32_t cpu, int32_t tid,
		   uint64_t time_ns)
{
	if (switches->thread)
		add_row(switches, tasks, cpu, PROF_SWITCH_RUNNING, time_ns);
	enter(switches, tasks, tid, time_ns);
}

void switches_exit(struct switches *switches, struct tasks *tasks, uint32_t cpu, int32_t tid,
		   uint64_t time_ns)
{
	if (switches->tid == -1)
		set_thread(switches, tasks_thread(tasks, tid));
	else if (switches->tid != tid)
		return;
	if (switches->thread)
		add_row(switches, tasks, cpu, PROF_SWITCH_WAIT, time_ns);
	enter(switches, tasks, 0, time_ns);
}

void switches_end(struct switches *switches, struct tasks *tasks, uint32_t cpu, uint64_t time_ns)
{
	if (switches->thread)
		add_row(switches, tasks, cpu, PROF_SWITCH_RUNNING, time_ns);
	enter(switches, tasks, -1, time_ns);
}
