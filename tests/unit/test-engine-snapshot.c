/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of daemon/engine/model/snapshot.c on texts from /proc that are real, have hostile names,
 * or are cut at any byte.
 */
#include "daemon/engine/model/snapshot.h"
#include "tests/unit/engine.h"

#include <unistd.h>

static const char stat_text[] =
	"4242 (a ) (b) S 17 4242 4242 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 "
	"123456 1000 200 18446744073709551615\n";

static void test_stat(void)
{
	struct snapshot_stat stat;
	size_t i;

	REQUIRE(snapshot_parse_stat(stat_text, strlen(stat_text), &stat));
	CHECK_STR(stat.comm, "a ) (b");
	CHECK_INT(stat.ppid, 17);
	CHECK_INT(stat.state, 'S');
	CHECK_INT(stat.flags, 4194560);
	CHECK_INT(stat.start_ticks, 123456);
	for (i = 0; i < (size_t)(strstr(stat_text, "123456") - stat_text); i++)
		CHECK(!snapshot_parse_stat(stat_text, i, &stat));
	CHECK(!snapshot_parse_stat("1 )x( S 1", 9, &stat));
	CHECK(!snapshot_parse_stat("1 (x) S 99999999999 1 1 1 1 1", 29, &stat));
}

static void test_status(void)
{
	static const char text[] =
		"Name:\tx\nUid:\t1000\t0\t0\t0\nGid:\t1\nNSpid:\t4242\t17\t1\nThreads:\t1\n";
	struct snapshot_status status;

	REQUIRE(snapshot_parse_status(text, strlen(text), &status));
	CHECK_INT(status.uid, 1000);
	CHECK_INT(status.n_ns_pids, 3);
	CHECK_INT(status.ns_pids[2], 1);
	CHECK(!snapshot_parse_status("Uid:\tx\n", 7, &status));
	CHECK(!snapshot_parse_status("Name:\tUid:\n", 11, &status));
	CHECK(!snapshot_parse_status("Uid:\t18446744073709551616\n", 26, &status));
}

static void test_usage(void)
{
	static const char rollup[] = "55d0-7ffc ---p 00000000 00:00 0    [rollup]\n"
				     "Rss:                 692 kB\nPss:                  96 kB\n"
				     "Pss_Dirty:            80 kB\nSwap:                  7 kB\n";
	struct snapshot_usage usage;

	REQUIRE(snapshot_parse_rollup(rollup, strlen(rollup), &usage));
	CHECK_INT(usage.rss_bytes, 692 << 10);
	CHECK_INT(usage.pss_bytes, 96 << 10);
	CHECK(usage.has_pss);
	REQUIRE(snapshot_parse_rollup("Rss: 1 kB\n", 10, &usage));
	CHECK(!usage.has_pss);
	CHECK(!snapshot_parse_rollup("Pss: 1 kB\n", 10, &usage));
	CHECK(!snapshot_parse_rollup("Rss: 18446744073709551615 kB\n", 29, &usage));
	CHECK(!snapshot_parse_rollup("", 0, &usage));
	REQUIRE(snapshot_parse_statm("642 173 170 2 0 56 0\n", 21, &usage));
	CHECK_INT(usage.rss_bytes, 173 * sysconf(_SC_PAGESIZE));
	CHECK(!usage.has_pss);
	CHECK(!snapshot_parse_statm("642", 3, &usage));
	CHECK(!snapshot_parse_statm("642 x", 5, &usage));
}

static void test_maps(void)
{
	static const char text[] =
		"00400000-00452000 r-xp 00001000 08:02 173521 /usr/bin/a b (deleted)\n"
		"not a mapping\n"
		"7f0000000000-7f0000001000 rw-p 00000000 00:00 0\n"
		"00002000-00001000 r-xp 00000000 00:00 0 backwards\n"
		"7ffc0000-7ffd0000 r-xp 00000000 00:00 0                          [vdso]";
	const char *at = text;
	size_t left = strlen(text);
	struct snapshot_range range;

	REQUIRE(snapshot_next_range(&at, &left, &range));
	CHECK(range.executable);
	CHECK_INT(range.end, 0x452000);
	CHECK_INT(range.file_offset, 0x1000);
	CHECK_INT(range.dev_major, 8);
	CHECK_INT(range.inode, 173521);
	CHECK_INT(range.name_bytes, strlen("/usr/bin/a b (deleted)"));
	REQUIRE(snapshot_next_range(&at, &left, &range));
	CHECK(!range.executable);
	CHECK_INT(range.name_bytes, 0);
	REQUIRE(snapshot_next_range(&at, &left, &range));
	CHECK(memcmp(range.name, "[vdso]", 6) == 0);
	CHECK(!snapshot_next_range(&at, &left, &range));
	CHECK_INT(left, 0);
}

static void test_modules(void)
{
	static const char text[] = "ext4 900000 2 mbcache,jbd2, Live 0xffffffffc0100000 (E)\n"
				   "hidden 1000 0 - Live 0x0000000000000000\n"
				   "broken\n";
	const char *at = text;
	size_t left = strlen(text);
	struct snapshot_module module;

	REQUIRE(snapshot_next_module(&at, &left, &module));
	CHECK(module.start == 0xffffffffc0100000 && module.length == 900000);
	CHECK_INT(module.name_bytes, 4);
	CHECK(!snapshot_next_module(&at, &left, &module));
}

static void test_cgroup(void)
{
	static const char both[] = "1:cpu:/old\n0::/new\n";
	static const char first[] = "4:memory:/a:b\n3:cpu:/c";
	const char *path;
	size_t length;

	REQUIRE(snapshot_parse_cgroup(both, strlen(both), &path, &length));
	CHECK(length == 4 && memcmp(path, "/new", 4) == 0);
	REQUIRE(snapshot_parse_cgroup(first, strlen(first), &path, &length));
	CHECK(length == 4 && memcmp(path, "/a:b", 4) == 0);
	CHECK(!snapshot_parse_cgroup("nothing", 7, &path, &length));
	CHECK(!snapshot_parse_cgroup("", 0, &path, &length));
}

static void test_records(void)
{
	struct bytes bytes = { .length = 0 };
	struct snapshot snapshot;
	struct snapshot_item item;
	size_t cut, n;

	put_text(&bytes, SNAPSHOT_EXE, 5, 100, "/bin/x");
	put_text(&bytes, SNAPSHOT_CMDLINE, 5, 101, "");
	put_text(&bytes, 99, 5, 102, "from a newer broker");
	snapshot = (struct snapshot){ .bytes = bytes.data, .length = bytes.length };
	REQUIRE(snapshot_next(&snapshot, &item));
	CHECK_INT(item.length, 6);
	CHECK_INT(item.time_ns, 100);
	REQUIRE(snapshot_next(&snapshot, &item));
	CHECK_INT(item.length, 0);
	REQUIRE(snapshot_next(&snapshot, &item));
	CHECK(!snapshot_next(&snapshot, &item));
	for (cut = 0; cut < bytes.length; cut++) {
		snapshot = (struct snapshot){ .bytes = bytes.data, .length = cut };
		for (n = 0; snapshot_next(&snapshot, &item); n++)
			CHECK(item.text + item.length <= (const char *)bytes.data + cut);
		CHECK(n < 4);
	}
}

static void test_hostile(void)
{
	const struct snapshot_record lie = { .kind = SNAPSHOT_STAT, .length = UINT32_MAX };
	struct snapshot_mapping mapping = { .start = 10, .end = 20, .build_id_size = 21 };
	struct bytes bytes = { .length = 0 };
	struct snapshot snapshot;
	struct snapshot_range range;
	struct snapshot_item item;

	put(&bytes, &lie, sizeof(lie));
	snapshot = (struct snapshot){ .bytes = bytes.data, .length = bytes.length };
	CHECK(!snapshot_next(&snapshot, &item));
	CHECK(!snapshot_parse_mapping((const char *)&mapping, sizeof(mapping), &range));
	CHECK(!snapshot_parse_mapping((const char *)&mapping, 8, &range));
	mapping.build_id_size = 20;
	CHECK(snapshot_parse_mapping((const char *)&mapping, sizeof(mapping), &range));
	mapping.end = 10;
	CHECK(!snapshot_parse_mapping((const char *)&mapping, sizeof(mapping), &range));
}

int main(void)
{
	RUN(test_stat);
	RUN(test_status);
	RUN(test_usage);
	RUN(test_maps);
	RUN(test_modules);
	RUN(test_cgroup);
	RUN(test_records);
	RUN(test_hostile);
	return test_end();
}
