/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-blocks - the blocks of one process that live, by number
 *
 * Numbers rise, and most blocks are freed soon: those that came last stand in an array at number
 * modulo its length, and a block that another one needs the place of moves into a hash table. So a
 * block that is soon freed costs no search, and memory goes with what lives, however many blocks
 * there were.
 */
#pragma once

#include "arch/base.h"

struct memory_block {
	uint64_t number; /* not 0 */
	uint64_t size;
	uint32_t node, thread : 31; /* the caller's */
	/* of mmap() and its kind, which are all recorded where other blocks are sampled */
	bool is_mapping : 1;
};

/* What not every caller wants to know of each. */
struct memory_block_more {
	uint64_t since;
	uint32_t order; /* how many allocations its thread had made with it; wraps */
	uint32_t chain; /* reallocs that made it what it is */
};

struct memory_table {
	struct memory_block *blocks; /* number 0: free */
	struct memory_block_more *more;
	size_t n, used; /* n: a power of two, or 0 */
};

struct memory_blocks {
	struct memory_table recent, old;
	uint64_t highest; /* number that was ever added */
	uint64_t moved;   /* into old, since recent has its length */
	uint64_t seed;
	bool wants_more;
};

void memory_blocks_init(struct memory_blocks *blocks, bool wants_more);
void memory_blocks_done(struct memory_blocks *blocks);

/* Adds a block, or replaces the one of that number: then true, and *ret_old is what it was.
 * `more` is looked at only where it is wanted. */
bool memory_blocks_add(struct memory_blocks *blocks, const struct memory_block *block,
		       const struct memory_block_more *more, struct memory_block *ret_old);
/* Removes it; false: there is none of that number. ret_more is filled in only where it is
 * wanted. */
bool memory_blocks_take(struct memory_blocks *blocks, uint64_t number,
			struct memory_block *ret_block, struct memory_block_more *ret_more);
size_t memory_blocks_count(const struct memory_blocks *blocks);
/* In no order. `more` is NULL where it is not wanted. */
void memory_blocks_each(const struct memory_blocks *blocks,
			void (*each)(const struct memory_block *block,
				     const struct memory_block_more *more, void *data),
			void *data);
