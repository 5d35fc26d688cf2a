/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-blocks - the live blocks of one process, by number
 *
 * Block numbers increase, and most blocks are freed soon. The newest blocks are in an array, at
 * index number modulo length. A block moves to a hash table when a newer block needs its slot. So a
 * block that is freed soon needs no search, and memory is proportional to the live blocks, not to
 * all blocks ever allocated.
 */
#pragma once

#include "arch/base.h"

struct memory_block {
	uint64_t number; /* not 0 */
	uint64_t size;
	uint32_t node, thread : 31; /* node of the stack; thread that allocated it */
	/* from mmap() or a similar call: always recorded, even if other blocks are sampled */
	bool is_mapping : 1;
};

/* Further fields, stored only with wants_more. */
struct memory_block_more {
	uint64_t since;
	uint32_t order; /* increases with each allocation of the thread; wraps */
	uint32_t chain; /* number of reallocs that led to this block */
};

struct memory_table {
	struct memory_block *blocks; /* a slot with number 0 is free */
	struct memory_block_more *more;
	size_t n, used; /* n: a power of two, or 0 */
};

struct memory_blocks {
	struct memory_table recent, old;
	uint64_t highest; /* largest number ever added */
	uint64_t moved;   /* blocks moved to `old` since `recent` was last resized */
	uint64_t seed;
	bool wants_more;
};

void memory_blocks_init(struct memory_blocks *blocks, bool wants_more);
void memory_blocks_done(struct memory_blocks *blocks);

/* Adds a block. If it replaces a block with the same number, returns true and stores the replaced
 * block in *ret_old. `more` is used only with wants_more. */
bool memory_blocks_add(struct memory_blocks *blocks, const struct memory_block *block,
		       const struct memory_block_more *more, struct memory_block *ret_old);
/* Removes a block. Returns false if no block has that number. Fills in ret_more only with
 * wants_more. */
bool memory_blocks_take(struct memory_blocks *blocks, uint64_t number,
			struct memory_block *ret_block, struct memory_block_more *ret_more);
size_t memory_blocks_count(const struct memory_blocks *blocks);
/* Calls `each` for all blocks in an undefined order. `more` is NULL without wants_more. */
void memory_blocks_each(const struct memory_blocks *blocks,
			void (*each)(const struct memory_block *block,
				     const struct memory_block_more *more, void *data),
			void *data);
