/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of live-blocks.c, heap-rows.c and pending.c in daemon/engine: blocks and their rows. For
 * live blocks at the end of an epoch or a process, in pauses and in child processes, see
 * test-engine-heap-live.c; for call-nodes.c, test-engine-heap-stacks.c; for allocations through
 * rings, test-engine-collectors-stacks.c.
 */
#include "daemon/engine/huge-pages.h"
#include "tests/unit/heap.h"

#include <malloc.h>
#include <sys/mman.h>

/* ---- The map --------------------------------------------------------------------------------- */

static void test_huge_pages(void)
{
	const uint64_t bytes = 3 * HUGE_PAGE;

	for (int i = 0; i < 10; i++) {
		char *at = huge_pages_map(bytes);

		REQUIRE(CHECK(at));
		CHECK_INT((uintptr_t)at % HUGE_PAGE, 0);
		CHECK_INT(at[0] + at[bytes - 1], 0);
		CHECK_INT(munmap(at, bytes), 0);
	}
}

/* Compares the map with a GLib hash table, for random addresses in two dense ranges. */
static void test_model(void)
{
	struct heap_budget budget = { .limit = UINT64_MAX };
	g_autoptr(GHashTable)
		model = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
	g_autoptr(GRand) random = g_rand_new_with_seed(1);
	struct live_block taken;
	struct live_blocks blocks;
	uint64_t live = 0;

	live_blocks_init(&blocks, 7, &budget);
	CHECK(!live_blocks_remove(&blocks, 16, &taken));
	for (uint64_t i = 1; i <= 400000; i++) {
		uint64_t address = g_rand_int_range(random, 0, 20000) * UINT64_C(16) +
				   (i % 3 ? 0 : UINT64_C(1) << 45);
		struct live_block *known = g_hash_table_lookup(model, &address), before;

		if (i % 20000 > 10000 ? i % 4 == 0 : i % 4 != 0) {
			struct live_block block = { address, i % 512, i, live_block_label(i, 0, 0),
						    0,       0 };

			CHECK(live_blocks_put(&blocks, &block, &before));
			CHECK_INT(before.label, known ? known->label : 0);
			live += block.size - (known ? known->size : 0);
			known = g_memdup2(&block, sizeof(block));
			g_hash_table_replace(model, &known->address, known);
		} else {
			CHECK_INT(live_blocks_find(&blocks, address) != NULL, known != NULL);
			CHECK_INT(live_blocks_remove(&blocks, address, &taken), known != NULL);
			if (known) {
				CHECK_INT(taken.label, known->label);
				live -= known->size;
				g_hash_table_remove(model, &address);
			}
		}
		if (blocks.live_bytes != live || blocks.n != g_hash_table_size(model))
			break;
	}
	CHECK_INT(blocks.live_bytes, live);
	CHECK_INT(blocks.n, g_hash_table_size(model));
	CHECK_INT(budget.used, live_blocks_bytes(&blocks));
	live_blocks_done(&blocks);
	CHECK_INT(budget.used, 0);
}

/* The pages of a new table are populated in advance, so that no lookup waits for them. */
static void test_pages(void)
{
	const uint32_t stride = (2u << 20) / sizeof(struct live_slot);
	struct heap_budget budget = { .limit = UINT64_MAX };
	struct live_block before;
	struct live_blocks blocks;
	uint32_t n_slots;

	/* With MALLOC_PERTURB_, which Meson sets, malloc would write to all memory that it
	 * returns. */
	mallopt(M_PERTURB, 0);
	live_blocks_init(&blocks, 7, &budget);
	for (uint64_t i = 1; blocks.n_slots < 4 * stride; i++) {
		struct live_block block = { i * 16, 1, i, live_block_label(i, 0, 0), 0, 0 };

		CHECK(live_blocks_put(&blocks, &block, &before));
	}
	n_slots = blocks.n_slots;
	CHECK_INT(budget.used, live_blocks_bytes(&blocks));
	/* Skip the first pages: they hold the block that made the table grow, and the blocks that
	 * were moved first. */
	for (uint32_t i = stride; i < n_slots; i += stride) {
		uintptr_t page = (uintptr_t)&blocks.slots[i] & -(uintptr_t)sysconf(_SC_PAGESIZE);
		unsigned char is_there = 0;

		CHECK_INT(mincore((void *)page, 1, &is_there), 0);
		CHECK_INT(is_there & 1, 1);
	}
	live_blocks_done(&blocks);
	CHECK_INT(budget.used, 0);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static void test_rows(void)
{
	struct fixture fixture;

	fixture_init(&fixture);
	add_malloc(fixture.producer, &fixture, 100, 0x1000, 10);
	add_alloc(fixture.second, &fixture, 110,
		  (struct ring_alloc){ .address = 0x2000,
				       .size = 64,
				       .kind = RING_ALLOC_POSIX_MEMALIGN,
				       .alignment_log2 = 6 });
	add_alloc(fixture.producer, &fixture, 120,
		  (struct ring_alloc){ .size = UINT64_MAX / 2, .kind = RING_ALLOC_CALLOC });
	add_malloc(fixture.producer, &fixture, 130, 0x3000, 0);
	add_free(fixture.producer, &fixture, 140, 0);
	add_free(fixture.second, &fixture, 150, 0x1000);
	add_free(fixture.producer, &fixture, 160, 0xbad0);
	finish(&fixture, 200);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_ALLOC), 4);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 0, 100, MAIN, PROF_ALLOC_MALLOC, 1, 10, 0, 0, 0);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 1, 110, SECOND, PROF_ALLOC_POSIX_MEMALIGN, 2, 64, 64,
		  0, 0);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 2, 120, MAIN, PROF_ALLOC_CALLOC, 0, UINT64_MAX / 2, 0,
		  0, 0);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 3, 130, MAIN, PROF_ALLOC_MALLOC, 3, 0, 0, 0, 0);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_FREE), 3);
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 0, 140, MAIN, 0);
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 1, 150, SECOND, 1);
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 2, 160, MAIN, 0, 0xbad0, PROF_FREE_FREE);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_HEAP), 2);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 0, 100, 1, PROF_HEAP_BEGIN, 0, 0, 0, 100);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 1, 200, 1, PROF_HEAP_END, 64, 2, 74, 110);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_LIVE), 2);
	CHECK_ROW(&fixture, PROF_TABLE_LIVE, 0, 200, SECOND, PROF_ALLOC_POSIX_MEMALIGN, 2, 64, 64,
		  0, 110);
	CHECK_ROW(&fixture, PROF_TABLE_LIVE, 1, 200, MAIN, PROF_ALLOC_MALLOC, 3, 0, 0, 0, 130);
	CHECK_INT(g_hash_table_size(fixture.parts.losses.total), 0);
	fixture_done(&fixture);
}

/* Invalid kinds, flags, alignments and ids. */
static void test_lies(void)
{
	const struct ring_alloc allocs[] = { { .kind = RING_ALLOC_N_KINDS },
					     { .alignment_log2 = 64 },
					     { .flags = 2 } };
	const struct ring_realloc moves[] = { { .kind = RING_ALLOC_N_KINDS },
					      { .is_freed = 2 },
					      { .flags = 0x80 } };
	const struct ring_free_block freed = { .kind = RING_FREE_N_KINDS };
	const struct ring_calls calls[] = { { .first = RING_MAX_CALLS },
					    { .first = 1, .parent = RING_MAX_CALLS },
					    { .first = UINT32_MAX } };
	const struct {
		struct ring_calls calls;
		struct ring_frame frame;
	} kind = { { .first = 1, .n_frames = 1 }, { .kind = 16 } },
	  last = { { .first = RING_MAX_CALLS - 1, .n_frames = 1 }, { 0 } };
	struct fixture fixture;

	fixture_init(&fixture);
	for (size_t i = 0; i < ARRAY_SIZE(allocs); i++) {
		CHECK_INT(add(fixture.producer, &fixture, RING_ALLOC, 10, &allocs[i],
			      sizeof(allocs[i])),
			  RING_FAULT_PAYLOAD);
		CHECK_INT(add(fixture.producer, &fixture, RING_REALLOC, 10, &moves[i],
			      sizeof(moves[i])),
			  RING_FAULT_PAYLOAD);
		CHECK_INT(add(fixture.producer, &fixture, RING_CALLS, 10, &calls[i],
			      sizeof(calls[i])),
			  RING_FAULT_PAYLOAD);
	}
	CHECK_INT(add(fixture.producer, &fixture, RING_FREE_BLOCK, 10, &freed, sizeof(freed)),
		  RING_FAULT_PAYLOAD);
	CHECK_INT(add(fixture.producer, &fixture, RING_CALLS, 10, &kind, sizeof(kind)),
		  RING_FAULT_PAYLOAD);
	CHECK_INT(add(fixture.producer, &fixture, RING_CALLS, 10, &last, sizeof(last)),
		  RING_FAULT_NONE);
	finish(&fixture, 20);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_HEAP), 0);
	fixture_done(&fixture);
}

static void test_realloc(void)
{
	struct fixture fixture;

	fixture_init(&fixture);
	add_realloc(fixture.producer, &fixture, 100,
		    (struct ring_realloc){ .address = 0x1000, .size = 10, .duration_ns = 5 });
	/* in turn: the block moves, the block stays, the call fails, the block is freed */
	add_realloc(fixture.producer, &fixture, 110,
		    (struct ring_realloc){
			    .prior = 0x1000, .address = 0x2000, .size = 20, .duration_ns = 5 });
	add_realloc(fixture.second, &fixture, 120,
		    (struct ring_realloc){ .prior = 0x2000,
					   .address = 0x2000,
					   .size = 30,
					   .duration_ns = 5,
					   .kind = RING_ALLOC_REALLOCARRAY });
	add_realloc(fixture.producer, &fixture, 130,
		    (struct ring_realloc){ .prior = 0x2000, .size = 1u << 30, .duration_ns = 5 });
	add_realloc(fixture.producer, &fixture, 140,
		    (struct ring_realloc){ .prior = 0x2000,
					   .is_freed = 1,
					   .duration_ns = 5,
					   .kind = RING_ALLOC_REALLOCARRAY });
	/* realloc of an unknown block */
	add_realloc(fixture.producer, &fixture, 150,
		    (struct ring_realloc){ .prior = 0xbad0, .address = 0x4000, .size = 40 });
	add_free(fixture.producer, &fixture, 160, 0x4000);
	finish(&fixture, 200);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_ALLOC), 5);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 0, 105, MAIN, PROF_ALLOC_REALLOC, 1, 10, 0, 0, 0);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 1, 115, MAIN, PROF_ALLOC_REALLOC, 2, 20, 0, 0, 1);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 2, 125, SECOND, PROF_ALLOC_REALLOCARRAY, 3, 30, 0, 0,
		  2);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 3, 135, MAIN, PROF_ALLOC_REALLOC, 0, 1u << 30, 0, 0,
		  3);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 4, 150, MAIN, PROF_ALLOC_REALLOC, 4, 40, 0, 0, 0);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_FREE), 2);
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 0, 140, MAIN, 3);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_FREE, PROF_FREE_KIND, 0),
		  PROF_FREE_REALLOCARRAY);
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 1, 160, MAIN, 4);
	/* the two blocks of a realloc are not counted at the same time */
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 1, 200, 1, PROF_HEAP_END, 0, 0, 40, 150);
	CHECK_INT(g_hash_table_size(fixture.parts.losses.total), 0);
	fixture_done(&fixture);
}

/* During a realloc, other threads allocate its old address and free its new one. */
static void test_reuse(void)
{
	struct fixture fixture;

	fixture_init(&fixture);
	add_malloc(fixture.producer, &fixture, 10, 0x1000, 1);
	add_malloc(fixture.second, &fixture, 20, 0x2000, 2);
	add_realloc(fixture.producer, &fixture, 100,
		    (struct ring_realloc){
			    .prior = 0x1000, .address = 0x2000, .size = 3, .duration_ns = 50 });
	add_malloc(fixture.second, &fixture, 120, 0x1000, 4);
	add_free(fixture.second, &fixture, 130, 0x2000);
	add_free(fixture.second, &fixture, 150, 0x2000);
	add_free(fixture.second, &fixture, 160, 0x1000);
	finish(&fixture, 200);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_ALLOC), 4);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 2, 120, SECOND, PROF_ALLOC_MALLOC, 3, 4, 0, 0, 0);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 3, 150, MAIN, PROF_ALLOC_REALLOC, 4, 3, 0, 0, 1);
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 0, 130, SECOND, 2);
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 1, 150, SECOND, 4);
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 2, 160, SECOND, 3);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 1, 200, 1, PROF_HEAP_END, 0, 0, 7, 120);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_LIVE), 0);
	CHECK_INT(g_hash_table_size(fixture.parts.losses.total), 0);
	fixture_done(&fixture);
}

/* If a free was lost, the block ends when its address is allocated again. */
static void test_lost_free(void)
{
	struct fixture fixture;

	fixture_init(&fixture);
	add_malloc(fixture.producer, &fixture, 10, 0x1000, 1);
	add_malloc(fixture.second, &fixture, 20, 0x1000, 2);
	add_malloc(fixture.producer, &fixture, 30, 0x2000, 3);
	add_realloc(fixture.producer, &fixture, 40,
		    (struct ring_realloc){ .prior = 0x2000, .address = 0x1000, .size = 4 });
	finish(&fixture, 50);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 1, 20, SECOND, PROF_ALLOC_MALLOC, 2, 2, 0, 0, 1);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 3, 40, MAIN, PROF_ALLOC_REALLOC, 4, 4, 0, 0, 3);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_FREE), 1);
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 0, 40, MAIN, 2);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 1, 50, 1, PROF_HEAP_END, 4, 1, 5, 30);
	/* The second missing free is not counted, because the process has a known loss. */
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_CORRUPT), 1);
	fixture_done(&fixture);
}

/* At the same time, a thread frees an address and another one allocates it. Either record may
 * arrive first. */
static void test_ties(void)
{
	for (int turn = 0; turn < 2; turn++) {
		struct fixture fixture;

		fixture_init(&fixture);
		add_malloc(fixture.second, &fixture, 10, 0x1000, 1);
		add_malloc(fixture.second, &fixture, 11, 0x2000, 2);
		if (turn)
			add_free(fixture.second, &fixture, 20, 0x1000);
		add_malloc(fixture.producer, &fixture, 20, 0x1000, 3);
		if (!turn)
			add_free(fixture.second, &fixture, 20, 0x1000);
		/* as before, for both blocks of a realloc */
		if (turn)
			add_realloc(fixture.producer, &fixture, 30,
				    (struct ring_realloc){ .prior = 0x1000,
							   .address = 0x2000,
							   .size = 4,
							   .duration_ns = 10 });
		add_malloc(fixture.second, &fixture, 30, 0x1000, 5);
		if (!turn)
			add_realloc(fixture.producer, &fixture, 30,
				    (struct ring_realloc){ .prior = 0x1000,
							   .address = 0x2000,
							   .size = 4,
							   .duration_ns = 10 });
		add_free(fixture.second, &fixture, 40, 0x2000);
		add_free(fixture.producer, &fixture, 50, 0x2000);
		add_free(fixture.second, &fixture, 60, 0x1000);
		finish(&fixture, 100);
		CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_ALLOC), 5);
		CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 2, 20, MAIN, PROF_ALLOC_MALLOC, 3, 3, 0, 0,
			  0);
		CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 3, 30, SECOND, PROF_ALLOC_MALLOC, 4, 5, 0, 0,
			  0);
		CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 4, 40, MAIN, PROF_ALLOC_REALLOC, 5, 4, 0, 0,
			  3);
		CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_FREE), 4);
		CHECK_ROW(&fixture, PROF_TABLE_FREE, 0, 20, SECOND, 1);
		CHECK_ROW(&fixture, PROF_TABLE_FREE, 1, 40, SECOND, 2);
		CHECK_ROW(&fixture, PROF_TABLE_FREE, 2, 50, MAIN, 5);
		CHECK_ROW(&fixture, PROF_TABLE_FREE, 3, 60, SECOND, 4);
		CHECK_ROW(&fixture, PROF_TABLE_HEAP, 1, 100, 1, PROF_HEAP_END, 0, 0);
		CHECK_INT(g_hash_table_size(fixture.parts.losses.total), 0);
		fixture_done(&fixture);
	}
}

/* If a free has the time of the last allocation, the free's row has the number of blocks that were
 * allocated after the freed block and before the free. */
static void test_order(void)
{
	struct fixture fixture;
	static const uint64_t younger[] = { 2, 1, 0, 0, 0, 0 };

	fixture_init(&fixture);
	add_malloc(fixture.producer, &fixture, 20, 0x1000, 1);
	add_malloc(fixture.producer, &fixture, 20, 0x2000, 2);
	add_malloc(fixture.producer, &fixture, 20, 0x3000, 3);
	add_free(fixture.producer, &fixture, 20, 0x1000);
	add_free(fixture.producer, &fixture, 20, 0x2000);
	add_free(fixture.producer, &fixture, 20, 0x3000);
	add_malloc(fixture.producer, &fixture, 30, 0x4000, 4);
	add_malloc(fixture.producer, &fixture, 30, 0x5000, 5);
	add_free(fixture.producer, &fixture, 30, 0xbad0);
	add_free(fixture.producer, &fixture, 30, 0);
	add_free(fixture.producer, &fixture, 40, 0x4000);
	finish(&fixture, 100);
	for (size_t i = 0; i < ARRAY_SIZE(younger); i++)
		CHECK_INT(number_of(&fixture.parts, PROF_TABLE_FREE, PROF_FREE_YOUNGER, i),
			  younger[i]);
	fixture_done(&fixture);
}

/* The process ends while records are pending. If all records of a thread have the same time, at
 * most 8 are pending. */
static void test_ties_at_end(void)
{
	struct fixture fixture;

	fixture_init(&fixture);
	for (uint64_t i = 1; i <= 20; i++)
		add_malloc(fixture.second, &fixture, 10, i * 16, 1);
	for (uint64_t i = 1; i <= 20; i++)
		add_malloc(fixture.producer, &fixture, 20, i * 16, 2);
	CHECK_INT(fixture.rows.heaps.pending.n, 8);
	end_process(&fixture, &fixture.process, 20);
	CHECK_INT(fixture.rows.heaps.pending.n, 0);
	finish(&fixture, 30);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_ALLOC), 40);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 1, 20, 1, PROF_HEAP_END, 40, 20);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_LIVE), 20);
	fixture_done(&fixture);
}

#define ADDRESSES 6u
#define TIES 4000u

/* The expected result: for each block, the thread that freed the block, and the prior block if the
 * block comes from a realloc. Blocks are identified by their sizes, which are unique. */
struct story {
	uint64_t sizes[ADDRESSES]; /* size of the live block; 0: none */
	uint64_t freed_by[2 * TIES], prior[2 * TIES];
	uint64_t n_sizes, n_frees;
};

static uint64_t pick(const struct story *story, GRand *random, bool lives)
{
	uint64_t at;

	do
		at = (uint64_t)g_rand_int_range(random, 0, ADDRESSES);
	while ((story->sizes[at] != 0) != lives);
	return at;
}

static uint64_t put_at(struct story *story, uint64_t at, uint64_t prior)
{
	story->prior[++story->n_sizes] = prior;
	return story->sizes[at] = story->n_sizes;
}

/* One thread ends a block, by free() or the start of a realloc. At the same time, the other thread
 * allocates a block, usually at the same address. */
static void add_tie(struct story *story, struct fixture *fixture, GRand *random, uint64_t time)
{
	bool is_turned = g_rand_boolean(random), is_moved = g_rand_boolean(random);
	struct collector_producer *const producers[] = { fixture->producer, fixture->second };
	unsigned int giver = g_rand_boolean(random);
	uint64_t up = pick(story, random, true), ended = story->sizes[up], other, address, size;

	story->sizes[up] = 0;
	address = g_rand_int_range(random, 0, 4) ? up : pick(story, random, false);
	size = put_at(story, address, 0);
	if (is_turned)
		add_malloc(producers[!giver], fixture, time, 16 + address * 16, size);
	if (is_moved) {
		other = pick(story, random, false);
		add_realloc(producers[giver], fixture, time,
			    (struct ring_realloc){ .prior = 16 + up * 16,
						   .address = 16 + other * 16,
						   .size = put_at(story, other, ended),
						   .duration_ns = 1 });
	} else {
		story->freed_by[ended] = giver + 1;
		story->n_frees++;
		add_free(producers[giver], fixture, time, 16 + up * 16);
	}
	if (!is_turned)
		add_malloc(producers[!giver], fixture, time, 16 + address * 16, size);
}

static size_t count_living(const struct story *story)
{
	size_t n = 0;

	for (size_t i = 0; i < ADDRESSES; i++)
		n += story->sizes[i] != 0;
	return n;
}

/* Ensures that at least one block is live and two addresses are free, because a tie ends a block
 * and allocates up to two. Returns the next time. */
static uint64_t make_room(struct story *story, struct fixture *fixture, uint64_t time)
{
	if (count_living(story) == 0)
		add_malloc(fixture->producer, fixture, time++, 16, put_at(story, 0, 0));
	for (size_t i = 0; count_living(story) > ADDRESSES - 2; i++) {
		story->freed_by[story->sizes[i]] = SECOND;
		story->n_frees += story->sizes[i] != 0;
		if (story->sizes[i])
			add_free(fixture->second, fixture, time++, 16 + i * 16);
		story->sizes[i] = 0;
	}
	return time;
}

/* Every block is recorded once, and ended by the right thread. */
static void test_conservation(void)
{
	g_autofree struct story *story = g_new0(struct story, 1);
	g_autofree uint64_t *size_of = g_new0(uint64_t, 2 * TIES);
	g_autoptr(GRand) random = g_rand_new_with_seed(3);
	struct fixture fixture;
	uint64_t time = 10;
	size_t n_wrong = 0;

	fixture_init(&fixture);
	for (; story->n_sizes < TIES; time += 2) {
		time = make_room(story, &fixture, time);
		add_tie(story, &fixture, random, time);
	}
	finish(&fixture, time);
	CHECK_INT(g_hash_table_size(fixture.parts.losses.total), 0);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_ALLOC), story->n_sizes);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_FREE), story->n_frees);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_LIVE), count_living(story));
	for (size_t i = 0; i < story->n_sizes; i++) {
		uint64_t size = number_of(&fixture.parts, PROF_TABLE_ALLOC, PROF_ALLOC_SIZE, i);

		n_wrong += number_of(&fixture.parts, PROF_TABLE_ALLOC, PROF_ALLOC_BLOCK, i) !=
			   i + 1;
		n_wrong +=
			size_of[number_of(&fixture.parts, PROF_TABLE_ALLOC, PROF_ALLOC_PRIOR, i)] !=
			story->prior[size];
		size_of[i + 1] = size;
	}
	for (size_t i = 0; i < story->n_frees; i++)
		n_wrong += story->freed_by[size_of[number_of(&fixture.parts, PROF_TABLE_FREE,
							     PROF_FREE_BLOCK, i)]] !=
			   number_of(&fixture.parts, PROF_TABLE_FREE, PROF_FREE_THREAD, i);
	CHECK_INT(n_wrong, 0);
	fixture_done(&fixture);
}

static void add_map(struct collector_producer *producer, struct fixture *fixture, uint64_t time_ns,
		    uint64_t address, uint64_t pages)
{
	add_alloc(producer, fixture, time_ns,
		  (struct ring_alloc){
			  .address = address, .size = pages * 4096, .kind = RING_ALLOC_MMAP });
}

static void add_unmap(struct collector_producer *producer, struct fixture *fixture,
		      uint64_t time_ns, uint64_t address, uint32_t pages)
{
	const struct ring_free_block freed = { .address = address,
					       .kind = RING_FREE_MUNMAP,
					       .pages = pages };

	CHECK_INT(add(producer, fixture, RING_FREE_BLOCK, time_ns, &freed, sizeof(freed)),
		  RING_FAULT_NONE);
}

/* Mappings are unmapped in parts or several at once, replaced by others, and moved by mremap. */
static void test_mappings(void)
{
	const uint64_t page = 4096, at = 1 << 20;
	struct fixture fixture;

	fixture_init(&fixture);
	add_map(fixture.producer, &fixture, 10, at, 10);
	/* makes a hole */
	add_unmap(fixture.second, &fixture, 20, at + 4 * page, 2);
	add_map(fixture.producer, &fixture, 30, at + 20 * page, 1);
	/* unmaps the end of the first part and the whole second part, but not the other mapping */
	add_unmap(fixture.second, &fixture, 40, at + 3 * page, 17);
	add_unmap(fixture.second, &fixture, 50, at + 100 * page, 1);
	add_map(fixture.second, &fixture, 60, at + 20 * page, 2);
	add_realloc(fixture.second, &fixture, 70,
		    (struct ring_realloc){ .prior = at + 20 * page,
					   .address = at + 30 * page,
					   .size = 3 * page,
					   .duration_ns = 5,
					   .kind = RING_ALLOC_MREMAP });
	add_realloc(fixture.second, &fixture, 80,
		    (struct ring_realloc){
			    .prior = at + 30 * page, .size = 9 * page, .kind = RING_ALLOC_MREMAP });
	/* a heap block inside of the mapping */
	add_malloc(fixture.producer, &fixture, 90, at, 1);
	add_map(fixture.producer, &fixture, 100, UINT64_MAX - 100, 100);
	finish(&fixture, 200);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 0, 10, MAIN, PROF_ALLOC_MMAP, 1, 10 * page, 0, 0, 0);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 1, 20, MAIN, PROF_ALLOC_MMAP, 2, 4 * page, 0, 0, 1);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 2, 20, MAIN, PROF_ALLOC_MMAP, 3, 4 * page, 0, 0, 1);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 3, 30, MAIN, PROF_ALLOC_MMAP, 4, page, 0, 0, 0);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 4, 40, MAIN, PROF_ALLOC_MMAP, 5, 3 * page, 0, 0, 2);
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 0, 40, SECOND, 3);
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 1, 50, SECOND, 0, at + 100 * page, PROF_FREE_MUNMAP);
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 2, 60, SECOND, 4);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 5, 60, SECOND, PROF_ALLOC_MMAP, 6, 2 * page, 0, 0, 0);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 6, 75, SECOND, PROF_ALLOC_MREMAP, 7, 3 * page, 0, 0,
		  6);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 7, 80, SECOND, PROF_ALLOC_MREMAP, 0, 9 * page, 0, 0,
		  7);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 1, 200, 1, PROF_HEAP_END, 106 * page + 1, 4,
		  106 * page + 1, 100);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_FREE), 3);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_LIVE), 4);
	fixture_done(&fixture);
}

/* ---- Limits ---------------------------------------------------------------------------------- */

/* A process sends blocks, nodes and reallocs without end. */
static void test_limits(void)
{
	struct fixture fixture;
	uint64_t n = 0;

	fixture_init(&fixture);
	fixture.rows.heaps.budget.limit = 1 << 20;
	for (uint32_t i = 1; i < 30000; i++)
		add_malloc(fixture.producer, &fixture, i, i * UINT64_C(16), 1);
	n = losses_of(&fixture.parts, PROF_LOSS_RING_REFUSED);
	CHECK(n > 10000 && n < 29000);
	/* existing blocks are still handled */
	add_free(fixture.producer, &fixture, 40000, 16);
	add_calls(fixture.second, &fixture, 40001, RING_MAX_CALLS - 1, 0, (const uint32_t[]){ 1 },
		  1);
	for (uint32_t i = 1; i < 30000; i++)
		add_calls(fixture.second, &fixture, 50000, i, 0, (const uint32_t[]){ i }, 1);
	CHECK(losses_of(&fixture.parts, PROF_LOSS_RING_REFUSED) > n + 10000);
	CHECK(fixture.rows.heaps.budget.used <= 1 << 20);
	for (uint32_t i = 0; i < 1000; i++)
		add_realloc(fixture.second, &fixture, 60000 + i,
			    (struct ring_realloc){
				    .prior = 32, .address = 32, .duration_ns = UINT64_MAX - i });
	CHECK(fixture.rows.heaps.pending.n <= 8);
	CHECK(losses_of(&fixture.parts, PROF_LOSS_RING_CORRUPT) >= 1000 - 8);
	finish(&fixture, 70000);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_FREE, PROF_FREE_BLOCK, 0), 1);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_ALLOC), 29999 - n + 1000);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_LIVE), 29999 - n - 1);
	fixture_done(&fixture);
}

int main(void)
{
	RUN(test_huge_pages);
	RUN(test_model);
	RUN(test_pages);
	RUN(test_rows);
	RUN(test_lies);
	RUN(test_realloc);
	RUN(test_reuse);
	RUN(test_lost_free);
	RUN(test_ties);
	RUN(test_order);
	RUN(test_ties_at_end);
	RUN(test_conservation);
	RUN(test_mappings);
	RUN(test_limits);
	return test_end();
}
