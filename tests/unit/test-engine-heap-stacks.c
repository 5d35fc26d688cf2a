/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of call-nodes.c in daemon/engine: the stacks of allocations.
 */
#include "tests/unit/heap.h"

#include "daemon/interp-protocol.h"

#include <stdio.h>

static void add_at(struct collector_producer *producer, struct fixture *fixture, uint64_t time_ns,
		   uint32_t stack, uint8_t flags)
{
	add_alloc(producer, fixture, time_ns,
		  (struct ring_alloc){ .stack = stack, .flags = flags });
}

static uint64_t stack_of(const struct fixture *fixture, size_t i)
{
	return number_of(&fixture->parts, PROF_TABLE_ALLOC, PROF_ALLOC_STACK, i);
}

/* Returns the frame of a stack in the capture's only epoch, as an offset from CODE. */
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
	add_calls(fixture.producer, &fixture, 1, 10, 0, (const uint32_t[]){ 1, 2, 3 }, 3);
	add_at(fixture.producer, &fixture, 2, 12, 0);
	add_at(fixture.producer, &fixture, 3, 11, 0);
	/* the same stack from another thread, which uses other ids */
	add_calls(fixture.second, &fixture, 4, 77, 0, (const uint32_t[]){ 1 }, 1);
	add_calls(fixture.second, &fixture, 5, 78, 77, (const uint32_t[]){ 2 }, 1);
	add_at(fixture.second, &fixture, 6, 78, 0);
	/* an id is reused: nodes below the old node stay there, and later nodes are below the new
	 * node */
	add_calls(fixture.producer, &fixture, 7, 11, 10, (const uint32_t[]){ 9 }, 1);
	add_at(fixture.producer, &fixture, 8, 12, 0);
	add_at(fixture.producer, &fixture, 9, 11, 0);
	add_calls(fixture.producer, &fixture, 10, 13, 11, (const uint32_t[]){ 3 }, 1);
	add_at(fixture.producer, &fixture, 11, 13, 0);
	/* a stack from a handler */
	CHECK_INT(add(fixture.producer, &fixture, RING_STACK, 12, &handler, sizeof(handler)),
		  RING_FAULT_NONE);
	add_at(fixture.producer, &fixture, 13, 5, RING_ALLOC_STACK);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_CORRUPT), 0);
	/* ids that were not sent */
	add_at(fixture.producer, &fixture, 14, 77, 0);
	add_calls(fixture.producer, &fixture, 15, 100, 99, (const uint32_t[]){ 4 }, 1);
	add_at(fixture.producer, &fixture, 16, 100, 0);
	add_calls(fixture.producer, &fixture, 17, 0, 0, (const uint32_t[]){ 4 }, 1);
	CHECK_INT(add(fixture.producer, &fixture, RING_CALLS, 18, &cut, sizeof(cut)),
		  RING_FAULT_NONE);
	add_at(fixture.producer, &fixture, 19, 200, 0);
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
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_CORRUPT), 2);
	CHECK_INT(offset_of(&fixture, stack_of(&fixture, 7)), -CODE);
	CHECK_INT(offset_of(&fixture, stack_of(&fixture, 8)), 4);
	CHECK_INT(parent_of(&fixture, stack_of(&fixture, 8)), stack_of(&fixture, 7));
	/* the callers of the node are missing */
	CHECK_INT(offset_of(&fixture, stack_of(&fixture, 9)), 5);
	CHECK_INT(offset_of(&fixture, parent_of(&fixture, stack_of(&fixture, 9))), -CODE);
	CHECK_INT(parent_of(&fixture, parent_of(&fixture, stack_of(&fixture, 9))),
		  stack_of(&fixture, 5));
	fixture_done(&fixture);
}

/* Returns the number of frames of a stack in an epoch; 0: a node is missing. */
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

/* Each epoch has the nodes that its rows refer to, live blocks included. */
static void test_epochs(void)
{
	struct fixture fixture;
	uint32_t first;

	fixture_init(&fixture);
	first = fixture.parts.output.epoch;
	add_calls(fixture.producer, &fixture, 1, 1, 0, (const uint32_t[]){ 1, 2, 3, 4 }, 4);
	add_alloc(fixture.producer, &fixture, 2,
		  (struct ring_alloc){ .address = 16, .size = 1, .stack = 4 });
	add_at(fixture.producer, &fixture, 3, 2, 0);
	output_end_epoch(&fixture.parts.output);
	add_at(fixture.producer, &fixture, 4, 3, 0);
	add_at(fixture.producer, &fixture, 5, 4, 0);
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

/* A chain has more frames than a stack may have. The innermost frames are left out and counted. */
static void test_depth(void)
{
	struct fixture fixture;

	fixture_init(&fixture);
	for (uint32_t i = 1; i <= OUTPUT_MAX_PATH + 100; i++)
		add_calls(fixture.producer, &fixture, i, 1 + i % 2, i == 1 ? 0 : 2 - i % 2,
			  (const uint32_t[]){ i }, 1);
	add_at(fixture.producer, &fixture, 10000, 1, 0);
	finish(&fixture, 20000);
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_STACK), OUTPUT_MAX_PATH);
	CHECK_INT(offset_of(&fixture, stack_of(&fixture, 0)), OUTPUT_MAX_PATH);
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_REFUSED), 100);
	fixture_done(&fixture);
}

struct code_record {
	struct ring_code head;
	char texts[32];
};

static enum ring_fault add_code(struct fixture *fixture, uint32_t id, const char *name,
				uint32_t first_line)
{
	struct code_record code = { .head = { .id = id,
					      .interpreter = CODE,
					      .first_line = first_line,
					      .minor = 11,
					      .name_bytes = (uint16_t)strlen(name),
					      .file_bytes = 7,
					      .name_width = 1,
					      .file_width = 1 } };

	code.head.n_bytes = code.head.name_bytes + code.head.file_bytes;
	snprintf(code.texts, sizeof(code.texts), "%s/a/b.py", name);
	return add(fixture->producer, fixture, RING_CODE, 1, &code,
		   sizeof(code.head) + code.head.n_bytes);
}

static bool has_symbol(const struct fixture *fixture, const char *name)
{
	for (size_t i = 0; i < rows_of(&fixture->parts, PROF_TABLE_SYMBOL); i++)
		if (strcmp(text_of(&fixture->parts, number_of(&fixture->parts, PROF_TABLE_SYMBOL,
							      PROF_SYMBOL_NAME, i)),
			   name) == 0)
			return true;
	return false;
}

/* All frames of one interpreted function have the same place, and the function's name. */
static void test_code(void)
{
	struct {
		struct ring_calls calls;
		struct ring_frame frames[3];
	} told = { .calls = { .first = 1, .n_frames = 3 },
		   .frames = { { CODE + 1, 0, RING_FRAME_NO_FILE },
			       { 0, 101, RING_FRAME_CODE },
			       { 0, 102, RING_FRAME_CODE | RING_FRAME_CUT } } },
	  other = { .calls = { .first = 4, .n_frames = 3 },
		    .frames = { { CODE + 1, 0, RING_FRAME_NO_FILE },
				{ 2, 101, RING_FRAME_CODE },
				{ 0, 103, RING_FRAME_CODE } } },
	  unread = { .calls = { .first = 7, .n_frames = 1 },
		     .frames = { { 11, 0, RING_FRAME_CODE } } };
	struct interpreted_code code;
	struct fixture fixture;

	fixture_init(&fixture);
	interpreted_code_init(&code, &fixture.parts.output, &fixture.parts.images);
	fixture.rows.heaps.code = &code;
	CHECK_INT(add_code(&fixture, 101, "outer", 3), RING_FAULT_NONE);
	CHECK_INT(add_code(&fixture, 102, "inner", 9), RING_FAULT_NONE);
	CHECK_INT(add(fixture.producer, &fixture, RING_CALLS, 2, &told, sizeof(told)),
		  RING_FAULT_NONE);
	add_at(fixture.producer, &fixture, 3, 3, 0);
	/* 103 was not sent */
	CHECK_INT(add(fixture.producer, &fixture, RING_CALLS, 4, &other, sizeof(other)),
		  RING_FAULT_NONE);
	add_at(fixture.producer, &fixture, 5, 5, 0);
	add_at(fixture.producer, &fixture, 6, 6, 0);
	CHECK_INT(add(fixture.producer, &fixture, RING_CALLS, 7, &unread,
		      sizeof(unread.calls) + sizeof(unread.frames[0])),
		  RING_FAULT_NONE);
	add_at(fixture.producer, &fixture, 8, 7, 0);
	finish(&fixture, 20);
	CHECK(has_symbol(&fixture, "b.outer") && has_symbol(&fixture, "b.inner"));
	CHECK(has_symbol(&fixture, "?"));
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_SYMBOL), 3);
	/* a log row counts the stack whose functions were not read */
	CHECK_INT(rows_of(&fixture.parts, PROF_TABLE_LOG), 1);
	/* without a table of lines, positions are not distinguished */
	CHECK_INT(parent_of(&fixture, parent_of(&fixture, stack_of(&fixture, 0))),
		  stack_of(&fixture, 1));
	CHECK_INT(parent_of(&fixture, stack_of(&fixture, 2)), stack_of(&fixture, 1));
	CHECK_INT(losses_of(&fixture.parts, PROF_LOSS_RING_CORRUPT), 1);
	interpreted_code_done(&code);
	fixture_done(&fixture);
}

/* A record of an impossible code object is a fault. */
static void test_false_code(void)
{
	const struct ring_code heads[] = {
		{ .id = RING_MAX_CALLS },
		{ .id = 1, .name_bytes = INTERP_MAX_NAME + 1, .name_width = 1 },
		{ .id = 1, .file_bytes = INTERP_MAX_FILE + 1, .file_width = 1 },
		{ .id = 1,
		  .n_bytes = 8,
		  .name_bytes = 5,
		  .file_bytes = 4,
		  .name_width = 1,
		  .file_width = 1 },
		{ .id = 1, .n_bytes = 8, .name_bytes = 5, .name_width = 3 },
		{ .id = 1, .flags = 4 },
	};
	struct interpreted_code code;
	struct fixture fixture;

	fixture_init(&fixture);
	interpreted_code_init(&code, &fixture.parts.output, &fixture.parts.images);
	fixture.rows.heaps.code = &code;
	for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
		struct code_record record = { .head = heads[i] };

		CHECK_INT(add(fixture.producer, &fixture, RING_CODE, 1, &record,
			      sizeof(record.head) + heads[i].n_bytes),
			  RING_FAULT_PAYLOAD);
	}
	/* a record with the id 0 has no effect */
	CHECK_INT(add_code(&fixture, 0, "none", 1), RING_FAULT_NONE);
	CHECK_INT(g_hash_table_size(code.programs), 0);
	finish(&fixture, 20);
	interpreted_code_done(&code);
	fixture_done(&fixture);
}

int main(void)
{
	RUN(test_nodes);
	RUN(test_epochs);
	RUN(test_depth);
	RUN(test_code);
	RUN(test_false_code);
	return test_end();
}
