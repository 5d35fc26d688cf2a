/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of heap-rows.c and heap-forks.c in daemon/engine: live blocks at the end of an epoch, a
 * process or the recording, and during a pause.
 */
#include "tests/unit/heap.h"

static void test_checkpoint(void)
{
	struct fixture fixture;

	fixture_init(&fixture);
	for (uint64_t i = 1; i <= 10; i++)
		add_malloc(fixture.producer, &fixture, i, i * 16, i);
	for (uint64_t i = 1; i <= 8; i++)
		add_free(fixture.producer, &fixture, 20 + i, i * 16);
	/* between 30 and 80, block 9 has ended, and the block that replaces it is not there yet */
	add_realloc(fixture.second, &fixture, 30,
		    (struct ring_realloc){
			    .prior = 9 * 16, .address = 16, .size = 100, .duration_ns = 50 });
	output_end_epoch(&fixture.parts.output);
	/* this record has the time of the last row, so the checkpoint is written after it */
	add_free(fixture.producer, &fixture, 28, 0);
	add_free(fixture.producer, &fixture, 40, 10 * 16);
	add_malloc(fixture.producer, &fixture, 90, 32, 1);
	add_malloc(fixture.producer, &fixture, 91, 48, 1);
	add_malloc(fixture.producer, &fixture, 92, 64, 1);
	output_end_epoch(&fixture.parts.output);
	/* too few events in this epoch for a checkpoint before the first event of the next one */
	add_free(fixture.producer, &fixture, 93, 0);
	output_end_epoch(&fixture.parts.output);
	add_free(fixture.producer, &fixture, 94, 0);
	add_free(fixture.producer, &fixture, 95, 0);
	add_free(fixture.producer, &fixture, 96, 0);
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

/* A checkpoint that precedes the new block of a realloc lists the old block. */
static void test_checkpoint_before_realloc(void)
{
	struct fixture fixture;

	fixture_init(&fixture);
	add_malloc(fixture.producer, &fixture, 10, 0x1000, 1);
	add_malloc(fixture.producer, &fixture, 11, 0x2000, 2);
	add_realloc(fixture.producer, &fixture, 12,
		    (struct ring_realloc){
			    .prior = 0x1000, .address = 0x3000, .size = 4, .duration_ns = 10 });
	output_end_epoch(&fixture.parts.output);
	add_malloc(fixture.stranger, &fixture, 40, 0x1000, 1);
	finish(&fixture, 50);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 1, 11, 1, PROF_HEAP_CHECKPOINT, 3, 2, 3, 11);
	CHECK_ROW(&fixture, PROF_TABLE_LIVE, 0, 11, MAIN, PROF_ALLOC_MALLOC, 1, 1, 0, 0, 10);
	CHECK_ROW(&fixture, PROF_TABLE_LIVE, 1, 11, MAIN, PROF_ALLOC_MALLOC, 2, 2, 0, 0, 11);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 2, 22, MAIN, PROF_ALLOC_REALLOC, 3, 4, 0, 0, 1);
	fixture_done(&fixture);
}

/* In each epoch with activity of any process, live blocks of idle processes are written, too, if
 * they are few. */
static void test_idle(void)
{
	struct fixture fixture;

	fixture_init(&fixture);
	add_malloc(fixture.producer, &fixture, 10, 16, 1);
	output_end_epoch(&fixture.parts.output);
	add_malloc(fixture.stranger, &fixture, 20, 16, 2);
	output_end_epoch(&fixture.parts.output);
	add_malloc(fixture.stranger, &fixture, 30, 32, 3);
	finish(&fixture, 40);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_HEAP), 7);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 1, 10, 1, PROF_HEAP_CHECKPOINT, 1, 1, 1, 10);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 2, 20, 2, PROF_HEAP_BEGIN, 0, 0, 0, 20);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 3, 20, 1, PROF_HEAP_CHECKPOINT, 1, 1, 1, 10);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 4, 20, 2, PROF_HEAP_CHECKPOINT, 2, 1, 2, 20);
	CHECK_ROW(&fixture, PROF_TABLE_LIVE, 0, 10, MAIN, PROF_ALLOC_MALLOC, 1, 1, 0, 0, 10);
	CHECK_ROW(&fixture, PROF_TABLE_LIVE, 1, 20, MAIN, PROF_ALLOC_MALLOC, 1, 1, 0, 0, 10);
	fixture_done(&fixture);
}

/* Many blocks of an idle process are not written again in each epoch. */
static void test_idle_large(void)
{
	struct fixture fixture;

	fixture_init(&fixture);
	for (uint64_t i = 1; i <= 1000; i++)
		add_malloc(fixture.producer, &fixture, i, i * 16, 1);
	for (uint64_t i = 1; i <= 10; i++) {
		output_end_epoch(&fixture.parts.output);
		add_free(fixture.stranger, &fixture, 1000 + i, 0);
	}
	finish(&fixture, 2000);
	/* begin and end rows of both; one checkpoint for the first process, nine for the other */
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_HEAP), 4 + 1 + 9);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_LIVE), 2 * 1000);
	fixture_done(&fixture);
}

/* A process reports an impossible duration for a realloc. The new block exists from the process's
 * end on. */
static void test_ends(void)
{
	struct fixture fixture;

	fixture_init(&fixture);
	add_malloc(fixture.producer, &fixture, 10, 16, 1);
	add_realloc(fixture.producer, &fixture, 20,
		    (struct ring_realloc){
			    .prior = 16, .address = 32, .size = 2, .duration_ns = UINT64_MAX });
	add_malloc(fixture.second, &fixture, 30, 48, 4);
	end_process(&fixture, &fixture.process, 40);
	CHECK_INT(fixture.rows.heaps.pending.n, 0);
	add_malloc(fixture.stranger, &fixture, 50, 64, 8);
	finish(&fixture, 60);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 2, 40, MAIN, PROF_ALLOC_REALLOC, 3, 2, 0, 0, 1);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_HEAP), 4);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 1, 40, 1, PROF_HEAP_END, 6, 2, 6, 40);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 2, 50, 2, PROF_HEAP_BEGIN, 0, 0, 0, 50);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 3, 60, 2, PROF_HEAP_END, 8, 1, 8, 50);
	fixture_done(&fixture);
}

/* Each process has its own block numbers. An address means a different block in each. */
static void test_two_processes(void)
{
	struct fixture fixture;

	fixture_init(&fixture);
	add_malloc(fixture.producer, &fixture, 10, 16, 1);
	add_realloc(fixture.stranger, &fixture, 20,
		    (struct ring_realloc){ .address = 16, .size = 2, .duration_ns = 15 });
	add_malloc(fixture.producer, &fixture, 30, 32, 3);
	add_free(fixture.producer, &fixture, 40, 16);
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

/* A block's row names its thread, even after the thread has ended. */
static void test_gone_thread(void)
{
	struct fixture fixture;

	fixture_init(&fixture);
	add_malloc(fixture.second, &fixture, 10, 16, 1);
	collector_producer_unref(steal_ptr(&fixture.second));
	for (uint64_t i = 0; i < 5; i++) {
		fixture.second = collector_producer_new(&fixture.process, OTHER_TID);
		add_malloc(fixture.second, &fixture, 20 + i, 32, 1);
		add_free(fixture.second, &fixture, 20 + i, 32);
		collector_producer_unref(steal_ptr(&fixture.second));
	}
	output_end_epoch(&fixture.parts.output);
	finish(&fixture, 60);
	CHECK_ROW(&fixture, PROF_TABLE_LIVE, 0, 60, SECOND, PROF_ALLOC_MALLOC, 1);
	CHECK(rows_of(&fixture.parts, PROF_TABLE_THREAD) >= 2);
	fixture_done(&fixture);
}

static void fork_at(struct fixture *fixture, int32_t parent, int32_t pid, uint64_t time_ns)
{
	const struct task_ids task = { .pid = pid, .tid = pid, .ppid = parent, .ptid = parent };

	tasks_process(&fixture->parts.tasks, parent)->has_heap = true;
	tasks_fork(&fixture->parts.tasks, &task, time_ns);
}

/* A child starts with its parent's blocks at the fork, and none of its own. */
static void test_forks(void)
{
	struct fixture fixture;
	struct collector_process child, grandchild;
	struct collector_producer *producer, *grand;

	fixture_init(&fixture);
	add_malloc(fixture.producer, &fixture, 10, 0x1000, 1);
	add_malloc(fixture.producer, &fixture, 11, 0x2000, 2);
	add_malloc(fixture.producer, &fixture, 12, 0x3000, 3);
	add_free(fixture.producer, &fixture, 13, 0x1000);
	fork_at(&fixture, PID, 2000000010, 20);
	/* another child forks, then executes a program; it never registers, but its child does */
	fork_at(&fixture, PID, 2000000011, 20);
	fork_at(&fixture, 2000000011, 2000000012, 21);
	tasks_exec(&fixture.parts.tasks, 2000000011, "x", 22);
	add_free(fixture.producer, &fixture, 30, 0x2000);
	add_malloc(fixture.producer, &fixture, 31, 0x2000, 4);
	add_malloc(fixture.producer, &fixture, 32, 0x4000, 5);
	add_realloc(fixture.producer, &fixture, 33,
		    (struct ring_realloc){ .prior = 0x3000, .address = 0x5000, .size = 6 });
	fork_at(&fixture, PID, 2000000013, 200000000);
	collector_process_init(&child, &fixture.rows, 2000000010, 0);
	collector_process_init(&grandchild, &fixture.rows, 2000000012, 0);
	REQUIRE(collector_process_bind(&child, UINT64_MAX) &&
		collector_process_bind(&grandchild, UINT64_MAX));
	producer = collector_producer_new(&child, 2000000010);
	grand = collector_producer_new(&grandchild, 2000000012);
	add_free(producer, &fixture, 40, 0x2000);
	add_free(producer, &fixture, 41, 0x2000);
	add_malloc(producer, &fixture, 42, 0x2000, 7);
	add_realloc(producer, &fixture, 43,
		    (struct ring_realloc){ .prior = 0x3000, .address = 0x6000, .size = 8 });
	add_free(producer, &fixture, 44, 0x4000);
	add_free(grand, &fixture, 45, 0x3000);
	CHECK(all_heaps_run(&fixture.rows.heaps, 50));
	end_process(&fixture, &child, 50);
	end_process(&fixture, &grandchild, 50);
	finish(&fixture, 50);
	/* the child's first free of 0x2000 ends the parent's second block, the next free ends no
	 * block */
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 2, 40, 4, 2);
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 3, 41, 4, 0, 0x2000);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 6, 42, 4, PROF_ALLOC_MALLOC, 4, 7);
	CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 7, 43, 4, PROF_ALLOC_REALLOC, 5, 8, 0, 0, 3);
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 4, 44, 4, 0, 0x4000);
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 5, 45, 6, 3);
	CHECK_ROW(&fixture, PROF_TABLE_HEAP, 3, 50, 3, PROF_HEAP_END, 15, 2, 15, 43, 3);
	collector_producer_unref(producer);
	collector_producer_unref(grand);
	collector_process_done(&child);
	collector_process_done(&grandchild);
	fixture_done(&fixture);
}

/* Allocations in a pause are not recorded, but ends of earlier blocks are. */
static void test_pause(void)
{
	struct fixture fixture;

	fixture_init(&fixture);
	add_malloc(fixture.producer, &fixture, 10, 0x1000, 1);
	add_malloc(fixture.producer, &fixture, 11, 0x2000, 2);
	add_malloc(fixture.producer, &fixture, 12, 0x3000, 3);
	all_heaps_pause(&fixture.rows.heaps, true, 20 * TICK_NS);
	all_heaps_pause(&fixture.rows.heaps, false, 30 * TICK_NS);
	add_malloc(fixture.producer, &fixture, 20, 0x4000, 4);
	add_free(fixture.producer, &fixture, 21, 0x1000);
	add_malloc(fixture.producer, &fixture, 22, 0x1000, 5);
	add_free(fixture.producer, &fixture, 23, 0);
	add_free(fixture.producer, &fixture, 24, 0x7000);
	add_realloc(fixture.producer, &fixture, 25,
		    (struct ring_realloc){ .prior = 0x2000, .address = 0x5000, .size = 6 });
	add_realloc(fixture.producer, &fixture, 26,
		    (struct ring_realloc){ .prior = 0x5000, .address = 0x6000, .size = 7 });
	add_free(fixture.producer, &fixture, 31, 0x1000);
	add_realloc(fixture.producer, &fixture, 32,
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

#define N_MANY (3u * LIVE_PIECE)

/* Checks some of n rows of `live` from `row` on, which must list the blocks from `first` on. */
static void check_listed(const struct fixture *fixture, size_t row, uint64_t first, uint64_t n,
			 uint64_t time)
{
	for (uint64_t i = 0; i < n; i += n / 4)
		CHECK_ROW(fixture, PROF_TABLE_LIVE, row + i, time, MAIN, PROF_ALLOC_MALLOC,
			  first + i, first + i);
	CHECK_ROW(fixture, PROF_TABLE_LIVE, row + n - 1, time, MAIN, PROF_ALLOC_MALLOC,
		  first + n - 1, first + n - 1);
}

/* All steps that process all blocks do so in pieces. */
static void test_pieces(void)
{
	const uint64_t end = N_MANY + 10;
	struct fixture fixture;
	struct collector_process child;
	struct collector_producer *producer;

	fixture_init(&fixture);
	for (uint64_t i = 1; i <= N_MANY; i++)
		add_malloc(fixture.producer, &fixture, i, i * 16, i);
	CHECK_INT(fixture.n_pieces, 0);
	/* the live blocks are listed, sorted in two radix passes, and written */
	output_end_epoch(&fixture.parts.output);
	add_free(fixture.producer, &fixture, N_MANY + 1, 16);
	CHECK(fixture.n_pieces >= 4 * N_MANY / LIVE_PIECE - 2);
	/* the live blocks are copied to a child */
	fixture.n_pieces = 0;
	fork_at(&fixture, PID, 2000000010, N_MANY + 2);
	collector_process_init(&child, &fixture.rows, 2000000010, 0);
	REQUIRE(collector_process_bind(&child, UINT64_MAX));
	producer = collector_producer_new(&child, 2000000010);
	add_free(producer, &fixture, N_MANY + 3, N_MANY * 16);
	CHECK_INT(fixture.n_pieces, N_MANY / LIVE_PIECE - 1);
	fixture.n_pieces = 0;
	all_heaps_pause(&fixture.rows.heaps, true, (N_MANY + 4) * TICK_NS);
	add_free(producer, &fixture, N_MANY + 5, 32);
	CHECK(fixture.n_pieces >= 4 * N_MANY / LIVE_PIECE - 2);
	fixture.n_pieces = 0;
	end_process(&fixture, &fixture.process, end);
	CHECK(fixture.n_pieces >= 4 * N_MANY / LIVE_PIECE - 2);
	end_process(&fixture, &child, end);
	finish(&fixture, end);
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 0, N_MANY + 1, MAIN, 1);
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 1, N_MANY + 3, 4, N_MANY);
	CHECK_ROW(&fixture, PROF_TABLE_FREE, 2, N_MANY + 5, 4, 2);
	REQUIRE(CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_LIVE), 3 * N_MANY - 2));
	check_listed(&fixture, 0, 1, N_MANY, N_MANY);
	check_listed(&fixture, N_MANY, 2, N_MANY - 1, N_MANY + 4);
	check_listed(&fixture, 2 * N_MANY - 1, 2, N_MANY - 1, end);
	collector_producer_unref(producer);
	collector_process_done(&child);
	fixture_done(&fixture);
}

int main(void)
{
	RUN(test_checkpoint);
	RUN(test_checkpoint_before_realloc);
	RUN(test_idle);
	RUN(test_idle_large);
	RUN(test_ends);
	RUN(test_two_processes);
	RUN(test_gone_thread);
	RUN(test_forks);
	RUN(test_pause);
	RUN(test_pieces);
	return test_end();
}
