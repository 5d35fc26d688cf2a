/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/alloc/heap-budget.h"

#include <glib.h>
#include <stddef.h>

struct live_block {
	uint64_t address;
	uint64_t size;
	uint64_t since_ns;
	uint64_t label;  /* number << 16 | kind << 8 | log2 of the alignment; 0: no block */
	uint32_t thread; /* for the caller's use */
	uint32_t calls;  /* for the caller's use */
};

static inline uint64_t live_block_label(uint64_t number, uint8_t kind, uint8_t alignment_log2)
{
	return number << 16 | (uint64_t)kind << 8 | alignment_log2;
}

static inline uint64_t live_block_number(const struct live_block *block)
{
	return block->label >> 16;
}

static inline uint8_t live_block_kind(const struct live_block *block)
{
	return (uint8_t)(block->label >> 8);
}

static inline uint8_t live_block_alignment(const struct live_block *block)
{
	return (uint8_t)block->label;
}

struct live_slot {
	uint32_t hash;  /* hash of the block's address */
	uint32_t block; /* number of the block; 0: empty slot */
};

#define LIVE_BLOCKS_PARTS 21u

/* The blocks of a process by address. */
struct live_blocks {
	struct live_slot *slots;
	uint32_t n_slots, n;
	uint32_t max; /* at this number of blocks the table must grow */
	/* The next table is prepared in advance, a page at a time. */
	struct live_slot *next; /* NULL: none yet */
	uint32_t n_next_slots;
	uint32_t soon; /* number of blocks at which preparing begins */
	uint32_t n_touches;
	/* The previous table. Each change moves some of its entries, so that no change takes
	 * long. */
	struct live_slot *old; /* NULL: none */
	uint32_t n_old_slots;
	uint32_t n_moved; /* number of slots at the start of `old` that are empty now */
	struct live_block *parts[LIVE_BLOCKS_PARTS];
	uint32_t n_parts;
	uint32_t n_blocks; /* highest number that was used so far */
	uint32_t *unused;  /* free numbers; the last is reused first */
	uint32_t n_unused;
	uint32_t n_held; /* blocks that are not in the table but still live */
	uint32_t n_mapped;
	GTree *mapped; /* struct live_block by address; they do not overlap */
	uint64_t seed;
	struct heap_budget *budget;
	uint64_t live_bytes;
	uint64_t peak_bytes, peak_ns; /* peak since live_blocks_reset_peak(), and its time */
};

/* `seed` must be random, so that nobody can choose colliding addresses. `budget` is borrowed. */
void live_blocks_init(struct live_blocks *live, uint64_t seed, struct heap_budget *budget);
void live_blocks_done(struct live_blocks *live);

/* Adds a copy of a block. If another block has the address, replaces that block and stores it in
 * *ret_before; else sets ret_before->label to 0. Returns false, and adds nothing, if there is no
 * room. */
bool live_blocks_put(struct live_blocks *live, const struct live_block *block,
		     struct live_block *ret_before);
/* Removes the block at this address. Returns false if no block is there. */
bool live_blocks_remove(struct live_blocks *live, uint64_t address, struct live_block *ret_block);
/* Like live_blocks_remove(), but the block counts as live until live_blocks_drop(). */
bool live_blocks_hold(struct live_blocks *live, uint64_t address, struct live_block *ret_block);
void live_blocks_drop(struct live_blocks *live, const struct live_block *block);

/* Steps that take long with many blocks are done in pieces of this many blocks. A piece takes about
 * half a millisecond. */
#define LIVE_PIECE (1u << 13)

/* If `live` has no table yet, makes one for n blocks. Returns false if memory is short or the
 * budget is used up. */
bool live_blocks_reserve(struct live_blocks *live, uint32_t n);
/* Returns the i-th block, 1 <= i <= n_blocks, in no particular order. Label 0: number i is not in
 * use. Valid until a block changes. */
const struct live_block *live_blocks_at(const struct live_blocks *live, uint32_t i);
/* Returns the block at this address, or NULL. Valid until a block changes. */
const struct live_block *live_blocks_find(const struct live_blocks *live, uint64_t address);
/* Returns whether there are more blocks than fit into caches, so that prefetching helps. */
bool live_blocks_is_far(const struct live_blocks *live);
/* Prefetch for upcoming accesses. Call *_slots() for some addresses, and *_blocks() later, when the
 * slots are in caches. */
void live_blocks_prefetch_slots(const struct live_blocks *live, const uint64_t *addresses,
				size_t n);
void live_blocks_prefetch_blocks(const struct live_blocks *live, const uint64_t *addresses,
				 size_t n);

/* Adds a mapping, which must not overlap another one. Returns false if there is no room. */
bool live_blocks_map(struct live_blocks *live, const struct live_block *block);
/* Removes the first mapping that overlaps [from, to). The mapping counts as live until
 * live_blocks_drop(). Returns false if no mapping overlaps. */
bool live_blocks_unmap(struct live_blocks *live, uint64_t from, uint64_t to,
		       struct live_block *ret_block);
/* Returns the mapping that contains this byte, or NULL. */
const struct live_block *live_blocks_mapped(const struct live_blocks *live, uint64_t address);
/* Returns the address after the last page of a mapping. */
uint64_t live_block_end(const struct live_block *block);

/* Returns the bytes charged to the budget, without mappings. */
uint64_t live_blocks_bytes(const struct live_blocks *live);

static inline uint32_t live_blocks_count(const struct live_blocks *live)
{
	return live->n + live->n_held + live->n_mapped;
}

void live_blocks_reset_peak(struct live_blocks *live, uint64_t time_ns);
