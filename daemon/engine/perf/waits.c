/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Waits - records where threads sleep, and for how long
 *
 * The kernel reports each sleep twice before the thread leaves its CPU: RECORD_SLEEP has the
 * registers of the user code, and, for about a thousand sleeps a second on each CPU, a sample has a
 * copy of the stack and the kernel's chain. The switch that follows begins the wait, and a wake-up
 * or the next switch to the thread ends it. So the time is exact for each wait, and the stack is
 * that of the wait itself for many. The others are shared out: a wait gets the stack of the last
 * wait of the same process that began at the same program counter and stack pointer. It is usually
 * of the same thread, or of an earlier one that had the same memory as its stack: servers start a
 * thread for each request. These are no key, because different callers may lead to one place; but
 * every Nth sleep is copied, which does not depend on the stack. Without such a wait, the stack is
 * unknown.
 * If a thread sleeps on without a copied stack, its stack is requested (daemon/files/stack.c). It
 * is the wait's if the thread did not run between the begin of the wait and the reading, which the
 * switches show. This is also how threads that sleep since before the recording get a stack, and
 * those of users who may not record the tracepoint.
 * A row is written when its wait has ended and its stack is walked. Stacks are kept as addresses
 * until then, because their ids end with the epoch.
 * Invariants: (1) each sleep of a thread becomes one row, with its stack or without
 *                 [test-engine-waits: rows]
 *             (2) rows are in the order of their ends  [test-engine-waits: order]
 *             (3) a shared stack is of the same process, program counter and stack pointer
 *                 [test-engine-waits: shared]
 *             (4) a stack is used only if the thread slept while it was read
 *                 [test-engine-waits: late]
 *             (5) the times are those of the switch table  [test_off_cpu: test_times]
 *             (6) a process whose memory is locked for long is read rarely
 *                 [test-engine-waits: pause]
 * Runs on the drain thread only.
 */
#include "daemon/engine/perf/waits.h"

#include "arch/base.h"
#include "arch/regs.h"
#include "daemon/engine/model/snapshot.h"
#include "daemon/protocol.h"

#include <stdlib.h>
#include <string.h>

#define N_STRATA 16384u /* a power of two */
#define MAX_REGISTERS 16
#define EXITED_NS UINT64_C(1000000000)
/* Reading a stack takes the lock of the process's memory. If that took longer than SLOW_NS, the
 * next stacks of the process are not read for PAUSE times as long. */
#define SLOW_NS UINT64_C(1000000)
#define PAUSE 100

struct wait {
	unsigned int refs;
	struct thread *thread; /* referenced */
	uint64_t begin_ns;     /* 0: the thread has not left its CPU yet */
	uint64_t end_ns;
	uint32_t cpu;
	enum prof_wait_state state;
	bool is_reported; /* by RECORD_SLEEP */
	bool has_registers;
	bool is_pending;   /* its stack is being read or walked */
	bool is_requested; /* its stack was requested once */
	/* when the answer had not its stack; 0: it had, or there was none */
	uint64_t missed_ns;
	enum prof_stack_source source;
	uint64_t registers[MAX_REGISTERS]; /* of regs->perf_sleep_mask */
	uint64_t pc, sp, argument;
	char *syscall, *object; /* NULL: unknown */
	struct maps *maps;      /* of the stack; NULL: it has none */
	struct sample sample;   /* its arrays are copies */
};

struct wait_pause {
	uint64_t until_ns;
};

/* The last stack at a program counter and stack pointer of a process. */
struct wait_stratum {
	uint64_t pc, sp;
	uint32_t process, epoch, stack; /* ids; epoch 0: empty */
	uint8_t method, stop;
};

static void wait_unref(void *data)
{
	struct wait *wait = data;

	if (--wait->refs > 0)
		return;
	row_unref(&wait->thread->row);
	maps_unref(wait->maps);
	g_free((void *)wait->sample.user.ips);
	g_free((void *)wait->sample.kernel);
	g_free(wait->syscall);
	g_free(wait->object);
	g_free(wait);
}

static struct wait *wait_new(struct thread *thread)
{
	struct wait *wait = g_new0(struct wait, 1);

	wait->refs = 1;
	wait->thread = thread;
	wait->cpu = PROF_SWITCH_NO_CPU;
	row_ref(&thread->row);
	return wait;
}

static struct wait *add_wait(struct waits *waits, struct thread *thread)
{
	struct wait *wait = wait_new(thread);

	g_hash_table_replace(waits->begun, thread, wait);
	return wait;
}

/* Returns the wait that the thread is about to begin. If an earlier wait is left, its end was
 * lost. */
static struct wait *next_wait(struct waits *waits, struct thread *thread)
{
	struct wait *wait = g_hash_table_lookup(waits->begun, thread);

	return wait && wait->begin_ns == 0 ? wait : add_wait(waits, thread);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static struct wait_stratum *stratum_of(const struct waits *waits, const struct wait *wait)
{
	uint64_t hash = wait->pc * UINT64_C(0x9e3779b97f4a7c15) ^ wait->sp;

	hash = (hash ^ wait->thread->process->row.id) * UINT64_C(0x9e3779b97f4a7c15);
	return &waits->strata[hash >> 40 & (N_STRATA - 1)];
}

/* Finds the wait's stack. Sets `stack`, `method` and `stop` of *ret_found. */
static enum prof_stack_source find_stack(struct waits *waits, struct wait *wait,
					 struct wait_stratum *ret_found)
{
	struct wait_stratum *stratum = stratum_of(waits, wait);
	struct process *process = wait->thread->process;
	uint32_t epoch = waits->samples->output->epoch;

	if (wait->maps) {
		*ret_found = (struct wait_stratum){
			.pc = wait->pc,
			.sp = wait->sp,
			.process = process->row.id,
			.epoch = epoch,
			/* The current mappings note which of them have a row. */
			.stack = samples_add_stack(waits->samples, &wait->sample,
						   wait->maps == process->maps ? &process->maps
									       : &wait->maps),
			.method = wait->sample.user.method,
			.stop = wait->sample.user.stop,
		};
		if (wait->has_registers)
			*stratum = *ret_found;
		return wait->source;
	}
	*ret_found = (struct wait_stratum){ .stop = PROF_STOP_UNKNOWN };
	if (!wait->has_registers || stratum->epoch != epoch || stratum->pc != wait->pc ||
	    stratum->sp != wait->sp || stratum->process != process->row.id)
		return wait->missed_ns && wait->end_ns <= wait->missed_ns ? PROF_STACK_RACED
									  : PROF_STACK_NONE;
	*ret_found = *stratum;
	return PROF_STACK_SHARED;
}

static void write_row(struct waits *waits, struct wait *wait)
{
	struct wait_stratum found;
	enum prof_stack_source source = find_stack(waits, wait, &found);

	struct output *output = waits->samples->output;
	bool has_argument = wait->has_registers || wait->syscall;
	uint64_t duration_ns = wait->end_ns - MIN_OF(wait->begin_ns, wait->end_ns);

	waits->slept_ns[source] += duration_ns;
	tasks_need(waits->samples->tasks, wait->thread);
	output_add_numbers(output, PROF_TABLE_WAIT,
			   (const uint64_t[PROF_WAIT_COLUMNS]){
				   [PROF_WAIT_TIME] = wait->end_ns,
				   [PROF_WAIT_THREAD] = wait->thread->row.id,
				   [PROF_WAIT_CPU] = wait->cpu,
				   [PROF_WAIT_DURATION] = duration_ns,
				   [PROF_WAIT_STATE] = wait->state,
				   [PROF_WAIT_STACK] = found.stack,
				   [PROF_WAIT_STACK_SOURCE] = source,
				   [PROF_WAIT_USER_METHOD] = found.method,
				   [PROF_WAIT_USER_STOP] = found.stop,
				   [PROF_WAIT_ARGUMENT] = wait->argument,
				   [PROF_WAIT_SYSCALL] = output_text(output, wait->syscall),
				   [PROF_WAIT_OBJECT] = output_text(output, wait->object),
			   },
			   has_argument ? 0 : UINT64_C(1) << PROF_WAIT_ARGUMENT);
}

static void write_rows(struct waits *waits)
{
	struct wait *wait;

	while ((wait = g_queue_peek_head(&waits->ended)) != NULL && !wait->is_pending) {
		g_queue_pop_head(&waits->ended);
		write_row(waits, wait);
		wait_unref(wait);
	}
}

/* ---- stacks ---------------------------------------------------------------------------------- */

/* Keeps the stack of a walked sample. */
static void keep_stack(const struct sample *sample, struct maps **maps, void *data)
{
	struct waits *waits = data;
	struct wait *wait = sample->wait;

	wait->is_pending = false;
	wait->sample = *sample;
	wait->sample.user.ips =
		g_memdup2(sample->user.ips, sample->user.n * sizeof(*sample->user.ips));
	wait->sample.kernel = g_memdup2(sample->kernel, sample->n_kernel * sizeof(*sample->kernel));
	wait->maps = maps_ref(*maps);
	wait_unref(wait);
	write_rows(waits);
}

void waits_lose(struct waits *waits, struct wait *wait)
{
	wait->is_pending = false;
	wait_unref(wait);
	write_rows(waits);
}

void waits_copy(struct waits *waits, struct thread *thread, const struct record *record)
{
	struct wait *wait = next_wait(waits, thread);

	/* A sleep is copied once, so the wait is of an earlier sleep, whose switch was lost. */
	if (wait->is_pending || wait->maps)
		wait = add_wait(waits, thread);
	wait->is_pending = true;
	wait->source = PROF_STACK_COPIED;
	wait->refs++;
	samples_add(waits->samples, record, thread, NULL, wait);
}

/* ---- stacks that are read while the thread sleeps -------------------------------------------- */

/* Adds the waits that began before the recording. */
static void begin_earlier(struct waits *waits)
{
	GHashTableIter iter;
	gpointer value;

	g_hash_table_iter_init(&iter, waits->samples->tasks->threads);
	while (g_hash_table_iter_next(&iter, NULL, &value)) {
		struct thread *thread = value;

		if (!thread->exit_ns && thread->has_state && thread->state == PROF_SWITCH_WAIT &&
		    !g_hash_table_contains(waits->begun, thread))
			waits_begin(waits, thread, PROF_SWITCH_NO_CPU, thread->state_ns);
	}
}

static int compare_tids(const void *a, const void *b)
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

	return (x > y) - (x < y);
}

static bool is_paused(const struct waits *waits, const struct wait *wait, uint64_t now_ns)
{
	const struct wait_pause *pause =
		g_hash_table_lookup(waits->pauses, GUINT_TO_POINTER(wait->thread->process->row.id));

	return pause && now_ns < pause->until_ns;
}

uint32_t waits_request(struct waits *waits, uint64_t now_ns, uint64_t threshold_ns,
		       int32_t *ret_tids)
{
	GHashTableIter iter;
	gpointer value;
	uint32_t n = 0;

	if (!waits->has_begun)
		begin_earlier(waits);
	waits->has_begun = true;
	g_hash_table_iter_init(&iter, waits->begun);
	while (n < WAITS_MAX_REQUESTED && g_hash_table_iter_next(&iter, NULL, &value)) {
		struct wait *wait = value;

		/* A thread that has exited may sleep once more, but its last switch is no sleep. */
		if (wait->thread->exit_ns) {
			if (now_ns > wait->begin_ns + EXITED_NS)
				g_hash_table_iter_remove(&iter);
			continue;
		}
		if (!waits->samples->unwind || wait->begin_ns == 0 ||
		    now_ns - MIN_OF(wait->begin_ns, now_ns) < threshold_ns || wait->maps ||
		    wait->is_pending || wait->is_requested || wait->thread->process->kernel ||
		    is_paused(waits, wait, now_ns) || (wait->is_reported && !wait->has_registers))
			continue;
		wait->is_requested = wait->is_pending = true;
		wait->refs++;
		g_ptr_array_add(waits->requested, wait);
		ret_tids[n++] = wait->thread->tid;
	}
	qsort(ret_tids, n, sizeof(*ret_tids), compare_tids);
	return n;
}

/* Walks a stack that was read. Without a report of the sleep, only the program counter, the stack
 * pointer and the call's first argument are known, where vfork() has its return address. The others
 * are 0, and the walk ends at the first function that needs one. */
static void walk_late(struct waits *waits, struct wait *wait, const struct snapshot_stack *stack,
		      const uint8_t *bytes)
{
	const struct regs *regs = regs_get(REGS_NATIVE);
	uint64_t registers[64] = { 0 };
	struct record record = {
		.kind = RECORD_SAMPLE,
		.cpumode = PERF_RECORD_MISC_USER,
		.pid = wait->thread->process->pid,
		.tid = wait->thread->tid,
		.cpu = wait->cpu,
		.time_ns = wait->begin_ns,
		.sample = {
			.ip = stack->pc,
			.registers = registers,
			.stack = bytes,
			.stack_bytes = MIN_OF(stack->bytes, waits->samples->stack_bytes),
		},
	};
	unsigned int n = 0;

	for (unsigned int bit = 0; bit < 64; bit++) {
		if (!(regs->perf_mask >> bit & 1))
			continue;
		if (wait->has_registers && regs->perf_sleep_mask >> bit & 1)
			registers[n] = wait->registers[regs_sleep_position(regs, bit)];
		else if (!wait->has_registers && bit == regs->perf_argument_bit)
			registers[n] = stack->argument;
		n++;
	}
	registers[regs->perf_pc] = stack->pc;
	registers[regs->perf_sp] = stack->sp;
	wait->source = PROF_STACK_LATE;
	samples_add(waits->samples, &record, wait->thread, NULL, wait);
	samples_finalize(waits->samples);
}

/* Uses a stack if the thread slept from before it was read until after. Returns whether it did. */
static bool receive(struct waits *waits, struct wait *wait, const struct snapshot_item *item)
{
	struct snapshot_stack stack;

	if (item->kind != SNAPSHOT_STACK || item->length < sizeof(stack))
		return false;
	memcpy(&stack, item->text, sizeof(stack));
	if (stack.done_ns > item->time_ns + SLOW_NS) {
		struct wait_pause *pause = g_new(struct wait_pause, 1);

		pause->until_ns = stack.done_ns + PAUSE * (stack.done_ns - item->time_ns);
		g_hash_table_replace(waits->pauses, GUINT_TO_POINTER(wait->thread->process->row.id),
				     pause);
	}
	if (stack.bytes != item->length - sizeof(stack) || item->time_ns < wait->begin_ns ||
	    (wait->end_ns && wait->end_ns <= stack.done_ns) ||
	    (wait->has_registers && (wait->pc != stack.pc || wait->sp != stack.sp)))
		return false;
	/* In a page fault, there is no call and no argument. */
	if (stack.syscall[0])
		wait->syscall = g_strndup(stack.syscall, sizeof(stack.syscall));
	if (stack.object[0])
		wait->object = g_strndup(stack.object, sizeof(stack.object));
	if (!wait->has_registers)
		wait->argument = stack.argument;
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

			if (wait->thread->tid != item.tid)
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
		waits_lose(waits, wait);
	}
}

void waits_give_up(struct waits *waits)
{
	while (waits->requested->len > 0) {
		struct wait *wait = g_ptr_array_steal_index_fast(waits->requested, 0);

		wait->is_requested = false;
		waits_lose(waits, wait);
	}
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

	/* A sleep is reported once: see waits_copy(). */
	if (wait->is_reported)
		wait = add_wait(waits, thread);
	wait->state = state_of(record->sleep.state);
	wait->is_reported = true;
	if (!registers || thread->process->kernel)
		return;
	wait->has_registers = true;
	memcpy(wait->registers, registers,
	       (size_t)__builtin_popcountll(regs->perf_sleep_mask) * sizeof(*registers));
	wait->pc = registers[regs_sleep_position(regs, regs->perf_pc_bit)];
	wait->sp = registers[regs_sleep_position(regs, regs->perf_sp_bit)];
	wait->argument = registers[regs_sleep_position(regs, regs->perf_argument_bit)];
}

void waits_begin(struct waits *waits, struct thread *thread, uint32_t cpu, uint64_t time_ns)
{
	struct wait *wait = next_wait(waits, thread);

	wait->begin_ns = time_ns;
	wait->cpu = cpu;
}

void waits_drop(struct waits *waits, struct thread *thread)
{
	g_hash_table_remove(waits->begun, thread);
}

static void end(struct waits *waits, struct wait *wait, uint64_t time_ns)
{
	wait->end_ns = time_ns;
	g_queue_push_tail(&waits->ended, wait);
	/* Rows are in order, so these wait for a stack that was requested. */
	if (waits->ended.length > WAITS_MAX_ENDED)
		waits_give_up(waits);
}

void waits_end(struct waits *waits, struct thread *thread, uint64_t time_ns)
{
	struct wait *wait = NULL;

	if (g_hash_table_steal_extended(waits->begun, thread, NULL, (gpointer *)&wait)) {
		if (wait->begin_ns == 0) {
			wait_unref(wait);
			return;
		}
	} else if (thread->has_state && thread->state == PROF_SWITCH_WAIT) {
		/* It sleeps since before the recording. */
		wait = wait_new(thread);
		wait->begin_ns = thread->state_ns;
	} else {
		return;
	}
	end(waits, wait, time_ns);
	write_rows(waits);
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
	g_hash_table_remove_all(waits->begun);
}

void waits_init(struct waits *waits, struct samples *samples)
{
	*waits = (struct waits){
		.samples = samples,
		.begun = g_hash_table_new_full(NULL, NULL, NULL, wait_unref),
		.requested = g_ptr_array_new(),
		.pauses = g_hash_table_new_full(NULL, NULL, NULL, g_free),
		.strata = g_new0(struct wait_stratum, N_STRATA),
	};
	g_queue_init(&waits->ended);
	samples->keep_wait = keep_stack;
	samples->wait_data = waits;
}

void waits_done(struct waits *waits)
{
	if (!waits->begun)
		return;
	g_hash_table_destroy(waits->begun);
	g_hash_table_destroy(waits->pauses);
	g_queue_clear_full(&waits->ended, wait_unref);
	g_ptr_array_set_free_func(waits->requested, wait_unref);
	g_ptr_array_unref(waits->requested);
	g_free(waits->strata);
	*waits = (struct waits){ 0 };
}
