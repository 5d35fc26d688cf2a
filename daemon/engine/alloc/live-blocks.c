/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Live blocks - the allocations of a process that were not freed, by address
 *
 * A slot of the hash table has the hash of an address and the number of its block. The table uses
 * open addressing and linear probing, and is at most half full. Removal moves later entries into
 * the gap, so that there are no tombstones. Blocks at neighboring addresses have neighboring slots,
 * because programs often allocate and free them together. The blocks are stored separately, in
 * parts that never move, each twice as large as the part before it. The memory of the block freed
 * last is reused first, so that short-lived blocks stay in caches. The order of reuse is known in
 * advance, so memory that is not in caches is prefetched.
 * Invariants: (1) an address has one block at most                       [test-engine-heap: model]
 *             (2) the table has exactly the blocks that were put and not yet removed
 *                 [test-engine-heap: model]
 *             (3) the table takes no memory beyond its budget  [test-engine-heap: limits]
 *             (4) no change takes long: slots are moved, and pages allocated, a few at a time
 *                 [test-engine-heap: pages]
 * Runs on the drain thread only. Does not read or write rows of the capture.
 */
#include "daemon/engine/alloc/live-blocks.h"

#include "arch/base.h"
#include "base/hash.h"
#include "base/order.h"
#include "daemon/engine/huge-pages.h"

#include <string.h>
#include <sys/mman.h>

#define FIRST_SLOTS 1024u
#define FIRST_BLOCKS 1024u /* size of the first part */
#define PAGE UINT64_C(4096)
#define MANY_BLOCKS (1u << 13) /* more blocks do not fit into the caches */
#define MAPPING_BYTES 128u     /* charged for each mapping */
#define SOON 16u               /* number of blocks that are prefetched together */
#define TOUCH_PUTS 2048u       /* a page of the next table is touched once per this many puts */
#define SOME 8u                /* number of slots that are moved with each change */
/* The addresses of WINDOW * UNIT bytes share a window of WINDOW slots, one slot per UNIT bytes. */
#define WINDOW 32u
#define UNIT 16u /* bytes */

COMPARE_WITH(by_address, struct live_block, ORDER(a->address, b->address))

void live_blocks_init(struct live_blocks *live, uint64_t seed, struct heap_budget *budget)
{
	*live = (struct live_blocks){
		.seed = seed,
		.budget = budget,
		.mapped = g_tree_new_full(by_address, NULL, g_free, NULL),
	};
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Returns the bytes that an allocation takes: large ones are rounded up to huge pages. */
static uint64_t whole(uint64_t bytes)
{
	return bytes < HUGE_PAGE ? bytes : huge_pages(bytes);
}

/* Returns zeroed memory within the budget, or NULL. */
static void *get_memory(struct live_blocks *live, uint64_t bytes)
{
	void *at;

	if (!heap_budget_reserve(live->budget, bytes))
		return NULL;
	at = bytes < HUGE_PAGE ? calloc(1, bytes) : huge_pages_map(bytes);
	if (!at)
		heap_budget_release(live->budget, bytes);
	return at;
}

/* `bytes` as returned by whole(). Does not change the budget. */
static void free_memory(void *at, uint64_t bytes)
{
	if (bytes < HUGE_PAGE)
		free(at);
	else
		munmap(at, bytes);
}

static uint64_t slot_bytes(uint32_t n)
{
	return whole(n * (uint64_t)sizeof(struct live_slot));
}

static inline uint32_t part_blocks(uint32_t part)
{
	return FIRST_BLOCKS << part;
}

static uint64_t part_bytes(uint32_t part)
{
	return whole(part_blocks(part) * (uint64_t)sizeof(struct live_block));
}

/* Returns the bytes of all parts, tables and `unused`. Part i has FIRST_BLOCKS << i blocks. */
uint64_t live_blocks_bytes(const struct live_blocks *live)
{
	uint64_t n_blocks = (FIRST_BLOCKS << live->n_parts) - FIRST_BLOCKS,
		 bytes = n_blocks * sizeof(*live->unused);

	for (uint32_t i = 0; i < live->n_parts; i++)
		bytes += part_bytes(i);
	return bytes + slot_bytes(live->n_slots) + slot_bytes(live->n_old_slots) +
	       slot_bytes(live->n_next_slots);
}

void live_blocks_done(struct live_blocks *live)
{
	heap_budget_release(live->budget, live_blocks_bytes(live));
	heap_budget_release(live->budget, (uint64_t)live->n_mapped * MAPPING_BYTES);
	free_memory(live->slots, slot_bytes(live->n_slots));
	free_memory(live->old, slot_bytes(live->n_old_slots));
	free_memory(live->next, slot_bytes(live->n_next_slots));
	for (uint32_t i = 0; i < live->n_parts; i++)
		free_memory(live->parts[i], part_bytes(i));
	free(live->unused);
	g_tree_destroy(live->mapped);
	*live = (struct live_blocks){ 0 };
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* Block numbers begin at 1. */
static inline struct live_block *block_at(const struct live_blocks *live, uint32_t number)
{
	uint32_t i = number - 1 + FIRST_BLOCKS;
	uint32_t part = (uint32_t)(__builtin_clz(FIRST_BLOCKS) - __builtin_clz(i));

	return &live->parts[part][i - part_blocks(part)];
}

static inline void prefetch_block(const struct live_block *block)
{
	prefetch_line(block);
	prefetch_line(&block->calls);
}

/* Grows `unused`, so that it has room for all numbers after one more part is added. */
static bool grow_unused(struct live_blocks *live)
{
	uint64_t n = part_blocks(live->n_parts + 1) - FIRST_BLOCKS,
		 more = part_blocks(live->n_parts) * sizeof(*live->unused);
	uint32_t *unused;

	if (!heap_budget_reserve(live->budget, more))
		return false;
	unused = realloc(live->unused, n * sizeof(*unused));
	if (!unused) {
		heap_budget_release(live->budget, more);
		return false;
	}
	live->unused = unused;
	return true;
}

static bool add_part(struct live_blocks *live)
{
	uint64_t bytes = part_bytes(live->n_parts);
	struct live_block *part;

	if (live->n_parts == LIVE_BLOCKS_PARTS)
		return false;
	part = get_memory(live, bytes);
	if (!part)
		return false;
	if (!grow_unused(live)) {
		heap_budget_release(live->budget, bytes);
		free_memory(part, bytes);
		return false;
	}
	live->parts[live->n_parts++] = part;
	return true;
}

/* Returns the number of a block; 0 if there is no room. */
static uint32_t allocate_block(struct live_blocks *live)
{
	uint32_t n = live->n_unused;

	if (n > 0) {
		live->n_unused--;
		/* Prefetch the next SOON blocks after those that are prefetched already. */
		if (n % SOON == 0 && live_blocks_is_far(live))
			for (uint32_t i = 1; i <= SOON && i + SOON <= n; i++)
				prefetch_block(block_at(live, live->unused[n - SOON - i]));
		return live->unused[n - 1];
	}
	if (live->n_blocks + FIRST_BLOCKS == part_blocks(live->n_parts) && !add_part(live))
		return 0;
	return ++live->n_blocks;
}

/* ---- Slots ----------------------------------------------------------------------------------- */

/* Hashes the window of the address; the lowest bits are the position in the window. */
static inline uint32_t hash_of(const struct live_blocks *live, uint64_t address)
{
	uint64_t place = address / UNIT % WINDOW;
	unsigned __int128 product = (unsigned __int128)((address - place * UNIT) ^ live->seed) *
				    HASH_ODD;
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

/* Returns the address's slot, or the empty slot where it belongs. */
static struct live_slot *find_slot(const struct live_blocks *live, struct live_slot *slots,
				   uint32_t n, uint64_t address, uint32_t hash)
{
	uint32_t i = slot_of(n, hash);

	while (slots[i].block != 0 &&
	       (slots[i].hash != hash || block_at(live, slots[i].block)->address != address))
		i = next_slot(n, i);
	return &slots[i];
}

/* Moves later entries into the gap, unless that would put them before their home slots. */
static void close_gap(struct live_slot *slots, uint32_t n, uint32_t gap)
{
	for (uint32_t i = next_slot(n, gap); slots[i].block != 0; i = next_slot(n, i)) {
		uint32_t home = slot_of(n, slots[i].hash);

		/* Keep the entry if its home is in (gap, i], which may wrap around: it must not
		 * precede its home. */
		if (gap <= i ? gap < home && home <= i : gap < home || home <= i)
			continue;
		slots[gap] = slots[i];
		gap = i;
	}
	slots[gap] = (struct live_slot){ 0 };
}

static void move_some(struct live_blocks *live, uint32_t n)
{
	for (; n > 0 && live->n_moved < live->n_old_slots; n--) {
		const struct live_slot moved = live->old[live->n_moved];
		uint32_t i = slot_of(live->n_slots, moved.hash);

		if (moved.block == 0) {
			live->n_moved++;
			continue;
		}
		/* Do not skip slot n_moved: close_gap() may move another entry into it. */
		close_gap(live->old, live->n_old_slots, live->n_moved);
		while (live->slots[i].block != 0)
			i = next_slot(live->n_slots, i);
		live->slots[i] = moved;
	}
	if (live->n_moved < live->n_old_slots)
		return;
	heap_budget_release(live->budget, slot_bytes(live->n_old_slots));
	free_memory(live->old, slot_bytes(live->n_old_slots));
	live->old = NULL;
	live->n_old_slots = live->n_moved = 0;
}

static bool make_next(struct live_blocks *live, uint32_t n)
{
	live->next = get_memory(live, slot_bytes(n));
	live->n_next_slots = live->next ? n : 0;
	live->n_touches = 0;
	return live->next;
}

static void use_next(struct live_blocks *live)
{
	if (live->old)
		move_some(live, UINT32_MAX);
	live->old = live->slots;
	live->n_old_slots = live->n_slots;
	live->n_moved = 0;
	live->slots = steal_ptr(&live->next);
	live->n_slots = live->n_next_slots;
	live->n_next_slots = 0;
	live->max = live->n_slots / 2;
	/* A small table needs no preparation. */
	live->soon = live->n_slots * sizeof(*live->slots) < HUGE_PAGE ? live->max
								      : live->max / 8 * 7;
}

/* Prepares the next table before it is needed. Otherwise, hashed accesses would soon touch all
 * pages of the new table, and allocating so many pages takes longer than a producer waits. */
static void prepare(struct live_blocks *live)
{
	uint64_t at = live->n_touches / TOUCH_PUTS * (HUGE_PAGE / sizeof(*live->next));

	if (!live->next) {
		(void)make_next(live, live->n_slots * 2);
		return;
	}
	if (live->n_touches++ % TOUCH_PUTS == 0 && at < live->n_next_slots)
		*(volatile uint32_t *)&live->next[at].block = 0;
}

/* Returns the slot of the block at this address, in `slots` or in `old` (*ret_is_old). If there is
 * no such block, returns the empty slot in `slots` where it belongs. */
static struct live_slot *find(const struct live_blocks *live, uint64_t address, uint32_t hash,
			      bool *ret_is_old)
{
	struct live_slot *slot = find_slot(live, live->slots, live->n_slots, address, hash), *old;

	*ret_is_old = false;
	if (slot->block != 0 || !live->old)
		return slot;
	old = find_slot(live, live->old, live->n_old_slots, address, hash);
	*ret_is_old = old->block != 0;
	return *ret_is_old ? old : slot;
}

static void note_peak(struct live_blocks *live, uint64_t time_ns)
{
	if (live->live_bytes <= live->peak_bytes)
		return;
	live->peak_bytes = live->live_bytes;
	live->peak_ns = time_ns;
}

bool live_blocks_put(struct live_blocks *live, const struct live_block *block,
		     struct live_block *ret_before)
{
	uint32_t hash = hash_of(live, block->address), number;
	struct live_slot *slot;
	struct live_block *kept;
	bool is_old;

	if (live->old)
		move_some(live, SOME);
	if (live->n == live->max) {
		if (!live->next && !make_next(live, MAX_OF(live->n_slots * 2, FIRST_SLOTS)))
			return false;
		use_next(live);
	}
	if (live->n >= live->soon)
		prepare(live);
	slot = find(live, block->address, hash, &is_old);
	if (slot->block != 0) {
		kept = block_at(live, slot->block);
		*ret_before = *kept;
	} else {
		number = allocate_block(live);
		if (number == 0)
			return false;
		*slot = (struct live_slot){ hash, number };
		live->n++;
		kept = block_at(live, number);
		ret_before->label = ret_before->size = 0;
	}
	live->live_bytes += block->size - ret_before->size;
	*kept = *block;
	note_peak(live, block->since_ns);
	return true;
}

bool live_blocks_hold(struct live_blocks *live, uint64_t address, struct live_block *ret_block)
{
	struct live_slot *slot;
	uint32_t number;
	bool is_old;

	if (live->old)
		move_some(live, SOME);
	if (live->n == 0)
		return false;
	slot = find(live, address, hash_of(live, address), &is_old);
	number = slot->block;
	if (number == 0)
		return false;
	*ret_block = *block_at(live, number);
	live->n--;
	live->n_held++;
	if (is_old)
		close_gap(live->old, live->n_old_slots, (uint32_t)(slot - live->old));
	else
		close_gap(live->slots, live->n_slots, (uint32_t)(slot - live->slots));
	block_at(live, number)->label = 0;
	live->unused[live->n_unused++] = number;
	return true;
}

void live_blocks_drop(struct live_blocks *live, const struct live_block *block)
{
	live->n_held--;
	live->live_bytes -= block->size;
}

bool live_blocks_remove(struct live_blocks *live, uint64_t address, struct live_block *ret_block)
{
	if (!live_blocks_hold(live, address, ret_block))
		return false;
	live_blocks_drop(live, ret_block);
	return true;
}

bool live_blocks_reserve(struct live_blocks *live, uint32_t n)
{
	if (n > 0 && live->n_slots == 0) {
		if (!make_next(live, MAX_OF(n * 2, FIRST_SLOTS)))
			return false;
		use_next(live);
	}
	return true;
}

const struct live_block *live_blocks_at(const struct live_blocks *live, uint32_t i)
{
	return block_at(live, i);
}

const struct live_block *live_blocks_find(const struct live_blocks *live, uint64_t address)
{
	const struct live_slot *slot;
	bool is_old;

	if (live->n == 0)
		return NULL;
	slot = find(live, address, hash_of(live, address), &is_old);
	return slot->block != 0 ? block_at(live, slot->block) : NULL;
}

/* ---- Mappings -------------------------------------------------------------------------------- */

uint64_t live_block_end(const struct live_block *block)
{
	uint64_t room = UINT64_MAX - block->address;
	uint64_t pages = block->size / PAGE + (block->size % PAGE != 0 || block->size == 0);

	return block->address + (pages > room / PAGE ? room : pages * PAGE);
}

bool live_blocks_map(struct live_blocks *live, const struct live_block *block)
{
	struct live_block *kept;

	if (!heap_budget_reserve(live->budget, MAPPING_BYTES))
		return false;
	kept = g_memdup2(block, sizeof(*block));
	g_tree_insert(live->mapped, kept, kept);
	live->n_mapped++;
	live->live_bytes += block->size;
	note_peak(live, block->since_ns);
	return true;
}

static const struct live_block *find_mapped(const struct live_blocks *live, uint64_t from,
					    uint64_t to)
{
	const struct live_block key = { .address = from }, *block;
	GTreeNode *after = g_tree_upper_bound(live->mapped, &key);
	GTreeNode *before = after ? g_tree_node_previous(after) : g_tree_node_last(live->mapped);

	block = before ? g_tree_node_value(before) : NULL;
	if (block && live_block_end(block) > from)
		return block;
	block = after ? g_tree_node_value(after) : NULL;
	return block && block->address < to ? block : NULL;
}

const struct live_block *live_blocks_mapped(const struct live_blocks *live, uint64_t address)
{
	return find_mapped(live, address, address);
}

bool live_blocks_unmap(struct live_blocks *live, uint64_t from, uint64_t to,
		       struct live_block *ret_block)
{
	const struct live_block *block = find_mapped(live, from, to);

	if (!block)
		return false;
	*ret_block = *block;
	g_tree_remove(live->mapped, ret_block);
	heap_budget_release(live->budget, MAPPING_BYTES);
	live->n_mapped--;
	live->n_held++;
	return true;
}

/* ---- All blocks ------------------------------------------------------------------------------ */

bool live_blocks_is_far(const struct live_blocks *live)
{
	return live->n_blocks >= MANY_BLOCKS;
}

void live_blocks_prefetch_slots(const struct live_blocks *live, const uint64_t *addresses, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t hash = hash_of(live, addresses[i]);
		const struct live_slot *slot = &live->slots[slot_of(live->n_slots, hash)];

		prefetch_line(slot);
		/* Probing may reach the next cache line. */
		prefetch_line(slot + 4);
		if (live->old)
			prefetch_line(&live->old[slot_of(live->n_old_slots, hash)]);
	}
}

void live_blocks_prefetch_blocks(const struct live_blocks *live, const uint64_t *addresses,
				 size_t n)
{
	for (size_t k = 0; k < n; k++) {
		uint32_t hash = hash_of(live, addresses[k]), i = slot_of(live->n_slots, hash);

		while (live->slots[i].block != 0 && live->slots[i].hash != hash)
			i = next_slot(live->n_slots, i);
		if (live->slots[i].block != 0)
			prefetch_block(block_at(live, live->slots[i].block));
	}
}

void live_blocks_reset_peak(struct live_blocks *live, uint64_t time_ns)
{
	live->peak_bytes = live->live_bytes;
	live->peak_ns = time_ns;
}
