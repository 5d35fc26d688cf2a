/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/heap-budget.h"

#include <glib.h>
#include <stddef.h>

#define HEAP_MAX_NUMBER (UINT64_C(1) << 48)

/* A live block. */
struct heap_block {
	uint64_t address;
	uint64_t size;
	uint64_t since_ns;
	uint64_t label;  /* number << 16 | kind << 8 | alignment, log2; 0: no block */
	uint32_t thread; /* the caller's */
	uint32_t calls;  /* the caller's */
};

static inline uint64_t heap_label(uint64_t number, uint8_t kind, uint8_t alignment_log2)
{
	return number << 16 | (uint64_t)kind << 8 | alignment_log2;
}

static inline uint64_t heap_block_number(const struct heap_block *block)
{
	return block->label >> 16;
}

static inline uint8_t heap_block_kind(const struct heap_block *block)
{
	return (uint8_t)(block->label >> 8);
}

static inline uint8_t heap_block_alignment(const struct heap_block *block)
{
	return (uint8_t)block->label;
}

struct heap_slot {
	uint32_t hash;  /* of its address */
	uint32_t block; /* its number; 0: none */
};

#define HEAP_PARTS 21u

/* The blocks of a process by address. */
struct heap {
	struct heap_slot *slots;
	uint32_t n_slots, n;
	uint32_t max; /* more blocks need more slots */
	/* The next table is prepared in advance, a page at a time. */
	struct heap_slot *next; /* NULL: none yet */
	uint32_t n_next_slots;
	uint32_t soon; /* from that number of blocks on */
	uint32_t n_touches;
	/* The previous table. Its entries move, some with each change, so that no change takes
	 * long. */
	struct heap_slot *old; /* NULL: none */
	uint32_t n_old_slots;
	uint32_t n_moved; /* these are empty */
	struct heap_block *parts[HEAP_PARTS];
	uint32_t n_parts;
	uint32_t n_blocks; /* numbers that were given */
	uint32_t *unused;  /* free numbers; the last is used first */
	uint32_t n_unused;
	uint32_t n_held; /* not in the table any more, but still live */
	uint32_t n_mapped;
	GTree *mapped; /* struct heap_block by address; they do not overlap */
	uint64_t seed;
	struct heap_budget *budget;
	uint64_t live_bytes;
	uint64_t peak_bytes, peak_ns; /* since heap_reset_peak() */
};

/* `seed`: random, so that nobody can choose colliding addresses. The budget is borrowed. */
void heap_init(struct heap *heap, uint64_t seed, struct heap_budget *budget);
void heap_done(struct heap *heap);

/*
 * Adds a copy of a block. A block with the same address is replaced and stored in *ret_before
 * (label 0: there was none). Returns false, and changes nothing, if there is no room.
 */
bool heap_put(struct heap *heap, const struct heap_block *block, struct heap_block *ret_before);
/* Removes the block at this address. Returns false without one. */
bool heap_take(struct heap *heap, uint64_t address, struct heap_block *ret_block);
/* The same, but the block lives until heap_drop(). */
bool heap_hold(struct heap *heap, uint64_t address, struct heap_block *ret_block);
void heap_drop(struct heap *heap, const struct heap_block *block);

/* Called now and then during steps that take long with many blocks; run may be NULL. It must not
 * change a heap. */
struct heap_yield {
	void (*run)(void *data);
	void *data;
};
#define HEAP_YIELD_BLOCKS (1u << 13) /* between two calls: half a millisecond */

static inline void heap_yield(const struct heap_yield *yield, uint32_t n_done)
{
	if (n_done % HEAP_YIELD_BLOCKS == 0 && yield->run)
		yield->run(yield->data);
}

/* Copies another heap's blocks with numbers up to to_number, without mappings and held blocks.
 * Returns false if there was no room for all. */
bool heap_copy(struct heap *to, const struct heap *from, uint64_t to_number,
	       const struct heap_yield *yield);
/* Returns NULL without one. Valid until the heap changes. */
const struct heap_block *heap_find(const struct heap *heap, uint64_t address);
/* Returns whether there are more blocks than fit into caches, so that prefetching pays. */
bool heap_is_far(const struct heap *heap);
/* Prefetch for accesses that come soon: first the slots of the addresses, later their blocks. */
void heap_prefetch_slots(const struct heap *heap, const uint64_t *addresses, size_t n);
void heap_prefetch_blocks(const struct heap *heap, const uint64_t *addresses, size_t n);

/* Adds a mapping, which must not overlap another one. Returns false if there is no room. */
bool heap_map(struct heap *heap, const struct heap_block *block);
/* Removes the first mapping in that range; it lives until heap_drop(). Returns false if there is
 * none. */
bool heap_unmap(struct heap *heap, uint64_t from, uint64_t to, struct heap_block *ret_block);
/* Returns the mapping that has this byte, or NULL. */
const struct heap_block *heap_mapped(const struct heap *heap, uint64_t address);
/* Returns the address after its last page. */
uint64_t heap_mapping_end(const struct heap_block *block);

/* Returns the bytes charged to the budget, without mappings. */
uint64_t heap_bytes(const struct heap *heap);

static inline uint32_t heap_count(const struct heap *heap)
{
	return heap->n + heap->n_held + heap->n_mapped;
}

void heap_reset_peak(struct heap *heap, uint64_t time_ns);
struct heap_item {
	uint64_t number;
	const struct heap_block *block;
};

/*
 * Returns all blocks and those that are held, sorted by number; free with g_free(). Valid until the
 * heap changes. Returns NULL without blocks or memory.
 */
struct heap_item *heap_sorted(const struct heap *heap, const struct heap_block *const *held,
			      const struct heap_yield *yield);
