/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ring own - what a producer keeps for itself, where no consumer can change it; for this folder
 */
#pragma once

#include "libcollector/ring.h"

#define RING_MAX_OPEN 4 /* a record, and signals in signals */

#define RING_LOAD(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define RING_STORE(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)

/* gcc refuses fences where it looks for races, as it does not know what they order. */
#ifdef __SANITIZE_THREAD__
#define RING_FENCE(order) __atomic_signal_fence(order)
#else
#define RING_FENCE(order) __atomic_thread_fence(order)
#endif

struct open_record {
	volatile uint64_t sp; /* of who began it; 0: not open */
	volatile uint64_t at;
	volatile uint32_t bytes; /* 0: nothing is reserved yet */
};

struct ring {
	const volatile uint32_t *alive; /* 0 there: released, moved, or in a forked child */
	struct ring_header *shared;
	uint8_t *data;
	uint64_t size;
	size_t most_bytes;      /* of a payload */
	volatile uint64_t head; /* published */
	volatile uint64_t end;  /* reserved */
	uint64_t tail;          /* as last seen */
	uint64_t next_check;    /* of how full it is, when head is there */
	volatile uint64_t nested_ns;
	volatile bool nestable;
	struct open_record open[RING_MAX_OPEN];

	struct ring_arena *arena;
	struct ring *bigger; /* that the thread has moved to */
	uint64_t full_tail;  /* where there was no room for full_bytes, and 1; 0: there was */
	uint32_t full_bytes; /* of a payload, in a ring that is to drop */
	uint64_t stuck_tail; /* no wait for this one to move, and 1 */
	uint64_t owner;      /* generation << 32 | tid; 0: none, or somebody closes it */
	uint32_t flags;
	uint32_t kicked; /* the armed word that the doorbell was last rung for */
};

struct ring_arena {
	struct ring_arena_header *shared;
	volatile uint32_t *alive; /* a page that a forked child has as zeros */
	size_t bytes, own_bytes;
	uint64_t wait_since_ns, waited_ns;
	uint32_t n_rings;
	struct ring rings[];
};

/* As ring_release(), of this owner's only: nothing where somebody else has closed it meanwhile, and whoever claimed it then. */
void ring_release_of(struct ring *ring, uint64_t owner);

/* False: released, or in a forked child. One that a thread has moved on from is not. */
static inline bool ring_is_alive(const struct ring *ring)
{
	while (ring->bigger)
		ring = ring->bigger;
	return *ring->alive != 0;
}

/*
 * Before anything is done for a record: whether there is no room for it, as there was none for one that was not larger, and
 * the consumer has taken nothing since. It is counted then. Not where a record is open: ring_begin() sees to that.
 */
static inline __attribute__((always_inline)) bool ring_is_full(struct ring *ring,
							       size_t payload_bytes)
{
	struct ring_header *shared;

	if (__builtin_expect(ring->full_tail == 0, 1) || !*ring->alive ||
	    payload_bytes < ring->full_bytes || ring->open[0].sp != 0)
		return false;
	shared = ring->shared;
	if (RING_LOAD(&shared->tail) + 1 != ring->full_tail)
		return false;
	/* So that a handler does not count in the middle of this. */
	ring->open[0].sp = (uint64_t)(uintptr_t)__builtin_frame_address(0);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	RING_STORE(&shared->attempted, RING_LOAD(&shared->attempted) + 1);
	__atomic_store_n(&shared->lost[RING_LOST_FULL],
			 RING_LOAD(&shared->lost[RING_LOST_FULL]) + 1, __ATOMIC_RELEASE);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	ring->open[0].sp = 0;
	return true;
}
