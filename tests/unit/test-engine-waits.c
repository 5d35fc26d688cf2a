/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of daemon/engine/perf/waits.c: rows, their order, and whose stack a wait gets.
 */
#include "arch/regs.h"
#include "daemon/engine/perf/waits.h"
#include "tests/unit/engine.h"

#define USER ((uint64_t)PERF_CONTEXT_USER)

struct stage {
	struct parts parts;
	struct waits waits;
	struct thread *threads[3]; /* the first two are of one process */
};

static void stage_init(struct stage *stage)
{
	struct image_key key = { .path = "/bin/x", .path_bytes = 6, .inode = 5 };
	struct process *process;

	parts_init(&stage->parts);
	waits_init(&stage->waits, &stage->parts.samples);
	for (int i = 0; i < 2; i++)
		stage->threads[i] = tasks_found(&stage->parts.tasks, 10, 10 + i, 1);
	stage->threads[2] = tasks_found(&stage->parts.tasks, 20, 20, 1);
	process = stage->threads[0]->process;
	process->maps_known = true;
	maps_insert(&process->maps,
		    &(struct mapping){ .start = 0x400000,
				       .end = 0x402000,
				       .image = images_of_mapping(&stage->parts.images, &key) });
}

static void stage_done(struct stage *stage)
{
	waits_done(&stage->waits);
	parts_done(&stage->parts);
}

/* Reports a sleep with a task state of the kernel, without the switch that follows. */
static void report_state(struct stage *stage, int thread, uint64_t pc, uint64_t sp, uint64_t state)
{
	const struct regs *regs = regs_get(REGS_NATIVE);
	uint64_t registers[64] = { 0 };
	const struct record record = { .sleep = { .state = state, .registers = registers } };

	registers[regs_sleep_position(regs, regs->perf_pc_bit)] = pc;
	registers[regs_sleep_position(regs, regs->perf_sp_bit)] = sp;
	registers[regs_sleep_position(regs, regs->perf_argument_bit)] = 0x77;
	waits_sleep(&stage->waits, stage->threads[thread], &record);
}

static void report(struct stage *stage, int thread, uint64_t pc, uint64_t sp)
{
	report_state(stage, thread, pc, sp, 1);
}

static void leave(struct stage *stage, int thread, uint64_t pc, uint64_t sp, uint64_t time_ns)
{
	report(stage, thread, pc, sp);
	waits_begin(&stage->waits, stage->threads[thread], 1, time_ns);
}

/* A whole wait, from begin_ns to end_ns. */
static void rest(struct stage *stage, int thread, uint64_t pc, uint64_t sp, uint64_t begin_ns,
		 uint64_t end_ns)
{
	leave(stage, thread, pc, sp, begin_ns);
	waits_end(&stage->waits, stage->threads[thread], end_ns);
}

static void finish(struct stage *stage)
{
	waits_write(&stage->waits, UINT64_MAX);
	parts_finish(&stage->parts);
}

/* Ends the waits that have not ended, and finishes. */
static void end(struct stage *stage, uint64_t time_ns)
{
	waits_end_all(&stage->waits, time_ns);
	finish(stage);
}

static void copy_from(struct stage *stage, int thread, uint64_t pc, uint64_t caller)
{
	const uint64_t ips[] = { USER, pc, caller };
	struct bytes bytes = { .length = 0 };
	struct record record;

	put_sample(&bytes, PERF_RECORD_MISC_KERNEL, 10, 10 + thread, 5000, ips, 3);
	REQUIRE(record_parse((const void *)bytes.data, 0, &record));
	waits_copy(&stage->waits, stage->threads[thread], &record);
}

static void copy(struct stage *stage, int thread, uint64_t pc)
{
	copy_from(stage, thread, pc, 0x400020);
}

static uint64_t row(const struct stage *stage, uint16_t column, size_t i)
{
	return number_of(&stage->parts, PROF_TABLE_WAIT, column, i);
}

static void test_rows(void)
{
	struct stage stage;

	stage_init(&stage);
	copy(&stage, 0, 0x400010);
	rest(&stage, 0, 0x400010, 0x7000, 5000, 5600);
	/* a stack was copied, but the thread was preempted and did not sleep */
	copy(&stage, 0, 0x400010);
	waits_drop(&stage.waits, stage.threads[0]);
	waits_end(&stage.waits, stage.threads[0], 6000);
	/* sleeps at the end */
	leave(&stage, 1, 0x400010, 0x8008, 7000);
	end(&stage, 7500);
	REQUIRE(CHECK_INT(rows_of(&stage.parts, PROF_TABLE_WAIT), 2));
	CHECK_INT(row(&stage, PROF_WAIT_TIME, 0), 5600);
	CHECK_INT(row(&stage, PROF_WAIT_DURATION, 0), 600);
	CHECK_INT(row(&stage, PROF_WAIT_CPU, 0), 1);
	CHECK_INT(row(&stage, PROF_WAIT_STATE, 0), PROF_WAIT_SLEEPING);
	CHECK_INT(row(&stage, PROF_WAIT_STACK_SOURCE, 0), PROF_STACK_COPIED);
	CHECK_INT(row(&stage, PROF_WAIT_ARGUMENT, 0), 0x77);
	CHECK(row(&stage, PROF_WAIT_STACK, 0) != 0);
	CHECK_INT(row(&stage, PROF_WAIT_DURATION, 1), 500);
	CHECK_INT(row(&stage, PROF_WAIT_STACK_SOURCE, 1), PROF_STACK_NONE);
	stage_done(&stage);
}

/* The states of <linux/sched.h>, which the kernel combines with flags. */
static void test_states(void)
{
	static const struct {
		uint64_t state;
		enum prof_wait_state known;
	} cases[] = {
		{ 0x1, PROF_WAIT_SLEEPING },
		{ 0x2, PROF_WAIT_UNINTERRUPTIBLE },
		{ 0x4, PROF_WAIT_STOPPED },
		{ 0x8, PROF_WAIT_TRACED },
		{ 0x2102, PROF_WAIT_UNINTERRUPTIBLE },
		{ 0x104, PROF_WAIT_STOPPED },
		{ 0x10, PROF_WAIT_UNKNOWN },
	};
	struct stage stage;

	stage_init(&stage);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		report_state(&stage, 0, 0x400010, 0x7000, cases[i].state);
		waits_begin(&stage.waits, stage.threads[0], 1, 5000 + 100 * i);
		waits_end(&stage.waits, stage.threads[0], 5050 + 100 * i);
	}
	finish(&stage);
	REQUIRE(CHECK_INT(rows_of(&stage.parts, PROF_TABLE_WAIT), ARRAY_SIZE(cases)));
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		CHECK_INT(row(&stage, PROF_WAIT_STATE, i), cases[i].known);
	stage_done(&stage);
}

static void test_order(void)
{
	struct stage stage;

	stage_init(&stage);
	leave(&stage, 0, 0x400010, 0x7000, 5000);
	rest(&stage, 1, 0x400010, 0x8000, 5100, 5200);
	waits_end(&stage.waits, stage.threads[0], 5300);
	end(&stage, 5400);
	REQUIRE(CHECK_INT(rows_of(&stage.parts, PROF_TABLE_WAIT), 2));
	CHECK_INT(row(&stage, PROF_WAIT_DURATION, 0), 100);
	CHECK_INT(row(&stage, PROF_WAIT_DURATION, 1), 300);
	stage_done(&stage);
}

static void test_shared(void)
{
	static const struct {
		int thread;
		uint64_t pc, sp;
		enum prof_stack_source source;
	} cases[] = {
		{ 0, 0x400010, 0x7000, PROF_STACK_SHARED },
		{ 0, 0x400010, 0x7008, PROF_STACK_NONE },
		{ 0, 0x400010, 0x9000, PROF_STACK_SHARED },
		{ 0, 0x400011, 0x9000, PROF_STACK_NONE },
		{ 2, 0x400010, 0x9000, PROF_STACK_NONE },
		{ 0, 0x400011, 0x7000, PROF_STACK_NONE },
		{ 1, 0x400010, 0x7000, PROF_STACK_SHARED },
		{ 2, 0x400010, 0x7000, PROF_STACK_NONE },
	};
	struct stage stage;

	stage_init(&stage);
	copy(&stage, 0, 0x400010);
	rest(&stage, 0, 0x400010, 0x7000, 5000, 5100);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		rest(&stage, cases[i].thread, cases[i].pc, cases[i].sp, 6000 + 100 * i,
		     6050 + 100 * i);
	}
	end(&stage, 9000);
	REQUIRE(CHECK_INT(rows_of(&stage.parts, PROF_TABLE_WAIT), 1 + ARRAY_SIZE(cases)));
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CHECK_INT(row(&stage, PROF_WAIT_STACK_SOURCE, 1 + i), cases[i].source);
		CHECK_INT(row(&stage, PROF_WAIT_STACK, 1 + i),
			  cases[i].source == PROF_STACK_SHARED ? row(&stage, PROF_WAIT_STACK, 0)
							       : 0);
	}
	stage_done(&stage);
}

/* A wait shares the stack that has its stack pointer, even if a newer stack has the same offset in
 * another page. */
static void test_in_page(void)
{
	const uint64_t sps[] = { 0x7000, 0x9000, 0x7000, 0xa000 };
	struct stage stage;

	stage_init(&stage);
	for (size_t i = 0; i < ARRAY_SIZE(sps); i++) {
		if (i < 2)
			copy_from(&stage, i, 0x400010, 0x400020 + i);
		rest(&stage, i & 1, 0x400010, sps[i], 5000 + 100 * i, 5050 + 100 * i);
	}
	finish(&stage);
	REQUIRE(CHECK_INT(rows_of(&stage.parts, PROF_TABLE_WAIT), ARRAY_SIZE(sps)));
	CHECK(row(&stage, PROF_WAIT_STACK, 0) != row(&stage, PROF_WAIT_STACK, 1));
	CHECK_INT(row(&stage, PROF_WAIT_STACK, 2), row(&stage, PROF_WAIT_STACK, 0));
	CHECK_INT(row(&stage, PROF_WAIT_STACK, 3), row(&stage, PROF_WAIT_STACK, 1));
	CHECK_INT(row(&stage, PROF_WAIT_STACK_SOURCE, 3), PROF_STACK_SHARED);
	stage_done(&stage);
}

/* A wait without a stack shares the stack of a later wait, but not of a much later one. */
static void test_held(void)
{
	const uint64_t begins_ns[] = { 5000, 6000, 7000, 2000000000, 4000000000 };
	const enum prof_stack_source sources[] = { PROF_STACK_SHARED, PROF_STACK_SHARED,
						   PROF_STACK_COPIED, PROF_STACK_NONE,
						   PROF_STACK_COPIED };
	struct stage stage;

	stage_init(&stage);
	for (size_t i = 0; i < ARRAY_SIZE(begins_ns); i++) {
		const uint64_t sp = i < 3 ? 0x7000 : 0x8008;

		if (sources[i] == PROF_STACK_COPIED)
			copy(&stage, 0, 0x400010);
		rest(&stage, 0, 0x400010, sp, begins_ns[i], begins_ns[i] + 100);
		if (sources[i] == PROF_STACK_NONE)
			waits_write(&stage.waits, begins_ns[i] + 1200000000);
	}
	parts_finish(&stage.parts);
	REQUIRE(CHECK_INT(rows_of(&stage.parts, PROF_TABLE_WAIT), ARRAY_SIZE(begins_ns)));
	for (size_t i = 0; i < ARRAY_SIZE(begins_ns); i++) {
		CHECK_INT(row(&stage, PROF_WAIT_TIME, i), begins_ns[i] + 100);
		CHECK_INT(row(&stage, PROF_WAIT_STACK_SOURCE, i), sources[i]);
	}
	stage_done(&stage);
}

/* A row that waits for an earlier row gets the stack that was its thread's latest when the thread
 * slept. */
static void test_behind(void)
{
	const enum prof_stack_source sources[] = { PROF_STACK_COPIED, PROF_STACK_NONE,
						   PROF_STACK_SHARED, PROF_STACK_COPIED };
	struct stage stage;

	stage_init(&stage);
	for (size_t i = 0; i < ARRAY_SIZE(sources); i++) {
		if (sources[i] == PROF_STACK_COPIED)
			copy_from(&stage, 0, 0x400010, 0x400020 + i);
		leave(&stage, 0, 0x400010, sources[i] == PROF_STACK_NONE ? 0x8008 : 0x7000,
		      5000 + 100 * i);
		waits_end(&stage.waits, stage.threads[0], 5050 + 100 * i);
	}
	finish(&stage);
	REQUIRE(CHECK_INT(rows_of(&stage.parts, PROF_TABLE_WAIT), ARRAY_SIZE(sources)));
	for (size_t i = 0; i < ARRAY_SIZE(sources); i++)
		CHECK_INT(row(&stage, PROF_WAIT_STACK_SOURCE, i), sources[i]);
	CHECK_INT(row(&stage, PROF_WAIT_STACK, 2), row(&stage, PROF_WAIT_STACK, 0));
	CHECK(row(&stage, PROF_WAIT_STACK, 3) != row(&stage, PROF_WAIT_STACK, 0));
	stage_done(&stage);
}

/* If too many rows wait for a stack, the oldest rows are written without one. */
static void test_held_many(void)
{
	struct stage stage;

	stage_init(&stage);
	for (uint64_t i = 0; i < WAITS_MAX_ENDED; i++) {
		rest(&stage, 0, 0x400010, 0x7000, 5000 + 2 * i, 5001 + 2 * i);
	}
	CHECK(stage.waits.ended.length > 0 && stage.waits.ended.length < WAITS_MAX_ENDED);
	waits_write(&stage.waits, 2000000000);
	CHECK_INT(stage.waits.ended.length, 0);
	parts_finish(&stage.parts);
	CHECK_INT(rows_of(&stage.parts, PROF_TABLE_WAIT), WAITS_MAX_ENDED);
	stage_done(&stage);
}

/* Waits with different Python frames may have the same native stack, but do not share it. A wait
 * without Python frames may share it. */
static void test_interpreted(void)
{
	struct interp_sample chain = {
		.record = INTERP_RECORD_SLEEP,
		.n = 1,
		.flags = INTERP_WALKED,
		.frames = { { .code = 0x1000, .position = 4 } },
	};
	const uint8_t *bytes = (const uint8_t *)&chain;
	const size_t size = offsetof(struct interp_sample, frames) + sizeof(chain.frames[0]);
	struct stage stage;

	stage_init(&stage);
	waits_interpret(&stage.waits, stage.threads[0], bytes, size);
	copy(&stage, 0, 0x400010);
	rest(&stage, 0, 0x400010, 0x7000, 5000, 5100);
	for (uint32_t i = 0; i < 3; i++) {
		const uint64_t begin_ns = 6000 + i * 1000;

		chain.frames[0].position = i == 1 ? 5 : 4;
		if (i < 2)
			waits_interpret(&stage.waits, stage.threads[0], bytes, size);
		rest(&stage, 0, 0x400010, 0x7000, begin_ns, begin_ns + 10);
	}
	/* a switch was lost, so the frames do not belong to the next sleep */
	waits_interpret(&stage.waits, stage.threads[1], bytes, size);
	waits_interpret(&stage.waits, stage.threads[1], bytes, size);
	leave(&stage, 1, 0x400010, 0x7000, 10000);
	waits_interpret(&stage.waits, stage.threads[1], bytes, size);
	end(&stage, 11000);
	CHECK_INT(row(&stage, PROF_WAIT_STACK_SOURCE, 1), PROF_STACK_SHARED);
	CHECK_INT(row(&stage, PROF_WAIT_STACK_SOURCE, 2), PROF_STACK_NONE);
	CHECK_INT(row(&stage, PROF_WAIT_STACK_SOURCE, 3), PROF_STACK_SHARED);
	stage_done(&stage);
}

/* The switch after a copied sleep was lost, so the next sleep does not get the stack. */
static void test_lost_switch(void)
{
	struct stage stage;

	stage_init(&stage);
	copy(&stage, 0, 0x400010);
	report(&stage, 0, 0x400010, 0x7000);
	rest(&stage, 0, 0x400011, 0x7000, 5000, 5100);
	copy(&stage, 0, 0x400010);
	report(&stage, 0, 0x400010, 0x7000);
	samples_finalize(&stage.parts.samples);
	copy(&stage, 0, 0x400012);
	rest(&stage, 0, 0x400012, 0x7000, 6000, 6100);
	end(&stage, 9000);
	REQUIRE(CHECK_INT(rows_of(&stage.parts, PROF_TABLE_WAIT), 2));
	CHECK_INT(row(&stage, PROF_WAIT_STACK_SOURCE, 0), PROF_STACK_NONE);
	CHECK_INT(row(&stage, PROF_WAIT_STACK_SOURCE, 1), PROF_STACK_COPIED);
	stage_done(&stage);
}

/* If the kernel copies the stack of a sleep twice, the wait keeps what was reported before. */
static void test_copied_twice(void)
{
	struct stage stage;

	stage_init(&stage);
	report(&stage, 0, 0x400010, 0x7000);
	copy(&stage, 0, 0x400010);
	copy(&stage, 0, 0x400010);
	waits_begin(&stage.waits, stage.threads[0], 1, 5000);
	waits_end(&stage.waits, stage.threads[0], 5100);
	end(&stage, 9000);
	REQUIRE(CHECK_INT(rows_of(&stage.parts, PROF_TABLE_WAIT), 1));
	CHECK_INT(row(&stage, PROF_WAIT_STACK_SOURCE, 0), PROF_STACK_COPIED);
	CHECK_INT(row(&stage, PROF_WAIT_STATE, 0), PROF_WAIT_SLEEPING);
	CHECK_INT(row(&stage, PROF_WAIT_ARGUMENT, 0), 0x77);
	stage_done(&stage);
}

/* Writes a snapshot with the stack of thread 0. Returns its size. */
static size_t put_stack_at(uint8_t *bytes, uint64_t time_ns, uint64_t done_ns, uint64_t pc,
			   uint64_t sp)
{
	struct snapshot_record record = { .kind = SNAPSHOT_STACK,
					  .length = sizeof(struct snapshot_stack) + 64,
					  .pid = 10,
					  .tid = 10,
					  .time_ns = time_ns };
	const struct snapshot_stack stack = { .done_ns = done_ns,
					      .pc = pc,
					      .sp = sp,
					      .bytes = 64,
					      .syscall = "read",
					      .object = "pipe:[1]" };
	struct snapshot_record end = { .kind = SNAPSHOT_END };

	memcpy(bytes, &record, sizeof(record));
	memcpy(bytes + sizeof(record), &stack, sizeof(stack));
	bytes += sizeof(record) + sizeof(stack) + 64;
	end.time_ns = done_ns;
	memcpy(bytes, &end, sizeof(end));
	return sizeof(record) + sizeof(stack) + 64 + sizeof(end);
}

static size_t put_stack(uint8_t *bytes, uint64_t time_ns, uint64_t done_ns, uint64_t pc)
{
	return put_stack_at(bytes, time_ns, done_ns, pc, 0x7000);
}

/* A stack that was read is used only if the thread slept during the whole read, and no switch was
 * lost since the thread fell asleep. */
static void test_late(void)
{
	static const struct {
		uint64_t time_ns, pc, sp, end_ns, lost_ns;
		enum prof_stack_source source;
	} cases[] = {
		{ 6000, 0x400010, 0x7000, 0, 0, PROF_STACK_LATE },
		{ 6000, 0x400010, 0x7000, 6200, 0, PROF_STACK_LATE },
		{ 6000, 0x400010, 0x7000, 6050, 0, PROF_STACK_RACED },
		{ 6000, 0x400010, 0x7000, 6100, 0, PROF_STACK_RACED },
		{ 4000, 0x400010, 0x7000, 0, 0, PROF_STACK_NONE },
		{ 6000, 0x400011, 0x7000, 0, 0, PROF_STACK_NONE },
		{ 6000, 0x400010, 0x7008, 0, 0, PROF_STACK_NONE },
		{ 6000, 0x400010, 0x7000, 0, 5000, PROF_STACK_LATE },
		{ 6000, 0x400010, 0x7000, 0, 5001, PROF_STACK_NONE },
		{ 6000, 0x400010, 0x7000, 6050, 6001, PROF_STACK_RACED },
	};
	uint8_t bytes[1024] = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct unwind_tables *tables = unwind_tables_new(NULL);
		int32_t tids[WAITS_MAX_REQUESTED];
		struct stage stage;

		stage_init(&stage);
		samples_unwind(&stage.parts.samples, tables, 4096);
		leave(&stage, 0, 0x400010, 0x7000, 5000);
		CHECK_INT(waits_request(&stage.waits, 5500, 1000, tids), 0);
		CHECK_INT(waits_request(&stage.waits, 5500, UINT64_MAX, tids), 0);
		REQUIRE(CHECK_INT(waits_request(&stage.waits, 6000, 1000, tids), 1));
		CHECK_INT(tids[0], 10);
		CHECK_INT(waits_request(&stage.waits, 6000, 1000, tids), 0);
		if (cases[i].lost_ns)
			waits_lose_switches(&stage.waits, cases[i].lost_ns);
		if (cases[i].end_ns)
			waits_end(&stage.waits, stage.threads[0], cases[i].end_ns);
		waits_receive(&stage.waits, bytes,
			      put_stack_at(bytes, cases[i].time_ns, 6100, cases[i].pc,
					   cases[i].sp));
		waits_end_all(&stage.waits, 9000);
		waits_write(&stage.waits, UINT64_MAX);
		sample_queue_run(&stage.parts.samples.queue, UINT64_MAX);
		parts_finish(&stage.parts);
		REQUIRE(CHECK_INT(rows_of(&stage.parts, PROF_TABLE_WAIT), 1));
		CHECK_INT(row(&stage, PROF_WAIT_STACK_SOURCE, 0), cases[i].source);
		CHECK((row(&stage, PROF_WAIT_OBJECT, 0) != 0) ==
		      (cases[i].source == PROF_STACK_LATE));
		CHECK_INT(stage.waits.slept_ns[cases[i].source],
			  (cases[i].end_ns ? cases[i].end_ns : 9000) - 5000);
		stage_done(&stage);
		unwind_tables_free(tables);
	}
}

/* A request names a limited number of threads; the next request names the others. */
static void test_request_limit(void)
{
	enum { N = WAITS_MAX_REQUESTED + 10 };
	struct unwind_tables *tables = unwind_tables_new(NULL);
	int32_t tids[WAITS_MAX_REQUESTED];
	struct stage stage;

	stage_init(&stage);
	samples_unwind(&stage.parts.samples, tables, 4096);
	for (int i = 0; i < N; i++)
		waits_begin(&stage.waits, tasks_found(&stage.parts.tasks, 10, 200 - i, 1), 1, 5000);
	REQUIRE(CHECK_INT(waits_request(&stage.waits, 9000, 1000, tids), WAITS_MAX_REQUESTED));
	for (unsigned i = 0; i < WAITS_MAX_REQUESTED; i++)
		CHECK_INT(tids[i], 201 - WAITS_MAX_REQUESTED + i);
	REQUIRE(CHECK_INT(waits_request(&stage.waits, 9000, 1000, tids), N - WAITS_MAX_REQUESTED));
	CHECK_INT(tids[0], 201 - N);
	end(&stage, 9000);
	stage_done(&stage);
	unwind_tables_free(tables);
}

/* After a loss of switches, only stacks of later waits are requested. */
static void test_unverified(void)
{
	struct unwind_tables *tables = unwind_tables_new(NULL);
	int32_t tids[WAITS_MAX_REQUESTED];
	struct stage stage;

	stage_init(&stage);
	samples_unwind(&stage.parts.samples, tables, 4096);
	leave(&stage, 0, 0x400010, 0x7000, 5000);
	waits_lose_switches(&stage.waits, 5500);
	leave(&stage, 1, 0x400010, 0x8000, 5500);
	REQUIRE(CHECK_INT(waits_request(&stage.waits, 9000, 1000, tids), 1));
	CHECK_INT(tids[0], 11);
	waits_give_up(&stage.waits);
	end(&stage, 9000);
	stage_done(&stage);
	unwind_tables_free(tables);
}

/* After a stack was read slowly, no stacks of its process are read for a while, unless the reader
 * was slow because it was preempted. */
static void check_pause(bool is_preempted)
{
	struct unwind_tables *tables = unwind_tables_new(NULL);
	const uint32_t preempted = is_preempted;
	int32_t tids[WAITS_MAX_REQUESTED];
	uint8_t bytes[1024] = { 0 };
	struct stage stage;
	size_t length;

	stage_init(&stage);
	samples_unwind(&stage.parts.samples, tables, 4096);
	leave(&stage, 0, 0x400010, 0x7000, 5000);
	REQUIRE(CHECK_INT(waits_request(&stage.waits, 6000, 1000, tids), 1));
	length = put_stack(bytes, 6000, 2006000, 0x400010);
	memcpy(bytes + sizeof(struct snapshot_record) +
		       offsetof(struct snapshot_stack, is_preempted),
	       &preempted, sizeof(preempted));
	waits_receive(&stage.waits, bytes, length);
	leave(&stage, 1, 0x400010, 0x8000, 2000000);
	leave(&stage, 2, 0x400010, 0x8000, 2000000);
	/* the stack of another process is read in any case */
	CHECK_INT(waits_request(&stage.waits, 200000000, 1000, tids), 1 + is_preempted);
	CHECK_INT(tids[is_preempted], 20);
	waits_give_up(&stage.waits);
	CHECK_INT(waits_request(&stage.waits, 203000000, 1000, tids), 2);
	waits_give_up(&stage.waits);
	CHECK_INT(waits_request(&stage.waits, 203000000, 1000, tids), 2);
	waits_give_up(&stage.waits);
	waits_end_all(&stage.waits, 300000000);
	waits_write(&stage.waits, UINT64_MAX);
	sample_queue_run(&stage.parts.samples.queue, UINT64_MAX);
	parts_finish(&stage.parts);
	CHECK_INT(rows_of(&stage.parts, PROF_TABLE_WAIT), 3);
	stage_done(&stage);
	unwind_tables_free(tables);
}

static void test_pause(void)
{
	check_pause(false);
	check_pause(true);
}

/* A thread that sleeps in a page fault is in no system call, so it has no argument. */
static void test_page_fault(void)
{
	struct unwind_tables *tables = unwind_tables_new(NULL);
	struct snapshot_stack stack;
	int32_t tids[WAITS_MAX_REQUESTED];
	uint8_t bytes[1024] = { 0 };
	struct stage stage;
	size_t length;

	stage_init(&stage);
	samples_unwind(&stage.parts.samples, tables, 4096);
	waits_begin(&stage.waits, stage.threads[0], 1, 5000);
	REQUIRE(CHECK_INT(waits_request(&stage.waits, 6000, 1000, tids), 1));
	length = put_stack(bytes, 6000, 6100, 0x400010);
	memcpy(&stack, bytes + sizeof(struct snapshot_record), sizeof(stack));
	stack.syscall[0] = stack.object[0] = '\0';
	stack.argument = 0x55;
	memcpy(bytes + sizeof(struct snapshot_record), &stack, sizeof(stack));
	waits_receive(&stage.waits, bytes, length);
	waits_end_all(&stage.waits, 9000);
	waits_write(&stage.waits, UINT64_MAX);
	sample_queue_run(&stage.parts.samples.queue, UINT64_MAX);
	parts_finish(&stage.parts);
	REQUIRE(CHECK_INT(rows_of(&stage.parts, PROF_TABLE_WAIT), 1));
	CHECK_INT(row(&stage, PROF_WAIT_STACK_SOURCE, 0), PROF_STACK_LATE);
	CHECK(row(&stage, PROF_WAIT_SYSCALL, 0) != 0);
	CHECK_INT(row(&stage, PROF_WAIT_OBJECT, 0), 0);
	CHECK_INT(row(&stage, PROF_WAIT_ARGUMENT, 0), 0);
	stage_done(&stage);
	unwind_tables_free(tables);
}

/* A stack that was read has no kernel frames, so waits that share the stack also get the name of
 * its system call. */
static void test_shared_call(void)
{
	struct unwind_tables *tables = unwind_tables_new(NULL);
	int32_t tids[WAITS_MAX_REQUESTED];
	uint8_t bytes[1024] = { 0 };
	struct stage stage;

	stage_init(&stage);
	samples_unwind(&stage.parts.samples, tables, 4096);
	leave(&stage, 0, 0x400010, 0x7000, 5000);
	REQUIRE(CHECK_INT(waits_request(&stage.waits, 6000, 1000, tids), 1));
	waits_receive(&stage.waits, bytes, put_stack(bytes, 6000, 6100, 0x400010));
	sample_queue_run(&stage.parts.samples.queue, UINT64_MAX);
	waits_end(&stage.waits, stage.threads[0], 6200);
	rest(&stage, 0, 0x400010, 0x7000, 7000, 7200);
	/* as before, but the stack that is shared has kernel frames */
	copy(&stage, 0, 0x400010);
	rest(&stage, 0, 0x400010, 0x7000, 8000, 8200);
	rest(&stage, 0, 0x400010, 0x7000, 9000, 9200);
	/* a later stack without kernel frames does not replace the shared one */
	leave(&stage, 0, 0x400010, 0x7000, 10000);
	REQUIRE(CHECK_INT(waits_request(&stage.waits, 11000, 1000, tids), 1));
	waits_receive(&stage.waits, bytes, put_stack(bytes, 11000, 11100, 0x400010));
	sample_queue_run(&stage.parts.samples.queue, UINT64_MAX);
	waits_end(&stage.waits, stage.threads[0], 11200);
	rest(&stage, 0, 0x400010, 0x7000, 12000, 12200);
	finish(&stage);
	REQUIRE(CHECK_INT(rows_of(&stage.parts, PROF_TABLE_WAIT), 6));
	CHECK_INT(row(&stage, PROF_WAIT_STACK_SOURCE, 0), PROF_STACK_LATE);
	CHECK(row(&stage, PROF_WAIT_SYSCALL, 0) != 0);
	CHECK_INT(row(&stage, PROF_WAIT_STACK_SOURCE, 1), PROF_STACK_SHARED);
	CHECK_INT(row(&stage, PROF_WAIT_SYSCALL, 1), row(&stage, PROF_WAIT_SYSCALL, 0));
	CHECK_INT(row(&stage, PROF_WAIT_STACK_SOURCE, 4), PROF_STACK_LATE);
	for (size_t i = 3; i < 6; i += 2) {
		CHECK_INT(row(&stage, PROF_WAIT_STACK_SOURCE, i), PROF_STACK_SHARED);
		CHECK_INT(row(&stage, PROF_WAIT_SYSCALL, i), 0);
	}
	stage_done(&stage);
	unwind_tables_free(tables);
}

/* A forked process shares its parent's stacks until it executes a program. */
static void test_forked(void)
{
	const struct task_ids ids = { .pid = 40, .ppid = 10, .tid = 40, .ptid = 10 };
	struct stage stage;

	stage_init(&stage);
	copy(&stage, 0, 0x400010);
	rest(&stage, 0, 0x400010, 0x7000, 5000, 5100);
	tasks_fork(&stage.parts.tasks, &ids, 5200);
	for (int i = 0; i < 2; i++) {
		stage.threads[2] = tasks_thread(&stage.parts.tasks, 40);
		rest(&stage, 2, 0x400010, 0x7000, 6000 + 1000 * i, 6100 + 1000 * i);
		tasks_exec(&stage.parts.tasks, 40, "x", 6500);
	}
	finish(&stage);
	REQUIRE(CHECK_INT(rows_of(&stage.parts, PROF_TABLE_WAIT), 3));
	CHECK_INT(row(&stage, PROF_WAIT_STACK_SOURCE, 1), PROF_STACK_SHARED);
	CHECK_INT(row(&stage, PROF_WAIT_STACK, 1), row(&stage, PROF_WAIT_STACK, 0));
	CHECK_INT(row(&stage, PROF_WAIT_STACK_SOURCE, 2), PROF_STACK_NONE);
	stage_done(&stage);
}

/* A long wait with a copied stack gets the names of its call and object, if a request has room for
 * the wait after the waits that need a stack. */
static void test_names(void)
{
	struct unwind_tables *tables = unwind_tables_new(NULL);
	int32_t tids[WAITS_MAX_REQUESTED];
	uint8_t bytes[1024] = { 0 };
	struct stage stage;
	size_t length;

	stage_init(&stage);
	samples_unwind(&stage.parts.samples, tables, 4096);
	copy(&stage, 0, 0x400010);
	leave(&stage, 0, 0x400010, 0x7000, 5000);
	sample_queue_run(&stage.parts.samples.queue, UINT64_MAX);
	for (int32_t i = 0; i < (int32_t)WAITS_MAX_REQUESTED; i++)
		waits_begin(&stage.waits, tasks_found(&stage.parts.tasks, 30, 30 + i, 1), 1, 5000);
	REQUIRE(CHECK_INT(waits_request(&stage.waits, 7000, 1000, tids), WAITS_MAX_REQUESTED));
	CHECK_INT(tids[0], 30);
	waits_receive(&stage.waits, bytes, 0);
	REQUIRE(CHECK_INT(waits_request(&stage.waits, 7000, 1000, tids), 1));
	CHECK_INT(tids[0], 10);
	length = put_stack(bytes, 7000, 7100, 0x400010);
	waits_receive(&stage.waits, bytes, length);
	waits_end(&stage.waits, stage.threads[0], 9000);
	finish(&stage);
	REQUIRE(CHECK_INT(rows_of(&stage.parts, PROF_TABLE_WAIT), 1));
	CHECK_INT(row(&stage, PROF_WAIT_STACK_SOURCE, 0), PROF_STACK_COPIED);
	CHECK(row(&stage, PROF_WAIT_SYSCALL, 0) != 0);
	CHECK(row(&stage, PROF_WAIT_OBJECT, 0) != 0);
	stage_done(&stage);
	unwind_tables_free(tables);
}

/* A wait is in the cgroup in which its thread, or the thread's creator, was sampled last; else in
 * that of its process. */
static void test_cgroups(void)
{
	struct stage stage;

	stage_init(&stage);
	tasks_set_cgroup(&stage.parts.tasks, 7, "/a", 2);
	tasks_set_cgroup(&stage.parts.tasks, 8, "/b", 2);
	process_set_cgroup(stage.threads[2]->process, "/a", 2);
	stage.threads[0]->cgroup = 7;
	tasks_fork(&stage.parts.tasks,
		   &(struct task_ids){ .pid = 40, .ppid = 10, .tid = 40, .ptid = 10 }, 3000);
	tasks_exec(&stage.parts.tasks, 40, "x", 4000);
	waits_begin(&stage.waits, tasks_thread(&stage.parts.tasks, 40), 1, 5000);
	waits_begin(&stage.waits, stage.threads[0], 1, 5000);
	waits_begin(&stage.waits, stage.threads[2], 1, 5000);
	stage.threads[0]->cgroup = 8;
	waits_end(&stage.waits, tasks_thread(&stage.parts.tasks, 40), 6000);
	waits_end(&stage.waits, stage.threads[0], 6001);
	waits_end(&stage.waits, stage.threads[2], 6002);
	waits_begin(&stage.waits, stage.threads[0], 1, 7000);
	waits_end(&stage.waits, stage.threads[0], 8000);
	waits_begin(&stage.waits, stage.threads[1], 1, 7000);
	waits_end(&stage.waits, stage.threads[1], 8000);
	finish(&stage);
	REQUIRE(CHECK_INT(rows_of(&stage.parts, PROF_TABLE_WAIT), 5));
	CHECK(row(&stage, PROF_WAIT_CGROUP, 0) != 0);
	for (size_t i = 1; i < 3; i++)
		CHECK_INT(row(&stage, PROF_WAIT_CGROUP, i), row(&stage, PROF_WAIT_CGROUP, 0));
	CHECK(row(&stage, PROF_WAIT_CGROUP, 3) != row(&stage, PROF_WAIT_CGROUP, 0));
	CHECK_INT(row(&stage, PROF_WAIT_CGROUP, 4), 0);
	stage_done(&stage);
}

/* If too many rows wait for an earlier row's requested stack, the request is abandoned. */
static void test_pile(void)
{
	struct unwind_tables *tables = unwind_tables_new(NULL);
	int32_t tids[WAITS_MAX_REQUESTED];
	struct stage stage;

	stage_init(&stage);
	samples_unwind(&stage.parts.samples, tables, 4096);
	leave(&stage, 0, 0x400010, 0x7000, 5000);
	REQUIRE(CHECK_INT(waits_request(&stage.waits, 6000, 1000, tids), 1));
	waits_end(&stage.waits, stage.threads[0], 6001);
	for (uint64_t i = 0; i <= WAITS_MAX_ENDED; i++) {
		rest(&stage, 1, 0x400010, 0x8000, 7000 + 2 * i, 7001 + 2 * i);
	}
	CHECK(stage.waits.ended.length < WAITS_MAX_ENDED);
	end(&stage, 900000);
	CHECK_INT(rows_of(&stage.parts, PROF_TABLE_WAIT), WAITS_MAX_ENDED + 2);
	stage_done(&stage);
	unwind_tables_free(tables);
}

/* A wait that ends between a sample and the sample's walk marks mappings as written. The sample
 * keeps its mappings. */
static void test_mappings(void)
{
	struct unwind_tables *tables = unwind_tables_new(NULL);
	int32_t tids[WAITS_MAX_REQUESTED];
	uint64_t registers[64] = { 0 };
	uint8_t bytes[1024] = { 0 };
	struct stage stage;
	const struct record sampled = { .kind = RECORD_SAMPLE,
					.cpumode = PERF_RECORD_MISC_USER,
					.pid = 10,
					.tid = 11,
					.time_ns = 7000,
					.sample = { .ip = 0x400010,
						    .registers = registers,
						    .stack = bytes,
						    .stack_bytes = 64 } };

	registers[regs_get(REGS_NATIVE)->perf_pc] = 0x400010;
	stage_init(&stage);
	samples_unwind(&stage.parts.samples, tables, 4096);
	leave(&stage, 0, 0x400010, 0x7000, 5000);
	REQUIRE(CHECK_INT(waits_request(&stage.waits, 6000, 1000, tids), 1));
	waits_receive(&stage.waits, bytes, put_stack(bytes, 6000, 6100, 0x400010));
	sample_queue_run(&stage.parts.samples.queue, UINT64_MAX);
	waits_copy(&stage.waits, stage.threads[1], &sampled);
	leave(&stage, 1, 0x400010, 0x8000, 6500);
	waits_end(&stage.waits, stage.threads[0], 7000);
	CHECK_INT(stage.parts.samples.n_pending, 1);
	CHECK_INT(stage.parts.samples.jobs[0].maps->mappings[0].start, 0x400000);
	samples_finalize(&stage.parts.samples);
	waits_end_all(&stage.waits, 9000);
	waits_write(&stage.waits, UINT64_MAX);
	sample_queue_run(&stage.parts.samples.queue, UINT64_MAX);
	parts_finish(&stage.parts);
	CHECK_INT(rows_of(&stage.parts, PROF_TABLE_WAIT), 2);
	stage_done(&stage);
	unwind_tables_free(tables);
}

/* Reports that thread 0 is woken on CPU 1. */
static void wake(struct stage *stage, struct thread *by, bool in_interrupt, uint64_t pc,
		 uint64_t time_ns)
{
	const struct record record = { .time_ns = time_ns,
				       .waking = { .in_interrupt = in_interrupt,
						   .has_registers = true,
						   .pc = pc,
						   .sp = 0x9000,
						   .argument = 0x77 } };

	waits_wake(&stage->waits, 1, stage->threads[0], by, &record);
}

static void copy_waker(struct stage *stage, bool has_registers, uint64_t pc, uint64_t time_ns)
{
	const struct regs *regs = regs_get(REGS_NATIVE);
	const uint64_t ips[] = { USER, pc, 0x400020 };
	struct bytes bytes = { .length = 0 };
	uint64_t registers[64] = { 0 };
	struct record record;

	put_sample(&bytes, PERF_RECORD_MISC_KERNEL, 10, 11, time_ns, ips, 3);
	REQUIRE(record_parse((const void *)bytes.data, 0, &record));
	registers[regs->perf_pc] = pc;
	registers[regs->perf_sp] = 0x9000;
	record.sample.registers = has_registers ? registers : NULL;
	waits_copy_waker(&stage->waits, 1, stage->threads[1], &record);
}

/* has_registers: copies have registers; otherwise, a chain of frame pointers. */
static void check_wakers(bool has_registers)
{
	enum { NOT, BEFORE, AFTER };
	static const struct {
		int copied;
		bool in_interrupt, is_known;
		uint64_t copied_pc;
		enum prof_waker waker;
		enum prof_stack_source source;
	} cases[] = {
		{ BEFORE, false, true, 0x400010, PROF_WAKER_THREAD, PROF_STACK_COPIED },
		{ AFTER, false, true, 0x400010, PROF_WAKER_THREAD, PROF_STACK_COPIED },
		{ NOT, false, true, 0, PROF_WAKER_THREAD, PROF_STACK_SHARED },
		/* the copy belongs to another wake-up, whose record was lost */
		{ BEFORE, false, true, 0x400018, PROF_WAKER_THREAD, PROF_STACK_SHARED },
		{ AFTER, false, true, 0x400018, PROF_WAKER_THREAD, PROF_STACK_SHARED },
		{ NOT, true, true, 0, PROF_WAKER_INTERRUPT, PROF_STACK_NONE },
		{ NOT, false, false, 0, PROF_WAKER_OUTSIDE, PROF_STACK_NONE },
	};
	struct stage stage;

	stage_init(&stage);
	/* A wake-up of a thread that does not sleep has no effect. */
	wake(&stage, stage.threads[1], false, 0x400010, 4000);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t time_ns = 1000000 * (1 + i);

		leave(&stage, 0, 0x400010, 0x7000, time_ns);
		if (cases[i].copied == BEFORE)
			copy_waker(&stage, has_registers, cases[i].copied_pc, time_ns + 99);
		wake(&stage, cases[i].in_interrupt || !cases[i].is_known ? NULL : stage.threads[1],
		     cases[i].in_interrupt, 0x400010, time_ns + 100);
		if (cases[i].copied == AFTER)
			copy_waker(&stage, has_registers, cases[i].copied_pc, time_ns + 101);
		waits_end(&stage.waits, stage.threads[0], time_ns + 102);
	}
	/* Thread 0 is woken while it leaves its CPU. */
	wake(&stage, stage.threads[1], false, 0x400010, 80000000);
	rest(&stage, 0, 0x400010, 0x7000, 80000100, 80000200);
	/* No thread wakes thread 0 before the end. */
	leave(&stage, 0, 0x400010, 0x7000, 90000000);
	end(&stage, 90001000);
	REQUIRE(CHECK_INT(rows_of(&stage.parts, PROF_TABLE_WAIT), ARRAY_SIZE(cases) + 2));
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		bool is_thread = cases[i].waker == PROF_WAKER_THREAD;

		CHECK_INT(row(&stage, PROF_WAIT_WAKER, i), cases[i].waker);
		CHECK_INT(row(&stage, PROF_WAIT_WAKER_THREAD, i),
			  is_thread ? stage.threads[1]->row.id : 0);
		CHECK_INT(row(&stage, PROF_WAIT_WAKER_STACK_SOURCE, i), cases[i].source);
		CHECK_INT(row(&stage, PROF_WAIT_WAKER_STACK, i),
			  is_thread ? row(&stage, PROF_WAIT_WAKER_STACK, 0) : 0);
		CHECK_INT(row(&stage, PROF_WAIT_WAKER_ARGUMENT, i), is_thread ? 0x77 : 0);
	}
	CHECK(row(&stage, PROF_WAIT_WAKER_STACK, 0) != 0);
	CHECK_INT(row(&stage, PROF_WAIT_WAKER, ARRAY_SIZE(cases)), PROF_WAKER_THREAD);
	CHECK_INT(row(&stage, PROF_WAIT_WAKER, ARRAY_SIZE(cases) + 1), PROF_WAKER_UNKNOWN);
	stage_done(&stage);
}

static void test_wakers(void)
{
	check_wakers(true);
	check_wakers(false);
}

int main(void)
{
	RUN(test_rows);
	RUN(test_states);
	RUN(test_order);
	RUN(test_shared);
	RUN(test_in_page);
	RUN(test_held);
	RUN(test_behind);
	RUN(test_held_many);
	RUN(test_interpreted);
	RUN(test_late);
	RUN(test_request_limit);
	RUN(test_unverified);
	RUN(test_pause);
	RUN(test_lost_switch);
	RUN(test_copied_twice);
	RUN(test_page_fault);
	RUN(test_shared_call);
	RUN(test_forked);
	RUN(test_names);
	RUN(test_cgroups);
	RUN(test_pile);
	RUN(test_mappings);
	RUN(test_wakers);
	return test_end();
}
