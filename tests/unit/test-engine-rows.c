/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of intern.c, output.c, writer.c and loss.c in daemon/engine: ids, order, backlog and a
 * full disk.
 */
#include "tests/unit/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>

#define N_PAIRS 100000
#define N_AT_ONCE 1000 /* more than one lookup batch; divides N_PAIRS */

/* Adds pairs. They must get the ids 1, 2, …; `are_new`: whether they must be new. */
static void add_pairs(struct intern_pairs *pairs, bool are_new)
{
	uint64_t a[N_AT_ONCE];
	uint32_t b[N_AT_ONCE], ids[N_AT_ONCE], i, n;
	bool added[N_AT_ONCE];

	for (n = 0; n < N_PAIRS; n += N_AT_ONCE) {
		for (i = 0; i < N_AT_ONCE; i++) {
			a[i] = (n + i) * UINT64_C(7919);
			b[i] = (n + i) & 3;
		}
		intern_pairs_add_all(pairs, a, b, N_AT_ONCE, ids, added);
		for (i = 0; i < N_AT_ONCE; i++) {
			CHECK_INT(ids[i], n + i + 1);
			CHECK_INT(added[i], are_new);
		}
	}
}

static void test_intern_same(void)
{
	const uint64_t a[] = { 3, 4, 3 };
	const uint32_t b[] = { 4, 3, 4 };
	struct intern_pairs pairs;
	uint32_t ids[3];
	bool added[3];

	intern_pairs_init(&pairs, 42);
	add_pairs(&pairs, true);
	add_pairs(&pairs, false);
	intern_pairs_clear(&pairs);
	intern_pairs_add_all(&pairs, a, b, ARRAY_SIZE(a), ids, added);
	CHECK(ids[0] == 1 && ids[1] == 2 && ids[2] == 1);
	CHECK(added[0] && added[1] && !added[2]);
	intern_pairs_done(&pairs);
}

#define N_PATH 200 /* more than one lookup batch */

/* Paths share their common beginning, even if they are added in parts. */
static void test_intern_path(void)
{
	struct intern_pairs pairs;
	uint32_t frames[N_PATH], ids[N_PATH], again[N_PATH], i;
	bool added[N_PATH];

	intern_pairs_init(&pairs, 42);
	for (i = 0; i < N_PATH; i++)
		frames[i] = i % 3 + 1;
	intern_pairs_add_path(&pairs, 0, frames, N_PATH, ids, added);
	for (i = 0; i < N_PATH; i++) {
		CHECK_INT(ids[i], i + 1);
		CHECK(added[i]);
		CHECK_INT(pairs.pairs[i].a, i);
	}
	intern_pairs_add_path(&pairs, 0, frames, 100, again, added);
	intern_pairs_add_path(&pairs, again[99], frames + 100, 100, again + 100, added + 100);
	for (i = 0; i < N_PATH; i++) {
		CHECK_INT(again[i], ids[i]);
		CHECK(!added[i]);
	}
	frames[50] = 9;
	intern_pairs_add_path(&pairs, 0, frames, N_PATH, again, added);
	for (i = 0; i < N_PATH; i++) {
		CHECK_INT(again[i], i < 50 ? ids[i] : N_PATH + i - 49);
		CHECK_INT(added[i], i >= 50);
	}
	intern_pairs_add_path(&pairs, 0, frames, 0, again, added);
	CHECK_INT(pairs.n, 2 * N_PATH - 50);
	intern_pairs_done(&pairs);
}

static void test_intern_strings(void)
{
	struct intern_strings strings;
	bool added;
	char text[32];
	uint32_t i;

	intern_strings_init(&strings, 42);
	for (i = 1; i <= 20000; i++) {
		snprintf(text, sizeof(text), "string number %u", i);
		CHECK_INT(intern_strings_add(&strings, text, strlen(text), &added), i);
	}
	CHECK_INT(intern_strings_add(&strings, "string number 77", 16, &added), 77);
	CHECK(!added);
	CHECK_INT(intern_strings_add(&strings, "string number 7", 15, &added), 7);
	CHECK_INT(intern_strings_add(&strings, "a\0b", 3, &added), 20001);
	CHECK_INT(intern_strings_add(&strings, "a\0c", 3, &added), 20002);
	intern_strings_done(&strings);
}

static void add_task_row(struct parts *parts, uint64_t time_ns)
{
	uint64_t mixed = time_ns * 0x9e3779b97f4a7c15u; /* incompressible */

	output_add(&parts->output, PROF_TABLE_TASK,
		   (const struct prof_value[PROF_TASK_COLUMNS]){
			   [PROF_TASK_TIME] = PROF_NUMBER(time_ns),
			   [PROF_TASK_PARENT] = PROF_NUMBER(mixed >> 16),
			   [PROF_TASK_EXIT_STATUS] = PROF_NULL,
		   });
}

/* Chunks of dictionaries come before the chunks that refer to them. */
static void test_order(void)
{
	struct parts parts;
	CLEANUP_FREE struct prof_chunk *chunks = NULL;
	struct thread *thread;
	size_t n, i;
	bool process = false, thread_seen = false;

	parts_init(&parts);
	for (i = 0; i < 3; i++) {
		thread = tasks_found(&parts.tasks, 10 + i, 10 + i, 1);
		tasks_add_row(&parts.tasks, thread, PROF_TASK_EXISTS, NULL, 2000 + i);
		output_flush(&parts.output);
	}
	parts_finish(&parts);
	REQUIRE(parts.reader);
	chunks = chunks_of(parts.reader, &n);
	for (i = 0; i < n; i++) {
		process |= chunks[i].table == PROF_TABLE_PROCESS;
		CHECK(chunks[i].table != PROF_TABLE_THREAD || process);
		thread_seen |= chunks[i].table == PROF_TABLE_THREAD;
		CHECK(chunks[i].table != PROF_TABLE_TASK || thread_seen);
	}
	CHECK_INT(rows_of(&parts, PROF_TABLE_PROCESS), 3);
	CHECK_INT(rows_of(&parts, PROF_TABLE_TASK), 3);
	parts_done(&parts);
}

static void test_time(void)
{
	struct parts parts;

	parts_init(&parts);
	add_task_row(&parts, 5000);
	add_task_row(&parts, 4000);
	add_task_row(&parts, 6000);
	parts_finish(&parts);
	CHECK_INT(number_of(&parts, PROF_TABLE_TASK, PROF_TASK_TIME, 0), 5000);
	CHECK_INT(number_of(&parts, PROF_TABLE_TASK, PROF_TASK_TIME, 1), 5000);
	CHECK_INT(number_of(&parts, PROF_TABLE_TASK, PROF_TASK_TIME, 2), 6000);
	parts_done(&parts);
}

/* In a new epoch, ids start at 1, and rows of objects are written again. */
static void test_epochs(void)
{
	struct parts parts;
	struct thread *thread;

	parts_init(&parts);
	thread = tasks_found(&parts.tasks, 10, 10, 1);
	tasks_add_row(&parts.tasks, thread, PROF_TASK_EXISTS, NULL, 2000);
	CHECK_INT(output_text(&parts.output, "first"), 1);
	output_end_epoch(&parts.output);
	CHECK_INT(output_text(&parts.output, "second"), 1);
	tasks_add_row(&parts.tasks, thread, PROF_TASK_EXIT, NULL, 3000);
	parts_finish(&parts);
	CHECK_INT(rows_of(&parts, PROF_TABLE_THREAD), 2);
	CHECK_INT(number_of(&parts, PROF_TABLE_THREAD, PROF_THREAD_ID, 1), thread->row.id);
	CHECK_INT(prof_reader_info(parts.reader)->epochs, 2);
	parts_done(&parts);
}

/* If the pipe is not read, rows of data are dropped and counted, and adding rows does not block. */
static void test_backlog(void)
{
	struct parts parts;
	struct output_drops drops;
	struct loss_table losses;
	int fds[2];
	size_t i;

	REQUIRE(pipe2(fds, O_CLOEXEC) == 0);
	parts_init_fd(&parts, fds[1]);
	for (i = 0; i < 4000000; i++)
		add_task_row(&parts, 5000 + i);
	output_flush(&parts.output);
	CHECK(parts.output.drops[PROF_TABLE_TASK].rows > 0);
	CHECK(!parts.output.restart);
	loss_init(&losses);
	loss_flush(&losses, &parts.output);
	CHECK_INT(g_hash_table_size(losses.total), 1);
	CHECK(!output_collect_drops(&parts.output, PROF_TABLE_TASK, &drops));
	loss_done(&losses);
	CHECK(!writer_finish(parts.writer, 50));
	signal(SIGPIPE, SIG_IGN);
	close(fds[0]);
	CHECK(writer_finish(parts.writer, 5000));
	CHECK_INT(writer_error(parts.writer), EPIPE);
	CHECK(writer_losses(parts.writer)->len > 0);
	parts_done(&parts);
}

/* A row of losses is not dropped when the queue is full, because its count would become unknown. */
static void test_backlog_of_losses(void)
{
	struct parts parts;
	struct loss_table losses;
	uint64_t rows, time_ns = 5000;
	int fds[2];

	REQUIRE(pipe2(fds, O_CLOEXEC) == 0);
	parts_init_fd(&parts, fds[1]);
	while (parts.output.drops[PROF_TABLE_TASK].rows == 0)
		add_task_row(&parts, time_ns++);
	/* Fill the queue until not even one row fits. */
	do {
		rows = parts.output.drops[PROF_TABLE_TASK].rows;
		add_task_row(&parts, time_ns++);
		output_flush(&parts.output);
	} while (parts.output.drops[PROF_TABLE_TASK].rows == rows);
	loss_init(&losses);
	loss_add_cpu(&losses, 0, false, PROF_LOSS_PERF_RING, 44000000, time_ns, time_ns + 1);
	loss_flush(&losses, &parts.output);
	output_flush(&parts.output);
	CHECK_INT(parts.output.drops[PROF_TABLE_LOSS].rows, 0);
	CHECK_INT(parts.output.rows[PROF_TABLE_LOSS], 2);
	loss_done(&losses);
	close(fds[0]);
	CHECK(writer_finish(parts.writer, 5000));
	parts_done(&parts);
}

/* Writing to /dev/full fails: the error and the missing rows are reported. */
static void test_full(void)
{
	struct parts parts;
	const struct prof_writer_options options = { .segment.start_monotonic_ns = 1 };
	struct writer *writer;
	int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);

	parts_init(&parts);
	writer = writer_new(NULL);
	REQUIRE(writer && fd >= 0);
	if (writer_open(writer, fd, &options, NULL)) {
		struct prof_block *block;
		struct writer_batch batch = { .from_ns = 1, .to_ns = 2 };

		REQUIRE(prof_block_new(prof_table_v1(PROF_TABLE_STRING), &block) == 0);
		REQUIRE(prof_block_add(block, (const struct prof_value[]){
						      PROF_NUMBER(1), PROF_BYTES("x", 1) }) == 0);
		batch.block = block;
		CHECK(writer_push(writer, &batch, false));
		CHECK(writer_finish(writer, 5000));
		CHECK_INT(writer_error(writer), ENOSPC);
		REQUIRE(writer_losses(writer)->len == 1);
		CHECK_INT(g_array_index(writer_losses(writer), struct writer_loss, 0).rows, 1);
	} else {
		CHECK(writer_finish(writer, 5000)); /* if false, the writer's thread still runs */
	}
	writer_free(writer);
	close(fd);
	parts_finish(&parts);
	parts_done(&parts);
}

static void test_loss_sums(void)
{
	struct parts parts;
	struct message_loss exported[MESSAGE_MAX_LOSS];
	uint64_t lost, missed;
	uint32_t cpu;

	parts_init(&parts);
	for (cpu = 0; cpu < 1000; cpu++)
		loss_add_cpu(&parts.losses, cpu % 4, false, PROF_LOSS_PERF_RING, 3, 100 + cpu,
			     200 + cpu);
	loss_add_cpu(&parts.losses, 1, false, PROF_LOSS_TICKS_MISSED, 7, 100, 200);
	loss_add_cpu(&parts.losses, 1, true, PROF_LOSS_SIDE_BAND, 0, 100, 200);
	loss_flush(&parts.losses, &parts.output);
	loss_flush(&parts.losses, &parts.output);
	loss_sum(&parts.losses, &lost, &missed);
	CHECK_INT(lost, 3000);
	CHECK_INT(missed, 7);
	CHECK_INT(loss_export(&parts.losses, exported), 5);
	CHECK_STR(exported[0].stream, "cpu0");
	CHECK_INT(exported[0].count, 750);
	CHECK_INT(exported[0].from_ns, 100);
	parts_finish(&parts);
	CHECK_INT(rows_of(&parts, PROF_TABLE_LOSS), 5);
	parts_done(&parts);
}

/* A loss of unknown size is a separate row, never a counted loss of 0. */
static void test_loss_unknown(void)
{
	struct message_loss exported[MESSAGE_MAX_LOSS];
	struct loss loss = { .key = { "collector/7", PROF_LOSS_RING_FULL, false },
			     .count = LOSS_UNKNOWN,
			     .from_ns = 100,
			     .to_ns = 200 };
	uint64_t lost, missed;
	struct parts parts;

	parts_init(&parts);
	loss_add(&parts.losses, &loss);
	loss_add(&parts.losses, &loss);
	loss_flush(&parts.losses, &parts.output);
	loss_sum(&parts.losses, &lost, &missed);
	CHECK_INT(lost, 1);
	loss.count = 5;
	loss.from_ns = 150;
	loss_add(&parts.losses, &loss);
	loss_sum(&parts.losses, &lost, &missed);
	CHECK_INT(lost, 6);
	CHECK_INT(loss_export(&parts.losses, exported), 2);
	CHECK_INT(exported[0].count, 0);
	CHECK_INT(exported[1].count, 5);
	loss_flush(&parts.losses, &parts.output);
	parts_finish(&parts);
	CHECK_INT(rows_of(&parts, PROF_TABLE_LOSS), 2);
	parts_done(&parts);
}

/* If there are more streams than fit into a message, their losses are summed by cause. */
static void test_loss_storm(void)
{
	struct message_loss exported[MESSAGE_MAX_LOSS];
	struct loss_table losses;
	uint32_t cpu;

	loss_init(&losses);
	for (cpu = 0; cpu < ENGINE_MAX_CPUS; cpu++)
		loss_add_cpu(&losses, cpu, false, PROF_LOSS_PERF_RING, 2, 1, 2);
	CHECK_INT(loss_export(&losses, exported), 1);
	CHECK_INT(exported[0].count, 2 * ENGINE_MAX_CPUS);
	loss_done(&losses);
}

int main(void)
{
	RUN(test_intern_same);
	RUN(test_intern_path);
	RUN(test_intern_strings);
	RUN(test_order);
	RUN(test_time);
	RUN(test_epochs);
	RUN(test_backlog);
	RUN(test_backlog_of_losses);
	RUN(test_full);
	RUN(test_loss_sums);
	RUN(test_loss_unknown);
	RUN(test_loss_storm);
	return test_end();
}
