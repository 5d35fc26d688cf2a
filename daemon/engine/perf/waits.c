/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Waits - records where threads sleep, and for how long
 *
 * The kernel reports each sleep twice before the thread leaves its CPU: RECORD_SLEEP has the
 * registers of the user code, and, for about 250 sleeps a second on each CPU, a sample has a copy
 * of the stack and the kernel's chain. The switch that follows begins the wait, and a wake-up or
 * the next switch to the thread ends it. So the time of each wait is exact, and many waits have
 * their own stack. Any other wait shares the stack of the last wait of the same process that began
 * at the same program counter and stack pointer, or of the first one in the second after it. That
 * wait is usually of the same thread, or of an earlier thread whose stack was in the same memory:
 * servers start a thread for each request. Without such a wait, it shares the stack of one whose
 * stack pointer is at the same place in its page: stacks of threads are mapped at whole pages, so
 * threads that make the same calls have it there. Different callers may lead to one such place, so
 * a shared stack may show another caller; but every Nth sleep is copied, whatever its stack is.
 * Without such a wait, the stack is unknown.
 * In an interpreted program, a place includes the interpreter's frames, which are merged into the
 * native frames of any wait with that program counter and stack pointer. They are not read for each
 * of the most frequent sleeps; a wait without them gets the last stack, whatever its interpreter's
 * frames are.
 * If a thread still sleeps and its stack was not copied, its stack is requested
 * (daemon/files/stack.c). The stack is used if, according to the switches, the thread did not run
 * between the start of the wait and the reading. If switches were lost since the start, on any CPU,
 * it may have run, and the stack is not used. Threads that sleep since before the recording get
 * a stack in this way, too, and so do those of users who may not record the tracepoint.
 * A wait that a thread ends has a waker. Two events report it as they report sleeps: one has the
 * registers, the other, for some wakers, a copy of the stack. Their records are of one waking if no
 * other waking on the CPU is between them. If an interrupt wakes a thread, the interrupted thread
 * is not the waker.
 * A row is written when its wait has ended and its stacks are walked. Stacks are kept as addresses
 * until then, because their ids end with the epoch.
 * Invariants: (1) each sleep of a thread becomes one row, with its stack or without
 *                 [test-engine-waits: rows]
 *             (2) rows are in the order of their ends  [test-engine-waits: order]
 *             (3) a shared stack is of the same process, program counter and, at least within its
 *                 page, stack pointer, and, if they were read, frames of the interpreter
 *                 [test-engine-waits: shared, in_page, interpreted]
 *             (4) a stack is used only if the thread slept while it was read and no switch was lost
 *                 since it fell asleep  [test-engine-waits: late, unverified]
 *             (5) a waker's stack is of its own process, program counter and, at least within its
 *                 page, stack pointer  [test-engine-waits: wakers]
 *             (6) the times are those of the switch table  [test_off_cpu: test_times]
 *             (7) a process whose memory is locked for long is read rarely
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

#define N_STRATA 16384u /* a power of two */
#define N_NATIVES 256u
#define MAX_REGISTERS 16
#define EXITED_NS UINT64_C(1000000000)
/* How long a wait without a stack may wait for one to share, and how many rows wait with it. */
#define HOLD_NS UINT64_C(1000000000)
#define MAX_HELD (WAITS_MAX_ENDED / 4)
/* Maximum time from a wakeup to the sleep that it ends, because a thread can be woken while it
 * still leaves its CPU. Older wakers are dropped. */
#define LEAVING_NS UINT64_C(200000)
#define SAME_WAKER_NS UINT64_C(20000)
/* Reading a stack takes the lock of the process's memory. If that took longer than SLOW_NS, and not
 * because the reader had no CPU, the next stacks of the process are not read for PAUSE times as
 * long. */
#define SLOW_NS UINT64_C(1000000)
#define PAUSE 100

/* The last stack with which threads of a process slept, or woke another thread, at a place: the
 * program counter, the stack pointer and, if read, the frames of the interpreter. */
struct wait_stratum {
	uint64_t pc, sp;
	uint32_t chain_hash;            /* 0: with any frames */
	uint32_t native_hash;           /* interpreted processes: hash of the other frames */
	uint32_t process, epoch, stack; /* ids; epoch 0: empty */
	uint8_t method, stop, interpreter;
	bool is_waker;
};

/* The code in which a thread slept, or woke another one. */
struct wait_code {
	unsigned int refs;
	bool is_waker;         /* part of a struct waker; otherwise of a struct wait */
	struct thread *thread; /* referenced; NULL: no thread, or one that is not recorded */
	bool has_registers;
	bool is_pending; /* its stack is being read or walked */
	enum prof_stack_source source;
	uint64_t pc, sp, argument;
	/* frames of its interpreter, and their hash; NULL, 0: unknown */
	uint8_t *chain;
	uint32_t chain_bytes, chain_hash;
	struct maps *maps;    /* mappings of the stack; NULL: it has no stack */
	struct sample sample; /* its arrays are copies, or point to `chain` */
	/* its own stack, which others share; the stack of another code at its place, which it
	 * shares */
	struct wait_stratum own, shared;
};

struct waker {
	struct wait_code code; /* first member */
	enum prof_waker kind;  /* PROF_WAKER_UNKNOWN: only its copied stack is known so far */
	uint64_t time_ns;
};

struct wait {
	struct wait_code code; /* first member */
	uint64_t begin_ns;     /* 0: the thread has not left its CPU yet */
	uint64_t end_ns;
	uint32_t cpu;
	enum prof_wait_state state;
	bool is_reported;  /* RECORD_SLEEP has reported the sleep */
	bool is_requested; /* its stack was requested once */
	/* when an answer lacked its stack; 0: no answer lacked it */
	uint64_t missed_ns;
	uint64_t registers[MAX_REGISTERS]; /* registers of regs->perf_sleep_mask */
	char *syscall, *object;            /* NULL: unknown */
	struct waker *waker;               /* referenced; NULL: unknown */
	GList link;                        /* in waits->begun or waits->ended */
};

struct wait_pause {
	uint64_t until_ns;
};

/* The last wakers on a CPU, referenced: of the last record, and of a copy without its record yet.
 * NULL: none. */
struct last_wakers {
	struct waker *recorded, *copied;
};

static void code_unref(struct wait_code *code)
{
	if (--code->refs > 0)
		return;
	if (code->thread)
		row_unref(&code->thread->row);
	maps_unref(code->maps);
	g_free((void *)code->sample.user.ips);
	g_free((void *)code->sample.user.sps);
	g_free(code->chain);
	g_free((void *)code->sample.kernel);
	if (!code->is_waker) {
		struct wait *wait = (struct wait *)code;

		if (wait->waker)
			code_unref(&wait->waker->code);
		g_free(wait->syscall);
		g_free(wait->object);
	}
	g_free(code);
}

static void wait_unref(void *data)
{
	code_unref(data);
}

static void code_init(struct wait_code *code, struct thread *thread)
{
	code->refs = 1;
	code->thread = thread;
	if (thread)
		row_ref(&thread->row);
}

static struct wait *wait_new(struct thread *thread)
{
	/* Unlike malloc(), calloc() of glibc 2.36 does not reuse memory that was just freed. */
	struct wait *wait = g_new(struct wait, 1);

	*wait = (struct wait){ .cpu = PROF_SWITCH_NO_CPU, .link.data = wait };
	code_init(&wait->code, thread);
	return wait;
}

static struct waker *waker_new(struct thread *thread, uint64_t time_ns)
{
	struct waker *waker = g_new0(struct waker, 1);

	code_init(&waker->code, thread);
	waker->code.is_waker = true;
	waker->time_ns = time_ns;
	return waker;
}

/* Replaces a referenced waker. Takes over the reference of the new one. */
static void set_waker(struct waker **place, struct waker *waker)
{
	if (*place)
		code_unref(&(*place)->code);
	*place = waker;
}

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

/* Returns where the stack pointer is in its page. It identifies the place in threads whose stacks
 * are mapped alike. It is no stack pointer, because nothing is mapped at the first page. */
static uint64_t sp_in_page(const struct wait_code *code)
{
	return code->sp % 4096;
}

/* `sp`: the code's, or sp_in_page(). */
static struct wait_stratum *stratum_of(const struct waits *waits, const struct wait_code *code,
				       uint64_t sp, uint32_t chain_hash)
{
	uint64_t hash = code->pc * UINT64_C(0x9e3779b97f4a7c15) ^ sp ^ code->is_waker ^ chain_hash;

	hash = (hash ^ code->thread->process->row.id) * UINT64_C(0x9e3779b97f4a7c15);
	return &waits->strata[hash >> 40 & (N_STRATA - 1)];
}

/* Returns whether the code's process has an interpreter, whose frames may be unknown. */
static bool is_interpreted(const struct waits *waits, const struct wait_code *code)
{
	return waits->samples->interpreted && !code->is_waker && code->thread->process->interpreter;
}

static bool is_current(const struct waits *waits, const struct wait_stratum *stratum)
{
	return stratum->epoch == waits->samples->output->epoch;
}

/* Returns whether there is no stack, or one without the frames of the code's interpreter. */
static bool is_poor(const struct waits *waits, const struct wait_code *code,
		    const struct wait_stratum *stratum)
{
	return !is_current(waits, stratum) ||
	       (is_interpreted(waits, code) && stratum->interpreter != PROF_INTERPRETER_COMPLETE &&
		stratum->interpreter != PROF_INTERPRETER_DEEPER &&
		stratum->interpreter != PROF_INTERPRETER_IDLE);
}

/* Returns the last stack at the code's place, or one with epoch 0 if the place has no stack. */
static struct wait_stratum find_stratum(const struct waits *waits, const struct wait_code *code,
					uint64_t sp, uint32_t chain_hash)
{
	const struct wait_stratum *stratum;

	if (!code->thread || !code->has_registers)
		return (struct wait_stratum){ 0 };
	stratum = stratum_of(waits, code, sp, chain_hash);
	return is_current(waits, stratum) && stratum->pc == code->pc && stratum->sp == sp &&
			       stratum->chain_hash == chain_hash &&
			       stratum->process == code->thread->process->row.id &&
			       stratum->is_waker == code->is_waker
		       ? *stratum
		       : (struct wait_stratum){ 0 };
}

/* Identifies the addresses of a stack, without the interpreter's frames. */
static uint32_t hash_native(const struct sample *sample)
{
	uint64_t hash = sample->n_kernel;

	for (size_t i = 0; i < sample->user.n; i++)
		hash = hash_words(hash, sample->user.ips[i]);
	for (size_t i = 0; i < sample->n_kernel; i++)
		hash = hash_words(hash, sample->kernel[i]);
	return (uint32_t)(hash >> 32);
}

/* Adds a stack at the code's place. `maps`: the mappings of that stack. */
static struct wait_stratum make_stratum(struct waits *waits, const struct wait_code *code,
					const struct sample *sample, struct maps **maps,
					enum prof_sample_interpreter interpreter)
{
	return (struct wait_stratum){
		.pc = code->pc,
		.process = code->thread->process->row.id,
		.epoch = waits->samples->output->epoch,
		.stack = samples_add_stack(waits->samples, sample, maps,
					   interpreter == PROF_INTERPRETER_COMPLETE ||
						   interpreter == PROF_INTERPRETER_DEEPER),
		.native_hash = is_interpreted(waits, code) ? hash_native(sample) : 0,
		.interpreter = interpreter,
		.method = interpreted_method(sample, interpreter),
		.stop = sample->user.stop,
		.is_waker = code->is_waker,
	};
}

/* Lets codes at this place share the stack: codes with the same interpreter frames, and codes whose
 * interpreter frames are unknown. */
static void share_stratum(struct waits *waits, const struct wait_code *code,
			  struct wait_stratum stratum)
{
	const uint64_t sps[] = { code->sp, sp_in_page(code) };

	for (size_t i = 0; i < ARRAY_SIZE(sps); i++) {
		struct wait_stratum any = find_stratum(waits, code, sps[i], 0);

		stratum.sp = sps[i];
		stratum.chain_hash = 0;
		if (!is_poor(waits, code, &stratum) || is_poor(waits, code, &any))
			*stratum_of(waits, code, sps[i], 0) = stratum;
		stratum.chain_hash = code->chain_hash;
		if (code->chain_hash)
			*stratum_of(waits, code, sps[i], code->chain_hash) = stratum;
	}
}

static struct wait_code **native_of(const struct waits *waits, const struct wait_code *code)
{
	return &waits->natives[(size_t)(stratum_of(waits, code, code->sp, 0) - waits->strata) %
			       N_NATIVES];
}

/* Adds the code's own stack, and lets others share it. */
static void add_own_stack(struct waits *waits, struct wait_code *code)
{
	enum prof_sample_interpreter interpreter = PROF_INTERPRETER_NONE;
	struct process *process = code->thread->process;
	struct wait_code **native;

	/* Do nothing if the stack is up to date: the interpreter may have been found since it was
	 * added. */
	if (is_current(waits, &code->own) && code->own.pc == code->pc &&
	    (code->own.interpreter != PROF_INTERPRETER_NONE || !is_interpreted(waits, code)))
		return;
	if (waits->samples->interpreted && !code->is_waker)
		interpreter = interpreted_merge(waits->samples->interpreted, &code->sample);
	/* The current mappings note which of them have a row. */
	code->own = make_stratum(waits, code, &code->sample,
				 code->maps == process->maps ? &process->maps : &code->maps,
				 interpreter);
	if (!code->has_registers)
		return;
	share_stratum(waits, code, code->own);
	if (code->sample.user.n_sps == 0)
		return;
	native = native_of(waits, code);
	code->refs++;
	if (*native)
		code_unref(*native);
	*native = code;
}

/* Makes a stack for a code whose interpreter frames are known, from the native frames of another
 * code at the same place. Returns an empty one if the two do not fit together. */
static struct wait_stratum borrow_native(struct waits *waits, const struct wait_code *code)
{
	const struct wait_code *native = *native_of(waits, code);
	struct process *process = code->thread->process;
	enum prof_sample_interpreter interpreter;
	struct wait_stratum stratum = { 0 };
	struct sample sample;

	if (!native || native->thread->process != process || native->maps != process->maps ||
	    native->pc != code->pc || native->sp != code->sp)
		return stratum;
	sample = native->sample;
	sample.raw = code->chain;
	sample.raw_bytes = code->chain_bytes;
	sample.is_interpreted = true;
	interpreter = interpreted_merge(waits->samples->interpreted, &sample);
	if (interpreter == PROF_INTERPRETER_COMPLETE || interpreter == PROF_INTERPRETER_DEEPER)
		stratum = make_stratum(waits, code, &sample, &process->maps, interpreter);
	return stratum;
}

/* Chooses the stack that the code shares, and lets others share the code's. Rows are written much
 * later, for many codes at once, so the choice is made now. */
static void offer_stack(struct waits *waits, struct wait_code *code)
{
	if (!code->has_registers)
		return;
	if (is_poor(waits, code, &code->shared))
		code->shared = find_stratum(waits, code, code->sp, code->chain_hash);
	if (code->maps) {
		add_own_stack(waits, code);
	} else if (code->chain && waits->samples->interpreted) {
		if (is_poor(waits, code, &code->shared))
			code->shared = borrow_native(waits, code);
		if (!is_poor(waits, code, &code->shared))
			share_stratum(waits, code, code->shared);
	}
}

/* Finds the code's stack. Sets `stack`, `method`, `stop` and `interpreter` of *ret_found. A copied
 * stack without interpreter frames is replaced by the shared one if that has them, and equal native
 * frames. */
static enum prof_stack_source find_stack(struct waits *waits, struct wait_code *code,
					 struct wait_stratum *ret_found)
{
	*ret_found = (struct wait_stratum){ .stop = PROF_STOP_UNKNOWN };
	if (!code->thread)
		return PROF_STACK_NONE;
	if (is_poor(waits, code, &code->shared))
		code->shared = find_stratum(waits, code, code->sp, code->chain_hash);
	if (code->maps) {
		add_own_stack(waits, code);
		*ret_found = code->own;
		if (code->source != PROF_STACK_COPIED || !is_poor(waits, code, &code->own) ||
		    is_poor(waits, code, &code->shared) ||
		    code->own.native_hash != code->shared.native_hash)
			return code->source;
	}
	if (!is_current(waits, &code->shared))
		code->shared = find_stratum(waits, code, sp_in_page(code), code->chain_hash);
	if (is_current(waits, &code->shared)) {
		*ret_found = code->shared;
		return PROF_STACK_SHARED;
	}
	if (is_interpreted(waits, code))
		ret_found->interpreter = PROF_INTERPRETER_MISSING;
	return PROF_STACK_NONE;
}

static void write_row(struct waits *waits, struct wait *wait)
{
	struct wait_stratum found, waker_found = { 0 };
	enum prof_stack_source source = find_stack(waits, &wait->code, &found);
	enum prof_stack_source waker_source = PROF_STACK_NONE;
	struct output *output = waits->samples->output;
	struct wait_code *waker = wait->waker ? &wait->waker->code : NULL;
	bool has_argument = wait->code.has_registers || wait->syscall;
	uint64_t duration_ns = wait->end_ns - MIN_OF(wait->begin_ns, wait->end_ns);

	if (source == PROF_STACK_NONE && wait->missed_ns && wait->end_ns <= wait->missed_ns)
		source = PROF_STACK_RACED;
	if (waker)
		waker_source = find_stack(waits, waker, &waker_found);
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
			[PROF_WAIT_SYSCALL] = output_text(output, wait->syscall),
			[PROF_WAIT_OBJECT] = output_text(output, wait->object),
			[PROF_WAIT_WAKER] = waker ? wait->waker->kind : PROF_WAKER_UNKNOWN,
			[PROF_WAIT_WAKER_THREAD] = waker && waker->thread ? waker->thread->row.id
									  : 0,
			[PROF_WAIT_WAKER_STACK] = waker_found.stack,
			[PROF_WAIT_WAKER_STACK_SOURCE] = waker_source,
			[PROF_WAIT_WAKER_ARGUMENT] = waker ? waker->argument : 0,
			[PROF_WAIT_INTERPRETER] = found.interpreter,
		},
		(has_argument ? 0 : UINT64_C(1) << PROF_WAIT_ARGUMENT) |
			(waker && waker->has_registers ? 0
						       : UINT64_C(1) << PROF_WAIT_WAKER_ARGUMENT));
}

/* Returns whether a better stack for the code may still come. */
static bool may_improve(const struct waits *waits, const struct wait_code *code)
{
	struct wait_stratum found;

	if (!code->has_registers || (code->maps && (code->source != PROF_STACK_COPIED ||
						    !is_poor(waits, code, &code->own))))
		return false;
	found = is_poor(waits, code, &code->shared)
			? find_stratum(waits, code, code->sp, code->chain_hash)
			: code->shared;
	return is_poor(waits, code, &found) &&
	       (code->thread->process->has_chains || !(code->maps || is_current(waits, &found)));
}

static bool is_due(const struct waits *waits, const struct wait *wait, uint64_t now_ns)
{
	const struct wait_code *waker = wait->waker ? &wait->waker->code : NULL;

	if (wait->code.is_pending || (waker && waker->is_pending))
		return false;
	return wait->end_ns + HOLD_NS <= now_ns || waits->ended.length > MAX_HELD ||
	       (!may_improve(waits, &wait->code) && !(waker && may_improve(waits, waker)));
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
	offer_stack(waits, code);
	code_unref(code);
	waits_write(waits, waits->now_ns);
}

void waits_lose(struct waits *waits, struct wait_code *code)
{
	code->is_pending = false;
	code_unref(code);
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
		hash = (hash ^ frame.code ^ (uint64_t)frame.position << 32 ^ frame.id) *
		       UINT64_C(0x9e3779b97f4a7c15);
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
		/* Otherwise, the wait is of an earlier sleep, whose switch was lost. */
		wait = add_wait(waits, thread);
	}
	copy_stack(waits, &wait->code, record);
}

/* ---- stacks that are read while the thread sleeps -------------------------------------------- */

/* Returns the state of a thread that sleeps since before the recording, as proc(5) has it. */
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

uint32_t waits_request(struct waits *waits, uint64_t now_ns, uint64_t threshold_ns,
		       int32_t *ret_tids)
{
	uint32_t n = 0;

	/* A waker that is still in `early` belongs to no wait. */
	g_hash_table_remove_all(waits->early);
	if (!waits->has_begun)
		begin_earlier(waits);
	waits->has_begun = true;
	for (GList *link = waits->begun.head, *next; n < WAITS_MAX_REQUESTED && link; link = next) {
		struct wait *wait = link->data;

		next = link->next;

		/* A thread that has exited may sleep once more, but its last switch is no sleep. */
		if (wait->code.thread->exit_ns) {
			if (now_ns > wait->begin_ns + EXITED_NS)
				drop_wait(waits, wait->code.thread);
			continue;
		}
		if (!waits->samples->unwind || wait->begin_ns == 0 ||
		    now_ns - MIN_OF(wait->begin_ns, now_ns) < threshold_ns || wait->code.maps ||
		    wait->code.is_pending || wait->is_requested ||
		    wait->code.thread->process->kernel || is_unverified(waits, wait) ||
		    is_paused(waits, wait, now_ns) ||
		    (wait->is_reported && !wait->code.has_registers))
			continue;
		wait->is_requested = wait->code.is_pending = true;
		wait->code.refs++;
		g_ptr_array_add(waits->requested, wait);
		ret_tids[n++] = wait->code.thread->tid;
	}
	qsort(ret_tids, n, sizeof(*ret_tids), compare_tids);
	return n;
}

/* Walks a stack that was read. Without a report of the sleep, only the program counter, the stack
 * pointer and the call's first argument are known, where vfork() has its return address. */
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
	/* It does not begin: the walk must not take it for the child of a clone(). */
	if (regs->result < regs->n_numbered && !registers[regs->perf_numbered[regs->result]])
		registers[regs->perf_numbered[regs->result]] = (uint64_t)-ENOSYS;
	registers[regs->perf_pc] = stack->pc;
	registers[regs->perf_sp] = stack->sp;
	wait->code.source = PROF_STACK_LATE;
	add_stack(waits, &wait->code, &record);
	samples_finalize(waits->samples);
}

/* Uses a stack if the thread slept during the whole reading. Returns whether it did. */
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
	/* In a page fault, there is no call and no argument. */
	if (stack.syscall[0])
		wait->syscall = g_strndup(stack.syscall, sizeof(stack.syscall));
	if (stack.object[0])
		wait->object = g_strndup(stack.object, sizeof(stack.object));
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
 * a few microseconds, and no other waking on the CPU is between them. A chain of frame pointers has
 * no stack pointer. */
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
		code_unref(&waker->code);
		waker = copied;
	}
	set_waker(&last->copied, NULL);
	offer_stack(waits, &waker->code);
	if (thread)
		waker->code.refs++;
	if (wait)
		set_waker(&wait->waker, waker);
	else if (thread)
		g_hash_table_replace(waits->early, thread, waker);
	set_waker(&last->recorded, waker);
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
		code_unref(&waker->code);
		copy_stack(waits, &recorded->code, record);
		return;
	}
	set_waker(&last->copied, waker);
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

	/* A sleep is reported once: see waits_copy(). */
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
	offer_stack(waits, &wait->code);
}

void waits_begin(struct waits *waits, struct thread *thread, uint32_t cpu, uint64_t time_ns)
{
	struct wait *wait = next_wait(waits, thread);

	/* Drop a waker that is too old: it cannot have ended this wait. */
	if (wait->waker && wait->waker->time_ns + LEAVING_NS < time_ns)
		set_waker(&wait->waker, NULL);
	wait->begin_ns = time_ns;
	wait->cpu = cpu;
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
		/* It sleeps since before the recording. */
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
		.strata = g_new0(struct wait_stratum, N_STRATA),
		.natives = g_new0(struct wait_code *, N_NATIVES),
		.last_wakers = g_new0(struct last_wakers, ENGINE_MAX_CPUS),
	};
	g_queue_init(&waits->begun);
	g_queue_init(&waits->ended);
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
		set_waker(&waits->last_wakers[i].recorded, NULL);
		set_waker(&waits->last_wakers[i].copied, NULL);
	}
	g_free(waits->last_wakers);
	g_free(waits->strata);
	for (size_t i = 0; i < N_NATIVES; i++)
		if (waits->natives[i])
			code_unref(waits->natives[i]);
	g_free(waits->natives);
	*waits = (struct waits){ 0 };
}
