/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ring arena - the engine's side makes the memory that a process gets its rings from
 */
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
	uint32_t n_later; /* of these, the last ones: ring_arena_grow() makes their memory */
};

/* What the engine keeps of an arena: nothing in its memory is believed later. */
struct ring_arena_memory {
	uint8_t *base;
	uint64_t bytes;
	uint64_t ready_bytes; /* from base: that have memory */
	uint32_t n_rings;     /* that have memory */
	uint32_t n_places;    /* with those that do not yet */
	uint32_t armed;       /* as ring_arena_arm() left it */
	struct ring_place *places;
};

/*
 * Makes, prefaults and seals it. ret_fd is what a producer gets: its size cannot change. Returns 0,
 * -EINVAL for sizes that cannot be, or -errno. Done by ring_arena_memory_done(); the memory is
 * there for as long as anybody maps it.
 */
MUST_CHECK int ring_arena_make(const struct ring_arena_sizes *sizes,
			       struct ring_arena_memory *ret_memory, int *ret_fd);
/* Before a producer can map it: that whoever reads the rings knows what ticks are in its clock
 * (tick-clock.h). */
void ring_arena_offer_ticks(struct ring_arena_memory *memory);
/*
 * Makes a piece of the next ring's memory, if there is one, as all of it can take longer than a
 * producer waits. With the last one n_rings is one more, and it can be claimed after
 * ring_reader_recycle(). What there is no memory for is not asked for again.
 */
#define RING_ARENA_PIECE (UINT64_C(256) << 10)
void ring_arena_grow(struct ring_arena_memory *memory);
void ring_arena_memory_done(struct ring_arena_memory *memory);
