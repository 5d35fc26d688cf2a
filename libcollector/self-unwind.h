/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Self-unwind - the calls that a thread is in, found by the thread itself
 *
 *     static _Thread_local struct self_unwind own;
 *     struct walk_registers here;
 *     struct self_unwind_chain chain;
 *
 *     self_unwind_get_registers(&here);
 *     self_unwind_walk(&own, &here, pcs, ARRAY_SIZE(pcs), &chain);
 *
 * For hooks: self_unwind_walk() may run inside of an allocator, in a signal handler, on a signal
 * stack, on a fiber, and in a child that shares its parent's memory. It allocates nothing, takes no
 * lock, never waits, preserves errno, and cannot fault, whatever a stack contains. It makes only
 * the system calls that self_unwind.quiet allows. It needs 3 KiB of stack; if less than 4 KiB of
 * the thread's own stack or its signal stack are left, the chain has one frame.
 */
#pragma once

#include "arch/walk.h"

#include <stdatomic.h>

#define SELF_UNWIND_MAX_FRAMES 1024u
#define SELF_UNWIND_MAX_FOREIGN 16u

/* The state of a thread, one each; all zeros is the initial state. */
struct self_unwind {
	uint64_t low,
		high; /* its stack, as far as it was found to be readable; 0: not searched yet */
	volatile uint64_t walking; /* the frame of the innermost walk; 0: none */
	uint32_t cache;            /* the cache to try first, plus 1 */
	uint32_t quiet;            /* enum self_unwind_quiet, set by the owner */
};

/* The system calls that a walk may make, because a filter could kill for others. */
enum self_unwind_quiet {
	SELF_UNWIND_ANY,
	SELF_UNWIND_PROBES, /* only rt_sigprocmask(); signal stacks then count as fibers */
	SELF_UNWIND_SILENT, /* none: a walk returns one frame */
};

#define SELF_UNWIND_FP 0x01  /* some frame was found by a frame pointer */
#define SELF_UNWIND_JIT 0x02 /* some frame is in generated code */
/*
 * Some frame is on a fiber: on a stack that is neither the thread's nor its signal stack. The chain
 * has at most SELF_UNWIND_MAX_FOREIGN of these.
 */
#define SELF_UNWIND_FOREIGN 0x04
#define SELF_UNWIND_BUSY 0x08 /* no cache was free, or no stack was left: there is one frame */

struct self_unwind_chain {
	enum walk_stop stop; /* WALK_ROOT: complete, except for n_cut */
	size_t n;            /* at least one */
	/* dropped frames, between cut_at - 1 and cut_at; the outermost are kept */
	size_t n_cut;
	size_t cut_at;  /* n if no frame is missing */
	uint32_t flags; /* SELF_UNWIND_* */
};

/*
 * Prepares the process; until then every stack is BUSY. To be called outside of hooks; repeated
 * calls do nothing. Returns 0 or -ENOMEM. Makes one mapping of self_unwind_max_bytes(), of which
 * only used parts take memory.
 */
MUST_CHECK int self_unwind_setup(void);
size_t self_unwind_max_bytes(void);

/* To be called after dlclose(). Even without it, a stack through another module at the same place
 * is correct. */
void self_unwind_invalidate(void);

/*
 * `registers` are the thread's own: the current ones, or those that a signal interrupted. Fills
 * pcs, innermost first; n_pcs is at least 1. If a chain has more frames than n_pcs, or than
 * SELF_UNWIND_MAX_FRAMES, the middle is cut.
 */
void self_unwind_walk(struct self_unwind *own, const struct walk_registers *registers,
		      uint64_t *pcs, size_t n_pcs, struct self_unwind_chain *ret_chain);

#define SELF_UNWIND_MAX_WORDS 6u

struct self_unwind_word {
	uint64_t at, value;
};

/*
 * A step of a walk, for callers that cache it. The step stays valid as long as
 * self_unwind_generation(), `at`, and these words do not change.
 */
struct self_unwind_step {
	struct walk_place at; /* the frame */
	struct walk_place next;
	enum walk_stop stop;   /* WALK_N_STOPS: it continues */
	struct walk_slot slot; /* the rule at the frame's pc */
	uint32_t n_words;
	bool is_own; /* the words are all that was read, and on the thread's own stack */
	struct self_unwind_word words[SELF_UNWIND_MAX_WORDS];
};

/* Returns false to stop. */
typedef bool self_unwind_receive(void *data, const struct self_unwind_step *step);

/*
 * Walks on from any place of a walk. `start` is sp in the innermost frame, which may have been
 * walked before. Returns why the walk ended; WALK_N_STOPS: `keep` stopped it. SELF_UNWIND_BUSY is
 * WALK_NO_TABLE here.
 */
enum walk_stop self_unwind_step(struct self_unwind *own, uint64_t start,
				const struct walk_place *from, self_unwind_receive *keep,
				void *data);

/* Returns how often modules were unloaded. */
static inline uint32_t self_unwind_generation(void)
{
	extern _Atomic(uint32_t) self_unwind_generation_now;

	return atomic_load_explicit(&self_unwind_generation_now, memory_order_acquire);
}

/* Returns the bits of a return address that are a signature. */
static inline uint64_t self_unwind_pac_mask(void)
{
#if defined(__aarch64__)
	extern uint64_t self_unwind_pac_bits;

	return self_unwind_pac_bits;
#else
	return 0;
#endif
}

/* Gets the current registers of the function that uses this. */
static inline __attribute__((always_inline)) void self_unwind_get_registers(
	struct walk_registers *ret_registers)
{
	struct walk_registers at = { 0 };

#if defined(__x86_64__)
	__asm__ volatile("lea 0(%%rip), %0\n\tmov %%rsp, %1\n\tmov %%rbp, %2"
			 : "=&r"(at.pc), "=&r"(at.sp), "=&r"(at.fp));
#elif defined(__aarch64__)
	__asm__ volatile("adr %0, .\n\tmov %1, sp\n\tmov %2, x29\n\tmov %3, x30"
			 : "=&r"(at.pc), "=&r"(at.sp), "=&r"(at.fp), "=&r"(at.lr));
#elif defined(__riscv)
	__asm__ volatile("auipc %0, 0\n\tmv %1, sp\n\tmv %2, s0\n\tmv %3, ra"
			 : "=&r"(at.pc), "=&r"(at.sp), "=&r"(at.fp), "=&r"(at.lr));
#elif defined(__powerpc64__)
	__asm__ volatile(
		"mflr %3\n\tbcl 20, 31, 1f\n1:\tmflr %0\n\tmtlr %3\n\tmr %1, 1\n\tmr %2, 31"
		: "=&b"(at.pc), "=&b"(at.sp), "=&b"(at.fp), "=&b"(at.lr));
#endif
	*ret_registers = at;
}
