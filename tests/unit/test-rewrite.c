/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of rewrite, row-copier and new-capture: rows that are kept, the state that a slice needs
 * from before its start, and forged input.
 */
#include "tests/tools/chunks.h"
#include "tests/unit/build-capture.h"
#include "tests/unit/test.h"
#include "tools/profcapture/new-capture.h"
#include "tools/profcapture/rewrite.h"

#define T(n) N(BUILD_START + (n))

static void begin(struct build *build)
{
	static const char *const texts[] = { "/lib/used.so",    "/lib/unused.so", "used_function",
					     "unused_function", "alive",          "gone" };

	build_begin(build);
	for (unsigned i = 0; i < 6; i++)
		build_text(build, i + 1, texts[i]);
	for (unsigned i = 1; i <= 2; i++) {
		BUILD(build, PROF_TABLE_IMAGE, N(i), N(i), PROF_BYTES(NULL, 0), N(10), N(1), N(i),
		      N(PROF_IMAGE_FILE), N(5), N(0));
		BUILD(build, PROF_TABLE_SYMBOL, N(i), N(i), N(0), N(0x100), N(i + 2), N(0), N(0),
		      N(0), N(0));
		BUILD(build, PROF_TABLE_FRAME, N(i), N(i), N(0x10), N(0));
		BUILD(build, PROF_TABLE_PROCESS, N(i), N(i * 100), N(1), N(5), N(0),
		      PROF_BYTES(NULL, 0), N(0), N(0), N(0), PROF_BYTES(NULL, 0));
		BUILD(build, PROF_TABLE_THREAD, N(i), N(i), N(i * 100), N(5), N(i + 4),
		      PROF_BYTES(NULL, 0));
	}
}

static void sample(struct build *build, uint64_t time, uint64_t stack)
{
	BUILD(build, PROF_TABLE_SAMPLE, T(time), N(1), N(0), N(0), N(stack), N(1), N(0), N(0), N(0),
	      N(0));
}

static struct capture *open_capture(const struct build *build)
{
	struct capture *capture = capture_open(build->path, false, NULL);

	assert(capture);
	return capture;
}

/* Rewrites to a new capture, and checks that it is complete. */
static struct capture *rewritten(struct capture *from, struct rewrite_options options,
				 struct build *to)
{
	struct rewrite_result result;
	GError *error = NULL;
	struct capture *capture;

	options.file = "result";
	*to = (struct build){ .fd = memfd_create("result", MFD_CLOEXEC) };
	snprintf(to->path, sizeof(to->path), "/proc/self/fd/%d", to->fd);
	if (!rewrite_capture(from, to->fd, &options, &result, &error)) {
		printf("# %s\n", error->message);
		g_clear_error(&error);
		return NULL;
	}
	capture = open_capture(to);
	CHECK_INT(capture_state(capture), PROF_STATE_FINISHED);
	CHECK(capture_check(capture, 0, NULL));
	CHECK_INT(capture_unreadable(capture, 0).chunks, 0);
	return capture;
}

/* Stores the numbers in one column of a table, at most 16. Returns how many. */
static size_t column(const struct capture *capture, unsigned table, uint16_t id,
		     uint64_t values[16])
{
	const struct prof_cursor_options options = { .table = table,
						     .columns = &id,
						     .n_columns = 1 };
	struct prof_cursor *cursor;
	struct prof_batch batch;
	size_t n = 0;

	if (prof_cursor_new(capture->reader, &options, &cursor) != 0)
		return 0;
	while (prof_cursor_next(cursor, &batch) == 0)
		for (size_t i = 0; i < batch.rows && n < 16; i++)
			values[n++] = batch.columns[0].numbers ? batch.columns[0].numbers[i] : 0;
	prof_cursor_free(cursor);
	return n;
}

static size_t rows(const struct capture *capture, unsigned table)
{
	uint64_t values[16];

	return column(capture, table, 0, values);
}

static void test_only_what_is_named(void)
{
	struct build build, result;
	struct capture *from, *to;

	begin(&build);
	BUILD(&build, PROF_TABLE_STACK, N(1), N(0), N(1));
	BUILD(&build, PROF_TABLE_STACK, N(2), N(0), N(1)); /* a duplicate */
	sample(&build, 1, 1);
	sample(&build, 2, 2);
	build_next_epoch(&build);
	build_text(&build, 1, "/lib/used.so");
	build_finish(&build);
	from = open_capture(&build);
	to = rewritten(from, (struct rewrite_options){ .merge_epochs = true }, &result);
	REQUIRE(to != NULL);
	CHECK_INT(rows(to, PROF_TABLE_SAMPLE), 2);
	CHECK_INT(rows(to, PROF_TABLE_STACK), 1);
	CHECK_INT(rows(to, PROF_TABLE_FRAME), 1);
	CHECK_INT(rows(to, PROF_TABLE_THREAD), 1);
	CHECK_INT(rows(to, PROF_TABLE_SYMBOL), 1);
	/* The image is in two epochs: that of the samples, and that of the symbols. */
	CHECK_INT(rows(to, PROF_TABLE_IMAGE), 2);
	capture_free(to);
	capture_free(from);
	build_done(&result);
	build_done(&build);
}

static void test_cycle(void)
{
	struct build build, result;
	struct capture *from, *to;
	uint64_t parents[16], stacks[16];

	begin(&build);
	BUILD(&build, PROF_TABLE_STACK, N(1), N(1), N(1));
	BUILD(&build, PROF_TABLE_STACK, N(2), N(3), N(1));
	BUILD(&build, PROF_TABLE_STACK, N(3), N(2), N(777));
	sample(&build, 1, 1);
	sample(&build, 2, 2);
	sample(&build, 3, 99);
	sample(&build, 4, 3);
	build_finish(&build);
	from = open_capture(&build);
	to = rewritten(from, (struct rewrite_options){ 0 }, &result);
	REQUIRE(to != NULL);
	/* Without their forged parents, rows 1 and 2 are equal. */
	CHECK_INT(column(to, PROF_TABLE_STACK, PROF_STACK_PARENT, parents), 2);
	CHECK_INT(parents[0], NEW_CAPTURE_LOST);
	CHECK_INT(parents[1], 1);
	CHECK_INT(column(to, PROF_TABLE_SAMPLE, PROF_SAMPLE_STACK, stacks), 4);
	CHECK_INT(stacks[0], 1);
	CHECK_INT(stacks[1], 1);
	CHECK_INT(stacks[2], NEW_CAPTURE_LOST);
	CHECK_INT(stacks[3], 2);
	capture_free(to);
	capture_free(from);
	build_done(&result);
	build_done(&build);
}

static void test_long_chain(void)
{
	struct build build, result;
	struct capture *from, *to;
	const unsigned depth = 100000;

	begin(&build);
	for (unsigned i = 1; i <= depth; i++)
		BUILD(&build, PROF_TABLE_STACK, N(i), N(i - 1), N(1));
	sample(&build, 1, depth);
	build_finish(&build);
	from = open_capture(&build);
	to = rewritten(from, (struct rewrite_options){ .merge_epochs = true }, &result);
	REQUIRE(to != NULL);
	CHECK_INT(prof_reader_info(to->reader)->state, PROF_STATE_FINISHED);
	capture_free(to);
	capture_free(from);
	build_done(&result);
	build_done(&build);
}

static void task(struct build *build, uint64_t time, uint64_t thread, uint64_t event)
{
	BUILD(build, PROF_TABLE_TASK, T(time), N(thread), N(event), N(0), PROF_NULL, N(0));
}

/* Ends and durations of waits. A slice from 100 to 200 has nothing of the first two waits and the
 * last one, and at least a part of each of the others. */
static const uint64_t wait_rows[][2] = { { 90, 10 },  { 100, 10 },  { 120, 60 },
					 { 160, 10 }, { 270, 110 }, { 290, 80 } };

/* For a slice from 100 to 200: before it, thread 1 exists, and thread 2 starts and exits. */
static void state_capture(struct build *build)
{
	begin(build);
	build_metadata(build, "host", "h");
	task(build, 1, 1, PROF_TASK_EXISTS);
	task(build, 2, 2, PROF_TASK_FORK);
	BUILD(build, PROF_TABLE_MAPPING, T(3), N(1), N(0x1000), N(10), N(0), N(1));
	BUILD(build, PROF_TABLE_MAPPING, T(4), N(2), N(0x1000), N(10), N(0), N(2));
	task(build, 5, 1, PROF_TASK_COMM_CHANGE);
	task(build, 50, 2, PROF_TASK_EXIT);
	BUILD(build, PROF_TABLE_STACK, N(1), N(0), N(1));
	sample(build, 99, 1);
	sample(build, 100, 1);
	sample(build, 200, 1);
	sample(build, 201, 1);
	BUILD(build, PROF_TABLE_SWITCH, T(60), N(1), N(0), T(10), N(PROF_SWITCH_WAIT));
	BUILD(build, PROF_TABLE_SWITCH, T(150), N(1), N(0), T(70), N(PROF_SWITCH_WAIT));
	BUILD(build, PROF_TABLE_SWITCH, T(260), N(1), N(0), T(160), N(PROF_SWITCH_WAIT));
	BUILD(build, PROF_TABLE_SWITCH, T(290), N(1), N(0), T(270), N(PROF_SWITCH_WAIT));
	for (unsigned i = 0; i < ARRAY_SIZE(wait_rows); i++)
		BUILD(build, PROF_TABLE_WAIT, T(wait_rows[i][0]), N(1), N(0), N(wait_rows[i][1]),
		      N(PROF_WAIT_SLEEPING), N(1), N(PROF_STACK_COPIED), N(PROF_METHOD_CFI),
		      N(PROF_STOP_ROOT), N(0), N(0), N(0));
	BUILD(build, PROF_TABLE_LOSS, T(10), T(20), PROF_BYTES("a", 1), N(0), N(1), N(0));
	BUILD(build, PROF_TABLE_LOSS, T(90), T(110), PROF_BYTES("b", 1), N(0), N(2), N(0));
	BUILD(build, PROF_TABLE_LOSS, T(210), T(220), PROF_BYTES("c", 1), N(0), N(3), N(0));
	build_finish(build);
}

static void check_state(const struct capture *to)
{
	static const uint64_t ends[] = { 120, 160, 200 }, durations[] = { 20, 10, 40 };
	uint64_t values[16];

	CHECK_INT(to->segments[0].start_monotonic_ns, BUILD_START + 100);
	CHECK_INT(to->segments[0].wall_ns, 1700000000000000000 + BUILD_START + 100);
	CHECK_INT(rows(to, PROF_TABLE_SAMPLE), 2);
	CHECK_STR(capture_metadata(to, "host"), "h");
	CHECK_INT(column(to, PROF_TABLE_TASK, PROF_TASK_TIME, values), 1);
	CHECK_INT(values[0], BUILD_START + 100);
	CHECK_INT(column(to, PROF_TABLE_TASK, PROF_TASK_EVENT, values), 1);
	CHECK_INT(values[0], PROF_TASK_EXISTS);
	CHECK_INT(column(to, PROF_TABLE_MAPPING, PROF_MAPPING_TIME, values), 1);
	CHECK_INT(values[0], BUILD_START + 100);
	CHECK_INT(rows(to, PROF_TABLE_PROCESS), 1);
	CHECK_INT(column(to, PROF_TABLE_SWITCH, PROF_SWITCH_START, values), 2);
	CHECK_INT(values[0], BUILD_START + 100);
	CHECK_INT(values[1], BUILD_START + 160);
	CHECK_INT(column(to, PROF_TABLE_SWITCH, PROF_SWITCH_TIME, values), 2);
	CHECK_INT(values[1], BUILD_START + 200);
	CHECK_INT(column(to, PROF_TABLE_SWITCH, PROF_SWITCH_STATE, values), 2);
	CHECK_INT(values[0], PROF_SWITCH_WAIT);
	CHECK_INT(values[1], PROF_SWITCH_RUNNING);
	CHECK_INT(column(to, PROF_TABLE_WAIT, PROF_WAIT_TIME, values), 3);
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
		CHECK_INT(values[i], BUILD_START + ends[i]);
	CHECK_INT(column(to, PROF_TABLE_WAIT, PROF_WAIT_DURATION, values), 3);
	for (size_t i = 0; i < ARRAY_SIZE(durations); i++)
		CHECK_INT(values[i], durations[i]);
	CHECK_INT(column(to, PROF_TABLE_LOSS, PROF_LOSS_COUNT, values), 1);
	CHECK_INT(values[0], 2);
}

/* Thread 1 runs neither at the start nor at the end of the slice, so it gets a row at each. */
static void test_slice_states(void)
{
	static const uint64_t times[] = { 100, 150, 200 },
			      states[] = { PROF_SWITCH_PREEMPTED, PROF_SWITCH_WAIT,
					   PROF_SWITCH_WAIT };
	uint64_t values[16];
	struct build build, result;
	struct capture *from, *to;

	begin(&build);
	task(&build, 1, 1, PROF_TASK_EXISTS);
	task(&build, 2, 2, PROF_TASK_FORK);
	task(&build, 50, 2, PROF_TASK_EXIT);
	BUILD(&build, PROF_TABLE_SWITCH, T(50), N(2), N(0), T(40), N(PROF_SWITCH_WAIT));
	BUILD(&build, PROF_TABLE_SWITCH, T(60), N(1), N(0), T(50), N(PROF_SWITCH_PREEMPTED));
	BUILD(&build, PROF_TABLE_SWITCH, T(150), N(1), N(0), T(120), N(PROF_SWITCH_WAIT));
	BUILD(&build, PROF_TABLE_SWITCH, T(290), N(1), N(0), T(270), N(PROF_SWITCH_WAIT));
	build_finish(&build);
	from = open_capture(&build);
	to = rewritten(from,
		       (struct rewrite_options){ .timed = true, .from_ns = 100, .to_ns = 200 },
		       &result);
	REQUIRE(to != NULL);
	CHECK_INT(column(to, PROF_TABLE_SWITCH, PROF_SWITCH_TIME, values), 3);
	for (size_t i = 0; i < ARRAY_SIZE(times); i++)
		CHECK_INT(values[i], BUILD_START + times[i]);
	CHECK_INT(column(to, PROF_TABLE_SWITCH, PROF_SWITCH_STATE, values), 3);
	for (size_t i = 0; i < ARRAY_SIZE(states); i++)
		CHECK_INT(values[i], states[i]);
	CHECK_INT(column(to, PROF_TABLE_SWITCH, PROF_SWITCH_START, values), 3);
	CHECK_INT(values[2], BUILD_START + 200);
	CHECK_INT(column(to, PROF_TABLE_SWITCH, PROF_SWITCH_CPU, values), 3);
	CHECK_INT(values[0], PROF_SWITCH_NO_CPU);
	capture_free(to);
	capture_free(from);
	build_done(&result);
	/* a slice up to the end of the capture */
	from = open_capture(&build);
	to = rewritten(from,
		       (struct rewrite_options){ .timed = true, .from_ns = 100, .to_ns = 900 },
		       &result);
	REQUIRE(to != NULL);
	CHECK_INT(column(to, PROF_TABLE_SWITCH, PROF_SWITCH_TIME, values), 3);
	CHECK_INT(values[2], BUILD_START + 290);
	capture_free(to);
	capture_free(from);
	build_done(&result);
	build_done(&build);
}

static void test_slice(void)
{
	struct build build, result;
	struct capture *from, *to;

	state_capture(&build);
	from = open_capture(&build);
	to = rewritten(from,
		       (struct rewrite_options){ .timed = true, .from_ns = 100, .to_ns = 200 },
		       &result);
	REQUIRE(to != NULL);
	check_state(to);
	capture_free(to);
	capture_free(from);
	build_done(&result);
	build_done(&build);
}

/* A segment before the slice keeps the machine's description, but not how allocations were
 * sampled. */
static void test_metadata_before(void)
{
	struct build build, result;
	struct capture *from, *to;

	begin(&build);
	build_metadata(&build, "host", "h");
	build_metadata(&build, "memory.mode", "sample");
	build_metadata(&build, "memory.sample_bytes", "1000");
	build_next_segment(&build, BUILD_START + 1000, 1);
	build_metadata(&build, "memory.mode", "all");
	build_finish(&build);
	from = open_capture(&build);
	CHECK_STR(capture_metadata_of(from, 1, "memory.mode"), "sample");
	CHECK_STR(capture_metadata_of(from, 2, "memory.mode"), "all");
	CHECK(!capture_metadata_of(from, 2, "memory.sample_bytes"));
	to = rewritten(from,
		       (struct rewrite_options){ .timed = true, .from_ns = 1000, .to_ns = 2000 },
		       &result);
	REQUIRE(to != NULL);
	CHECK_INT(to->n_segments, 1);
	CHECK_STR(capture_metadata(to, "host"), "h");
	CHECK_STR(capture_metadata(to, "memory.mode"), "all");
	CHECK(!capture_metadata(to, "memory.sample_bytes"));
	capture_free(to);
	capture_free(from);
	build_done(&result);
	build_done(&build);
}

static void test_damage_rows(void)
{
	struct prof_damage damages[] = {
		{ .offset = UINT32_MAX,
		  .bytes = 70,
		  .rows = 7,
		  .table = PROF_TABLE_SAMPLE,
		  .reason = PROF_DAMAGE_CHECKSUM },
		{ .offset = 1, .bytes = 50, .rows = UINT64_MAX, .reason = PROF_DAMAGE_PAYLOAD },
		{ .offset = 9, .bytes = 50, .rows = 0, .reason = PROF_DAMAGE_INDEX },
		{ .offset = 9, .bytes = 0, .rows = 0, .reason = PROF_DAMAGE_CUT },
	};
	g_autoptr(GArray) list = g_array_new(FALSE, FALSE, sizeof(struct prof_damage));
	struct build build, result;
	struct capture *from, *to;
	uint64_t values[16];

	state_capture(&build);
	g_array_append_vals(list, damages, 4);
	from = open_capture(&build);
	to = rewritten(from, (struct rewrite_options){ .file_damages = list }, &result);
	REQUIRE(to != NULL);
	/* The added rows are in time order: one before and one after all existing rows. */
	CHECK_INT(column(to, PROF_TABLE_LOSS, PROF_LOSS_COUNT, values), 5);
	CHECK_INT(values[0], 0);
	CHECK_INT(values[1], 1);
	CHECK_INT(values[4], 7);
	CHECK_INT(column(to, PROF_TABLE_LOSS, PROF_LOSS_CAUSE, values), 5);
	CHECK_INT(values[0], PROF_LOSS_FILE_DAMAGE);
	CHECK_INT(values[4], PROF_LOSS_FILE_DAMAGE);
	/* plus one, because the number of rows in one damaged part is unknown */
	CHECK_INT(to->lost, 1 + 2 + 3 + 7 + 1);
	CHECK(to->lost_incomplete);
	capture_free(to);
	capture_free(from);
	build_done(&result);
	build_done(&build);
}

/* The chunks of a dictionary come before the chunks that refer to them. */
static void test_order(void)
{
	static const unsigned order[] = { PROF_TABLE_STRING, PROF_TABLE_IMAGE, PROF_TABLE_FRAME,
					  PROF_TABLE_STACK, PROF_TABLE_SAMPLE };
	struct build build, result;
	struct capture *from, *to;
	CLEANUP_FREE struct prof_chunk *chunks = NULL;
	uint64_t previous = 0;
	size_t n;

	state_capture(&build);
	from = open_capture(&build);
	to = rewritten(from, (struct rewrite_options){ .merge_epochs = true }, &result);
	REQUIRE(to != NULL);
	chunks = chunks_of(to->reader, &n);
	for (size_t i = 0; i < ARRAY_SIZE(order); i++)
		for (size_t c = 0; c < n; c++)
			if (chunks[c].table == order[i]) {
				CHECK(chunks[c].offset > previous);
				previous = chunks[c].offset;
				break;
			}
	capture_free(to);
	capture_free(from);
	build_done(&result);
	build_done(&build);
}

/* Columns that a later version adds to a known table are copied. */
static void test_later_column(void)
{
	const struct prof_table_def *ours = prof_table_v1(PROF_TABLE_COUNTER_VALUE);
	struct prof_column_def columns[PROF_COUNTER_VALUE_COLUMNS + 1];
	struct prof_table_def later = *ours;
	const struct prof_value row[] = { T(5), N(0), N(6), N(7) };
	struct prof_block *block;
	struct build build, result;
	struct capture *from, *to;
	uint64_t values[16];

	memcpy(columns, ours->columns, ours->n_columns * sizeof(*columns));
	columns[ours->n_columns] = (struct prof_column_def){ .id = ours->n_columns,
							     .name = "later",
							     .type = PROF_TYPE_UINT };
	later.columns = columns;
	later.n_columns++;
	begin(&build);
	REQUIRE(prof_writer_add_table(build.writer, &later) == 0);
	REQUIRE(prof_block_new(&later, &block) == 0);
	CHECK_INT(prof_block_add(block, row), 0);
	prof_block_set_epoch(block, build.epoch);
	CHECK_INT(prof_writer_write(build.writer, block), 0);
	prof_block_free(block);
	build_finish(&build);
	from = open_capture(&build);
	to = rewritten(from, (struct rewrite_options){ .merge_epochs = true }, &result);
	REQUIRE(to != NULL);
	CHECK_INT(column(to, PROF_TABLE_COUNTER_VALUE, PROF_COUNTER_VALUE_VALUE, values), 1);
	CHECK_INT(values[0], 6);
	CHECK_INT(column(to, PROF_TABLE_COUNTER_VALUE, PROF_COUNTER_VALUE_COLUMNS, values), 1);
	CHECK_INT(values[0], 7);
	capture_free(to);
	capture_free(from);
	build_done(&result);
	build_done(&build);
}

int main(void)
{
	RUN(test_only_what_is_named);
	RUN(test_cycle);
	RUN(test_long_chain);
	RUN(test_slice);
	RUN(test_slice_states);
	RUN(test_metadata_before);
	RUN(test_damage_rows);
	RUN(test_order);
	RUN(test_later_column);
	return test_end();
}
