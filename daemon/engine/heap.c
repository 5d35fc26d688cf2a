/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Heap - the blocks of a process that live, by their addresses
 *
 * The table has slots of eight bytes with a block's hash and number. It uses open addressing and
 * linear probing, and is at most half full. Removal moves later entries up, so that there are no
 * tombstones. Neighboring blocks have neighboring slots, because programs often allocate and free
 * them together. The blocks are stored apart, in parts that never move, each as large as all parts
 * before it. The block freed last is reused first, so that short-lived blocks stay in caches. The
 * next blocks to reuse are known in advance, so those that lived long are prefetched.
 * Invariants: (1) an address has one block at most                       [test-engine-heap: model]
 *             (2) it has exactly the blocks that were put and not taken  [test-engine-heap: model]
 *             (3) it takes no memory beyond its budget                   [test-engine-heap: limits]
 *             (4) no change takes long: slots move, and pages are made, a few at a time
 *                 [test-engine-heap: pages]
 * Runs on the drain thread only. Knows nothing of rows.
 */
#include "daemon/engine/heap.h"

#include "arch/base.h"
#include "daemon/engine/huge-pages.h"

#include <string.h>
#include <sys/mman.h>

#define FIRST_SLOTS 1024u
#define FIRST_BLOCKS 1024u /* of the first part */
#define PAGE UINT64_C(4096)
#define MANY_BLOCKS (1u << 13) /* more do not fit into the caches */
#define MAPPING_BYTES 128u     /* charged for each */
#define SOON 16u               /* blocks that are prefetched together */
#define TOUCH_PUTS 2048u       /* after each so many puts one page of the next table is touched */
#define SOME 8u                /* slots that are moved with each change */
/* Neighboring addresses have neighboring slots: a window has that many, each for UNIT bytes. */
#define WINDOW 32u
#define UNIT 16u /* bytes */
#define DIGIT_BITS 11u
#define DIGITS (1u << DIGIT_BITS)

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

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Returns the bytes that an allocation takes. */
static uint64_t whole(uint64_t bytes)
{
	return bytes < HUGE_PAGE ? bytes : huge_pages(bytes);
}

/* Returns zeroed memory within the budget, or NULL. */
static void *take_memory(struct heap *heap, uint64_t bytes)
{
	void *at;

	if (!heap_budget_take(heap->budget, bytes))
		return NULL;
	at = bytes < HUGE_PAGE ? calloc(1, bytes) : huge_pages_map(bytes);
	if (!at)
		heap_budget_give(heap->budget, bytes);
	return at;
}

/* `bytes`: as allocated. Does not change the budget. */
static void free_memory(void *at, uint64_t bytes)
{
	if (bytes < HUGE_PAGE)
		free(at);
	else
		munmap(at, bytes);
}

static uint64_t slot_bytes(uint32_t n)
{
	return whole(n * (uint64_t)sizeof(struct heap_slot));
}

static inline uint32_t part_blocks(uint32_t part)
{
	return FIRST_BLOCKS << part;
}

static uint64_t part_bytes(uint32_t part)
{
	return whole(part_blocks(part) * (uint64_t)sizeof(struct heap_block));
}

/* Part i has FIRST_BLOCKS << i blocks. */
uint64_t heap_bytes(const struct heap *heap)
{
	uint64_t n_blocks = (FIRST_BLOCKS << heap->n_parts) - FIRST_BLOCKS,
		 bytes = n_blocks * sizeof(*heap->unused);

	for (uint32_t i = 0; i < heap->n_parts; i++)
		bytes += part_bytes(i);
	return bytes + slot_bytes(heap->n_slots) + slot_bytes(heap->n_old_slots) +
	       slot_bytes(heap->n_next_slots);
}

void heap_done(struct heap *heap)
{
	heap_budget_give(heap->budget, heap_bytes(heap));
	heap_budget_give(heap->budget, (uint64_t)heap->n_mapped * MAPPING_BYTES);
	free_memory(heap->slots, slot_bytes(heap->n_slots));
	free_memory(heap->old, slot_bytes(heap->n_old_slots));
	free_memory(heap->next, slot_bytes(heap->n_next_slots));
	for (uint32_t i = 0; i < heap->n_parts; i++)
		free_memory(heap->parts[i], part_bytes(i));
	free(heap->unused);
	g_tree_destroy(heap->mapped);
	*heap = (struct heap){ 0 };
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* Numbers begin at 1. */
static inline struct heap_block *block_at(const struct heap *heap, uint32_t number)
{
	uint32_t i = number - 1 + FIRST_BLOCKS;
	uint32_t part = (uint32_t)(__builtin_clz(FIRST_BLOCKS) - __builtin_clz(i));

	return &heap->parts[part][i - part_blocks(part)];
}

static inline void prefetch_block(const struct heap_block *block)
{
	prefetch_line(block);
	prefetch_line(&block->calls);
}

/* Makes room for the numbers of all blocks with one more part. */
static bool grow_unused(struct heap *heap)
{
	uint64_t n = part_blocks(heap->n_parts + 1) - FIRST_BLOCKS,
		 more = part_blocks(heap->n_parts) * sizeof(*heap->unused);
	uint32_t *unused;

	if (!heap_budget_take(heap->budget, more))
		return false;
	unused = realloc(heap->unused, n * sizeof(*unused));
	if (!unused) {
		heap_budget_give(heap->budget, more);
		return false;
	}
	heap->unused = unused;
	return true;
}

static bool add_part(struct heap *heap)
{
	uint64_t bytes = part_bytes(heap->n_parts);
	struct heap_block *part;

	if (heap->n_parts == HEAP_PARTS)
		return false;
	part = take_memory(heap, bytes);
	if (!part)
		return false;
	if (!grow_unused(heap)) {
		heap_budget_give(heap->budget, bytes);
		free_memory(part, bytes);
		return false;
	}
	heap->parts[heap->n_parts++] = part;
	return true;
}

/* Prefetches the next SOON blocks after those that are prefetched already. */
static void prefetch_unused(const struct heap *heap, uint32_t n)
{
	for (uint32_t i = 1; i <= SOON && i + SOON <= n; i++)
		prefetch_block(block_at(heap, heap->unused[n - SOON - i]));
}

/* Returns 0 if there is no room. */
static uint32_t take_block(struct heap *heap)
{
	uint32_t n = heap->n_unused;

	if (n > 0) {
		heap->n_unused--;
		if (n % SOON == 0 && heap_is_far(heap))
			prefetch_unused(heap, n);
		return heap->unused[n - 1];
	}
	if (heap->n_blocks + FIRST_BLOCKS == part_blocks(heap->n_parts) && !add_part(heap))
		return 0;
	return ++heap->n_blocks;
}

static void drop_block(struct heap *heap, uint32_t number)
{
	block_at(heap, number)->label = 0;
	heap->unused[heap->n_unused++] = number;
}

/* ---- Slots ----------------------------------------------------------------------------------- */

/* Hashes the address's window; the lowest digits are the place in it. */
static inline uint32_t hash_of(const struct heap *heap, uint64_t address)
{
	uint64_t place = address / UNIT % WINDOW;
	unsigned __int128 product = (unsigned __int128)((address - place * UNIT) ^ heap->seed) *
				    0x9e3779b97f4a7c15u;
	uint32_t mixed = (uint32_t)((uint64_t)product >> 32) ^ (uint32_t)(product >> 64);

	return mixed / WINDOW * WINDOW + (uint32_t)place;
}

/* Returns the home slot of a hash in a table of n slots. */
static inline uint32_t slot_of(uint32_t n, uint32_t hash)
{
	uint32_t place = hash % WINDOW, i = (uint32_t)((uint64_t)(hash - place) * n >> 32) + place;

	return i < n ? i : i - n;
}

static inline uint32_t next_slot(uint32_t n, uint32_t i)
{
	return ++i == n ? 0 : i;
}

/* Returns the address's slot, or the empty one where it belongs. */
static struct heap_slot *find_slot(const struct heap *heap, struct heap_slot *slots, uint32_t n,
				   uint64_t address, uint32_t hash)
{
	uint32_t i = slot_of(n, hash);

	while (slots[i].block != 0 &&
	       (slots[i].hash != hash || block_at(heap, slots[i].block)->address != address))
		i = next_slot(n, i);
	return &slots[i];
}

/* Moves later entries that are not in their home slots into the gap. */
static void close_gap(struct heap_slot *slots, uint32_t n, uint32_t gap)
{
	for (uint32_t i = next_slot(n, gap); slots[i].block != 0; i = next_slot(n, i)) {
		uint32_t home = slot_of(n, slots[i].hash);

		/* The home is between the gap, exclusive, and i. */
		if (gap <= i ? gap < home && home <= i : gap < home || home <= i)
			continue;
		slots[gap] = slots[i];
		gap = i;
	}
	slots[gap] = (struct heap_slot){ 0 };
}

/* The address must not be in the table. */
static void add_slot(struct heap *heap, struct heap_slot added)
{
	uint32_t i = slot_of(heap->n_slots, added.hash);

	while (heap->slots[i].block != 0)
		i = next_slot(heap->n_slots, i);
	heap->slots[i] = added;
}

static void move_some(struct heap *heap, uint32_t n)
{
	for (; n > 0 && heap->n_moved < heap->n_old_slots; n--) {
		const struct heap_slot moved = heap->old[heap->n_moved];

		if (moved.block == 0) {
			heap->n_moved++;
			continue;
		}
		/* An entry that moved into this slot is next. */
		close_gap(heap->old, heap->n_old_slots, heap->n_moved);
		add_slot(heap, moved);
	}
	if (heap->n_moved < heap->n_old_slots)
		return;
	heap_budget_give(heap->budget, slot_bytes(heap->n_old_slots));
	free_memory(heap->old, slot_bytes(heap->n_old_slots));
	heap->old = NULL;
	heap->n_old_slots = heap->n_moved = 0;
}

static bool make_next(struct heap *heap, uint32_t n)
{
	heap->next = take_memory(heap, slot_bytes(n));
	heap->n_next_slots = heap->next ? n : 0;
	heap->n_touches = 0;
	return heap->next;
}

static void use_next(struct heap *heap)
{
	if (heap->old)
		move_some(heap, UINT32_MAX);
	heap->old = heap->slots;
	heap->n_old_slots = heap->n_slots;
	heap->n_moved = 0;
	heap->slots = steal_ptr(&heap->next);
	heap->n_slots = heap->n_next_slots;
	heap->n_next_slots = 0;
	heap->max = heap->n_slots / 2;
	/* A small table needs no preparation. */
	heap->soon = heap->n_slots * sizeof(*heap->slots) < HUGE_PAGE ? heap->max
								      : heap->max / 8 * 7;
}

/*
 * Prepares the next table before it is needed. Accesses are spread over all of it, so its pages
 * would otherwise be made all at once, which takes longer than a producer waits.
 */
static void prepare(struct heap *heap)
{
	uint64_t at = heap->n_touches / TOUCH_PUTS * (HUGE_PAGE / sizeof(*heap->next));

	if (!heap->next) {
		(void)make_next(heap, heap->n_slots * 2);
		return;
	}
	if (heap->n_touches++ % TOUCH_PUTS == 0 && at < heap->n_next_slots)
		*(volatile uint32_t *)&heap->next[at].block = 0;
}

static bool grow(struct heap *heap)
{
	if (!heap->next && !make_next(heap, MAX_OF(heap->n_slots * 2, FIRST_SLOTS)))
		return false;
	use_next(heap);
	return true;
}

/* Returns the slot of the block at this address; if there is none, the slot where it belongs in the
 * new table. */
static struct heap_slot *find(const struct heap *heap, uint64_t address, uint32_t hash,
			      bool *ret_is_old)
{
	struct heap_slot *slot = find_slot(heap, heap->slots, heap->n_slots, address, hash), *old;

	*ret_is_old = false;
	if (slot->block != 0 || !heap->old)
		return slot;
	old = find_slot(heap, heap->old, heap->n_old_slots, address, hash);
	*ret_is_old = old->block != 0;
	return *ret_is_old ? old : slot;
}

static void remove_slot(struct heap *heap, struct heap_slot *slot, bool is_old)
{
	if (is_old)
		close_gap(heap->old, heap->n_old_slots, (uint32_t)(slot - heap->old));
	else
		close_gap(heap->slots, heap->n_slots, (uint32_t)(slot - heap->slots));
}

static void note_peak(struct heap *heap, uint64_t time_ns)
{
	if (heap->live_bytes <= heap->peak_bytes)
		return;
	heap->peak_bytes = heap->live_bytes;
	heap->peak_ns = time_ns;
}

/* The address must not be in the table. */
static struct heap_block *add_block(struct heap *heap, struct heap_slot *slot, uint32_t hash)
{
	uint32_t number = take_block(heap);

	if (number == 0)
		return NULL;
	*slot = (struct heap_slot){ hash, number };
	heap->n++;
	return block_at(heap, number);
}

bool heap_put(struct heap *heap, const struct heap_block *block, struct heap_block *ret_before)
{
	uint32_t hash = hash_of(heap, block->address);
	struct heap_slot *slot;
	struct heap_block *kept;
	bool is_old;

	if (heap->old)
		move_some(heap, SOME);
	if (heap->n == heap->max && !grow(heap))
		return false;
	if (heap->n >= heap->soon)
		prepare(heap);
	slot = find(heap, block->address, hash, &is_old);
	if (slot->block != 0) {
		kept = block_at(heap, slot->block);
		*ret_before = *kept;
	} else {
		kept = add_block(heap, slot, hash);
		if (!kept)
			return false;
		ret_before->label = ret_before->size = 0;
	}
	heap->live_bytes += block->size - ret_before->size;
	*kept = *block;
	note_peak(heap, block->since_ns);
	return true;
}

bool heap_hold(struct heap *heap, uint64_t address, struct heap_block *ret_block)
{
	struct heap_slot *slot;
	uint32_t number;
	bool is_old;

	if (heap->old)
		move_some(heap, SOME);
	if (heap->n == 0)
		return false;
	slot = find(heap, address, hash_of(heap, address), &is_old);
	number = slot->block;
	if (number == 0)
		return false;
	*ret_block = *block_at(heap, number);
	heap->n--;
	heap->n_held++;
	remove_slot(heap, slot, is_old);
	drop_block(heap, number);
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

bool heap_copy(struct heap *to, const struct heap *from, uint64_t to_number,
	       const struct heap_yield *yield)
{
	struct heap_block before;

	if (from->n == 0)
		return true;
	if (to->n_slots == 0) {
		if (!make_next(to, MAX_OF(from->n * 2, FIRST_SLOTS)))
			return false;
		use_next(to);
	}
	for (uint32_t i = 1; i <= from->n_blocks; i++) {
		const struct heap_block *block = block_at(from, i);

		heap_yield(yield, i);
		if (block->label != 0 && heap_block_number(block) <= to_number &&
		    !heap_put(to, block, &before))
			return false;
	}
	return true;
}

const struct heap_block *heap_find(const struct heap *heap, uint64_t address)
{
	const struct heap_slot *slot;
	bool is_old;

	if (heap->n == 0)
		return NULL;
	slot = find(heap, address, hash_of(heap, address), &is_old);
	return slot->block != 0 ? block_at(heap, slot->block) : NULL;
}

/* ---- Mappings -------------------------------------------------------------------------------- */

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

/* ---- The whole heap -------------------------------------------------------------------------- */

bool heap_is_far(const struct heap *heap)
{
	return heap->n_blocks >= MANY_BLOCKS;
}

void heap_prefetch_slots(const struct heap *heap, const uint64_t *addresses, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t hash = hash_of(heap, addresses[i]);
		const struct heap_slot *slot = &heap->slots[slot_of(heap->n_slots, hash)];

		prefetch_line(slot);
		/* Probing may reach the next cache line. */
		prefetch_line(slot + 4);
		if (heap->old)
			prefetch_line(&heap->old[slot_of(heap->n_old_slots, hash)]);
	}
}

void heap_prefetch_blocks(const struct heap *heap, const uint64_t *addresses, size_t n)
{
	for (size_t k = 0; k < n; k++) {
		uint32_t hash = hash_of(heap, addresses[k]), i = slot_of(heap->n_slots, hash);

		while (heap->slots[i].block != 0 && heap->slots[i].hash != hash)
			i = next_slot(heap->n_slots, i);
		if (heap->slots[i].block != 0)
			prefetch_block(block_at(heap, heap->slots[i].block));
	}
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
		 struct heap_item *items, const struct heap_yield *yield)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < heap->n_held; i++)
		add_item(items, &n, held[i]);
	for (GTreeNode *node = g_tree_node_first(heap->mapped); node;
	     node = g_tree_node_next(node)) {
		heap_yield(yield, n);
		add_item(items, &n, g_tree_node_value(node));
	}
	for (uint32_t i = 1; i <= heap->n_blocks; i++) {
		heap_yield(yield, i);
		if (block_at(heap, i)->label != 0)
			add_item(items, &n, block_at(heap, i));
	}
}

/* Sorts by one digit of the number; stable. */
static void sort_by_digit(const struct heap_item *from, struct heap_item *to, uint32_t n,
			  unsigned int shift, const struct heap_yield *yield)
{
	uint32_t at[DIGITS] = { 0 }, sum = 0;

	for (uint32_t i = 0; i < n; i++)
		at[from[i].number >> shift & (DIGITS - 1)]++;
	for (uint32_t i = 0; i < DIGITS; i++) {
		uint32_t count = at[i];

		at[i] = sum;
		sum += count;
	}
	for (uint32_t i = 0; i < n; i++) {
		heap_yield(yield, i);
		to[at[from[i].number >> shift & (DIGITS - 1)]++] = from[i];
	}
}

struct heap_item *heap_sorted(const struct heap *heap, const struct heap_block *const *held,
			      const struct heap_yield *yield)
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
	list(heap, held, items, yield);
	for (uint32_t i = 0; i < n; i++)
		highest = MAX_OF(highest, items[i].number);
	for (unsigned int shift = 0; highest >> shift; shift += DIGIT_BITS) {
		sort_by_digit(items, other, n, shift, yield);
		swapped = items;
		items = other;
		other = swapped;
	}
	g_free(other);
	return items;
}
