/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Ring arena - the engine's side: makes the memory for a process's rings */
#pragma once

#include "libcollector/ring-layout.h"

#define RING_ARENA_MAX_SIZES 4
#define RING_ARENA_MAX_BYTES (UINT64_C(1) << 32)

/* n rings of data_bytes each, a power of two. */
struct ring_arena_size {
	uint64_t data_bytes;
	uint32_t n;
	enum ring_policy policy;
};

/* Ascending by data_bytes; n of 0 ends it. */
struct ring_arena_sizes {
	struct ring_arena_size sizes[RING_ARENA_MAX_SIZES];
	uint32_t n_later; /* the last sizes, which ring_arena_grow() populates */
};

/* The engine's private state of an arena: it does not trust the shared memory later. */
struct ring_arena_memory {
	uint8_t *base;
	uint64_t bytes;
	uint64_t ready_bytes; /* from base: populated */
	uint32_t n_rings;     /* populated */
	uint32_t n_places;    /* including those that are not populated yet */
	uint32_t armed;       /* as ring_arena_arm() left it */
	struct ring_place *places;
};

/*
 * Makes, populates and seals an arena. ret_fd is for the producer, which cannot change its size.
 * Returns 0, -EINVAL if the sizes are not valid, or -errno. Free with ring_arena_memory_done(); the
 * memory exists as long as anybody maps it.
 */
MUST_CHECK int ring_arena_make(const struct ring_arena_sizes *sizes,
			       struct ring_arena_memory *ret_memory, int *ret_fd);
/* Tells the producer that the reader of the rings maps ticks to its clock (tick-clock.h). To be
 * called before a producer can map the arena. */
void ring_arena_offer_ticks(struct ring_arena_memory *memory);
/*
 * Populates a piece of the next ring, if there is one, because all of it can take longer than a
 * producer waits. The last piece increments n_rings; the ring can be claimed after
 * ring_reader_recycle(). If there is no memory for a piece, the next calls do nothing.
 */
#define RING_ARENA_PIECE (UINT64_C(256) << 10)
void ring_arena_grow(struct ring_arena_memory *memory);
void ring_arena_memory_done(struct ring_arena_memory *memory);
