/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Self-unwind - walks the calling thread's own stack
 *
 *     static _Thread_local struct self_unwind own;
 *     struct walk_registers here;
 *     struct self_unwind_chain chain;
 *
 *     self_unwind_get_registers(&here);
 *     self_unwind_walk(&own, &here, pcs, ARRAY_SIZE(pcs), &chain);
 *
 * For hooks: self_unwind_walk() may run inside an allocator, in a signal handler, on a signal
 * stack, on a fiber, and in a child that shares its parent's memory. It allocates nothing, takes no
 * lock, never waits, preserves errno, and cannot fault, whatever a stack contains. It makes only
 * the system calls that self_unwind.quiet allows. It needs 3 KiB of stack. If less than 4 KiB of
 * the thread's own stack or its signal stack is left, the chain has one frame.
 */
#pragma once

#include "arch/walk.h"

#include <stdatomic.h>

#define SELF_UNWIND_MAX_FRAMES 1024u
#define SELF_UNWIND_MAX_FOREIGN 16u

/* The state of a thread, one for each. Initialize with zeros. */
struct self_unwind {
	uint64_t low,
		high; /* the thread's stack, as far as it was found readable; 0: not searched yet */
	volatile uint64_t walking; /* address of the innermost walk's own stack frame; 0: none */
	uint32_t cache;            /* index of the cache to try first, plus 1; 0: none */
	uint32_t quiet;            /* enum self_unwind_quiet, set by the caller */
};

/* Which system calls a walk may make, because a seccomp filter could kill the thread for others. */
enum self_unwind_quiet {
	SELF_UNWIND_ANY,
	SELF_UNWIND_PROBES, /* only rt_sigprocmask(); signal stacks are then treated as fibers */
	SELF_UNWIND_SILENT, /* none: a walk returns only one frame */
};

#define SELF_UNWIND_FP 0x01  /* at least one frame was found by a frame pointer */
#define SELF_UNWIND_JIT 0x02 /* at least one frame is in generated code */
/* At least one frame is on a fiber: a stack that is neither the thread's own nor its signal stack.
 * A chain has at most SELF_UNWIND_MAX_FOREIGN such frames. */
#define SELF_UNWIND_FOREIGN 0x04
/* The chain has one frame, because no walk was possible: no setup, SELF_UNWIND_SILENT, no free
 * cache, or too little stack. */
#define SELF_UNWIND_BUSY 0x08

struct self_unwind_chain {
	enum walk_stop stop; /* WALK_ROOT: the chain is complete, except for n_cut frames */
	size_t n;            /* at least one */
	/* number of dropped frames, between frames cut_at - 1 and cut_at; the outermost are kept */
	size_t n_cut;
	size_t cut_at;  /* n if no frame is missing */
	uint32_t flags; /* SELF_UNWIND_* */
};

/* Prepares the process; until then every walk returns BUSY. Do not call it in hooks. Repeated calls
 * do nothing. Maps self_unwind_max_bytes(); only used parts take memory. Returns 0 or -ENOMEM. */
MUST_CHECK int self_unwind_setup(void);
size_t self_unwind_max_bytes(void);

/* Call this after dlclose(), to invalidate cached steps (unwind-cache.h). self_unwind_walk() does
 * not need the call, because it detects another module at the same address. */
void self_unwind_invalidate(void);

/*
 * Walks from `registers`, which are the thread's current ones, or those that a signal interrupted.
 * Fills pcs, innermost first; n_pcs is at least 1. If a chain has more frames than n_pcs or
 * SELF_UNWIND_MAX_FRAMES, its middle is cut.
 */
void self_unwind_walk(struct self_unwind *own, const struct walk_registers *registers,
		      uint64_t *pcs, size_t n_pcs, struct self_unwind_chain *ret_chain);

#define SELF_UNWIND_MAX_WORDS 6u

struct self_unwind_word {
	uint64_t at, value;
};

/* A step of a walk, for callers that cache it. The step stays valid until self_unwind_generation(),
 * `at`, or one of the words changes. */
struct self_unwind_step {
	struct walk_place at; /* the frame */
	struct walk_place next;
	enum walk_stop stop;   /* WALK_N_STOPS: the walk continues */
	struct walk_slot slot; /* rule at the frame's pc */
	uint32_t n_words;
	bool is_own; /* the step read only these words, all on the thread's own stack */
	struct self_unwind_word words[SELF_UNWIND_MAX_WORDS];
};

/* Returns false to stop the walk. */
typedef bool self_unwind_receive(void *data, const struct self_unwind_step *step);

/*
 * Continues a walk from any frame. `start`: sp of the innermost frame. `rules`: the caller's cache,
 * valid for `generation` (not 0); use another number when self_unwind_generation() has changed.
 * Returns why the walk ended. WALK_N_STOPS: `keep` stopped the walk. WALK_NO_TABLE: possibly for
 * the reasons of SELF_UNWIND_BUSY.
 */
enum walk_stop self_unwind_step(struct self_unwind *own, uint64_t start,
				const struct walk_place *from, struct walk_cache *rules,
				uint32_t generation, self_unwind_receive *keep, void *data);

/* Returns how many times self_unwind_invalidate() was called. */
static inline uint32_t self_unwind_generation(void)
{
	extern _Atomic(uint32_t) self_unwind_generation_now;

	return atomic_load_explicit(&self_unwind_generation_now, memory_order_acquire);
}

/* Returns the bits of a return address that hold a pointer authentication signature. */
static inline uint64_t self_unwind_pac_mask(void)
{
	extern uint64_t self_unwind_pac_bits;

	return CPU_SIGNS ? self_unwind_pac_bits : 0;
}

/* Gets the current registers of the calling function. */
static inline __attribute__((always_inline)) void self_unwind_get_registers(
	struct walk_registers *ret_registers)
{
	cpu_get_registers(&ret_registers->pc, &ret_registers->sp, &ret_registers->fp,
			  &ret_registers->lr);
}
