/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Heap sampled - chooses the allocations to record, and finds their blocks when they are freed
 *
 *     if (!heap_sampled_pass_over(generation, size) && heap_sampled_throw(generation, size) &&
 *         heap_sampled_add(address)) …
 *     if (!heap_sampled_lacks(address) && heap_sampled_remove(address)) …
 *
 * Chooses at random, with the same probability for each requested byte; or by size; or at random
 * among allocations of a minimum size. Any thread and any signal handler may call these functions.
 */
#pragma once

#include "arch/base.h"
#include "base/hash.h"

#define HEAP_FILTER_BITS 14

/* One for each thread. */
struct heap_chance {
	/* bytes until the next choice; a larger allocation is chosen */
	uint64_t left;
	uint32_t generation; /* generation of the settings for which `left` was drawn */
	uint64_t random;     /* state of the generator; 0: not seeded */
};

extern __thread struct heap_chance heap_chance
	__attribute__((tls_model("initial-exec"), visibility("hidden")));
extern uint64_t heap_least __attribute__((visibility("hidden")));
/* Number of blocks in the set by hash; a count that reaches UINT8_MAX stays there. */
extern uint8_t heap_filter[1 << HEAP_FILTER_BITS] __attribute__((visibility("hidden")));

/* Sets the mean number of bytes between chosen allocations; 0 or 1 chooses all. */
void heap_sampled_set_mean(uint64_t bytes);
/* Sets the minimum size of chosen allocations. */
void heap_sampled_set_least(uint64_t bytes);
/* Returns false if there is no memory for the set. */
bool heap_sampled_setup(void);

void heap_sampled_clear(void);
/* Makes heap_sampled_lacks() return false for this address, although it is not in the set. The pool
 * uses this, so that the release of its blocks is not passed to an allocator. */
void heap_sampled_except(const void *address);

/* Decides whether to choose an allocation that is larger than the thread's `left`, or is the
 * thread's first of this generation. */
bool heap_sampled_throw(uint32_t generation, uint64_t size);
/* Removes a block. Returns whether it was in the set. Call this in the thread that frees the block,
 * before another thread can get the block. */
bool heap_sampled_remove(const void *address);

/* Call this before another thread sees the block. Returns false if there is no room: do not record
 * the block then. */
bool heap_sampled_add(const void *address);

static inline __attribute__((always_inline)) uint64_t heap_sampled_hash(const void *address)
{
	return ((uintptr_t)address >> 4) * HASH_ODD;
}

/* Returns true if the allocation is not chosen, and counts its bytes unless it is smaller than
 * heap_least. Otherwise call heap_sampled_throw(). If a signal handler that allocates interrupts
 * this function, one of the two allocations is not counted. */
static inline __attribute__((always_inline)) bool heap_sampled_pass_over(uint32_t generation,
									 uint64_t size)
{
	uint64_t left = heap_chance.left;

	if (__builtin_expect(heap_chance.generation != generation, 0))
		return false;
	if (size < heap_least)
		return true;
	if (__builtin_expect(size > left, 0))
		return false;
	heap_chance.left = left - size;
	return true;
}

/* Returns true if the address is certainly not in the set and not from the pool. Otherwise call
 * heap_sampled_remove(). */
static inline __attribute__((always_inline)) bool heap_sampled_lacks(const void *address)
{
	uint64_t hash = heap_sampled_hash(address);

	return __builtin_expect(__atomic_load_n(&heap_filter[hash >> (64 - HEAP_FILTER_BITS)],
						__ATOMIC_RELAXED) == 0,
				1);
}
