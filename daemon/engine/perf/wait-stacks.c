/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Wait-stacks - finds a stack that a wait can share if its own stack is unknown
 *
 * A wait without its own stack shares the stack of another wait at the same program counter and
 * stack pointer, in the same process or in one that is related by forks without an exec since. This
 * is the last such wait or, without an earlier one, the first within a second after it. It is
 * usually of the same thread, or of an earlier thread or process whose stack was in the same
 * memory, because servers start a thread or process for each request. A copied stack is preferred
 * to one that was read, because only a copied stack has kernel frames. If there is no such wait,
 * the wait shares the stack of a wait whose stack pointer is at the same place in its page: stacks
 * of threads are mapped at whole pages, so the stack pointers of threads that make the same calls
 * are at the same place. Otherwise, the stack is unknown. Different callers may lead to one place,
 * so a shared stack may show another caller; but every Nth sleep is copied, whatever its stack is.
 * In an interpreted program, a place includes the interpreter's frames, which are merged into the
 * native frames of any wait with that program counter and stack pointer. The interpreter's frames
 * are not read for each of the most frequent sleeps; a wait without them gets the last stack at its
 * program counter and stack pointer, whatever interpreter's frames it has.
 * Wakers share stacks in the same way.
 * Invariants: (1) a shared stack has the same program, program counter, stack pointer (at least
 *                 within its page) and, if they were read, frames of the interpreter
 *                 [test-engine-waits: shared, in_page, interpreted, wakers]
 * Runs on the drain thread only.
 */
#include "daemon/engine/perf/wait-stacks.h"

#include "arch/base.h"
#include "base/hash.h"

#define N_STRATA 16384u /* a power of two */
#define N_NATIVES 256u

/* Returns the offset of the stack pointer in its page. Threads that make the same calls often have
 * the same offset, because stacks begin at whole pages. The offset differs from every stack
 * pointer, because nothing is mapped at the first page; so both can be keys of one table. */
static uint64_t sp_in_page(const struct wait_code *code)
{
	return code->sp % 4096;
}

/* Returns the stratum that keeps the stack of this code. `sp`: code->sp, or sp_in_page(code). */
static struct wait_stratum *stratum_of(const struct wait_stacks *stacks,
				       const struct wait_code *code, uint64_t sp,
				       uint32_t chain_hash)
{
	uint64_t hash = code->pc * HASH_ODD ^ sp ^ code->is_waker ^ chain_hash;

	hash = (hash ^ code->thread->process->origin) * HASH_ODD;
	return &stacks->strata[hash >> 40 & (N_STRATA - 1)];
}

/* Returns whether the code's process has an interpreter, whose frames may be unknown. */
static bool is_interpreted(const struct wait_stacks *stacks, const struct wait_code *code)
{
	return stacks->samples->interpreted && !code->is_waker &&
	       code->thread->process->interpreter;
}

static bool is_current(const struct wait_stacks *stacks, const struct wait_stratum *stratum)
{
	return stratum->epoch == stacks->samples->output->epoch;
}

/* Returns whether the place has no stack, or one without the frames of the code's interpreter. */
static bool is_poor(const struct wait_stacks *stacks, const struct wait_code *code,
		    const struct wait_stratum *stratum)
{
	return !is_current(stacks, stratum) ||
	       (is_interpreted(stacks, code) && stratum->interpreter != PROF_INTERPRETER_COMPLETE &&
		stratum->interpreter != PROF_INTERPRETER_DEEPER &&
		stratum->interpreter != PROF_INTERPRETER_IDLE);
}

/* Returns the last stack at the code's place; its epoch is 0 if the place has no stack. */
static struct wait_stratum find_stratum(const struct wait_stacks *stacks,
					const struct wait_code *code, uint64_t sp,
					uint32_t chain_hash)
{
	const struct wait_stratum *stratum;

	if (!code->thread || !code->has_registers)
		return (struct wait_stratum){ 0 };
	stratum = stratum_of(stacks, code, sp, chain_hash);
	return is_current(stacks, stratum) && stratum->pc == code->pc && stratum->sp == sp &&
			       stratum->chain_hash == chain_hash &&
			       stratum->origin == code->thread->process->origin &&
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

/* If the stack was read while the thread slept, returns the id of its system call's name, because
 * such a stack has no kernel frames. Otherwise returns 0. */
static uint32_t call_of(const struct wait_stacks *stacks, const struct wait_code *code)
{
	return code->source == PROF_STACK_LATE && !code->is_waker
		       ? output_text(stacks->samples->output, ((const struct wait *)code)->syscall)
		       : 0;
}

/* Adds the stack to the output, and returns the stratum that describes it; share_stratum() sets its
 * `sp` and `chain_hash`. `maps`: the mappings of that stack. */
static struct wait_stratum make_stratum(struct wait_stacks *stacks, const struct wait_code *code,
					const struct sample *sample, struct maps **maps,
					enum prof_sample_interpreter interpreter)
{
	return (struct wait_stratum){
		.pc = code->pc,
		.origin = code->thread->process->origin,
		.epoch = stacks->samples->output->epoch,
		.stack = samples_add_stack(stacks->samples, sample, maps,
					   interpreter == PROF_INTERPRETER_COMPLETE ||
						   interpreter == PROF_INTERPRETER_DEEPER),
		.call = call_of(stacks, code),
		.native_hash = is_interpreted(stacks, code) ? hash_native(sample) : 0,
		.interpreter = interpreter,
		.method = interpreted_method(sample, interpreter),
		.stop = sample->user.stop,
		.is_waker = code->is_waker,
	};
}

/* Replaces the stack that codes at a place share, unless the new one lacks more: the frames of the
 * interpreter, or those of the kernel. */
static void replace_stratum(struct wait_stacks *stacks, const struct wait_code *code,
			    const struct wait_stratum *stratum)
{
	struct wait_stratum old = find_stratum(stacks, code, stratum->sp, stratum->chain_hash);

	if (is_poor(stacks, code, &old) ||
	    (!is_poor(stacks, code, stratum) && (old.call || !stratum->call)))
		*stratum_of(stacks, code, stratum->sp, stratum->chain_hash) = *stratum;
}

/* Lets codes at this place share the stack: codes with the same interpreter frames, and codes whose
 * interpreter frames are unknown. */
static void share_stratum(struct wait_stacks *stacks, const struct wait_code *code,
			  struct wait_stratum stratum)
{
	const uint64_t sps[] = { code->sp, sp_in_page(code) };

	for (size_t i = 0; i < ARRAY_SIZE(sps); i++) {
		stratum.sp = sps[i];
		stratum.chain_hash = 0;
		replace_stratum(stacks, code, &stratum);
		stratum.chain_hash = code->chain_hash;
		if (code->chain_hash)
			replace_stratum(stacks, code, &stratum);
	}
}

static struct wait_code **native_of(const struct wait_stacks *stacks, const struct wait_code *code)
{
	return &stacks->natives[(size_t)(stratum_of(stacks, code, code->sp, 0) - stacks->strata) %
				N_NATIVES];
}

/* Adds the code's own stack, and lets others share it. */
static void add_own_stack(struct wait_stacks *stacks, struct wait_code *code)
{
	enum prof_sample_interpreter interpreter = PROF_INTERPRETER_NONE;
	struct process *process = code->thread->process;
	struct wait_code **native;

	/* Do nothing if this epoch has the stack, unless the interpreter was found after the stack
	 * was added. */
	if (is_current(stacks, &code->own) && code->own.pc == code->pc &&
	    (code->own.interpreter != PROF_INTERPRETER_NONE || !is_interpreted(stacks, code)))
		return;
	if (stacks->samples->interpreted && !code->is_waker)
		interpreter = interpreted_merge(stacks->samples->interpreted, &code->sample);
	/* Prefer the process's mappings: they record which of them have a row. */
	code->own = make_stratum(stacks, code, &code->sample,
				 code->maps == process->maps ? &process->maps : &code->maps,
				 interpreter);
	if (!code->has_registers)
		return;
	share_stratum(stacks, code, code->own);
	if (code->sample.user.n_sps == 0)
		return;
	native = native_of(stacks, code);
	code->refs++;
	if (*native)
		wait_code_unref(*native);
	*native = code;
}

/* Makes a stack for a code whose interpreter frames are known, from the native frames of another
 * code at the same place. Returns an empty stratum if the frames do not fit together. */
static struct wait_stratum borrow_native(struct wait_stacks *stacks, const struct wait_code *code)
{
	const struct wait_code *native = *native_of(stacks, code);
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
	interpreter = interpreted_merge(stacks->samples->interpreted, &sample);
	if (interpreter == PROF_INTERPRETER_COMPLETE || interpreter == PROF_INTERPRETER_DEEPER) {
		stratum = make_stratum(stacks, code, &sample, &process->maps, interpreter);
		stratum.call = call_of(stacks, native);
	}
	return stratum;
}

void wait_stacks_offer(struct wait_stacks *stacks, struct wait_code *code)
{
	if (!code->has_registers)
		return;
	if (is_poor(stacks, code, &code->shared))
		code->shared = find_stratum(stacks, code, code->sp, code->chain_hash);
	if (code->maps) {
		add_own_stack(stacks, code);
	} else if (code->chain && stacks->samples->interpreted) {
		if (is_poor(stacks, code, &code->shared))
			code->shared = borrow_native(stacks, code);
		if (!is_poor(stacks, code, &code->shared))
			share_stratum(stacks, code, code->shared);
	}
}

enum prof_stack_source wait_stacks_find(struct wait_stacks *stacks, struct wait_code *code,
					struct wait_stratum *ret_found)
{
	*ret_found = (struct wait_stratum){ .stop = PROF_STOP_UNKNOWN };
	if (!code->thread)
		return PROF_STACK_NONE;
	if (is_poor(stacks, code, &code->shared))
		code->shared = find_stratum(stacks, code, code->sp, code->chain_hash);
	if (code->maps) {
		add_own_stack(stacks, code);
		*ret_found = code->own;
		if (code->source != PROF_STACK_COPIED || !is_poor(stacks, code, &code->own) ||
		    is_poor(stacks, code, &code->shared) ||
		    code->own.native_hash != code->shared.native_hash)
			return code->source;
	}
	if (!is_current(stacks, &code->shared))
		code->shared = find_stratum(stacks, code, sp_in_page(code), code->chain_hash);
	if (is_current(stacks, &code->shared)) {
		*ret_found = code->shared;
		return PROF_STACK_SHARED;
	}
	if (is_interpreted(stacks, code))
		ret_found->interpreter = PROF_INTERPRETER_MISSING;
	return PROF_STACK_NONE;
}

bool wait_stacks_may_improve(const struct wait_stacks *stacks, const struct wait_code *code)
{
	struct wait_stratum found;

	if (!code->has_registers || (code->maps && (code->source != PROF_STACK_COPIED ||
						    !is_poor(stacks, code, &code->own))))
		return false;
	found = is_poor(stacks, code, &code->shared)
			? find_stratum(stacks, code, code->sp, code->chain_hash)
			: code->shared;
	return is_poor(stacks, code, &found) &&
	       (code->thread->process->has_chains || !(code->maps || is_current(stacks, &found)));
}

void wait_stacks_init(struct wait_stacks *stacks, struct samples *samples)
{
	*stacks = (struct wait_stacks){
		.samples = samples,
		.strata = g_new0(struct wait_stratum, N_STRATA),
		.natives = g_new0(struct wait_code *, N_NATIVES),
	};
}

void wait_stacks_done(struct wait_stacks *stacks)
{
	g_free(stacks->strata);
	for (size_t i = 0; i < N_NATIVES; i++)
		if (stacks->natives[i])
			wait_code_unref(stacks->natives[i]);
	g_free(stacks->natives);
}
