/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Ring arena - the engine's side: makes the memory for a process's rings */
#pragma once

#include "libcollector/ring/ring-layout.h"

#define RING_ARENA_MAX_SIZES 4
#define RING_ARENA_MAX_BYTES (UINT64_C(1) << 32)

/* A group of n rings, each of data_bytes, a power of two. */
struct ring_arena_size {
	uint64_t data_bytes;
	uint32_t n;
	enum ring_policy policy;
};

/* Ascending by data_bytes. An entry with n of 0 ends the list. */
struct ring_arena_sizes {
	struct ring_arena_size sizes[RING_ARENA_MAX_SIZES];
	uint32_t n_types; /* the consumer supports record types less than this; 0: all */
	uint32_t n_later; /* number of sizes, from the end, that ring_arena_grow() populates */
};

/* The engine's private copy of an arena's layout, because the shared memory can change at any
 * time. */
struct ring_arena_memory {
	uint8_t *base;
	uint64_t bytes;
	uint64_t ready_bytes; /* populated bytes from base on */
	uint32_t n_rings;     /* number of populated rings */
	uint32_t n_places;    /* number of rings, including those not populated yet */
	uint32_t armed;       /* value that ring_arena_arm() last stored */
	struct ring_place *places;
};

/*
 * Makes, populates and seals an arena. *ret_fd is for the producer, which cannot change the arena's
 * size. Returns 0, -EINVAL if the sizes are invalid, or -errno. Free with ring_arena_memory_done();
 * the memory exists until the last mapping of it is gone.
 */
MUST_CHECK int ring_arena_make(const struct ring_arena_sizes *sizes,
			       struct ring_arena_memory *ret_memory, int *ret_fd);
/* Sets the flag by which the consumer promises to map ticks to its clock (tick-clock.h). Call this
 * before a producer can map the arena. */
void ring_arena_offer_ticks(struct ring_arena_memory *memory);
/*
 * Populates a piece of the next ring, if there is one. Works in pieces, because a whole ring can
 * take longer than a producer waits. The last piece increments n_rings; the ring can be claimed
 * after ring_reader_recycle(). If there is no memory for a piece, later calls do nothing.
 */
#define RING_ARENA_PIECE (UINT64_C(256) << 10)
void ring_arena_grow(struct ring_arena_memory *memory);
void ring_arena_memory_done(struct ring_arena_memory *memory);
