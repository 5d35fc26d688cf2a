/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of daemon/engine/alloc/memory-usage.c: which processes it queries, when, and how it uses
 * the answers.
 */
#include "daemon/engine/alloc/memory-usage.h"
#include "tests/unit/engine.h"

#define MS UINT64_C(1000000)

struct world {
	struct parts parts;
	struct memory_usage memory_usage;
	uint32_t last_counter;
	int32_t pids[ENGINE_MAX_USAGE_PIDS];
};

static struct process *add_process(struct world *world, int32_t pid)
{
	struct process *process = tasks_found(&world->parts.tasks, pid, pid, 500)->process;

	process->expects_heap = true;
	return process;
}

static void world_init(struct world *world)
{
	*world = (struct world){ .last_counter = 7 };
	parts_init(&world->parts);
	memory_usage_init(&world->memory_usage, &world->parts.tasks, &world->last_counter,
			  &(struct memory_usage_options){ .memory = true }, 0);
}

static void world_done(struct world *world)
{
	memory_usage_done(&world->memory_usage);
	if (!world->parts.reader)
		parts_finish(&world->parts);
	parts_done(&world->parts);
}

static void put_rollup(struct bytes *bytes, int32_t pid, uint64_t time_ns, unsigned int kib)
{
	g_autofree char *text = g_strdup_printf("Rss: %u kB\nPss: %u kB\n", 2 * kib, kib);

	put_text(bytes, SNAPSHOT_ROLLUP, pid, time_ns, text);
}

static uint64_t value_of(const struct world *world, size_t row)
{
	uint64_t bits =
		number_of(&world->parts, PROF_TABLE_COUNTER_VALUE, PROF_COUNTER_VALUE_VALUE, row);
	double value;

	memcpy(&value, &bits, sizeof(value));
	return (uint64_t)value;
}

static void test_instances(void)
{
	struct bytes bytes = { .length = 0 };
	struct world world;

	world_init(&world);
	add_process(&world, 10);
	add_process(&world, 11)->begin_ns = 5000;
	tasks_found(&world.parts.tasks, 12, 12, 500); /* not a target */
	CHECK_INT(memory_usage_request(&world.memory_usage, 3, 100, world.pids), 2);
	CHECK(world.pids[0] == 10 && world.pids[1] == 11);
	put_rollup(&bytes, 10, 4000, 100);
	put_rollup(&bytes, 11, 4000, 200); /* another program was running then */
	put_rollup(&bytes, 12, 4000, 300);
	put_rollup(&bytes, 13, 4000, 400);
	memory_usage_receive(&world.memory_usage, 2, bytes.data,
			     bytes.length); /* an unexpected answer */
	CHECK_INT(world.memory_usage.values->len, 0);
	memory_usage_receive(&world.memory_usage, 3, bytes.data, bytes.length);
	memory_usage_receive(&world.memory_usage, 3, bytes.data, bytes.length);
	/* an answer without Pss, for a process and for an exiting one */
	bytes.length = 0;
	memory_usage_request(&world.memory_usage, 4, 200, world.pids);
	put_text(&bytes, SNAPSHOT_STATM, 10, 6000, "9 5 1 1 0 1 0\n");
	put_text(&bytes, SNAPSHOT_STATM, 11, 6000, "0 0 0 0 0 0 0\n");
	memory_usage_receive(&world.memory_usage, 4, bytes.data, bytes.length);
	memory_usage_write(&world.memory_usage, UINT64_MAX);
	parts_finish(&world.parts);
	CHECK_INT(world.last_counter, 9);
	CHECK_INT(rows_of(&world.parts, PROF_TABLE_COUNTER), 2);
	REQUIRE(CHECK_INT(rows_of(&world.parts, PROF_TABLE_COUNTER_VALUE), 3));
	CHECK_INT(value_of(&world, 0), 200 << 10);
	CHECK_INT(value_of(&world, 1), 100 << 10);
	CHECK_INT(value_of(&world, 2), 5 * sysconf(_SC_PAGESIZE));
	CHECK_STR(text_of(&world.parts,
			  number_of(&world.parts, PROF_TABLE_COUNTER, PROF_COUNTER_GROUP, 0)),
		  "memory");
	world_done(&world);
}

static void test_order(void)
{
	struct bytes bytes = { .length = 0 };
	struct world world;

	world_init(&world);
	add_process(&world, 10);
	memory_usage_request(&world.memory_usage, 3, 100, world.pids);
	put_rollup(&bytes, 10, 4000, 100);
	memory_usage_receive(&world.memory_usage, 3, bytes.data, bytes.length);
	memory_usage_write(&world.memory_usage, 3999);
	CHECK_INT(world.memory_usage.values->len, 2);
	memory_usage_write(&world.memory_usage, 4000);
	CHECK_INT(world.memory_usage.values->len, 0);
	world_done(&world);
}

/* Queries ten times per second. Reading Pss takes at most 2 % of the time; otherwise, only RSS is
 * read. */
static void test_pace(void)
{
	struct bytes bytes = { .length = 0 };
	struct world world;

	world_init(&world);
	CHECK_INT(memory_usage_request(&world.memory_usage, 1, 0, world.pids), 0);
	CHECK_INT(memory_usage_due_ns(&world.memory_usage), 100 * MS);
	add_process(&world, 10);
	CHECK_INT(memory_usage_request(&world.memory_usage, 2, 100 * MS, world.pids), 1);
	CHECK_INT(world.pids[0], 10);
	CHECK(memory_usage_due_ns(&world.memory_usage) > 1000 * MS);
	put_rollup(&bytes, 10, 4000, 100);
	put_item(&bytes, SNAPSHOT_END, 0, 4000 + 10 * MS, NULL, 0);
	memory_usage_receive(&world.memory_usage, 2, bytes.data, bytes.length);
	CHECK_INT(memory_usage_due_ns(&world.memory_usage), 200 * MS);
	memory_usage_request(&world.memory_usage, 3, 200 * MS, world.pids);
	CHECK_INT(world.pids[0], -10);
	memory_usage_receive(&world.memory_usage, 3, bytes.data, bytes.length);
	CHECK_INT(memory_usage_due_ns(&world.memory_usage), 700 * MS);
	memory_usage_request(&world.memory_usage, 4, 599 * MS, world.pids);
	CHECK_INT(world.pids[0], -10);
	memory_usage_receive(&world.memory_usage, 4, NULL, 0);
	CHECK_INT(memory_usage_due_ns(&world.memory_usage), 699 * MS);
	memory_usage_request(&world.memory_usage, 5, 600 * MS, world.pids);
	CHECK_INT(world.pids[0], 10);
	world_done(&world);
}

/* Every process is queried in turn. */
static void test_many(void)
{
	struct world world;
	int32_t last = 0;

	world_init(&world);
	for (int32_t pid = 1; pid <= 600; pid++)
		add_process(&world, pid);
	for (uint32_t turn = 0; turn < 3; turn++) {
		uint32_t n = memory_usage_request(&world.memory_usage, turn + 1, turn, world.pids);

		CHECK_INT(n, turn < 2 ? ENGINE_MAX_USAGE_PIDS : 600 - 2 * ENGINE_MAX_USAGE_PIDS);
		for (uint32_t i = 0; i < n; i++)
			CHECK_INT(world.pids[i], ++last);
	}
	CHECK_INT(memory_usage_request(&world.memory_usage, 9, 9, world.pids),
		  ENGINE_MAX_USAGE_PIDS);
	CHECK_INT(world.pids[0], 1);
	world_done(&world);
}

/* Within a pass over all processes, Pss is queried for all of them or for none. */
static void test_rounds(void)
{
	struct bytes bytes = { .length = 0 };
	struct world world;

	world_init(&world);
	for (int32_t pid = 1; pid <= 300; pid++)
		add_process(&world, pid);
	put_rollup(&bytes, 10, 4000, 100);
	put_item(&bytes, SNAPSHOT_END, 0, 4000 + 10 * MS, NULL, 0);
	CHECK_INT(memory_usage_request(&world.memory_usage, 1, 0, world.pids),
		  ENGINE_MAX_USAGE_PIDS);
	CHECK_INT(world.pids[0], 1);
	memory_usage_receive(&world.memory_usage, 1, bytes.data, bytes.length);
	CHECK_INT(memory_usage_request(&world.memory_usage, 2, 100 * MS, world.pids),
		  300 - ENGINE_MAX_USAGE_PIDS);
	CHECK_INT(world.pids[0], ENGINE_MAX_USAGE_PIDS + 1);
	memory_usage_receive(&world.memory_usage, 2, bytes.data, bytes.length);
	memory_usage_request(&world.memory_usage, 3, 200 * MS, world.pids);
	CHECK_INT(world.pids[0], -1);
	world_done(&world);
}

int main(void)
{
	RUN(test_instances);
	RUN(test_order);
	RUN(test_pace);
	RUN(test_many);
	RUN(test_rounds);
	return test_end();
}
