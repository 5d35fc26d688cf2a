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
#define MAPPING_BYTES 128u /* that one takes here */
#define SOME 8u            /* slots that are looked at with each change, while blocks move */
#define DIGIT_BITS 11u
#define DIGITS (1u << DIGIT_BITS)
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
	heap_budget_give(heap->budget, (uint64_t)heap->n_old_slots * sizeof(*heap->old));
	free(heap->slots);
	free(heap->old);
	g_tree_destroy(heap->mapped);
	*heap = (struct heap){ 0 };
}

/* Of n slots. */
static uint32_t slot_of(const struct heap *heap, uint32_t n, uint64_t address)
{
	unsigned __int128 product = (unsigned __int128)(address ^ heap->seed) * 0x9e3779b97f4a7c15u;
	uint32_t hash = (uint32_t)((uint64_t)product >> 32) ^ (uint32_t)(product >> 64);

	return (uint32_t)((uint64_t)hash * n >> 32);
}

static inline uint32_t next_slot(uint32_t n, uint32_t i)
{
	return ++i == n ? 0 : i;
}

/* Where the address is, or would be. */
static struct heap_block *find_slot(const struct heap *heap, struct heap_block *slots, uint32_t n,
				    uint64_t address)
{
	uint32_t i = slot_of(heap, n, address);

	while (slots[i].label != 0 && slots[i].address != address)
		i = next_slot(n, i);
	return &slots[i];
}

/* Those behind an empty slot that were not where they would be, as somebody was there, come nearer to it. */
static void close_gap(const struct heap *heap, struct heap_block *slots, uint32_t n, uint32_t gap)
{
	for (uint32_t i = next_slot(n, gap); slots[i].label != 0; i = next_slot(n, i)) {
		uint32_t home = slot_of(heap, n, slots[i].address);

		/* It is between the gap, exclusive, and where it is. */
		if (gap <= i ? gap < home && home <= i : gap < home || home <= i)
			continue;
		slots[gap] = slots[i];
		gap = i;
	}
	slots[gap] = (struct heap_block){ 0 };
}

static void move_some(struct heap *heap, uint32_t n)
{
	for (; n > 0 && heap->n_moved < heap->n_old_slots; n--) {
		const struct heap_block block = heap->old[heap->n_moved];

		if (block.label == 0) {
			heap->n_moved++;
			continue;
		}
		/* What came into its place is moved next. */
		close_gap(heap, heap->old, heap->n_old_slots, heap->n_moved);
		*find_slot(heap, heap->slots, heap->n_slots, block.address) = block;
	}
	if (heap->n_moved < heap->n_old_slots)
		return;
	heap_budget_give(heap->budget, (uint64_t)heap->n_old_slots * sizeof(*heap->old));
	free(heap->old);
	heap->old = NULL;
	heap->n_old_slots = heap->n_moved = 0;
}

static bool make_slots(struct heap *heap, uint32_t n)
{
	struct heap_block *slots;

	if (heap->old)
		move_some(heap, UINT32_MAX);
	if (!heap_budget_take(heap->budget, (uint64_t)n * sizeof(*slots)))
		return false;
	slots = calloc(n, sizeof(*slots));
	if (!slots) {
		heap_budget_give(heap->budget, (uint64_t)n * sizeof(*slots));
		return false;
	}
	heap->old = heap->slots;
	heap->n_old_slots = heap->n_slots;
	heap->n_moved = 0;
	heap->slots = slots;
	heap->n_slots = n;
	heap->max = n / 3 * 2;
	return true;
}

static bool grow(struct heap *heap)
{
	return make_slots(heap, heap->n_slots < MANY_SLOTS ? MAX_OF(heap->n_slots * 2, FIRST_SLOTS)
							   : heap->n_slots + heap->n_slots / 2);
}

/* The block at this address; NULL: there is none. */
static struct heap_block *find(const struct heap *heap, uint64_t address, bool *ret_is_old)
{
	struct heap_block *slot;

	*ret_is_old = false;
	if (heap->n == 0)
		return NULL;
	slot = find_slot(heap, heap->slots, heap->n_slots, address);
	if (slot->label == 0 && heap->old) {
		*ret_is_old = true;
		slot = find_slot(heap, heap->old, heap->n_old_slots, address);
	}
	return slot->label != 0 ? slot : NULL;
}

static void remove_slot(struct heap *heap, struct heap_block *slot, bool is_old)
{
	if (is_old)
		close_gap(heap, heap->old, heap->n_old_slots, (uint32_t)(slot - heap->old));
	else
		close_gap(heap, heap->slots, heap->n_slots, (uint32_t)(slot - heap->slots));
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
	bool is_old;

	if (heap->old)
		move_some(heap, SOME);
	if (heap->n == heap->max && !grow(heap))
		return false;
	*ret_before = (struct heap_block){ 0 };
	slot = heap->old ? find(heap, block->address, &is_old) : NULL;
	if (slot && is_old) {
		*ret_before = *slot;
		remove_slot(heap, slot, true);
		heap->n--;
		heap->live_bytes -= ret_before->size;
	}
	slot = find_slot(heap, heap->slots, heap->n_slots, block->address);
	if (slot->label != 0)
		*ret_before = *slot;
	heap->n += slot->label == 0;
	heap->live_bytes += block->size - slot->size;
	*slot = *block;
	note_peak(heap, block->since_ns);
	return true;
}

bool heap_hold(struct heap *heap, uint64_t address, struct heap_block *ret_block)
{
	struct heap_block *slot;
	bool is_old;

	if (heap->old)
		move_some(heap, SOME);
	slot = find(heap, address, &is_old);
	if (!slot)
		return false;
	*ret_block = *slot;
	heap->n--;
	heap->n_held++;
	remove_slot(heap, slot, is_old);
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

static bool copy_slots(struct heap *to, const struct heap_block *slots, uint32_t n,
		       uint64_t to_number)
{
	struct heap_block before;

	for (uint32_t i = 0; i < n; i++)
		if (slots[i].label != 0 && heap_block_number(&slots[i]) <= to_number &&
		    !heap_put(to, &slots[i], &before))
			return false;
	return true;
}

bool heap_copy(struct heap *to, const struct heap *from, uint64_t to_number)
{
	if (from->n == 0)
		return true;
	/* With the same seed it is in the order of both, which spares misses of caches. */
	if (to->n_slots == 0 && !make_slots(to, MAX_OF(from->n / 2 * 3 + 3, FIRST_SLOTS)))
		return false;
	return copy_slots(to, from->slots, from->n_slots, to_number) &&
	       copy_slots(to, from->old, from->n_old_slots, to_number);
}

const struct heap_block *heap_find(const struct heap *heap, uint64_t address)
{
	bool is_old;

	return find(heap, address, &is_old);
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
	slot = &heap->slots[slot_of(heap, heap->n_slots, address)];
	prefetch_line(slot);
	prefetch_line(slot + 1);
	if (heap->old)
		prefetch_line(&heap->old[slot_of(heap, heap->n_old_slots, address)]);
}

void heap_reset_peak(struct heap *heap, uint64_t time_ns)
{
	heap->peak_bytes = heap->live_bytes;
	heap->peak_ns = time_ns;
}

static void add_item(struct heap_item *items, uint32_t *n, const struct heap_block *block)
{
	items[(*n)++] = (struct heap_item){ heap_block_number(block), block };
}

static void list(const struct heap *heap, const struct heap_block *const *held,
		 struct heap_item *items)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < heap->n_held; i++)
		add_item(items, &n, held[i]);
	for (GTreeNode *node = g_tree_node_first(heap->mapped); node; node = g_tree_node_next(node))
		add_item(items, &n, g_tree_node_value(node));
	for (uint32_t i = 0; i < heap->n_slots; i++)
		if (heap->slots[i].label != 0)
			add_item(items, &n, &heap->slots[i]);
	for (uint32_t i = heap->n_moved; i < heap->n_old_slots; i++)
		if (heap->old[i].label != 0)
			add_item(items, &n, &heap->old[i]);
}

/* By one digit of the number; those that have the same stay in their order. */
static void sort_by_digit(const struct heap_item *from, struct heap_item *to, uint32_t n,
			  unsigned int shift)
{
	uint32_t at[DIGITS] = { 0 }, sum = 0;

	for (uint32_t i = 0; i < n; i++)
		at[from[i].number >> shift & (DIGITS - 1)]++;
	for (uint32_t i = 0; i < DIGITS; i++) {
		uint32_t count = at[i];

		at[i] = sum;
		sum += count;
	}
	for (uint32_t i = 0; i < n; i++)
		to[at[from[i].number >> shift & (DIGITS - 1)]++] = from[i];
}

struct heap_item *heap_sorted(const struct heap *heap, const struct heap_block *const *held)
{
	uint32_t n = heap_count(heap);
	struct heap_item *items, *other, *swapped;
	uint64_t highest = 0;

	if (n == 0)
		return NULL;
	items = g_try_new(struct heap_item, n);
	other = g_try_new(struct heap_item, n);
	if (!items || !other) {
		g_free(items);
		g_free(other);
		return NULL;
	}
	list(heap, held, items);
	for (uint32_t i = 0; i < n; i++)
		highest = MAX_OF(highest, items[i].number);
	for (unsigned int shift = 0; highest >> shift; shift += DIGIT_BITS) {
		sort_by_digit(items, other, n, shift);
		swapped = items;
		items = other;
		other = swapped;
	}
	g_free(other);
	return items;
}
