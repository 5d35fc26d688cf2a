/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Switches - records when threads ran
 *
 * Each CPU reports the thread that leaves it and the one that enters it. A row is written when a
 * thread leaves: it ran from `start` to `time`. The idle task has no rows, nor do threads that a
 * filter excludes, which are not in the task tables. Per-task events do not name the other thread,
 * so the CPU counts as idle between two threads of the session.
 * A thread's row also gives its state until its next row: waiting, or ready. So that the state is
 * always known, a thread that is not on a CPU gets rows of length 0, on CPU PROF_SWITCH_NO_CPU: at
 * the start of the recording (from /proc), at its fork, and at the end. A command has no row at the
 * start, because it waits for the recording before its exec.
 * Invariants: (1) rows of one CPU do not overlap                    [test-engine-tasks: switches]
 *             (2) a thread that runs at the end of the recording or at its exec has a row with
 *                 state `running`  [test-engine-tasks: switches, switch_exec]
 *             (3) the rows of a thread that is alive at the end begin at the start of the thread or
 *                 of the recording, and end with the recording  [test-engine-tasks: switch_ends]
 * Runs on the drain thread only.
 */
#include "daemon/engine/model/switches.h"

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

static void write_row(struct tasks *tasks, struct thread *thread, uint32_t cpu, uint64_t start_ns,
		      enum prof_switch_state state, uint64_t time_ns)
{
	thread->has_state = true;
	thread->found_state = 0;
	thread->state = state;
	thread->state_ns = time_ns;
	tasks_need(tasks, thread);
	output_add_numbers(tasks->output, PROF_TABLE_SWITCH,
			   (const uint64_t[PROF_SWITCH_COLUMNS]){
				   [PROF_SWITCH_TIME] = time_ns,
				   [PROF_SWITCH_THREAD] = thread->row.id,
				   [PROF_SWITCH_CPU] = cpu,
				   [PROF_SWITCH_START] = start_ns,
				   [PROF_SWITCH_STATE] = state,
			   },
			   0);
}

static void add_row(struct switches *switches, struct tasks *tasks, uint32_t cpu,
		    enum prof_switch_state state, uint64_t time_ns)
{
	uint64_t start_ns = MIN(switches->start_ns, time_ns);

	switches->ran_ns += time_ns - start_ns;
	write_row(tasks, switches->thread, cpu, start_ns, state, time_ns);
}

void switches_note(struct tasks *tasks, struct thread *thread, enum prof_switch_state state,
		   uint64_t time_ns)
{
	/* Move the start as well: if the time is before the last row's, output_add_numbers() would
	 * move only the time. */
	time_ns = MAX(time_ns, tasks->output->last_ns[PROF_TABLE_SWITCH]);
	write_row(tasks, thread, PROF_SWITCH_NO_CPU, time_ns, state, time_ns);
}

void switches_note_all(struct tasks *tasks, bool all_known, uint64_t time_ns)
{
	GHashTableIter iter;
	gpointer value;

	g_hash_table_iter_init(&iter, tasks->threads);
	while (g_hash_table_iter_next(&iter, NULL, &value)) {
		struct thread *thread = value;

		if (thread->exit_ns || !thread->has_state || thread->state == PROF_SWITCH_RUNNING ||
		    (thread->found_state == 'R' && !all_known))
			continue;
		switches_note(tasks, thread, thread->state, time_ns);
	}
}

static void enter(struct switches *switches, struct tasks *tasks, int32_t tid, uint64_t time_ns)
{
	switches->tid = tid;
	switches->start_ns = time_ns;
	set_thread(switches, tid > 0 ? tasks_thread(tasks, tid) : NULL);
	if (switches->thread)
		switches->thread->state = PROF_SWITCH_RUNNING;
}

void switches_seen(struct switches *switches, struct tasks *tasks, int32_t tid, uint64_t begin_ns)
{
	if (switches->tid != -1 || tid < 0)
		return;
	if (switches->start_ns == 0)
		switches->start_ns = begin_ns;
	enter(switches, tasks, tid, switches->start_ns);
}

uint64_t switches_ran_ns(const struct switches *switches, uint64_t now_ns)
{
	if (!switches->thread)
		return switches->ran_ns;
	return switches->ran_ns + now_ns - MIN(switches->start_ns, now_ns);
}

void switches_apply(struct switches *switches, struct tasks *tasks,
		    const struct switch_event *event)
{
	uint64_t time_ns = event->time_ns;

	if (!event->out) {
		/* Usually the record of the thread that left has already named this thread. */
		if (switches->tid != event->tid || !switches->thread)
			enter(switches, tasks, event->tid, time_ns);
		switches->start_ns = time_ns;
		return;
	}
	/* A task without a tid (-1) is exiting: it is the thread that entered last. */
	if (event->tid >= 0 && event->tid != switches->tid && switches->tid != -1)
		enter(switches, tasks, event->tid, time_ns);
	else if (event->tid > 0 && !switches->thread)
		set_thread(switches, tasks_thread(tasks, event->tid));
	if (switches->thread)
		add_row(switches, tasks, event->cpu,
			event->preempted ? PROF_SWITCH_PREEMPTED : PROF_SWITCH_WAIT, time_ns);
	enter(switches, tasks, event->other_tid, time_ns);
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
