/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-blocks - the live blocks of one process, by number
 *
 * Invariants: (1) a number occurs at most once in the two tables [test-memory-blocks: random]
 *             (2) `old` is at most 3/4 full, so a search ends [test-memory-blocks: random]
 *             (3) a file cannot force collisions in `old`        (the hash has a per-process seed)
 */
#include "config.h"

#include "tools/profcapture/memory-blocks.h"

#include "base/hash.h"

#include <glib.h>

#define FIRST_RECENT 256
#define MOST_RECENT (1u << 16)
#define FIRST_OLD 64
#define TOGETHER 16

static void table_init(struct memory_table *table, size_t n, bool more)
{
	*table = (struct memory_table){ .blocks = g_new0(struct memory_block, n), .n = n };
	if (more)
		table->more = g_new0(struct memory_block_more, n);
}

static void table_done(struct memory_table *table)
{
	g_free(table->blocks);
	g_free(table->more);
	*table = (struct memory_table){ 0 };
}

static void put(struct memory_table *table, size_t at, const struct memory_block *block,
		const struct memory_block_more *more)
{
	table->blocks[at] = *block;
	if (table->more)
		table->more[at] = *more;
}

void memory_blocks_init(struct memory_blocks *blocks, bool wants_more)
{
	*blocks = (struct memory_blocks){
		.seed = (uint64_t)g_random_int() << 32 | g_random_int(),
		.wants_more = wants_more,
	};
}

void memory_blocks_done(struct memory_blocks *blocks)
{
	table_done(&blocks->recent);
	table_done(&blocks->old);
}

/* ---- the hash table -------------------------------------------------------------------------- */

/* Returns the slot at which the search for a number starts. Blocks of similar age are often freed
 * together, so they are kept adjacent to avoid cache misses. */
static size_t home_of(const struct memory_blocks *blocks, uint64_t number)
{
	uint64_t mixed = (number / TOGETHER ^ blocks->seed) * HASH_ODD;

	mixed = (mixed ^ mixed >> 32) * UINT64_C(0xd6e8feb86659fd93);
	return ((mixed ^ mixed >> 32) * TOGETHER + number % TOGETHER) & (blocks->old.n - 1);
}

/* Returns the slot of the block, or the free slot for it. */
static size_t find_old(const struct memory_blocks *blocks, uint64_t number)
{
	size_t at = home_of(blocks, number);

	while (blocks->old.blocks[at].number && blocks->old.blocks[at].number != number)
		at = (at + 1) & (blocks->old.n - 1);
	return at;
}

static const struct memory_block_more *more_at(const struct memory_table *table, size_t at)
{
	return table->more ? &table->more[at] : NULL;
}

/* The block must not be in the table. */
static void add_old(struct memory_blocks *blocks, const struct memory_block *block,
		    const struct memory_block_more *more)
{
	if ((blocks->old.used + 1) * 4 > blocks->old.n * 3) {
		struct memory_table before = blocks->old;

		table_init(&blocks->old, before.n ? before.n * 2 : FIRST_OLD, blocks->wants_more);
		blocks->old.used = before.used;
		for (size_t i = 0; i < before.n; i++)
			if (before.blocks[i].number)
				put(&blocks->old, find_old(blocks, before.blocks[i].number),
				    &before.blocks[i], more_at(&before, i));
		table_done(&before);
	}
	put(&blocks->old, find_old(blocks, block->number), block, more);
	blocks->old.used++;
}

/* Frees a slot, and moves later entries into the gap, unless that would put them before their home
 * slot. */
static void remove_old(struct memory_blocks *blocks, size_t hole)
{
	struct memory_table *old = &blocks->old;
	size_t mask = old->n - 1;

	for (size_t at = (hole + 1) & mask; old->blocks[at].number; at = (at + 1) & mask) {
		size_t home = home_of(blocks, old->blocks[at].number);

		if (((at - home) & mask) < ((at - hole) & mask))
			continue;
		put(old, hole, &old->blocks[at], more_at(old, at));
		hole = at;
	}
	old->blocks[hole].number = 0;
	old->used--;
}

/* ---- both ------------------------------------------------------------------------------------ */

/* The block's number must be in neither table. */
static void add_new(struct memory_blocks *blocks, const struct memory_block *block,
		    const struct memory_block_more *more)
{
	struct memory_table *recent = &blocks->recent;
	size_t at = block->number & (recent->n - 1);

	if (recent->blocks[at].number > block->number) {
		add_old(blocks, block, more);
		return;
	}
	if (recent->blocks[at].number) {
		add_old(blocks, &recent->blocks[at], more_at(recent, at));
		blocks->moved++;
	} else {
		recent->used++;
	}
	put(recent, at, block, more);
}

bool memory_blocks_add(struct memory_blocks *blocks, const struct memory_block *block,
		       const struct memory_block_more *more, struct memory_block *ret_old)
{
	struct memory_block_more unused;
	bool was_there = block->number <= blocks->highest &&
			 memory_blocks_take(blocks, block->number, ret_old, &unused);
	struct memory_table before = blocks->recent;

	if (before.n == 0 || (blocks->moved > before.n && before.n < MOST_RECENT)) {
		table_init(&blocks->recent, before.n ? before.n * 4 : FIRST_RECENT,
			   blocks->wants_more);
		blocks->recent.used = before.used;
		blocks->moved = 0;
		/* Numbers that differ modulo the old length also differ modulo the new one. */
		for (size_t i = 0; i < before.n; i++)
			if (before.blocks[i].number)
				put(&blocks->recent,
				    before.blocks[i].number & (blocks->recent.n - 1),
				    &before.blocks[i], more_at(&before, i));
		table_done(&before);
	}
	if (block->number > blocks->highest)
		blocks->highest = block->number;
	add_new(blocks, block, more);
	return was_there;
}

bool memory_blocks_take(struct memory_blocks *blocks, uint64_t number,
			struct memory_block *ret_block, struct memory_block_more *ret_more)
{
	struct memory_table *table = &blocks->recent;
	size_t at = table->n ? number & (table->n - 1) : 0;

	if (number == 0 || table->n == 0)
		return false;
	if (table->blocks[at].number != number) {
		table = &blocks->old;
		if (table->used == 0)
			return false;
		at = find_old(blocks, number);
		if (table->blocks[at].number != number)
			return false;
	}
	*ret_block = table->blocks[at];
	if (table->more)
		*ret_more = table->more[at];
	if (table == &blocks->old) {
		remove_old(blocks, at);
	} else {
		table->blocks[at].number = 0;
		table->used--;
	}
	return true;
}

size_t memory_blocks_count(const struct memory_blocks *blocks)
{
	return blocks->recent.used + blocks->old.used;
}

void memory_blocks_each(const struct memory_blocks *blocks,
			void (*each)(const struct memory_block *block,
				     const struct memory_block_more *more, void *data),
			void *data)
{
	const struct memory_table *const tables[] = { &blocks->old, &blocks->recent };

	for (size_t t = 0; t < ARRAY_SIZE(tables); t++)
		for (size_t i = 0; i < tables[t]->n; i++)
			if (tables[t]->blocks[i].number)
				each(&tables[t]->blocks[i], more_at(tables[t], i), data);
}
