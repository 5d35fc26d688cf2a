/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Heap sampled - which allocations are recorded where not all are, and which blocks that are given
 * up were
 *
 *     if (!heap_sampled_pass_over(turn, size) && heap_sampled_throw(turn, size) &&
 *         heap_sampled_add(address)) …
 *     if (!heap_sampled_lacks(address) && heap_sampled_remove(address)) …
 *
 * By chance, with the same likelihood for each byte that is asked for; or by size; or of those of a
 * size by chance. Any thread, any handler.
 */
#pragma once

#include "arch/base.h"

#define HEAP_FILTER_BITS 14

/* Of each thread. */
struct heap_chance {
	uint64_t left; /* bytes until the next one is chosen, by one more */
	uint32_t turn; /* in which that was thrown: a number that the caller has for each setting */
	uint64_t random; /* 0: none has been thrown yet */
};

extern __thread struct heap_chance heap_chance
	__attribute__((tls_model("initial-exec"), visibility("hidden")));
extern uint64_t heap_least __attribute__((visibility("hidden")));
/* How many blocks of the set have a hash, which stays at UINT8_MAX. */
extern uint8_t heap_filter[1 << HEAP_FILTER_BITS] __attribute__((visibility("hidden")));

/* Bytes from one to the next on average; 0 or 1: all are chosen. */
void heap_sampled_set_mean(uint64_t bytes);
/* What is smaller is never chosen. */
void heap_sampled_set_least(uint64_t bytes);
/* False: there is no memory for the set. */
bool heap_sampled_setup(void);

/* Nothing is in the set. */
void heap_sampled_clear(void);
/* From now on heap_sampled_lacks() is false of it, though it is not in the set: its end is a
 * matter of whoever gave it out. */
void heap_sampled_except(const void *address);

/* Whether an allocation is chosen by which the thread's bytes are used up, or which is its first
 * of this turn. */
bool heap_sampled_throw(uint32_t turn, uint64_t size);
/* Whether it was there, which ends that. By who gives the block up, so before somebody else gets
 * it. */
bool heap_sampled_remove(const void *address);

/* Before the block is seen by anybody else. False: there is no room, and the block is not to be
 * recorded. */
bool heap_sampled_add(const void *address);

static inline __attribute__((always_inline)) uint64_t heap_sampled_hash(const void *address)
{
	return ((uintptr_t)address >> 4) * UINT64_C(0x9e3779b97f4a7c15);
}

/*
 * True: it is not chosen, and its bytes are counted. Else heap_sampled_throw() says, and counts. A
 * handler's bytes that come between are not counted, or not this one's.
 */
static inline __attribute__((always_inline)) bool heap_sampled_pass_over(uint32_t turn,
									 uint64_t size)
{
	uint64_t left = heap_chance.left;

	if (__builtin_expect(heap_chance.turn != turn, 0))
		return false;
	if (size < heap_least)
		return true;
	if (__builtin_expect(size > left, 0))
		return false;
	heap_chance.left = left - size;
	return true;
}

/* True: it is not in the set, nor of the pool. Else heap_sampled_remove() says. */
static inline __attribute__((always_inline)) bool heap_sampled_lacks(const void *address)
{
	uint64_t hash = heap_sampled_hash(address);

	return __builtin_expect(__atomic_load_n(&heap_filter[hash >> (64 - HEAP_FILTER_BITS)],
						__ATOMIC_RELAXED) == 0,
				1);
}
