/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of daemon/engine/model/machine-counters.c, on files that a test writes.
 */
#include "daemon/engine/model/machine-counters.h"
#include "tests/unit/engine.h"

struct world {
	struct parts parts;
	struct machine_counters machine;
	uint32_t last_counter;
};

static void world_init(struct world *world)
{
	*world = (struct world){ .last_counter = 0 };
	parts_init(&world->parts);
	machine_counters_init(&world->machine, &world->parts.output, &world->last_counter);
}

static void world_done(struct world *world)
{
	machine_counters_done(&world->machine);
	parts_done(&world->parts);
}

static int add(struct world *world, enum counter_file kind, const char *name)
{
	struct message_counter_file file = { .kind = kind, .wrap = 1000 };
	int fd = memfd_create("counters", MFD_CLOEXEC);

	strcpy(file.name, name);
	CHECK(machine_counters_add(&world->machine, &file, fd));
	return fd;
}

static void put_file(int fd, const char *text)
{
	CHECK(ftruncate(fd, 0) == 0 && pwrite(fd, text, strlen(text), 0) == (ssize_t)strlen(text));
}

static double value_of(struct world *world, size_t row)
{
	uint64_t bits =
		number_of(&world->parts, PROF_TABLE_COUNTER_VALUE, PROF_COUNTER_VALUE_VALUE, row);
	double value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static const char *name_of(struct world *world, size_t row)
{
	return text_of(&world->parts,
		       number_of(&world->parts, PROF_TABLE_COUNTER, PROF_COUNTER_NAME, row));
}

static void test_files(void)
{
	struct world world;

	world_init(&world);
	put_file(
		add(&world, COUNTER_FILE_STAT, ""),
		"cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 10 20 30 40 50 60 70 80 90 100\nctxt 77\nbtime 5\n");
	put_file(add(&world, COUNTER_FILE_DISK, "sda"), "11 12 13 14 15 16 17 18 19 20 21\n");
	put_file(
		add(&world, COUNTER_FILE_NETWORK, ""),
		"Inter-| Receive\n face |bytes\n  eth0: 1 2 3 4 5 6 7 8 9 10 11 12\n    lo: 0 0 0 0 0 0 0 0 0 0 0 0\n");
	put_file(
		add(&world, COUNTER_FILE_PRESSURE, "cpu"),
		"some avg10=0.00 avg60=0.10 avg300=0.00 total=123\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n");
	put_file(add(&world, COUNTER_FILE_CGROUP_IO, "/a"),
		 "8:0 rbytes=5 wbytes=6 rios=1\n8:16 rbytes=50 wbytes=60 rios=1\n");
	machine_counters_read(&world.machine, 1000);
	machine_counters_write(&world.machine, UINT64_MAX);
	parts_finish(&world.parts);
	/* 8 modes, a busy CPU, switches; 6 of the disk; 6 of eth0; pressure; 2 of the cgroup */
	REQUIRE(CHECK_INT(rows_of(&world.parts, PROF_TABLE_COUNTER_VALUE), 10 + 6 + 6 + 1 + 2));
	CHECK(value_of(&world, 0) == 1e7 && value_of(&world, 7) == 8e7);
	CHECK(value_of(&world, 8) == (10 + 20 + 30 + 60 + 70) * 1e7 && value_of(&world, 9) == 77);
	CHECK_STR(name_of(&world, 8), "cpu0 busy");
	CHECK_STR(name_of(&world, 11), "sda read");
	CHECK(value_of(&world, 11) == 13 * 512 && value_of(&world, 15) == 20e6);
	CHECK_STR(name_of(&world, 16), "eth0 received");
	CHECK(value_of(&world, 16) == 1 && value_of(&world, 21) == 12);
	CHECK_STR(name_of(&world, 22), "cpu some");
	CHECK(value_of(&world, 22) == 123e3 && value_of(&world, 23) == 55 &&
	      value_of(&world, 24) == 66);
	CHECK_STR(text_of(&world.parts,
			  number_of(&world.parts, PROF_TABLE_COUNTER, PROF_COUNTER_GROUP, 24)),
		  "cgroup /a");
	world_done(&world);
}

/* Returns the value of the only counter with this name, which must have this unit. */
static double only_value(struct world *world, const char *name, const char *unit)
{
	double value = -1;
	int found = 0;

	for (size_t row = 0; row < rows_of(&world->parts, PROF_TABLE_COUNTER); row++) {
		if (strcmp(name_of(world, row), name) != 0)
			continue;
		CHECK_STR(text_of(&world->parts, number_of(&world->parts, PROF_TABLE_COUNTER,
							   PROF_COUNTER_UNIT, row)),
			  unit);
		CHECK_INT(number_of(&world->parts, PROF_TABLE_COUNTER_VALUE,
				    PROF_COUNTER_VALUE_COUNTER, row),
			  number_of(&world->parts, PROF_TABLE_COUNTER, PROF_COUNTER_ID, row));
		value = value_of(world, row);
		found++;
	}
	CHECK_INT(found, 1);
	return value;
}

/* Most machines for tests have no swap, no frequencies and no temperatures. */
static void test_rare_files(void)
{
	struct world world;

	world_init(&world);
	put_file(add(&world, COUNTER_FILE_MEMINFO, ""),
		 "MemTotal: 9000 kB\nMemFree:  100 kB\nSwapCached: 7 kB\n"
		 "SwapTotal:  3000 kB\nSwapFree:   1000 kB\n");
	put_file(add(&world, COUNTER_FILE_VMSTAT, ""), "pswpin 11\npswpout 22\npgfaulty 5\n");
	put_file(add(&world, COUNTER_FILE_FREQUENCY, "cpu0-3"), "2400000\n");
	put_file(add(&world, COUNTER_FILE_TEMPERATURE, "x86_pkg_temp"), "-41500\n");
	machine_counters_read(&world.machine, 1000);
	machine_counters_write(&world.machine, UINT64_MAX);
	parts_finish(&world.parts);
	REQUIRE(CHECK_INT(rows_of(&world.parts, PROF_TABLE_COUNTER_VALUE), 6));
	CHECK(only_value(&world, "free", "bytes") == 100 * 1024);
	CHECK(only_value(&world, "swap used", "bytes") == 2000 * 1024);
	CHECK(only_value(&world, "swapped in", "pages") == 11);
	CHECK(only_value(&world, "swapped out", "pages") == 22);
	CHECK(only_value(&world, "cpu0-3", "Hz") == 2.4e9);
	CHECK(only_value(&world, "x86_pkg_temp", "°C") == -41.5);
	world_done(&world);
}

/* A machine without swap has no counters of swap. */
static void test_no_swap(void)
{
	struct world world;

	world_init(&world);
	put_file(add(&world, COUNTER_FILE_MEMINFO, ""), "SwapTotal: 0 kB\nSwapFree: 0 kB\n");
	machine_counters_read(&world.machine, 1000);
	CHECK_INT(world.machine.n_counters, 0);
	world_done(&world);
}

/* An unchanged value is written once, and again just before it changes. */
static void test_steady(void)
{
	struct world world;
	int fd;

	world_init(&world);
	fd = add(&world, COUNTER_FILE_CGROUP_MEMORY, "/a");
	put_file(fd, "4096\n");
	for (int i = 0; i < 3; i++) {
		machine_counters_read(&world.machine, 1000);
		CHECK_INT(world.machine.values->len, 1);
	}
	put_file(fd, "8192\n");
	machine_counters_read(&world.machine, 1000);
	CHECK_INT(world.machine.values->len, 3);
	CHECK_INT(world.machine.n_counters, 1);
	machine_counters_write(&world.machine, UINT64_MAX);
	parts_finish(&world.parts);
	CHECK(value_of(&world, 0) == 4096 && value_of(&world, 1) == 4096 &&
	      value_of(&world, 2) == 8192);
	world_done(&world);
}

/* In the file, energy restarts at 0 after its greatest value; in the capture, it does not. */
static void test_energy(void)
{
	struct world world;
	int fd;

	world_init(&world);
	fd = add(&world, COUNTER_FILE_ENERGY, "package-0");
	put_file(fd, "900\n");
	machine_counters_read(&world.machine, 1000);
	put_file(fd, "100\n");
	machine_counters_read(&world.machine, 2000);
	machine_counters_write(&world.machine, UINT64_MAX);
	parts_finish(&world.parts);
	CHECK_STR(name_of(&world, 0), "package-0");
	CHECK(value_of(&world, 1) - value_of(&world, 0) > 199e-6 &&
	      value_of(&world, 1) - value_of(&world, 0) < 201e-6);
	world_done(&world);
}

static void test_due(void)
{
	struct world world;

	world_init(&world);
	CHECK(machine_counters_due_ns(&world.machine) == UINT64_MAX);
	add(&world, COUNTER_FILE_VMSTAT, "");
	CHECK(machine_counters_due_ns(&world.machine) < UINT64_MAX);
	/* the interval is 100 ms, and longer only after a reading that took long */
	for (int i = 0; i < 1000; i++) {
		machine_counters_read(&world.machine, clock_now());
		CHECK(machine_counters_due_ns(&world.machine) >= world.machine.read_ns + 100000000);
		if (machine_counters_due_ns(&world.machine) == world.machine.read_ns + 100000000)
			break;
	}
	CHECK(machine_counters_due_ns(&world.machine) == world.machine.read_ns + 100000000);
	world_done(&world);
}

int main(void)
{
	RUN(test_files);
	RUN(test_rare_files);
	RUN(test_no_swap);
	RUN(test_steady);
	RUN(test_energy);
	RUN(test_due);
	return test_end();
}
