/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Own calls - the calls that a thread is in, from one time that it is asked to the next
 *
 *     n = own_calls_walk(calls, &caller);
 *     for (i = calls->n_same; i < n; i++)
 *             calls->frames[i].node = …;
 *
 * What own-stack.h finds, for hooks that are entered a million times a second with nearly the same stack. The frames of the last
 * time are kept with the words on the stack that they were found by: where a walk comes to a frame that was there, and all words
 * from there on are what they were, so are the frames. Everything is the calling thread's. Neither allocates nor waits.
 */
#pragma once

#include "libcollector/own-stack.h"

#define OWN_CALLS_MAX_FRAMES 4096u
#define OWN_CALLS_MAX_CHECKS (3 * OWN_CALLS_MAX_FRAMES)
#define OWN_CALLS_ROWS 16384u

/* One of them is outermost, or its callers are not known. */
#define OWN_CALLS_EXACT 0x01u /* pc was interrupted, else it is behind a call */
#define OWN_CALLS_CUT 0x02u   /* its caller is not there: the walk did not reach the root */

struct own_calls_frame {
	uint64_t pc, sp, fp;
	uint64_t hash;  /* of all frames from the outermost to this one */
	uint32_t end;   /* of the checks of this and of those behind it */
	uint32_t state; /* see own-calls.c: what else was known there */
	uint32_t flags; /* OWN_CALLS_* */
	uint32_t node;  /* the caller's; stays for as long as the frame does */
};

/* What one place says, where it is as simple as nearly all are. Small, as the program wants the caches for itself. */
struct own_calls_row {
	uint64_t key; /* pc and, in the last 16 bits, the turn; another one: empty */
	int16_t cfa_words, ra_words, fp_words;
	uint16_t kind;
};

/* One a thread. All zero, and only what is used takes memory: a mebibyte of address space. */
struct own_calls {
	struct own_stack own;
	uint32_t turn;      /* of the rows, 16 bits */
	uint32_t forgotten; /* own_stack_forgotten() of them and of the frames */
	uint32_t n;         /* frames, outermost first */
	uint32_t n_same;    /* of those, as many are of the last time, with their nodes */
	bool is_open; /* what is behind them may change without a word of the stack changing */
	bool is_busy;
	struct own_calls_row rows[OWN_CALLS_ROWS];
	struct own_calls_frame frames[OWN_CALLS_MAX_FRAMES];
	struct own_stack_word checks[OWN_CALLS_MAX_CHECKS];
	struct own_calls_pending {
		uint64_t pc, sp, fp;
		uint32_t state, flags;
		uint32_t n_words; /* the last one is fp's, if it has one */
		uint32_t reserved;
	} pending[OWN_CALLS_MAX_FRAMES];
	struct own_stack_word words[OWN_CALLS_MAX_CHECKS];
};

/*
 * `caller`: the registers that the calling function's caller will have when it returns. Its frame is the innermost one. Returns
 * n, which is 0 where modules went all the while. Not to be entered within itself, as by a handler; one that was left by siglongjmp() is nothing.
 */
uint32_t own_calls_walk(struct own_calls *calls, const struct walk_registers *caller);

/* Nothing is known: another thread has it, or its nodes are void. */
void own_calls_clear(struct own_calls *calls);

static inline uint64_t own_calls_hash(uint64_t outer, uint64_t pc, uint32_t flags)
{
	unsigned __int128 product = (unsigned __int128)(outer ^ UINT64_C(0xa0761d6478bd642f)) *
				    ((pc | (uint64_t)flags << 62) ^ UINT64_C(0xe7037ed1a0b428db));

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* The registers of who called the function that this is used in; which gets a frame pointer by that. */
static inline __attribute__((always_inline)) void own_calls_get_caller(
	struct walk_registers *ret_registers)
{
	const uint64_t *frame = __builtin_frame_address(0);

	*ret_registers = (struct walk_registers){
		.pc = (uint64_t)(uintptr_t)__builtin_return_address(0),
		.sp = (uint64_t)(uintptr_t)__builtin_dwarf_cfa(),
	};
#if defined(__x86_64__) || defined(__aarch64__)
	ret_registers->fp = frame[0];
#elif defined(__riscv)
	ret_registers->fp = frame[-2];
#else
	(void)frame;
	__asm__ volatile("" : "=r"(ret_registers->fp));
#endif
}
