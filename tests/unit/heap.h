/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Heap fixture - feeds the engine allocations of two processes, and checks the resulting rows
 *
 *     struct fixture fixture;
 *     fixture_init(&fixture);
 *     add_malloc(fixture.producer, &fixture, 100, 0x1000, 10);
 *     finish(&fixture, 200);
 *     CHECK_ROW(&fixture, PROF_TABLE_ALLOC, 0, 100, MAIN, PROF_ALLOC_MALLOC, 1, 10);
 *     fixture_done(&fixture);
 */
#pragma once

#include "daemon/engine/peers/collector-rows.h"
#include "tests/unit/engine.h"

#define PID 2000000001
#define OTHER_TID 2000000002
#define OTHER_PID 2000000003
#define CODE UINT64_C(0x700000001000)

/* Times of rows are multiples of a tick. */
#define TICK_NS 16u

struct fixture {
	struct parts parts;
	struct collector_rows rows;
	struct collector_process process, other_process;
	/* `producer` and `second` are threads of `process`, and `stranger` of `other_process` */
	struct collector_producer *producer, *second, *stranger;
	unsigned int n_pieces; /* number of calls that returned before their work was complete */
};

static inline void fixture_init(struct fixture *fixture)
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
	all_heaps_init(&fixture->rows.heaps, &fixture->parts.output, &fixture->parts.tasks);
	collector_process_init(&fixture->process, &fixture->rows, PID, 0);
	collector_process_init(&fixture->other_process, &fixture->rows, OTHER_PID, 0);
	CHECK(collector_process_bind(&fixture->process, UINT64_MAX));
	CHECK(collector_process_bind(&fixture->other_process, UINT64_MAX));
	fixture->producer = collector_producer_new(&fixture->process, PID);
	fixture->second = collector_producer_new(&fixture->process, OTHER_TID);
	fixture->stranger = collector_producer_new(&fixture->other_process, OTHER_PID);
}

static inline void end_process(struct fixture *fixture, struct collector_process *process,
			       uint64_t time)
{
	while (!collector_process_end(process, time * TICK_NS))
		fixture->n_pieces++;
}

/* Ends both processes, and writes all rows to the capture. */
static inline void finish(struct fixture *fixture, uint64_t time)
{
	uint64_t time_ns = time * TICK_NS;

	while (!all_heaps_run(&fixture->rows.heaps, time_ns))
		fixture->n_pieces++;
	end_process(fixture, &fixture->process, time);
	end_process(fixture, &fixture->other_process, time);
	parts_finish(&fixture->parts);
}

static inline void fixture_done(struct fixture *fixture)
{
	collector_producer_unref(fixture->producer);
	collector_producer_unref(fixture->second);
	collector_producer_unref(fixture->stranger);
	collector_process_done(&fixture->process);
	collector_process_done(&fixture->other_process);
	/* all memory of pending blocks must have been released */
	CHECK_INT(fixture->rows.heaps.budget.used, 0);
	CHECK_INT(fixture->rows.heaps.pending.n, 0);
	all_heaps_done(&fixture->rows.heaps);
	if (fixture->rows.lost_image)
		row_unref(&fixture->rows.lost_image->row);
	if (fixture->rows.cut_image)
		row_unref(&fixture->rows.cut_image->row);
	if (fixture->rows.unread_image)
		row_unref(&fixture->rows.unread_image->row);
	parts_done(&fixture->parts);
}

/* Times are in ticks, also if a parameter is called time_ns. */
static inline enum ring_fault add(struct collector_producer *producer, struct fixture *fixture,
				  enum ring_type type, uint64_t time, const void *payload, size_t n)
{
	const struct ring_record record = {
		.type = type, .time_ns = time * TICK_NS, .payload = payload, .n_bytes = (uint32_t)n
	};
	enum ring_fault fault;

	while (!collector_producer_add(producer, &record, &fault))
		fixture->n_pieces++;
	return fault;
}

static inline void add_alloc(struct collector_producer *producer, struct fixture *fixture,
			     uint64_t time_ns, struct ring_alloc alloc)
{
	CHECK_INT(add(producer, fixture, RING_ALLOC, time_ns, &alloc, sizeof(alloc)),
		  RING_FAULT_NONE);
}

static inline void add_malloc(struct collector_producer *producer, struct fixture *fixture,
			      uint64_t time_ns, uint64_t address, uint64_t size)
{
	add_alloc(producer, fixture, time_ns,
		  (struct ring_alloc){ .address = address, .size = size });
}

static inline void add_free(struct collector_producer *producer, struct fixture *fixture,
			    uint64_t time_ns, uint64_t address)
{
	const struct ring_free_block freed = { .address = address };

	CHECK_INT(add(producer, fixture, RING_FREE_BLOCK, time_ns, &freed, sizeof(freed)),
		  RING_FAULT_NONE);
}

static inline void add_realloc(struct collector_producer *producer, struct fixture *fixture,
			       uint64_t time_ns, struct ring_realloc moved)
{
	if (moved.kind == 0)
		moved.kind = RING_ALLOC_REALLOC;
	moved.duration_ns = MIN_OF(moved.duration_ns, UINT64_MAX / TICK_NS) * TICK_NS;
	CHECK_INT(add(producer, fixture, RING_REALLOC, time_ns, &moved, sizeof(moved)),
		  RING_FAULT_NONE);
}

/* Adds a stack with frames at these offsets from CODE, outermost first. */
static inline enum ring_fault add_calls(struct collector_producer *producer,
					struct fixture *fixture, uint64_t time_ns, uint32_t first,
					uint32_t parent, const uint32_t *offsets, uint32_t n)
{
	struct {
		struct ring_calls calls;
		struct ring_frame frames[8];
	} told = { .calls = { .first = first, .parent = parent, .n_frames = n } };

	for (uint32_t i = 0; i < n; i++)
		told.frames[i] = (struct ring_frame){ CODE + offsets[i], 0, RING_FRAME_NO_FILE };
	return add(producer, fixture, RING_CALLS, time_ns, &told,
		   sizeof(told.calls) + n * sizeof(*told.frames));
}

/* Checks the first columns of a row. */
static inline bool check_row(const struct fixture *fixture, enum prof_table table, size_t i,
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

#define MAIN 1 /* ids of the threads' rows */
#define SECOND 2
#define STRANGER 3
