/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Heap - the blocks of a process that live, by their addresses
 *
 * Open addressing with linear probing, at most two thirds full; who leaves has those behind it move up, so that there are no
 * marks of what was there. A block that is asked for is so one line of memory away, or two.
 * Invariants: (1) an address has one block at most                       [test-engine-heap: model]
 *             (2) what is in it is what was put and not taken            [test-engine-heap: model]
 *             (3) it takes no memory beyond its budget                   [test-engine-heap: limits]
 * Runs on the drain thread only. Does not know what becomes a row.
 */
#include "daemon/engine/heap.h"

#include "arch/base.h"

#include <string.h>

#define FIRST_SLOTS 1024u
#define PAGE UINT64_C(4096)
#define MAPPING_BYTES 128u    /* that one takes here */
#define MANY_SLOTS (1u << 20) /* from there on it grows by half, not to the double */

static gint by_address(gconstpointer a, gconstpointer b, gpointer data)
{
	uint64_t x = ((const struct heap_block *)a)->address,
		 y = ((const struct heap_block *)b)->address;

	return x < y ? -1 : x > y;
}

void heap_init(struct heap *heap, uint64_t seed, struct heap_budget *budget)
{
	*heap = (struct heap){
		.seed = seed,
		.budget = budget,
		.mapped = g_tree_new_full(by_address, NULL, g_free, NULL),
	};
}

void heap_done(struct heap *heap)
{
	heap_budget_give(heap->budget, (uint64_t)heap->n_slots * sizeof(*heap->slots));
	heap_budget_give(heap->budget, (uint64_t)heap->n_mapped * MAPPING_BYTES);
	free(heap->slots);
	g_tree_destroy(heap->mapped);
	*heap = (struct heap){ 0 };
}

static uint32_t slot_of(const struct heap *heap, uint64_t address)
{
	unsigned __int128 product = (unsigned __int128)(address ^ heap->seed) * 0x9e3779b97f4a7c15u;
	uint32_t hash = (uint32_t)((uint64_t)product >> 32) ^ (uint32_t)(product >> 64);

	return (uint32_t)((uint64_t)hash * heap->n_slots >> 32);
}

static uint32_t next_slot(const struct heap *heap, uint32_t i)
{
	return ++i == heap->n_slots ? 0 : i;
}

/* Where the address is, or would be. */
static struct heap_block *find_slot(const struct heap *heap, uint64_t address)
{
	uint32_t i = slot_of(heap, address);

	while (heap->slots[i].label != 0 && heap->slots[i].address != address)
		i = next_slot(heap, i);
	return &heap->slots[i];
}

static bool grow(struct heap *heap)
{
	const struct heap before = *heap;
	uint32_t n = before.n_slots < MANY_SLOTS ? MAX_OF(before.n_slots * 2, FIRST_SLOTS)
						 : before.n_slots + before.n_slots / 2;
	struct heap_block *slots;

	if (!heap_budget_take(heap->budget, (uint64_t)n * sizeof(*slots)))
		return false;
	slots = calloc(n, sizeof(*slots));
	if (!slots) {
		heap_budget_give(heap->budget, (uint64_t)n * sizeof(*slots));
		return false;
	}
	heap->slots = slots;
	heap->n_slots = n;
	heap->max = n / 3 * 2;
	for (uint32_t i = 0; i < before.n_slots; i++)
		if (before.slots[i].label != 0)
			*find_slot(heap, before.slots[i].address) = before.slots[i];
	heap_budget_give(heap->budget, (uint64_t)before.n_slots * sizeof(*slots));
	free(before.slots);
	return true;
}

static void note_peak(struct heap *heap, uint64_t time_ns)
{
	if (heap->live_bytes <= heap->peak_bytes)
		return;
	heap->peak_bytes = heap->live_bytes;
	heap->peak_ns = time_ns;
}

bool heap_put(struct heap *heap, const struct heap_block *block, struct heap_block *ret_before)
{
	struct heap_block *slot;

	if (heap->n == heap->max && !grow(heap))
		return false;
	slot = find_slot(heap, block->address);
	*ret_before = *slot;
	heap->n += slot->label == 0;
	heap->live_bytes += block->size - slot->size;
	*slot = *block;
	note_peak(heap, block->since_ns);
	return true;
}

/* Those behind an empty slot that were not where they would be, as somebody was there, come nearer to it. */
static void close_gap(struct heap *heap, uint32_t gap)
{
	uint32_t i = gap;

	for (;;) {
		uint32_t home;

		i = next_slot(heap, i);
		if (heap->slots[i].label == 0)
			break;
		home = slot_of(heap, heap->slots[i].address);
		/* It is between the gap, exclusive, and where it is. */
		if (gap <= i ? gap < home && home <= i : gap < home || home <= i)
			continue;
		heap->slots[gap] = heap->slots[i];
		gap = i;
	}
	heap->slots[gap] = (struct heap_block){ 0 };
}

bool heap_hold(struct heap *heap, uint64_t address, struct heap_block *ret_block)
{
	struct heap_block *slot;

	if (heap->n == 0)
		return false;
	slot = find_slot(heap, address);
	if (slot->label == 0)
		return false;
	*ret_block = *slot;
	heap->n--;
	heap->n_held++;
	close_gap(heap, (uint32_t)(slot - heap->slots));
	return true;
}

void heap_drop(struct heap *heap, const struct heap_block *block)
{
	heap->n_held--;
	heap->live_bytes -= block->size;
}

bool heap_take(struct heap *heap, uint64_t address, struct heap_block *ret_block)
{
	if (!heap_hold(heap, address, ret_block))
		return false;
	heap_drop(heap, ret_block);
	return true;
}

const struct heap_block *heap_find(const struct heap *heap, uint64_t address)
{
	const struct heap_block *slot;

	if (heap->n == 0)
		return NULL;
	slot = find_slot(heap, address);
	return slot->label != 0 ? slot : NULL;
}

/* ---- Mappings ----------------------------------------------------------------------------------- */

uint64_t heap_mapping_end(const struct heap_block *block)
{
	uint64_t room = UINT64_MAX - block->address;
	uint64_t pages = block->size / PAGE + (block->size % PAGE != 0 || block->size == 0);

	return block->address + (pages > room / PAGE ? room : pages * PAGE);
}

bool heap_map(struct heap *heap, const struct heap_block *block)
{
	struct heap_block *kept;

	if (!heap_budget_take(heap->budget, MAPPING_BYTES))
		return false;
	kept = g_memdup2(block, sizeof(*block));
	g_tree_insert(heap->mapped, kept, kept);
	heap->n_mapped++;
	heap->live_bytes += block->size;
	note_peak(heap, block->since_ns);
	return true;
}

static const struct heap_block *find_mapped(const struct heap *heap, uint64_t from, uint64_t to)
{
	const struct heap_block key = { .address = from }, *block;
	GTreeNode *behind = g_tree_upper_bound(heap->mapped, &key);
	GTreeNode *before = behind ? g_tree_node_previous(behind) : g_tree_node_last(heap->mapped);

	block = before ? g_tree_node_value(before) : NULL;
	if (block && heap_mapping_end(block) > from)
		return block;
	block = behind ? g_tree_node_value(behind) : NULL;
	return block && block->address < to ? block : NULL;
}

const struct heap_block *heap_mapped(const struct heap *heap, uint64_t address)
{
	return find_mapped(heap, address, address);
}

bool heap_unmap(struct heap *heap, uint64_t from, uint64_t to, struct heap_block *ret_block)
{
	const struct heap_block *block = find_mapped(heap, from, to);

	if (!block)
		return false;
	*ret_block = *block;
	g_tree_remove(heap->mapped, ret_block);
	heap_budget_give(heap->budget, MAPPING_BYTES);
	heap->n_mapped--;
	heap->n_held++;
	return true;
}

/* ---- Of all ------------------------------------------------------------------------------------- */

void heap_prefetch(const struct heap *heap, uint64_t address)
{
	const struct heap_block *slot;

	if (heap->n_slots == 0)
		return;
	slot = &heap->slots[slot_of(heap, address)];
	prefetch_line(slot);
	prefetch_line(slot + 1);
}

void heap_reset_peak(struct heap *heap, uint64_t time_ns)
{
	heap->peak_bytes = heap->live_bytes;
	heap->peak_ns = time_ns;
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = (*(const struct heap_block *const *)a)->label,
		 y = (*(const struct heap_block *const *)b)->label;

	return x < y ? -1 : x > y;
}

const struct heap_block **heap_sorted(const struct heap *heap, const struct heap_block *const *held)
{
	const struct heap_block **sorted;
	size_t n = 0;

	if (heap_count(heap) == 0)
		return NULL;
	sorted = g_try_new(const struct heap_block *, heap_count(heap));
	if (!sorted)
		return NULL;
	for (; n < heap->n_held; n++)
		sorted[n] = held[n];
	for (GTreeNode *node = g_tree_node_first(heap->mapped); node; node = g_tree_node_next(node))
		sorted[n++] = g_tree_node_value(node);
	for (uint32_t i = 0; i < heap->n_slots; i++)
		if (heap->slots[i].label != 0)
			sorted[n++] = &heap->slots[i];
	qsort(sorted, n, sizeof(*sorted), by_number);
	return sorted;
}
