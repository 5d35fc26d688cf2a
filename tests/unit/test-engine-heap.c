/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of heap.c, heap-rows.c and call-nodes.c in daemon/engine: records of allocations at times of our choice, and the rows that
 * they become. What goes through rings is checked in test-engine-collectors.c.
 */
#include "daemon/engine/collector-rows.h"
#include "tests/unit/engine.h"

#define PID 2000000001
#define OTHER_TID 2000000002
#define OTHER_PID 2000000003
#define CODE UINT64_C(0x700000001000)

/* Times of rows are whole ones. */
#define TICK_NS 16u

struct fixture {
	struct parts parts;
	struct collector_rows rows;
	struct collector_process process, other_process;
	/* the first two are threads of the same process */
	struct collector_owner *owner, *second, *stranger;
};

static void fixture_init(struct fixture *fixture)
{
	*fixture = (struct fixture){ 0 };
	parts_init(&fixture->parts);
	tasks_found(&fixture->parts.tasks, PID, PID, 1);
	tasks_found(&fixture->parts.tasks, PID, OTHER_TID, 1);
	tasks_found(&fixture->parts.tasks, OTHER_PID, OTHER_PID, 1);
	fixture->rows = (struct collector_rows){
		.output = &fixture->parts.output,
		.tasks = &fixture->parts.tasks,
		.losses = &fixture->parts.losses,
		.images = &fixture->parts.images,
	};
	heap_merge_init(&fixture->rows.heaps, &fixture->parts.tasks);
	collector_process_init(&fixture->process, &fixture->rows, PID, 0);
	collector_process_init(&fixture->other_process, &fixture->rows, OTHER_PID, 0);
	CHECK(collector_process_bind(&fixture->process, UINT64_MAX));
	CHECK(collector_process_bind(&fixture->other_process, UINT64_MAX));
	fixture->owner = collector_owner_new(&fixture->process, PID);
	fixture->second = collector_owner_new(&fixture->process, OTHER_TID);
	fixture->stranger = collector_owner_new(&fixture->other_process, OTHER_PID);
}

/* They end, and everything is in the capture. */
static void finish(struct fixture *fixture, uint64_t time)
{
	uint64_t time_ns = time * TICK_NS;

	heap_merge_run(&fixture->rows.heaps, time_ns);
	collector_process_end(&fixture->process, time_ns);
	collector_process_end(&fixture->other_process, time_ns);
	parts_finish(&fixture->parts);
}

static void fixture_done(struct fixture *fixture)
{
	collector_owner_unref(fixture->owner);
	collector_owner_unref(fixture->second);
	collector_owner_unref(fixture->stranger);
	collector_process_done(&fixture->process);
	collector_process_done(&fixture->other_process);
	/* what was kept of them was given back */
	CHECK_INT(fixture->rows.heaps.budget.used, 0);
	CHECK_INT(fixture->rows.heaps.n, 0);
	heap_merge_done(&fixture->rows.heaps);
	if (fixture->rows.lost_image)
		row_unref(&fixture->rows.lost_image->row);
	if (fixture->rows.cut_image)
		row_unref(&fixture->rows.cut_image->row);
	parts_done(&fixture->parts);
}

/* The time is in ticks, as all here. */
static enum ring_fault add(struct collector_owner *owner, struct fixture *fixture,
			   enum ring_type type, uint64_t time, const void *payload, size_t n)
{
	const struct ring_record record = {
		.type = type, .time_ns = time * TICK_NS, .payload = payload, .n_bytes = (uint32_t)n
	};

	heap_merge_run(&fixture->rows.heaps, record.time_ns);
	return collector_owner_add(owner, &record);
}

static void add_alloc(struct collector_owner *owner, struct fixture *fixture, uint64_t time_ns,
		      struct ring_alloc alloc)
{
	CHECK_INT(add(owner, fixture, RING_ALLOC, time_ns, &alloc, sizeof(alloc)), RING_FAULT_NONE);
}

static void add_malloc(struct collector_owner *owner, struct fixture *fixture, uint64_t time_ns,
		       uint64_t address, uint64_t size)
{
	add_alloc(owner, fixture, time_ns, (struct ring_alloc){ .address = address, .size = size });
}

static void add_free(struct collector_owner *owner, struct fixture *fixture, uint64_t time_ns,
		     uint64_t address)
{
	const struct ring_free_block freed = { .address = address };

	CHECK_INT(add(owner, fixture, RING_FREE_BLOCK, time_ns, &freed, sizeof(freed)),
		  RING_FAULT_NONE);
}

static void add_realloc(struct collector_owner *owner, struct fixture *fixture, uint64_t time_ns,
			struct ring_realloc moved)
{
	if (moved.kind == 0)
		moved.kind = RING_ALLOC_REALLOC;
	moved.duration_ns = MIN_OF(moved.duration_ns, UINT64_MAX / TICK_NS) * TICK_NS;
	CHECK_INT(add(owner, fixture, RING_REALLOC, time_ns, &moved, sizeof(moved)),
		  RING_FAULT_NONE);
}

/* Frames at these offsets from CODE, outermost first. */
static enum ring_fault add_calls(struct collector_owner *owner, struct fixture *fixture,
				 uint64_t time_ns, uint32_t first, uint32_t parent,
				 const uint32_t *offsets, uint32_t n)
{
	struct {
		struct ring_calls calls;
		struct ring_frame frames[8];
	} told = { .calls = { .first = first, .parent = parent, .n_frames = n } };

	for (uint32_t i = 0; i < n; i++)
		told.frames[i] = (struct ring_frame){ CODE + offsets[i], 0, RING_FRAME_NO_FILE };
	return add(owner, fixture, RING_CALLS, time_ns, &told,
		   sizeof(told.calls) + n * sizeof(*told.frames));
}

static uint64_t lost(const struct fixture *fixture, enum prof_loss_cause cause)
{
	GHashTableIter iter;
	gpointer value;
	uint64_t sum = 0;

	g_hash_table_iter_init(&iter, fixture->parts.losses.total);
	while (g_hash_table_iter_next(&iter, NULL, &value))
		if (((struct loss *)value)->key.cause == cause)
			sum += ((struct loss *)value)->count;
	return sum;
}

/* The first columns of a row. */
static bool check_row(const struct fixture *fixture, enum prof_table table, size_t i,
		      const uint64_t *expected, uint16_t n)
{
	const struct prof_column_def *columns = prof_table_v1(table)->columns;
	bool is_good = true;

	for (uint16_t column = 0; column < n; column++) {
		uint64_t scale = columns[column].type == PROF_TYPE_TIME ? TICK_NS : 1;

		if (!CHECK_INT(number_of(&fixture->parts, table, column, i),
			       expected[column] * scale)) {
			printf("# table %d, row %zu, column %u\n", table, i, column);
			is_good = false;
		}
	}
	return is_good;
}

#define CHECK_ROW(fixture, table, i, ...)                               \
	check_row(fixture, table, i, (const uint64_t[]){ __VA_ARGS__ }, \
		  sizeof((const uint64_t[]){ __VA_ARGS__ }) / sizeof(uint64_t))

#define MAIN 1 /* rows of threads */
#define SECOND 2
#define STRANGER 3

/* ---- The map ------------------------------------------------------------------------------------ */

/* Against a table of GLib's: addresses that are next to each other, and any. */
static void test_model(void)
{
	struct heap_budget budget = { .limit = UINT64_MAX };
	g_autoptr(GHashTable)
		model = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
	g_autoptr(GRand) random = g_rand_new_with_seed(1);
	struct heap_block taken;
	struct heap heap;
	uint64_t live = 0;

	heap_init(&heap, 7, &budget);
	CHECK(!heap_take(&heap, 16, &taken));
	for (uint64_t i = 1; i <= 400000; i++) {
		uint64_t address = g_rand_int_range(random, 0, 20000) * UINT64_C(16) +
				   (i % 3 ? 0 : UINT64_C(1) << 45);
		struct heap_block *known = g_hash_table_lookup(model, &address), before;

		if (i % 20000 > 10000 ? i % 4 == 0 : i % 4 != 0) {
			struct heap_block block = {
				address, i % 512, i, heap_label(i, 0, 0), 0, 0
			};

			CHECK(heap_put(&heap, &block, &before));
			CHECK_INT(before.label, known ? known->label : 0);
			live += block.size - (known ? known->size : 0);
			known = g_memdup2(&block, sizeof(block));
			g_hash_table_replace(model, &known->address, known);
		} else {
			CHECK_INT(heap_find(&heap, address) != NULL, known != NULL);
			CHECK_INT(heap_take(&heap, address, &taken), known != NULL);
			if (known) {
				CHECK_INT(taken.label, known->label);
				live -= known->size;
				g_hash_table_remove(model, &address);
			}
		}
		if (heap.live_bytes != live || heap.n != g_hash_table_size(model))
			break;
	}
	CHECK_INT(heap.live_bytes, live);
	CHECK_INT(heap.n, g_hash_table_size(model));
	CHECK_INT(budget.used, heap_bytes(&heap));
	heap_done(&heap);
	CHECK_INT(budget.used, 0);
}

/* ---- Rows --------------------------------------------------------------------------------------- */

static void test_rows(void)
{
	struct fixture fixture;

	fixture_init(&fixture);
	add_malloc(fixture.owner, &fixture, 100, 0x1000, 10);
	add_alloc(fixture.second, &fixture, 110,
		  (struct ring_alloc){ .address = 0x2000,
				       .size = 64,
				       .kind = RING_ALLOC_POSIX_MEMALIGN,
				       .alignment_log2 = 6 });
	add_alloc(fixture.owner, &fixture, 120,
		  (struct ring_alloc){ .size = UINT64_MAX / 2, .kind = RING_ALLOC_CALLOC });
	add_malloc(fixture.owner, &fixture, 130, 0x3000, 0);
	add_free(fixture.owner, &fixture, 140, 0);
	add_free(fixture.second, &fixture, 150, 0x1000);
	add_free(fixture.owner, &fixture, 160, 0xbad0);
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

/* Kinds that there are not. */
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
	} kind = { { .first = 1, .n_frames = 1 }, { .kind = 8 } },
	  last = { { .first = RING_MAX_CALLS - 1, .n_frames = 1 }, { 0 } };
	struct fixture fixture;

	fixture_init(&fixture);
	for (size_t i = 0; i < ARRAY_SIZE(allocs); i++) {
		CHECK_INT(add(fixture.owner, &fixture, RING_ALLOC, 10, &allocs[i],
			      sizeof(allocs[i])),
			  RING_FAULT_PAYLOAD);
		CHECK_INT(add(fixture.owner, &fixture, RING_REALLOC, 10, &moves[i],
			      sizeof(moves[i])),
			  RING_FAULT_PAYLOAD);
		CHECK_INT(add(fixture.owner, &fixture, RING_CALLS, 10, &calls[i], sizeof(calls[i])),
			  RING_FAULT_PAYLOAD);
	}
	CHECK_INT(add(fixture.owner, &fixture, RING_FREE_BLOCK, 10, &freed, sizeof(freed)),
		  RING_FAULT_PAYLOAD);
	CHECK_INT(add(fixture.owner, &fixture, RING_CALLS, 10, &kind, sizeof(kind)),
		  RING_FAULT_PAYLOAD);
	CHECK_INT(add(fixture.owner, &fixture, RING_CALLS, 10, &last, sizeof(last)),
		  RING_FAULT_NONE);
	finish(&fixture, 20);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_HEAP), 0);
	fixture_done(&fixture);
}

static void test_realloc(void)
{
	struct fixture fixture;

	fixture_init(&fixture);
	add_realloc(fixture.owner, &fixture, 100,
		    (struct ring_realloc){ .address = 0x1000, .size = 10, .duration_ns = 5 });
	/* moves, stays, fails, is freed */
	add_realloc(fixture.owner, &fixture, 110,
		    (struct ring_realloc){
			    .prior = 0x1000, .address = 0x2000, .size = 20, .duration_ns = 5 });
	add_realloc(fixture.second, &fixture, 120,
		    (struct ring_realloc){ .prior = 0x2000,
					   .address = 0x2000,
					   .size = 30,
					   .duration_ns = 5,
					   .kind = RING_ALLOC_REALLOCARRAY });
	add_realloc(fixture.owner, &fixture, 130,
		    (struct ring_realloc){ .prior = 0x2000, .size = 1u << 30, .duration_ns = 5 });
	add_realloc(fixture.owner, &fixture, 140,
		    (struct ring_realloc){ .prior = 0x2000,
					   .is_freed = 1,
					   .duration_ns = 5,
					   .kind = RING_ALLOC_REALLOCARRAY });
	/* of a block that nobody knows */
	add_realloc(fixture.owner, &fixture, 150,
		    (struct ring_realloc){ .prior = 0xbad0, .address = 0x4000, .size = 40 });
	add_free(fixture.owner, &fixture, 160, 0x4000);
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
	/* both blocks of one realloc do not count at once */
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 1, 200, 1, PROF_HEAP_END, 0, 0, 40, 150);
	CHECK_INT(g_hash_table_size(fixture.parts.losses.total), 0);
	fixture_done(&fixture);
}

/* Amid a realloc others get what it gives up, and give up what it gets. */
static void test_reuse(void)
{
	struct fixture fixture;

	fixture_init(&fixture);
	add_malloc(fixture.owner, &fixture, 10, 0x1000, 1);
	add_malloc(fixture.second, &fixture, 20, 0x2000, 2);
	add_realloc(fixture.owner, &fixture, 100,
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

/* A block whose free was lost ends where its address is given out again. */
static void test_lost_free(void)
{
	struct fixture fixture;

	fixture_init(&fixture);
	add_malloc(fixture.owner, &fixture, 10, 0x1000, 1);
	add_malloc(fixture.second, &fixture, 20, 0x1000, 2);
	add_malloc(fixture.owner, &fixture, 30, 0x2000, 3);
	add_realloc(fixture.owner, &fixture, 40,
		    (struct ring_realloc){ .prior = 0x2000, .address = 0x1000, .size = 4 });
	finish(&fixture, 50);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 1, 20, SECOND, PROF_ALLOC_MALLOC, 2, 2, 0, 0, 1);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 3, 40, MAIN, PROF_ALLOC_REALLOC, 4, 4, 0, 0, 3);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_FREE), 1);
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 0, 40, MAIN, 2);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 1, 50, 1, PROF_HEAP_END, 4, 1, 5, 30);
	/* That much is known to be lost from the first one on. */
	CHECK_INT(lost(&fixture, PROF_LOSS_RING_CORRUPT), 1);
	fixture_done(&fixture);
}

/* Of one time, by two threads: an address is given up and given out again, and the records come in either order. */
static void test_ties(void)
{
	for (int turn = 0; turn < 2; turn++) {
		struct fixture fixture;

		fixture_init(&fixture);
		add_malloc(fixture.second, &fixture, 10, 0x1000, 1);
		add_malloc(fixture.second, &fixture, 11, 0x2000, 2);
		if (turn)
			add_free(fixture.second, &fixture, 20, 0x1000);
		add_malloc(fixture.owner, &fixture, 20, 0x1000, 3);
		if (!turn)
			add_free(fixture.second, &fixture, 20, 0x1000);
		/* both ends of a realloc */
		if (turn)
			add_realloc(fixture.owner, &fixture, 30,
				    (struct ring_realloc){ .prior = 0x1000,
							   .address = 0x2000,
							   .size = 4,
							   .duration_ns = 10 });
		add_malloc(fixture.second, &fixture, 30, 0x1000, 5);
		if (!turn)
			add_realloc(fixture.owner, &fixture, 30,
				    (struct ring_realloc){ .prior = 0x1000,
							   .address = 0x2000,
							   .size = 4,
							   .duration_ns = 10 });
		add_free(fixture.second, &fixture, 40, 0x2000);
		add_free(fixture.owner, &fixture, 50, 0x2000);
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

/* The process ends while one waits; and a thread whose records all have one time makes no more wait than it may. */
static void test_ties_at_end(void)
{
	struct fixture fixture;

	fixture_init(&fixture);
	for (uint64_t i = 1; i <= 20; i++)
		add_malloc(fixture.second, &fixture, 10, i * 16, 1);
	for (uint64_t i = 1; i <= 20; i++)
		add_malloc(fixture.owner, &fixture, 20, i * 16, 2);
	CHECK_INT(fixture.rows.heaps.n, 8);
	collector_process_end(&fixture.process, 20 * TICK_NS);
	CHECK_INT(fixture.rows.heaps.n, 0);
	finish(&fixture, 30);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_ALLOC), 40);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 1, 20, 1, PROF_HEAP_END, 40, 20);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_LIVE), 20);
	fixture_done(&fixture);
}

#define ADDRESSES 6u
#define TIES 4000u

/* By size, which no two blocks share: who freed it, and which one it was before. */
struct story {
	uint64_t sizes[ADDRESSES]; /* of what lives there; 0: nothing */
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

/* One time: the first thread gives an address up, by free() or the begin of a realloc, the second one gets one, mostly the same. */
static void add_tie(struct story *story, struct fixture *fixture, GRand *random, uint64_t time)
{
	bool is_turned = g_rand_boolean(random), is_moved = g_rand_boolean(random);
	struct collector_owner *const owners[] = { fixture->owner, fixture->second };
	unsigned int giver = g_rand_boolean(random);
	uint64_t up = pick(story, random, true), ended = story->sizes[up], other, address, size;

	story->sizes[up] = 0;
	address = g_rand_int_range(random, 0, 4) ? up : pick(story, random, false);
	size = put_at(story, address, 0);
	if (is_turned)
		add_malloc(owners[!giver], fixture, time, 16 + address * 16, size);
	if (is_moved) {
		other = pick(story, random, false);
		add_realloc(owners[giver], fixture, time,
			    (struct ring_realloc){ .prior = 16 + up * 16,
						   .address = 16 + other * 16,
						   .size = put_at(story, other, ended),
						   .duration_ns = 1 });
	} else {
		story->freed_by[ended] = giver + 1;
		story->n_frees++;
		add_free(owners[giver], fixture, time, 16 + up * 16);
	}
	if (!is_turned)
		add_malloc(owners[!giver], fixture, time, 16 + address * 16, size);
}

static size_t count_living(const struct story *story)
{
	size_t n = 0;

	for (size_t i = 0; i < ADDRESSES; i++)
		n += story->sizes[i] != 0;
	return n;
}

/* One at least lives, and two addresses are free: what gets one may be told first. Returns the time of what comes next. */
static uint64_t make_room(struct story *story, struct fixture *fixture, uint64_t time)
{
	if (count_living(story) == 0)
		add_malloc(fixture->owner, fixture, time++, 16, put_at(story, 0, 0));
	for (size_t i = 0; count_living(story) > ADDRESSES - 2; i++) {
		story->freed_by[story->sizes[i]] = SECOND;
		story->n_frees += story->sizes[i] != 0;
		if (story->sizes[i])
			add_free(fixture->second, fixture, time++, 16 + i * 16);
		story->sizes[i] = 0;
	}
	return time;
}

/* Every block is had by one, and ended by who ended it. */
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

static void add_map(struct collector_owner *owner, struct fixture *fixture, uint64_t time_ns,
		    uint64_t address, uint64_t pages)
{
	add_alloc(owner, fixture, time_ns,
		  (struct ring_alloc){
			  .address = address, .size = pages * 4096, .kind = RING_ALLOC_MMAP });
}

static void add_unmap(struct collector_owner *owner, struct fixture *fixture, uint64_t time_ns,
		      uint64_t address, uint32_t pages)
{
	const struct ring_free_block freed = { .address = address,
					       .kind = RING_FREE_MUNMAP,
					       .pages = pages };

	CHECK_INT(add(owner, fixture, RING_FREE_BLOCK, time_ns, &freed, sizeof(freed)),
		  RING_FAULT_NONE);
}

/* Mappings end by parts, several at once, by others that take their place, and by mremap. */
static void test_mappings(void)
{
	const uint64_t page = 4096, at = 1 << 20;
	struct fixture fixture;

	fixture_init(&fixture);
	add_map(fixture.owner, &fixture, 10, at, 10);
	/* a hole */
	add_unmap(fixture.second, &fixture, 20, at + 4 * page, 2);
	add_map(fixture.owner, &fixture, 30, at + 20 * page, 1);
	/* the end of one rest and all of what is behind it but for the other map's */
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
	/* a block of the heap lies in what is mapped */
	add_malloc(fixture.owner, &fixture, 90, at, 1);
	add_map(fixture.owner, &fixture, 100, UINT64_MAX - 100, 100);
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

/* ---- What lives --------------------------------------------------------------------------------- */

static void test_checkpoint(void)
{
	struct fixture fixture;

	fixture_init(&fixture);
	for (uint64_t i = 1; i <= 10; i++)
		add_malloc(fixture.owner, &fixture, i, i * 16, i);
	for (uint64_t i = 1; i <= 8; i++)
		add_free(fixture.owner, &fixture, 20 + i, i * 16);
	/* block 9 is given up, but what takes its place is not there yet */
	add_realloc(fixture.second, &fixture, 30,
		    (struct ring_realloc){
			    .prior = 9 * 16, .address = 16, .size = 100, .duration_ns = 50 });
	output_end_epoch(&fixture.parts.output);
	/* the same time as a row that is there: not yet */
	add_free(fixture.owner, &fixture, 28, 0);
	add_free(fixture.owner, &fixture, 40, 10 * 16);
	/* an epoch with too few events */
	add_malloc(fixture.owner, &fixture, 90, 32, 1);
	add_malloc(fixture.owner, &fixture, 91, 48, 1);
	add_malloc(fixture.owner, &fixture, 92, 64, 1);
	output_end_epoch(&fixture.parts.output);
	add_free(fixture.owner, &fixture, 93, 0);
	output_end_epoch(&fixture.parts.output);
	add_free(fixture.owner, &fixture, 94, 0);
	add_free(fixture.owner, &fixture, 95, 0);
	add_free(fixture.owner, &fixture, 96, 0);
	finish(&fixture, 100);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_HEAP), 5);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 1, 28, 1, PROF_HEAP_CHECKPOINT, 19, 2, 55, 10);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 2, 92, 1, PROF_HEAP_CHECKPOINT, 103, 4, 103, 92);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 3, 94, 1, PROF_HEAP_CHECKPOINT, 103, 4, 103, 92);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 4, 100, 1, PROF_HEAP_END, 103, 4, 103, 94);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_LIVE), 2 + 4 + 4 + 4);
	CHECK_ROW(&fixture, PROF_TABLE_LIVE, 0, 28, MAIN, PROF_ALLOC_MALLOC, 9, 9, 0, 0, 9);
	CHECK_ROW(&fixture, PROF_TABLE_LIVE, 1, 28, MAIN, PROF_ALLOC_MALLOC, 10, 10, 0, 0, 10);
	CHECK_ROW(&fixture, PROF_TABLE_LIVE, 2, 92, SECOND, PROF_ALLOC_REALLOC, 11, 100, 0, 0, 80);
	CHECK_ROW(&fixture, PROF_TABLE_LIVE, 3, 92, MAIN, PROF_ALLOC_MALLOC, 12, 1, 0, 0, 90);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 10, 80, SECOND, PROF_ALLOC_REALLOC, 11, 100, 0, 0, 9);
	fixture_done(&fixture);
}

/* The process ends amid a realloc, or says that it takes longer than it can. */
static void test_ends(void)
{
	struct fixture fixture;

	fixture_init(&fixture);
	add_malloc(fixture.owner, &fixture, 10, 16, 1);
	add_realloc(fixture.owner, &fixture, 20,
		    (struct ring_realloc){
			    .prior = 16, .address = 32, .size = 2, .duration_ns = UINT64_MAX });
	add_malloc(fixture.second, &fixture, 30, 48, 4);
	collector_process_end(&fixture.process, 40 * TICK_NS);
	CHECK_INT(fixture.rows.heaps.n, 0);
	add_malloc(fixture.stranger, &fixture, 50, 64, 8);
	finish(&fixture, 60);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 2, 40, MAIN, PROF_ALLOC_REALLOC, 3, 2, 0, 0, 1);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_HEAP), 4);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 1, 40, 1, PROF_HEAP_END, 6, 2, 6, 40);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 2, 50, 2, PROF_HEAP_BEGIN, 0, 0, 0, 50);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 3, 60, 2, PROF_HEAP_END, 8, 1, 8, 50);
	fixture_done(&fixture);
}

/* Blocks are numbered in each; the same address is another one's. */
static void test_two_processes(void)
{
	struct fixture fixture;

	fixture_init(&fixture);
	add_malloc(fixture.owner, &fixture, 10, 16, 1);
	add_realloc(fixture.stranger, &fixture, 20,
		    (struct ring_realloc){ .address = 16, .size = 2, .duration_ns = 15 });
	add_malloc(fixture.owner, &fixture, 30, 32, 3);
	add_free(fixture.owner, &fixture, 40, 16);
	add_free(fixture.stranger, &fixture, 50, 32);
	finish(&fixture, 60);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 0, 10, MAIN, PROF_ALLOC_MALLOC, 1);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 1, 30, MAIN, PROF_ALLOC_MALLOC, 2);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 2, 35, STRANGER, PROF_ALLOC_REALLOC, 1);
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 0, 40, MAIN, 1);
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 1, 50, STRANGER, 0, 32);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 2, 60, 1, PROF_HEAP_END, 3, 1);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 3, 60, 2, PROF_HEAP_END, 2, 1);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_LIVE), 2);
	fixture_done(&fixture);
}

/* A thread that is gone is named by what it left. */
static void test_gone_thread(void)
{
	struct fixture fixture;

	fixture_init(&fixture);
	add_malloc(fixture.second, &fixture, 10, 16, 1);
	collector_owner_unref(steal_ptr(&fixture.second));
	for (uint64_t i = 0; i < 5; i++) {
		fixture.second = collector_owner_new(&fixture.process, OTHER_TID);
		add_malloc(fixture.second, &fixture, 20 + i, 32, 1);
		add_free(fixture.second, &fixture, 20 + i, 32);
		collector_owner_unref(steal_ptr(&fixture.second));
	}
	output_end_epoch(&fixture.parts.output);
	finish(&fixture, 60);
	CHECK_ROW(&fixture, PROF_TABLE_LIVE, 0, 60, SECOND, PROF_ALLOC_MALLOC, 1);
	CHECK(rows_of(&fixture.parts, PROF_TABLE_THREAD) >= 2);
	fixture_done(&fixture);
}

/* ---- Stacks ------------------------------------------------------------------------------------- */

static void add_at(struct collector_owner *owner, struct fixture *fixture, uint64_t time_ns,
		   uint32_t stack, uint8_t flags)
{
	add_alloc(owner, fixture, time_ns, (struct ring_alloc){ .stack = stack, .flags = flags });
}

static uint64_t stack_of(const struct fixture *fixture, size_t i)
{
	return number_of(&fixture->parts, PROF_TABLE_ALLOC, PROF_ALLOC_STACK, i);
}

/* The frame of a stack in the capture's only epoch, as an offset from CODE. */
static uint64_t offset_of(const struct fixture *fixture, uint64_t stack)
{
	uint64_t frame = number_of(&fixture->parts, PROF_TABLE_STACK, PROF_STACK_FRAME, stack - 1);

	return number_of(&fixture->parts, PROF_TABLE_FRAME, PROF_FRAME_OFFSET, frame - 1) - CODE;
}

static uint64_t parent_of(const struct fixture *fixture, uint64_t stack)
{
	return number_of(&fixture->parts, PROF_TABLE_STACK, PROF_STACK_PARENT, stack - 1);
}

static void test_nodes(void)
{
	const struct {
		struct ring_stack stack;
		struct ring_frame frames[2];
	} handler = { { 5, 2 }, { { CODE + 2, 0, 2 }, { CODE + 1, 0, 2 } } };
	const struct {
		struct ring_calls calls;
		struct ring_frame frame;
	} cut = { { .first = 200, .parent = 13, .n_frames = 1 },
		  { CODE + 5, 0, RING_FRAME_NO_FILE | RING_FRAME_CUT } };
	struct fixture fixture;

	fixture_init(&fixture);
	add_calls(fixture.owner, &fixture, 1, 10, 0, (const uint32_t[]){ 1, 2, 3 }, 3);
	add_at(fixture.owner, &fixture, 2, 12, 0);
	add_at(fixture.owner, &fixture, 3, 11, 0);
	/* the same by another thread, by ids of its own */
	add_calls(fixture.second, &fixture, 4, 77, 0, (const uint32_t[]){ 1 }, 1);
	add_calls(fixture.second, &fixture, 5, 78, 77, (const uint32_t[]){ 2 }, 1);
	add_at(fixture.second, &fixture, 6, 78, 0);
	/* another one takes an id: what is below stays, what comes is below the new one */
	add_calls(fixture.owner, &fixture, 7, 11, 10, (const uint32_t[]){ 9 }, 1);
	add_at(fixture.owner, &fixture, 8, 12, 0);
	add_at(fixture.owner, &fixture, 9, 11, 0);
	add_calls(fixture.owner, &fixture, 10, 13, 11, (const uint32_t[]){ 3 }, 1);
	add_at(fixture.owner, &fixture, 11, 13, 0);
	/* a handler's */
	CHECK_INT(add(fixture.owner, &fixture, RING_STACK, 12, &handler, sizeof(handler)),
		  RING_FAULT_NONE);
	add_at(fixture.owner, &fixture, 13, 5, RING_ALLOC_STACK);
	CHECK_INT(lost(&fixture, PROF_LOSS_RING_CORRUPT), 0);
	/* nobody told of these */
	add_at(fixture.owner, &fixture, 14, 77, 0);
	add_calls(fixture.owner, &fixture, 15, 100, 99, (const uint32_t[]){ 4 }, 1);
	add_at(fixture.owner, &fixture, 16, 100, 0);
	add_calls(fixture.owner, &fixture, 17, 0, 0, (const uint32_t[]){ 4 }, 1);
	CHECK_INT(add(fixture.owner, &fixture, RING_CALLS, 18, &cut, sizeof(cut)), RING_FAULT_NONE);
	add_at(fixture.owner, &fixture, 19, 200, 0);
	finish(&fixture, 20);
	CHECK_INT(offset_of(&fixture, stack_of(&fixture, 0)), 3);
	CHECK_INT(offset_of(&fixture, stack_of(&fixture, 1)), 2);
	CHECK_INT(parent_of(&fixture, stack_of(&fixture, 0)), stack_of(&fixture, 1));
	CHECK_INT(stack_of(&fixture, 2), stack_of(&fixture, 1));
	CHECK_INT(stack_of(&fixture, 3), stack_of(&fixture, 0));
	CHECK_INT(offset_of(&fixture, stack_of(&fixture, 4)), 9);
	CHECK_INT(offset_of(&fixture, stack_of(&fixture, 5)), 3);
	CHECK_INT(parent_of(&fixture, stack_of(&fixture, 5)), stack_of(&fixture, 4));
	CHECK_INT(stack_of(&fixture, 6), stack_of(&fixture, 1));
	CHECK_INT(lost(&fixture, PROF_LOSS_RING_CORRUPT), 2);
	CHECK_INT(offset_of(&fixture, stack_of(&fixture, 7)), -CODE);
	CHECK_INT(offset_of(&fixture, stack_of(&fixture, 8)), 4);
	CHECK_INT(parent_of(&fixture, stack_of(&fixture, 8)), stack_of(&fixture, 7));
	/* callers are missing */
	CHECK_INT(offset_of(&fixture, stack_of(&fixture, 9)), 5);
	CHECK_INT(offset_of(&fixture, parent_of(&fixture, stack_of(&fixture, 9))), -CODE);
	CHECK_INT(parent_of(&fixture, parent_of(&fixture, stack_of(&fixture, 9))),
		  stack_of(&fixture, 5));
	fixture_done(&fixture);
}

/* Frames of a stack in an epoch; 0: one of its nodes is not there. */
static size_t depth_in(const struct fixture *fixture, uint32_t epoch, uint64_t stack)
{
	struct prof_dictionary *stacks, *frames;
	size_t depth = 0;

	if (prof_dictionary_load(fixture->parts.reader, PROF_TABLE_STACK, epoch, NULL, 0, &stacks))
		return 0;
	if (prof_dictionary_load(fixture->parts.reader, PROF_TABLE_FRAME, epoch, NULL, 0,
				 &frames)) {
		prof_dictionary_free(stacks);
		return 0;
	}
	while (stack) {
		ssize_t row = prof_dictionary_find(stacks, stack);

		if (row < 0 ||
		    prof_dictionary_find(
			    frames,
			    prof_dictionary_column(stacks, PROF_STACK_FRAME)->numbers[row]) < 0) {
			depth = 0;
			break;
		}
		stack = prof_dictionary_column(stacks, PROF_STACK_PARENT)->numbers[row];
		depth++;
	}
	prof_dictionary_free(frames);
	prof_dictionary_free(stacks);
	return depth;
}

/* In each epoch there is what its rows name, those of what lives too. */
static void test_epochs(void)
{
	struct fixture fixture;
	uint32_t first;

	fixture_init(&fixture);
	first = fixture.parts.output.epoch;
	add_calls(fixture.owner, &fixture, 1, 1, 0, (const uint32_t[]){ 1, 2, 3, 4 }, 4);
	add_alloc(fixture.owner, &fixture, 2,
		  (struct ring_alloc){ .address = 16, .size = 1, .stack = 4 });
	add_at(fixture.owner, &fixture, 3, 2, 0);
	output_end_epoch(&fixture.parts.output);
	add_at(fixture.owner, &fixture, 4, 3, 0);
	add_at(fixture.owner, &fixture, 5, 4, 0);
	output_end_epoch(&fixture.parts.output);
	finish(&fixture, 20);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_STACK), 4 + 4 + 4);
	CHECK_INT(depth_in(&fixture, first, stack_of(&fixture, 0)), 4);
	CHECK_INT(depth_in(&fixture, first, stack_of(&fixture, 1)), 2);
	CHECK_INT(depth_in(&fixture, first + 1, stack_of(&fixture, 2)), 3);
	CHECK_INT(depth_in(&fixture, first + 1, stack_of(&fixture, 3)), 4);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_LIVE), 2);
	for (size_t i = 0; i < 2; i++)
		CHECK_INT(depth_in(&fixture, first + 1 + (uint32_t)i,
				   number_of(&fixture.parts, PROF_TABLE_LIVE, PROF_LIVE_STACK, i)),
			  4);
	fixture_done(&fixture);
}

/* A chain of more frames than a stack may have: the innermost ones are left out, and counted. */
static void test_depth(void)
{
	struct fixture fixture;

	fixture_init(&fixture);
	for (uint32_t i = 1; i <= OUTPUT_MAX_PATH + 100; i++)
		add_calls(fixture.owner, &fixture, i, 1 + i % 2, i == 1 ? 0 : 2 - i % 2,
			  (const uint32_t[]){ i }, 1);
	add_at(fixture.owner, &fixture, 10000, 1, 0);
	finish(&fixture, 20000);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_STACK), OUTPUT_MAX_PATH);
	CHECK_INT(offset_of(&fixture, stack_of(&fixture, 0)), OUTPUT_MAX_PATH);
	CHECK_INT(lost(&fixture, PROF_LOSS_RING_REFUSED), 100);
	fixture_done(&fixture);
}

/* ---- Limits ------------------------------------------------------------------------------------- */

/* Blocks, nodes and reallocs without end. */
static void fork_at(struct fixture *fixture, int32_t parent, int32_t pid, uint64_t time_ns)
{
	const struct record_task task = { .pid = pid, .tid = pid, .ppid = parent, .ptid = parent };

	tasks_process(&fixture->parts.tasks, parent)->has_heap = true;
	tasks_fork(&fixture->parts.tasks, &task, time_ns);
}

/* A process begins with what its parent had when it was forked, and with no block of its own. */
static void test_forks(void)
{
	struct fixture fixture;
	struct collector_process child, grandchild;
	struct collector_owner *owner, *grand;

	fixture_init(&fixture);
	add_malloc(fixture.owner, &fixture, 10, 0x1000, 1);
	add_malloc(fixture.owner, &fixture, 11, 0x2000, 2);
	add_malloc(fixture.owner, &fixture, 12, 0x3000, 3);
	add_free(fixture.owner, &fixture, 13, 0x1000);
	fork_at(&fixture, PID, 2000000010, 20);
	/* one that comes to nothing, and whose child does not */
	fork_at(&fixture, PID, 2000000011, 20);
	fork_at(&fixture, 2000000011, 2000000012, 21);
	tasks_exec(&fixture.parts.tasks, 2000000011, "x", 22);
	add_free(fixture.owner, &fixture, 30, 0x2000);
	add_malloc(fixture.owner, &fixture, 31, 0x2000, 4);
	add_malloc(fixture.owner, &fixture, 32, 0x4000, 5);
	add_realloc(fixture.owner, &fixture, 33,
		    (struct ring_realloc){ .prior = 0x3000, .address = 0x5000, .size = 6 });
	fork_at(&fixture, PID, 2000000013, 200000000);
	collector_process_init(&child, &fixture.rows, 2000000010, 0);
	collector_process_init(&grandchild, &fixture.rows, 2000000012, 0);
	REQUIRE(collector_process_bind(&child, UINT64_MAX) &&
		collector_process_bind(&grandchild, UINT64_MAX));
	owner = collector_owner_new(&child, 2000000010);
	grand = collector_owner_new(&grandchild, 2000000012);
	add_free(owner, &fixture, 40, 0x2000);
	add_free(owner, &fixture, 41, 0x2000);
	add_malloc(owner, &fixture, 42, 0x2000, 7);
	add_realloc(owner, &fixture, 43,
		    (struct ring_realloc){ .prior = 0x3000, .address = 0x6000, .size = 8 });
	add_free(owner, &fixture, 44, 0x4000);
	add_free(grand, &fixture, 45, 0x3000);
	heap_merge_run(&fixture.rows.heaps, 50);
	collector_process_end(&child, 50 * TICK_NS);
	collector_process_end(&grandchild, 50 * TICK_NS);
	finish(&fixture, 50);
	/* its parent's second one, once */
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 2, 40, 4, 2);
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 3, 41, 4, 0, 0x2000);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 6, 42, 4, PROF_ALLOC_MALLOC, 4, 7);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 7, 43, 4, PROF_ALLOC_REALLOC, 5, 8, 0, 0, 3);
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 4, 44, 4, 0, 0x4000);
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 5, 45, 6, 3);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 3, 50, 3, PROF_HEAP_END, 15, 2, 15, 43, 3);
	collector_owner_unref(owner);
	collector_owner_unref(grand);
	collector_process_done(&child);
	collector_process_done(&grandchild);
	fixture_done(&fixture);
}

/* What is allocated in a pause is not there, and what was there before ends. */
static void test_pause(void)
{
	struct fixture fixture;

	fixture_init(&fixture);
	add_malloc(fixture.owner, &fixture, 10, 0x1000, 1);
	add_malloc(fixture.owner, &fixture, 11, 0x2000, 2);
	add_malloc(fixture.owner, &fixture, 12, 0x3000, 3);
	heap_merge_pause(&fixture.rows.heaps, true, 20 * TICK_NS);
	heap_merge_pause(&fixture.rows.heaps, false, 30 * TICK_NS);
	add_malloc(fixture.owner, &fixture, 20, 0x4000, 4);
	add_free(fixture.owner, &fixture, 21, 0x1000);
	add_malloc(fixture.owner, &fixture, 22, 0x1000, 5);
	add_free(fixture.owner, &fixture, 23, 0);
	add_free(fixture.owner, &fixture, 24, 0x7000);
	add_realloc(fixture.owner, &fixture, 25,
		    (struct ring_realloc){ .prior = 0x2000, .address = 0x5000, .size = 6 });
	add_realloc(fixture.owner, &fixture, 26,
		    (struct ring_realloc){ .prior = 0x5000, .address = 0x6000, .size = 7 });
	add_free(fixture.owner, &fixture, 31, 0x1000);
	add_realloc(fixture.owner, &fixture, 32,
		    (struct ring_realloc){ .prior = 0x6000, .address = 0x2000, .size = 8 });
	finish(&fixture, 40);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_ALLOC), 5);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 4, 32, MAIN, PROF_ALLOC_REALLOC, 5, 8, 0, 0, 0);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_FREE), 2);
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 0, 21, MAIN, 1);
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 1, 25, MAIN, 2);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 1, 20, 1, PROF_HEAP_PAUSED, 10, 4, 10, 20);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 2, 30, 1, PROF_HEAP_RESUMED, 7, 2, 10, 20);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 3, 40, 1, PROF_HEAP_END, 15, 3);
	fixture_done(&fixture);
}

static void test_limits(void)
{
	struct fixture fixture;
	uint64_t n = 0;

	fixture_init(&fixture);
	fixture.rows.heaps.budget.limit = 1 << 20;
	for (uint32_t i = 1; i < 30000; i++)
		add_malloc(fixture.owner, &fixture, i, i * UINT64_C(16), 1);
	n = lost(&fixture, PROF_LOSS_RING_REFUSED);
	CHECK(n > 10000 && n < 29000);
	/* what is there stays right */
	add_free(fixture.owner, &fixture, 40000, 16);
	add_calls(fixture.second, &fixture, 40001, RING_MAX_CALLS - 1, 0, (const uint32_t[]){ 1 },
		  1);
	for (uint32_t i = 1; i < 30000; i++)
		add_calls(fixture.second, &fixture, 50000, i, 0, (const uint32_t[]){ i }, 1);
	CHECK(lost(&fixture, PROF_LOSS_RING_REFUSED) > n + 10000);
	CHECK(fixture.rows.heaps.budget.used <= 1 << 20);
	for (uint32_t i = 0; i < 1000; i++)
		add_realloc(fixture.second, &fixture, 60000 + i,
			    (struct ring_realloc){
				    .prior = 32, .address = 32, .duration_ns = UINT64_MAX - i });
	CHECK(fixture.rows.heaps.n <= 8);
	CHECK(lost(&fixture, PROF_LOSS_RING_CORRUPT) >= 1000 - 8);
	finish(&fixture, 70000);
	CHECK_INT(number_of(&fixture.parts, PROF_TABLE_FREE, PROF_FREE_BLOCK, 0), 1);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_ALLOC), 29999 - n + 1000);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_LIVE), 29999 - n - 1);
	fixture_done(&fixture);
}

int main(void)
{
	RUN(test_model);
	RUN(test_rows);
	RUN(test_lies);
	RUN(test_realloc);
	RUN(test_reuse);
	RUN(test_lost_free);
	RUN(test_ties);
	RUN(test_ties_at_end);
	RUN(test_conservation);
	RUN(test_mappings);
	RUN(test_checkpoint);
	RUN(test_ends);
	RUN(test_two_processes);
	RUN(test_gone_thread);
	RUN(test_nodes);
	RUN(test_epochs);
	RUN(test_depth);
	RUN(test_forks);
	RUN(test_pause);
	RUN(test_limits);
	return test_end();
}
