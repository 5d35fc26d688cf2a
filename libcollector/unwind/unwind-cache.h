/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Unwind cache - the calling thread's stack, cached from one walk to the next
 *
 *     n = unwind_cache_walk(calls, &caller);
 *     for (i = calls->n_same; i < n; i++)
 *             calls->frames[i].node = …;
 *
 * Gives the same result as self-unwind.h, for hooks that are entered a million times per second
 * with nearly the same stack. Keeps the frames of the last walk together with the words on the
 * stack by which they were found (guards). If a walk matches one of these frames, and all guards
 * from that frame outwards are unchanged, the frames are unchanged, too. All state belongs to the
 * calling thread. Nothing allocates or waits.
 */
#pragma once

#include "base/hash.h"
#include "libcollector/unwind/self-unwind.h"

#define UNWIND_CACHE_MAX_FRAMES 4096u
#define UNWIND_CACHE_MAX_GUARDS (3 * UNWIND_CACHE_MAX_FRAMES)
#define UNWIND_CACHE_VARIANTS 256u
#define UNWIND_CACHE_VARIANT_WORDS 16u

/* Flags of a frame. */
#define UNWIND_CACHE_EXACT 0x01u /* interrupted at pc; otherwise pc is a return address */
#define UNWIND_CACHE_CUT 0x02u   /* its caller is missing: the walk did not reach the root */

struct unwind_cache_frame {
	uint64_t pc, sp, fp;
	uint64_t hash;  /* hash of all frames from the outermost to this one */
	uint32_t end;   /* number of guards of all frames up to this one */
	uint32_t state; /* see unwind-cache.c */
	uint32_t flags; /* UNWIND_CACHE_* */
	uint32_t node;  /* the user's value; kept as long as the frame */
};

/* An earlier stack: its innermost frames, with the words that must be unchanged, and the frame that
 * called them (outer_*). An fp is compared only if its mask is not 0. */
struct unwind_cache_variant {
	uint64_t pc, sp, fp; /* registers of the innermost frame */
	uint64_t fp_mask;
	uint64_t outer_hash, outer_sp, outer_fp, outer_fp_mask;
	uint32_t outer_state;
	uint32_t n_outer; /* number of frames outside the innermost ones */
	uint32_t n_words;
	uint32_t node;       /* node of the innermost frame */
	uint64_t generation; /* valid if equal to unwind_cache.variant_generation */
	struct self_unwind_word words[UNWIND_CACHE_VARIANT_WORDS];
};

/* One for each thread. A zeroed structure is valid. Takes 1 MiB of address space; only used parts
 * take memory. */
struct unwind_cache {
	struct self_unwind own;
	uint32_t rule_generation; /* generation of the rules */
	uint32_t own_generation;  /* value of self_unwind_generation() for the rules and frames */
	uint32_t n;               /* number of frames; frames[0] is the outermost */
	/* number of frames that the last walk found unchanged; they keep their nodes */
	uint32_t n_same;
	bool is_open; /* the frames may change without a change of a guard */
	bool is_busy;
	uint64_t variant_generation; /* generation of the variants */
	struct unwind_cache_variant variants[UNWIND_CACHE_VARIANTS];
	struct walk_cache rules;
	struct unwind_cache_frame frames[UNWIND_CACHE_MAX_FRAMES];
	struct self_unwind_word guards[UNWIND_CACHE_MAX_GUARDS];
	struct unwind_cache_pending {
		uint64_t pc, sp, fp;
		uint32_t state, flags;
		uint32_t n_words; /* if fp was loaded, the last word is the one that held fp */
		uint32_t reserved;
	} pending[UNWIND_CACHE_MAX_FRAMES];
	struct self_unwind_word words[UNWIND_CACHE_MAX_GUARDS];
};

/*
 * `caller`: the registers that the calling function's caller will have after the return. That
 * caller's frame is the innermost one. Returns n; 0 if modules kept being unloaded. Not reentrant:
 * a handler that interrupts a call must not make another one. A call that siglongjmp() leaves does
 * not affect later calls.
 */
uint32_t unwind_cache_walk(struct unwind_cache *calls, const struct walk_registers *caller);

/* Keeps the result of the last walk as a variant, because a hook is mostly entered from few places.
 * Call it after a walk. node: the node of the walk's innermost frame. */
void unwind_cache_remember(struct unwind_cache *calls, uint32_t node);
/* Returns whether the last walk found a frame that was interrupted by a handler. */
bool unwind_cache_is_interrupted(const struct unwind_cache *calls);
void unwind_cache_invalidate_nodes(struct unwind_cache *calls);

/* Resets everything. Call this if another thread uses the state, or the nodes are invalid. */
void unwind_cache_clear(struct unwind_cache *calls);

static inline uint32_t unwind_cache_variant_at(uint64_t pc, uint64_t sp)
{
	return (uint32_t)((pc + sp) * HASH_ODD / (UINT64_MAX / (UNWIND_CACHE_VARIANTS / 2) + 1)) *
	       2;
}

__attribute__((no_sanitize("address"))) static inline uint64_t unwind_cache_load(uint64_t at)
{
	return *(const volatile uint64_t *)(uintptr_t)at;
}

static inline uint64_t unwind_cache_differs(const struct self_unwind_word *guard)
{
	return unwind_cache_load(guard->at) ^ guard->value;
}

/* Finds the last of the first n guards whose word has changed. Returns its number, counted from 1;
 * 0 if no word has changed. */
static inline uint32_t unwind_cache_find_changed(const struct self_unwind_word *guards, uint32_t n)
{
	for (; n >= 4; n -= 4) {
		const struct self_unwind_word *last = guards + n - 4;

		if ((unwind_cache_differs(&last[0]) | unwind_cache_differs(&last[1]) |
		     unwind_cache_differs(&last[2]) | unwind_cache_differs(&last[3])) != 0)
			break;
	}
	while (n > 0 && unwind_cache_differs(&guards[n - 1]) == 0)
		n--;
	return n;
}

/*
 * Returns the node that was remembered for this stack; 0 if no variant matches, and a walk is
 * needed. Calls no function, so that a hook built from it saves no registers. Has few instructions,
 * because they delay the program's own memory accesses.
 */
static inline __attribute__((always_inline)) uint32_t unwind_cache_recall(
	const struct unwind_cache *calls, uint64_t pc, uint64_t sp, uint64_t fp)
{
	const struct unwind_cache_variant *variant =
		&calls->variants[unwind_cache_variant_at(pc, sp)];
	const struct unwind_cache_frame *outer;

	if (((variant->pc ^ pc) | (variant->sp ^ sp)) != 0)
		variant++;
	if (((variant->pc ^ pc) | (variant->sp ^ sp) |
	     (variant->generation ^ calls->variant_generation) |
	     ((variant->fp ^ fp) & variant->fp_mask)) != 0 ||
	    variant->n_outer > calls->n || calls->is_open || calls->is_busy ||
	    calls->own_generation != self_unwind_generation())
		return 0;
	outer = &calls->frames[variant->n_outer - 1];
	if (((outer->hash ^ variant->outer_hash) | (outer->sp ^ variant->outer_sp) |
	     (outer->state ^ variant->outer_state) |
	     ((outer->fp ^ variant->outer_fp) & variant->outer_fp_mask)) != 0 ||
	    unwind_cache_find_changed(variant->words, variant->n_words) != 0 ||
	    unwind_cache_find_changed(calls->guards, outer->end) != 0)
		return 0;
	return variant->node;
}

static inline uint64_t unwind_cache_hash(uint64_t outer, uint64_t pc, uint32_t flags)
{
	return hash_words(outer, pc | (uint64_t)flags << 62);
}

/* Gets the registers of the calling function's caller. Forces the calling function to have a frame
 * pointer. */
static inline __attribute__((always_inline)) void unwind_cache_get_caller(
	struct walk_registers *ret_registers)
{
	*ret_registers = (struct walk_registers){
		.pc = (uint64_t)(uintptr_t)__builtin_return_address(0),
		.sp = (uint64_t)(uintptr_t)__builtin_dwarf_cfa(),
		.fp = cpu_caller_fp(__builtin_frame_address(0)),
	};
}
