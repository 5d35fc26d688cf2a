/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Waits - records where threads sleep, and for how long
 *
 * The kernel reports each sleep before the thread leaves its CPU: RECORD_SLEEP has the registers of
 * the user code. For about 500 sleeps a second on each CPU, a sample also has a copy of the stack
 * and the kernel's chain. The switch that follows begins the wait, and a wake-up or the next switch
 * to the thread ends it. So the time of each wait is exact. Many waits have their own stack; the
 * others share one (wait-stacks.h).
 * If a thread still sleeps and its stack was not copied, its stack is requested
 * (daemon/files/stack.c). The stack is used if, according to the switches, the thread did not run
 * between the start of the wait and the reading. If switches were lost since the start, on any CPU,
 * the thread may have run, and its stack is not used. Threads that have slept since before the
 * recording get a stack in this way, too. So do all threads if the user may not record the
 * tracepoint. The answer also has the names of the system call and of its descriptor's object.
 * These are requested for long waits with a copied stack, too, if there is room.
 * A thread that ends a wait is its waker. A waking is recorded like a sleep: by an event with the
 * registers and, for some wakers, by another one with a copy of the stack. Two such records belong
 * to one waking if no other waking on the CPU is between them. If an interrupt wakes a thread, the
 * interrupted thread is not the waker.
 * A row is written when its wait has ended and its stacks are walked. Stacks are kept as addresses
 * until then, because their ids end with the epoch.
 * Invariants: (1) each sleep whose start and end are known becomes one row, with a stack or without
 *                 [test-engine-waits: rows]
 *             (2) rows are in the order of their ends  [test-engine-waits: order]
 *             (3) a requested stack is used only if the thread slept during the reading and no
 *                 switch was lost since the wait began  [test-engine-waits: late, unverified]
 *             (4) the times are those of the switch table  [test_off_cpu: test_times]
 *             (5) a process whose memory is locked for long is read rarely
 *                 [test-engine-waits: pause]
 * Runs on the drain thread only.
 */
#include "daemon/engine/perf/waits.h"

#include "arch/base.h"
#include "arch/regs.h"
#include "base/hash.h"
#include "base/order.h"
#include "daemon/engine/model/snapshot.h"
#include "daemon/protocol.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define EXITED_NS UINT64_C(1000000000)
/* How long the row of a wait without a stack is held, because another wait may provide a stack to
 * share. No row is held if more than MAX_HELD waits have ended but are not written. */
#define HOLD_NS UINT64_C(1000000000)
#define MAX_HELD (WAITS_MAX_ENDED / 4)
/* A thread can be woken while it is still leaving its CPU. This is the maximum time from such a
 * waking to the start of the wait; earlier wakers are dropped. */
#define LEAVING_NS UINT64_C(200000)
#define SAME_WAKER_NS UINT64_C(20000)
/* Reading a stack takes the lock of the process's memory. If a reading takes longer than SLOW_NS
 * although the reader was not preempted, no stacks of the process are read for PAUSE times as
 * long. */
#define SLOW_NS UINT64_C(1000000)
#define PAUSE 100

struct wait_pause {
	uint64_t until_ns;
};

/* The last wakers on a CPU, referenced; NULL: none. `recorded` is from the last waking record;
 * `copied` has a copied stack, but its waking record has not come yet. */
struct last_wakers {
	struct waker *recorded, *copied;
};

/* Removes the wait of a thread. The caller takes over the reference. */
static struct wait *take_wait(struct waits *waits, struct thread *thread)
{
	struct wait *wait = thread->wait;

	thread->wait = NULL;
	if (wait)
		g_queue_unlink(&waits->begun, &wait->link);
	return wait;
}

static void drop_wait(struct waits *waits, struct thread *thread)
{
	if (thread->wait)
		wait_unref(take_wait(waits, thread));
}

static struct wait *add_wait(struct waits *waits, struct thread *thread)
{
	struct wait *wait = wait_new(thread);

	(void)g_hash_table_steal_extended(waits->early, thread, NULL, (gpointer *)&wait->waker);
	drop_wait(waits, thread);
	thread->wait = wait;
	g_queue_push_tail_link(&waits->begun, &wait->link);
	return wait;
}

/* Returns the wait that the thread is about to begin. If an earlier wait is left, its end was
 * lost. */
static struct wait *next_wait(struct waits *waits, struct thread *thread)
{
	return thread->wait && thread->wait->begin_ns == 0 ? thread->wait : add_wait(waits, thread);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Returns the id of the cgroup's path as a string; 0: unknown. For a thread without samples, the
 * cgroup is that of its process when /proc was read. */
static uint32_t cgroup_of(const struct waits *waits, const struct wait *wait)
{
	const struct thread *thread = wait->code.thread;
	uint64_t id = wait->cgroup ? wait->cgroup : thread->cgroup;

	return id ? tasks_cgroup(waits->samples->tasks, id)
		  : output_text(waits->samples->output, thread->process->cgroup);
}

static void write_row(struct waits *waits, struct wait *wait)
{
	struct wait_stratum found, waker_found = { 0 };
	enum prof_stack_source source = wait_stacks_find(&waits->stacks, &wait->code, &found);
	enum prof_stack_source waker_source = PROF_STACK_NONE;
	struct output *output = waits->samples->output;
	struct wait_code *waker = wait->waker ? &wait->waker->code : NULL;
	bool has_argument = wait->code.has_registers || wait->has_argument;
	uint64_t duration_ns = wait->end_ns - MIN_OF(wait->begin_ns, wait->end_ns);

	if (source == PROF_STACK_NONE && wait->missed_ns && wait->end_ns <= wait->missed_ns)
		source = PROF_STACK_RACED;
	if (waker)
		waker_source = wait_stacks_find(&waits->stacks, waker, &waker_found);
	waits->slept_ns[source] += duration_ns;
	tasks_need(waits->samples->tasks, wait->code.thread);
	if (waker && waker->thread)
		tasks_need(waits->samples->tasks, waker->thread);
	output_add_numbers(
		output, PROF_TABLE_WAIT,
		(const uint64_t[PROF_WAIT_COLUMNS]){
			[PROF_WAIT_TIME] = wait->end_ns,
			[PROF_WAIT_THREAD] = wait->code.thread->row.id,
			[PROF_WAIT_CPU] = wait->cpu,
			[PROF_WAIT_DURATION] = duration_ns,
			[PROF_WAIT_STATE] = wait->state,
			[PROF_WAIT_STACK] = found.stack,
			[PROF_WAIT_STACK_SOURCE] = source,
			[PROF_WAIT_USER_METHOD] = found.method,
			[PROF_WAIT_USER_STOP] = found.stop,
			[PROF_WAIT_ARGUMENT] = wait->code.argument,
			[PROF_WAIT_SYSCALL] = source == PROF_STACK_SHARED
						      ? found.call
						      : output_text(output, wait->syscall),
			[PROF_WAIT_OBJECT] = output_text(output, wait->object),
			[PROF_WAIT_WAKER] = waker ? wait->waker->kind : PROF_WAKER_UNKNOWN,
			[PROF_WAIT_WAKER_THREAD] = waker && waker->thread ? waker->thread->row.id
									  : 0,
			[PROF_WAIT_WAKER_STACK] = waker_found.stack,
			[PROF_WAIT_WAKER_STACK_SOURCE] = waker_source,
			[PROF_WAIT_WAKER_ARGUMENT] = waker ? waker->argument : 0,
			[PROF_WAIT_INTERPRETER] = found.interpreter,
			[PROF_WAIT_CGROUP] = cgroup_of(waits, wait),
		},
		(has_argument ? 0 : UINT64_C(1) << PROF_WAIT_ARGUMENT) |
			(waker && waker->has_registers ? 0
						       : UINT64_C(1) << PROF_WAIT_WAKER_ARGUMENT));
}

static bool is_due(const struct waits *waits, const struct wait *wait, uint64_t now_ns)
{
	const struct wait_code *waker = wait->waker ? &wait->waker->code : NULL;

	if (wait->code.is_pending || (waker && waker->is_pending))
		return false;
	return wait->end_ns + HOLD_NS <= now_ns || waits->ended.length > MAX_HELD ||
	       (!wait_stacks_may_improve(&waits->stacks, &wait->code) &&
		!(waker && wait_stacks_may_improve(&waits->stacks, waker)));
}

void waits_write(struct waits *waits, uint64_t now_ns)
{
	struct wait *wait;

	while ((wait = g_queue_peek_head(&waits->ended)) != NULL && is_due(waits, wait, now_ns)) {
		g_queue_pop_head_link(&waits->ended);
		write_row(waits, wait);
		wait_unref(wait);
	}
}

/* ---- stacks ---------------------------------------------------------------------------------- */

/* Keeps the stack of a walked sample. */
static void keep_stack(const struct sample *sample, struct maps **maps, void *data)
{
	struct waits *waits = data;
	struct wait_code *code = sample->wait;

	code->is_pending = false;
	code->sample = *sample;
	code->sample.user.ips =
		g_memdup2(sample->user.ips, sample->user.n * sizeof(*sample->user.ips));
	/* Only frames of interpreters need the stack pointers. */
	code->sample.user.sps = !code->is_waker && waits->samples->interpreted &&
						code->thread->process->interpreter
					? g_memdup2(sample->user.sps,
						    sample->user.n_sps * sizeof(*sample->user.sps))
					: NULL;
	if (!code->sample.user.sps)
		code->sample.user.n_sps = 0;
	code->sample.kernel = g_memdup2(sample->kernel, sample->n_kernel * sizeof(*sample->kernel));
	code->sample.raw = code->chain;
	code->maps = maps_ref(*maps);
	wait_stacks_offer(&waits->stacks, code);
	wait_code_unref(code);
	waits_write(waits, waits->now_ns);
}

void waits_lose(struct waits *waits, struct wait_code *code)
{
	code->is_pending = false;
	wait_code_unref(code);
	waits_write(waits, waits->now_ns);
}

/* Adds a stack to be walked. The walk takes over a reference. */
static void add_stack(struct waits *waits, struct wait_code *code, const struct record *record)
{
	samples_add_wait(waits->samples, record, code->thread, code, code->chain,
			 code->chain_bytes);
}

/* Adds the stack that the record has. */
static void copy_stack(struct waits *waits, struct wait_code *code, const struct record *record)
{
	code->is_pending = true;
	code->source = PROF_STACK_COPIED;
	code->refs++;
	add_stack(waits, code, record);
}

/* Identifies the functions and lines of a chain. */
static uint32_t hash_chain(const uint8_t *bytes, size_t size)
{
	uint64_t hash = size;

	/* hash the flags and the number of frames */
	for (size_t at = 0; at < offsetof(struct interp_sample, period) && at < size; at++)
		hash = (hash ^ bytes[at]) * UINT64_C(0x100000001b3);
	for (size_t at = offsetof(struct interp_sample, frames);
	     at + sizeof(struct interp_frame) <= size; at += sizeof(struct interp_frame)) {
		struct interp_frame frame;

		memcpy(&frame, bytes + at, sizeof(frame));
		hash = (hash ^ frame.code ^ (uint64_t)frame.position << 32 ^ frame.id) * HASH_ODD;
		hash ^= hash >> 29;
	}
	return (uint32_t)(hash >> 32) | 1;
}

void waits_interpret(struct waits *waits, struct thread *thread, const uint8_t *bytes, size_t size)
{
	struct wait *wait = next_wait(waits, thread);

	if (wait->is_reported || wait->code.chain || wait->code.is_pending || wait->code.maps)
		wait = add_wait(waits, thread);
	wait->code.chain = g_memdup2(bytes, size);
	wait->code.chain_bytes = (uint32_t)size;
	wait->code.chain_hash = hash_chain(bytes, size);
	thread->process->has_chains = true;
}

void waits_copy(struct waits *waits, struct thread *thread, const struct record *record)
{
	const struct regs *regs = regs_get(REGS_NATIVE);
	const uint64_t *registers = record->sample.registers;
	uint64_t pc = registers ? registers[regs->perf_pc] : samples_user_pc(&record->sample);
	struct wait *wait = next_wait(waits, thread);

	if (wait->code.is_pending || wait->code.maps) {
		/* When the event's period is shortened, the kernel may copy a stack twice. */
		if (wait->code.has_registers && wait->code.pc == pc &&
		    (!registers || wait->code.sp == registers[regs->perf_sp]))
			return;
		/* Otherwise, the wait belongs to an earlier sleep, whose switch was lost. */
		wait = add_wait(waits, thread);
	}
	copy_stack(waits, &wait->code, record);
}

/* ---- stacks that are read while the thread sleeps -------------------------------------------- */

/* Returns the state, from /proc, of a thread that has slept since before the recording
 * (proc(5)). */
static enum prof_wait_state state_found(const struct thread *thread)
{
	switch (thread->found_state) {
	case 'S':
		return PROF_WAIT_SLEEPING;
	case 'D':
	case 'I':
		return PROF_WAIT_UNINTERRUPTIBLE;
	case 'T':
		return PROF_WAIT_STOPPED;
	case 't':
		return PROF_WAIT_TRACED;
	default:
		return PROF_WAIT_UNKNOWN;
	}
}

/* Adds the waits that began before the recording. */
static void begin_earlier(struct waits *waits)
{
	GHashTableIter iter;
	gpointer value;

	g_hash_table_iter_init(&iter, waits->samples->tasks->threads);
	while (g_hash_table_iter_next(&iter, NULL, &value)) {
		struct thread *thread = value;

		if (thread->exit_ns || !thread->has_state || thread->state != PROF_SWITCH_WAIT ||
		    thread->wait)
			continue;
		waits_begin(waits, thread, PROF_SWITCH_NO_CPU, thread->state_ns);
		thread->wait->state = state_found(thread);
	}
}

COMPARE_BY(compare_tids, int32_t, ORDER(*a, *b))

static bool is_paused(const struct waits *waits, const struct wait *wait, uint64_t now_ns)
{
	const struct wait_pause *pause = g_hash_table_lookup(
		waits->pauses, GUINT_TO_POINTER(wait->code.thread->process->row.id));

	return pause && now_ns < pause->until_ns;
}

/* Returns whether the thread may have run since the wait began, because switches were lost. */
static bool is_unverified(const struct waits *waits, const struct wait *wait)
{
	return wait->begin_ns < waits->lost_ns;
}

/* Requests the stack of a thread, or the names of what it waits for. Takes a reference. */
static int32_t request(struct waits *waits, struct wait *wait)
{
	wait->is_requested = wait->code.is_pending = true;
	wait->code.refs++;
	g_ptr_array_add(waits->requested, wait);
	return wait->code.thread->tid;
}

uint32_t waits_request(struct waits *waits, uint64_t now_ns, uint64_t threshold_ns,
		       int32_t *ret_tids)
{
	struct wait *copied[WAITS_MAX_REQUESTED];
	uint32_t n_copied = 0, n = 0;

	/* A waker that is still in `early` belongs to no wait. */
	g_hash_table_remove_all(waits->early);
	if (!waits->has_begun)
		begin_earlier(waits);
	waits->has_begun = true;
	for (GList *link = waits->begun.head, *next; n < WAITS_MAX_REQUESTED && link; link = next) {
		struct wait *wait = link->data;

		next = link->next;

		/* A thread that has exited may sleep once more, but its last switch does not begin
		 * a sleep. */
		if (wait->code.thread->exit_ns) {
			if (now_ns > wait->begin_ns + EXITED_NS)
				drop_wait(waits, wait->code.thread);
			continue;
		}
		if (!waits->samples->unwind || wait->begin_ns == 0 ||
		    now_ns - MIN_OF(wait->begin_ns, now_ns) < threshold_ns ||
		    wait->code.is_pending || wait->is_requested ||
		    wait->code.thread->process->kernel || is_unverified(waits, wait) ||
		    is_paused(waits, wait, now_ns) ||
		    (wait->is_reported && !wait->code.has_registers))
			continue;
		if (!wait->code.maps)
			ret_tids[n++] = request(waits, wait);
		else if (n_copied < WAITS_MAX_REQUESTED)
			copied[n_copied++] = wait;
	}
	for (uint32_t i = 0; i < n_copied && n < WAITS_MAX_REQUESTED; i++)
		ret_tids[n++] = request(waits, copied[i]);
	qsort(ret_tids, n, sizeof(*ret_tids), compare_tids);
	return n;
}

/* Walks a stack that was read. Takes over a reference. If the sleep was not reported, only the
 * program counter, the stack pointer and the system call's first argument are known. In vfork(),
 * the argument's register has the return address. */
static void walk_late(struct waits *waits, struct wait *wait, const struct snapshot_stack *stack,
		      const uint8_t *bytes)
{
	const struct regs *regs = regs_get(REGS_NATIVE);
	uint64_t registers[64] = { 0 };
	struct record record = {
		.kind = RECORD_SAMPLE,
		.cpumode = PERF_RECORD_MISC_USER,
		.pid = wait->code.thread->process->pid,
		.tid = wait->code.thread->tid,
		.cpu = wait->cpu,
		.time_ns = wait->begin_ns,
		.sample = {
			.ip = stack->pc,
			.registers = registers,
			.stack = bytes,
			.stack_bytes = MIN_OF(stack->bytes, waits->samples->stack_bytes),
			.only_pc_sp = !wait->code.has_registers,
		},
	};
	unsigned int n = 0;

	for (unsigned int bit = 0; bit < 64; bit++) {
		if (!(regs->perf_mask >> bit & 1))
			continue;
		if (wait->code.has_registers && regs->perf_sleep_mask >> bit & 1)
			registers[n] = wait->registers[regs_sleep_position(regs, bit)];
		else if (!wait->code.has_registers && bit == regs->perf_argument_bit)
			registers[n] = stack->argument;
		n++;
	}
	/* Avoid a result of 0: the walk would treat the thread as the child of a clone(). */
	if (regs->result < regs->n_numbered && !registers[regs->perf_numbered[regs->result]])
		registers[regs->perf_numbered[regs->result]] = (uint64_t)-ENOSYS;
	registers[regs->perf_pc] = stack->pc;
	registers[regs->perf_sp] = stack->sp;
	wait->code.source = PROF_STACK_LATE;
	add_stack(waits, &wait->code, &record);
	samples_finalize(waits->samples);
}

/* Uses an answer if the thread slept during the whole reading. Returns whether it was used. */
static bool receive(struct waits *waits, struct wait *wait, const struct snapshot_item *item)
{
	struct snapshot_stack stack;

	if (item->kind != SNAPSHOT_STACK || item->length < sizeof(stack))
		return false;
	memcpy(&stack, item->text, sizeof(stack));
	if (stack.done_ns > item->time_ns + SLOW_NS && !stack.is_preempted) {
		struct wait_pause *pause = g_new(struct wait_pause, 1);

		pause->until_ns = stack.done_ns + PAUSE * (stack.done_ns - item->time_ns);
		g_hash_table_replace(waits->pauses,
				     GUINT_TO_POINTER(wait->code.thread->process->row.id), pause);
	}
	if (stack.bytes != item->length - sizeof(stack) || item->time_ns < wait->begin_ns ||
	    is_unverified(waits, wait) || (wait->end_ns && wait->end_ns <= stack.done_ns) ||
	    (wait->code.has_registers && (wait->code.pc != stack.pc || wait->code.sp != stack.sp)))
		return false;
	/* A page fault is not a system call, and has no argument. */
	wait->has_argument = stack.syscall[0];
	wait->syscall = wait->has_argument ? g_strndup(stack.syscall, sizeof(stack.syscall))
					   : g_strdup("page fault");
	if (stack.object[0])
		wait->object = g_strndup(stack.object, sizeof(stack.object));
	if (wait->code.maps) {
		waits_lose(waits, &wait->code);
		return true;
	}
	if (!wait->code.has_registers)
		wait->code.argument = stack.argument;
	walk_late(waits, wait, &stack, (const uint8_t *)item->text + sizeof(stack));
	return true;
}

void waits_receive(struct waits *waits, const void *bytes, size_t length)
{
	struct snapshot snapshot = { .bytes = bytes, .length = length };
	struct snapshot_item item;
	uint64_t end_ns = 0;

	while (snapshot_next(&snapshot, &item)) {
		if (item.kind == SNAPSHOT_END)
			end_ns = item.time_ns;
		for (guint i = 0; i < waits->requested->len; i++) {
			struct wait *wait = g_ptr_array_index(waits->requested, i);

			if (wait->code.thread->tid != item.tid)
				continue;
			/* The walk takes over the reference. */
			if (receive(waits, wait, &item))
				g_ptr_array_remove_index_fast(waits->requested, i);
			break;
		}
	}
	while (waits->requested->len > 0) {
		struct wait *wait = g_ptr_array_steal_index_fast(waits->requested, 0);

		wait->missed_ns = end_ns;
		waits_lose(waits, &wait->code);
	}
}

void waits_give_up(struct waits *waits)
{
	while (waits->requested->len > 0) {
		struct wait *wait = g_ptr_array_steal_index_fast(waits->requested, 0);

		wait->is_requested = false;
		waits_lose(waits, &wait->code);
	}
}

/* ---- wakers ---------------------------------------------------------------------------------- */

/* Returns whether a copied stack and a record are of the same waking. Both events report it within
 * a few microseconds, and no other waking on the CPU is between them. If the stack was copied as a
 * chain of frame pointers, its stack pointer is unknown. */
static bool is_same(const struct waker *a, const struct waker *b)
{
	uint64_t apart_ns = MAX_OF(a->time_ns, b->time_ns) - MIN_OF(a->time_ns, b->time_ns);

	return a->code.thread == b->code.thread && a->code.pc == b->code.pc &&
	       (a->code.sp == b->code.sp || !a->code.sp || !b->code.sp) && apart_ns < SAME_WAKER_NS;
}

void waits_wake(struct waits *waits, uint32_t cpu, struct thread *thread, struct thread *by,
		const struct record *record)
{
	const struct record_waking *waking = &record->waking;
	struct last_wakers *last = &waits->last_wakers[cpu];
	struct wait *wait = thread ? thread->wait : NULL;
	struct waker *waker = waker_new(by, record->time_ns);

	waker->kind = waking->in_interrupt ? PROF_WAKER_INTERRUPT
		      : by                 ? PROF_WAKER_THREAD
					   : PROF_WAKER_OUTSIDE;
	if (by && waking->has_registers && !by->process->kernel) {
		waker->code.has_registers = true;
		waker->code.pc = waking->pc;
		waker->code.sp = waking->sp;
		waker->code.argument = waking->argument;
	}
	if (by && last->copied && is_same(last->copied, waker)) {
		struct waker *copied = last->copied;

		last->copied = NULL;
		copied->kind = waker->kind;
		copied->code.has_registers = waker->code.has_registers;
		copied->code.sp = waker->code.sp;
		copied->code.argument = waker->code.argument;
		wait_code_unref(&waker->code);
		waker = copied;
	}
	waker_set(&last->copied, NULL);
	wait_stacks_offer(&waits->stacks, &waker->code);
	if (thread)
		waker->code.refs++;
	if (wait)
		waker_set(&wait->waker, waker);
	else if (thread)
		g_hash_table_replace(waits->early, thread, waker);
	waker_set(&last->recorded, waker);
}

void waits_copy_waker(struct waits *waits, uint32_t cpu, struct thread *thread,
		      const struct record *record)
{
	const struct regs *regs = regs_get(REGS_NATIVE);
	struct last_wakers *last = &waits->last_wakers[cpu];
	struct waker *waker = waker_new(thread, record->time_ns), *recorded = last->recorded;

	if (!record->sample.registers) {
		waker->code.pc = samples_user_pc(&record->sample);
	} else if (!thread->process->kernel) {
		waker->code.pc = record->sample.registers[regs->perf_pc];
		waker->code.sp = record->sample.registers[regs->perf_sp];
	}
	if (recorded && !recorded->code.is_pending && !recorded->code.maps &&
	    recorded->code.thread && is_same(recorded, waker)) {
		wait_code_unref(&waker->code);
		copy_stack(waits, &recorded->code, record);
		return;
	}
	waker_set(&last->copied, waker);
	copy_stack(waits, &waker->code, record);
}

/* ---- begin and end --------------------------------------------------------------------------- */

static enum prof_wait_state state_of(uint64_t state)
{
	/* TASK_INTERRUPTIBLE and so on, from <linux/sched.h>; the tracepoint's format lists them */
	static const enum prof_wait_state states[] = { PROF_WAIT_SLEEPING,
						       PROF_WAIT_UNINTERRUPTIBLE, PROF_WAIT_STOPPED,
						       PROF_WAIT_TRACED };

	for (size_t i = 0; i < ARRAY_SIZE(states); i++)
		if (state & 1u << i)
			return states[i];
	return PROF_WAIT_UNKNOWN;
}

void waits_sleep(struct waits *waits, struct thread *thread, const struct record *record)
{
	const struct regs *regs = regs_get(REGS_NATIVE);
	const uint64_t *registers = record->sleep.registers;
	struct wait *wait = next_wait(waits, thread);

	/* A reported wait belongs to an earlier sleep, whose switch was lost. */
	if (wait->is_reported)
		wait = add_wait(waits, thread);
	wait->state = state_of(record->sleep.state);
	wait->is_reported = true;
	if (!registers || thread->process->kernel)
		return;
	wait->code.has_registers = true;
	memcpy(wait->registers, registers,
	       (size_t)__builtin_popcountll(regs->perf_sleep_mask) * sizeof(*registers));
	wait->code.pc = registers[regs_sleep_position(regs, regs->perf_pc_bit)];
	wait->code.sp = registers[regs_sleep_position(regs, regs->perf_sp_bit)];
	wait->code.argument = registers[regs_sleep_position(regs, regs->perf_argument_bit)];
	wait_stacks_offer(&waits->stacks, &wait->code);
}

void waits_begin(struct waits *waits, struct thread *thread, uint32_t cpu, uint64_t time_ns)
{
	struct wait *wait = next_wait(waits, thread);

	/* Drop a waker that is too old: it cannot have ended this wait. */
	if (wait->waker && wait->waker->time_ns + LEAVING_NS < time_ns)
		waker_set(&wait->waker, NULL);
	wait->begin_ns = time_ns;
	wait->cpu = cpu;
	wait->cgroup = thread->cgroup;
}

void waits_drop(struct waits *waits, struct thread *thread)
{
	drop_wait(waits, thread);
}

void waits_lose_switches(struct waits *waits, uint64_t until_ns)
{
	waits->lost_ns = MAX_OF(waits->lost_ns, until_ns);
}

static void end(struct waits *waits, struct wait *wait, uint64_t time_ns)
{
	wait->end_ns = time_ns;
	waits->now_ns = MAX_OF(waits->now_ns, time_ns);
	g_queue_push_tail_link(&waits->ended, &wait->link);
	/* Rows are in order, so all of them may wait for one requested stack. */
	if (waits->ended.length > WAITS_MAX_ENDED)
		waits_give_up(waits);
}

void waits_end(struct waits *waits, struct thread *thread, uint64_t time_ns)
{
	struct wait *wait = take_wait(waits, thread);

	if (wait) {
		if (wait->begin_ns == 0) {
			wait_unref(wait);
			return;
		}
	} else if (thread->has_state && thread->state == PROF_SWITCH_WAIT) {
		/* The thread has slept since before the recording. */
		wait = wait_new(thread);
		wait->begin_ns = thread->state_ns;
		wait->state = state_found(thread);
		(void)g_hash_table_steal_extended(waits->early, thread, NULL,
						  (gpointer *)&wait->waker);
	} else {
		return;
	}
	end(waits, wait, time_ns);
	waits_write(waits, waits->now_ns);
}

static void drop_waits(struct waits *waits)
{
	while (waits->begun.head)
		drop_wait(waits, ((struct wait *)waits->begun.head->data)->code.thread);
}

void waits_end_all(struct waits *waits, uint64_t time_ns)
{
	GHashTableIter iter;
	gpointer thread;

	waits_give_up(waits);
	g_hash_table_iter_init(&iter, waits->samples->tasks->threads);
	while (g_hash_table_iter_next(&iter, NULL, &thread))
		if (!((struct thread *)thread)->exit_ns)
			waits_end(waits, thread, time_ns);
	drop_waits(waits);
}

void waits_init(struct waits *waits, struct samples *samples)
{
	*waits = (struct waits){
		.samples = samples,
		.early = g_hash_table_new_full(NULL, NULL, NULL, wait_unref),
		.requested = g_ptr_array_new(),
		.pauses = g_hash_table_new_full(NULL, NULL, NULL, g_free),
		.last_wakers = g_new0(struct last_wakers, ENGINE_MAX_CPUS),
	};
	g_queue_init(&waits->begun);
	g_queue_init(&waits->ended);
	wait_stacks_init(&waits->stacks, samples);
	samples->keep_wait = keep_stack;
	samples->wait_data = waits;
}

void waits_done(struct waits *waits)
{
	GList *ended;

	if (!waits->early)
		return;
	drop_waits(waits);
	g_hash_table_destroy(waits->early);
	g_hash_table_destroy(waits->pauses);
	while ((ended = g_queue_pop_head_link(&waits->ended)) != NULL)
		wait_unref(ended->data);
	g_ptr_array_set_free_func(waits->requested, wait_unref);
	g_ptr_array_unref(waits->requested);
	for (size_t i = 0; i < ENGINE_MAX_CPUS; i++) {
		waker_set(&waits->last_wakers[i].recorded, NULL);
		waker_set(&waits->last_wakers[i].copied, NULL);
	}
	g_free(waits->last_wakers);
	wait_stacks_done(&waits->stacks);
	*waits = (struct waits){ 0 };
}
