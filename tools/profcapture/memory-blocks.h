/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-blocks - the live blocks of one process, by number
 *
 * Numbers rise, and most blocks are freed soon. The newest blocks are in an array, at number modulo
 * its length. A block moves to a hash table when a newer one needs its slot. So a block that is
 * freed soon costs no search, and memory is proportional to the live blocks, not to all blocks ever
 * allocated.
 */
#pragma once

#include "arch/base.h"

struct memory_block {
	uint64_t number; /* not 0 */
	uint64_t size;
	uint32_t node, thread : 31; /* of the caller */
	/* of mmap() and similar calls, which are all recorded even if other blocks are sampled */
	bool is_mapping : 1;
};

/* The details of a block that only some callers need. */
struct memory_block_more {
	uint64_t since;
	uint32_t order; /* allocations that its thread had made, including this one; wraps */
	uint32_t chain; /* number of reallocs that led to this block */
};

struct memory_table {
	struct memory_block *blocks; /* number 0: free */
	struct memory_block_more *more;
	size_t n, used; /* n: a power of two, or 0 */
};

struct memory_blocks {
	struct memory_table recent, old;
	uint64_t highest; /* highest number ever added */
	uint64_t moved;   /* into old since recent got its length */
	uint64_t seed;
	bool wants_more;
};

void memory_blocks_init(struct memory_blocks *blocks, bool wants_more);
void memory_blocks_done(struct memory_blocks *blocks);

/* Adds a block. If it replaces one of the same number, returns true and stores the old one in
 * *ret_old. `more` is used only with wants_more. */
bool memory_blocks_add(struct memory_blocks *blocks, const struct memory_block *block,
		       const struct memory_block_more *more, struct memory_block *ret_old);
/* Removes a block. Returns false if no block has that number. Fills in ret_more only with
 * wants_more. */
bool memory_blocks_take(struct memory_blocks *blocks, uint64_t number,
			struct memory_block *ret_block, struct memory_block_more *ret_more);
size_t memory_blocks_count(const struct memory_blocks *blocks);
/* The order is undefined. `more` is NULL without wants_more. */
void memory_blocks_each(const struct memory_blocks *blocks,
			void (*each)(const struct memory_block *block,
				     const struct memory_block_more *more, void *data),
			void *data);
