/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "tests/unit/test.h"
#include "tools/common/cli.h"
#include "tools/common/units.h"

static void check_duration(const char *text, uint64_t want)
{
	uint64_t ns = 0;

	CHECK(units_parse_duration(text, &ns, NULL));
	if (!CHECK_INT(ns, want))
		printf("# text: %s\n", text);
}

static void refuse_duration(const char *text)
{
	g_autoptr(GError) error = NULL;
	uint64_t ns = 42;

	if (!CHECK(!units_parse_duration(text, &ns, &error)))
		printf("# text: %s\n", text);
	CHECK_INT(ns, 42);
	CHECK(g_error_matches(error, CLI_ERROR, CLI_USAGE));
}

static void test_durations(void)
{
	check_duration("10", 10000000000);
	check_duration("0", 0);
	check_duration("1.5", 1500000000);
	check_duration("500ms", 500000000);
	check_duration("2m", 120000000000);
	check_duration("2min", 120000000000);
	check_duration("1h", 3600000000000);
	check_duration("0.1s", 100000000);
	check_duration("0.3", 300000000);
	check_duration("1.000000001", 1000000001);
	check_duration("1.0000000019", 1000000001);
	check_duration("0.9999999999999999999999", 999999999);
	check_duration("7ns", 7);
	check_duration("3\302\265s", 3000);
	check_duration("18446744073709551615ns", UINT64_MAX);
	refuse_duration("18446744073709551616ns");
	refuse_duration("18446744073709551615");
	refuse_duration("");
	refuse_duration("-1");
	refuse_duration("+1");
	refuse_duration(" 1");
	refuse_duration("1 s");
	refuse_duration("1.");
	refuse_duration(".5");
	refuse_duration("1e3");
	refuse_duration("1,5");
	refuse_duration("5x");
	refuse_duration("0x10");
}

static void test_sizes(void)
{
	uint64_t bytes;

	CHECK(units_parse_size("4096", &bytes, NULL) && bytes == 4096);
	CHECK(units_parse_size("64K", &bytes, NULL) && bytes == 65536);
	CHECK(units_parse_size("1.5MiB", &bytes, NULL) && bytes == 3 << 19);
	CHECK(units_parse_size("2T", &bytes, NULL) && bytes == UINT64_C(2) << 40);
	CHECK(!units_parse_size("64KB", &bytes, NULL));
	CHECK(!units_parse_size("16777216T", &bytes, NULL));
}

static void test_uints(void)
{
	uint64_t value = 0;

	CHECK(units_parse_uint("7", 0, 10, &value, NULL) && value == 7);
	CHECK(!units_parse_uint("11", 0, 10, &value, NULL));
	CHECK(!units_parse_uint("-1", 0, UINT64_MAX, &value, NULL));
	CHECK(!units_parse_uint("1x", 0, UINT64_MAX, &value, NULL));
	CHECK(!units_parse_uint("", 0, UINT64_MAX, &value, NULL));
	CHECK_INT(value, 7);
}

static void test_times(void)
{
	struct units_time time;
	struct units_range range = { 0 };

	CHECK(units_parse_time("1.5s", &time, NULL));
	CHECK(time.kind == UNITS_TIME_START && time.ns == 1500000000);
	CHECK(units_parse_time("-5s", &time, NULL));
	CHECK(time.kind == UNITS_TIME_END && time.ns == UINT64_C(5000000000));
	CHECK(units_parse_time("@mark:frame..4", &time, NULL));
	CHECK(time.kind == UNITS_TIME_MARK);
	CHECK_STR(time.mark, "frame..4");
	CHECK(!units_parse_time("@mark:", &time, NULL));
	CHECK(!units_parse_time("@frame", &time, NULL));
	CHECK(!units_parse_time("--5", &time, NULL));

	CHECK(units_parse_range("1.2s..1.5s", &range, NULL));
	CHECK(range.from.ns == 1200000000 && range.to.ns == 1500000000);
	CHECK(units_parse_range("2", &range, NULL));
	CHECK(range.from.ns == 2000000000 && range.to.ns == 1500000000);
	CHECK(units_parse_range("..-1s", &range, NULL));
	CHECK(range.from.ns == 2000000000 && range.to.kind == UNITS_TIME_END);
	CHECK(units_parse_range("@mark:a..3", &range, NULL));
	CHECK_STR(range.from.mark, "a");
	CHECK(!units_parse_range("..", &range, NULL));
	CHECK(!units_parse_range("", &range, NULL));
	CHECK(!units_parse_range("1..x", &range, NULL));
}

int main(void)
{
	RUN(test_durations);
	RUN(test_sizes);
	RUN(test_uints);
	RUN(test_times);
	return test_end();
}
