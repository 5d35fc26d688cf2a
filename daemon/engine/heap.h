/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/heap-budget.h"

#include <glib.h>
#include <stddef.h>

#define HEAP_MAX_NUMBER (UINT64_C(1) << 48)

/* A block that lives. */
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
	uint32_t max; /* more than these many need more slots */
	/* Those are made before, a page at a time. */
	struct heap_slot *next; /* NULL: none yet */
	uint32_t n_next_slots;
	uint32_t soon; /* from that many blocks on */
	uint32_t n_touches;
	/* Slots that were too few: what is in them moves, some with each change, so that none
	 * takes long. */
	struct heap_slot *old; /* NULL: none */
	uint32_t n_old_slots;
	uint32_t n_moved; /* these are empty */
	struct heap_block *parts[HEAP_PARTS];
	uint32_t n_parts;
	uint32_t n_blocks; /* numbers that were given */
	uint32_t *unused;  /* those of them that are given next, the last one first */
	uint32_t n_unused;
	uint32_t n_held; /* not found any more, but they live */
	uint32_t n_mapped;
	GTree *mapped; /* struct heap_block by address; they lie apart */
	uint64_t seed;
	struct heap_budget *budget;
	uint64_t live_bytes;
	uint64_t peak_bytes, peak_ns; /* since heap_reset_peak() */
};

/* `seed`: random, so that nobody can choose what collides. The budget is borrowed. */
void heap_init(struct heap *heap, uint64_t seed, struct heap_budget *budget);
void heap_done(struct heap *heap);

/*
 * Takes a copy of a block, in the place of one with the same address, which becomes *ret_before
 * (label 0: there was none). False: there is no room for it, and nothing has changed.
 */
bool heap_put(struct heap *heap, const struct heap_block *block, struct heap_block *ret_before);
/* Gives back the block at this address; false: there is none. */
bool heap_take(struct heap *heap, uint64_t address, struct heap_block *ret_block);
/* The same, but it lives until heap_drop(). */
bool heap_hold(struct heap *heap, uint64_t address, struct heap_block *ret_block);
void heap_drop(struct heap *heap, const struct heap_block *block);

/* What takes long with many blocks calls this now and then; NULL: nobody has to be served
 * meanwhile. It changes no heap. */
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

/* Puts the blocks of another one with numbers up to that, but its mappings and who is held.
 * False: there was no room for all. */
bool heap_copy(struct heap *to, const struct heap *from, uint64_t to_number,
	       const struct heap_yield *yield);
/* NULL: none. Valid until the heap changes. */
const struct heap_block *heap_find(const struct heap *heap, uint64_t address);
/* Whether its blocks are not all in caches, so that it is worth saying what comes. */
bool heap_is_far(const struct heap *heap);
/* It will be asked for these addresses soon; or sooner, as that has been said before, for the
 * blocks there. */
void heap_prefetch_slots(const struct heap *heap, const uint64_t *addresses, size_t n);
void heap_prefetch_blocks(const struct heap *heap, const uint64_t *addresses, size_t n);

/* A mapping, where there is none. False: there is no room. */
bool heap_map(struct heap *heap, const struct heap_block *block);
/* Gives back the first mapping that has a byte there, which lives until heap_drop(); false:
 * there is none. */
bool heap_unmap(struct heap *heap, uint64_t from, uint64_t to, struct heap_block *ret_block);
/* The one that has this byte; NULL: none. */
const struct heap_block *heap_mapped(const struct heap *heap, uint64_t address);
/* Behind its last page. */
uint64_t heap_mapping_end(const struct heap_block *block);

/* Of the budget, but for mappings. */
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
 * All of them and those that are held, by their numbers; to be freed with g_free(). Valid until the
 * heap changes. NULL: no memory, or none.
 */
struct heap_item *heap_sorted(const struct heap *heap, const struct heap_block *const *held,
			      const struct heap_yield *yield);
