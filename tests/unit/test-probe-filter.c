/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of arch/probe-filter.c
 */
#include "tests/unit/test.h"

#include "arch/base.h"
#include "arch/probe-filter.h"

#include <math.h>

static struct probe_number numbers[] = {
	{ .value = (uint64_t)-5, .is_signed = true, .is_known = true },
	{ .value = UINT64_MAX, .is_known = true },
	{ .value = 0x30, .is_known = true },
	{ .is_signed = true },
	{ .is_float = true, .is_known = true }, /* 2.5 */
};

static enum probe_verdict test(const char *text)
{
	const double number = 2.5;

	memcpy(&numbers[4].value, &number, sizeof(number));
	return probe_filter_test(text, numbers, ARRAY_SIZE(numbers), NULL);
}

static void check_all(enum probe_verdict want, const char *const *texts, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!CHECK_INT(test(texts[i]), want))
			printf("# %s\n", texts[i]);
}

static void test_filter_numbers(void)
{
	static const char *const yes[] = {
		"arg1==-5",
		"arg1 == -0x5",
		"arg1<0",
		"arg1>-6",
		"arg1<=-5",
		"arg1>=-5",
		"arg1<18446744073709551615",
		"arg1!=18446744073709551611",
		"arg2==18446744073709551615",
		"arg2>-1",
		"arg2!=-1",
		"arg2>=9223372036854775808",
		"arg3&0x10",
		"arg3 & 48",
		"arg1&-8",
		"arg3==48",
		"arg3>-0",
		"arg5>2",
		"arg5<3",
		"arg5!=2",
		"arg5>-3",
	};
	static const char *const no[] = {
		"arg1==5", "arg1>0", "arg2<0", "arg2==-1", "arg3&0x40", "arg3<48", "arg5==2",
	};

	check_all(PROBE_FILTER_YES, yes, ARRAY_SIZE(yes));
	check_all(PROBE_FILTER_NO, no, ARRAY_SIZE(no));
}

static void test_filter_logic(void)
{
	static const char *const yes[] = {
		"arg1<0&&arg3==48",
		"arg1>0||arg3==48",
		"!arg1>0",
		"!(arg1>0 && arg3==48)",
		"arg1>0 && arg1>0 || arg3==48",
		"arg3==48 || arg4==1",
		"!!(arg1==-5)",
		" ( ( arg1 == -5 ) ) ",
	};
	static const char *const no[] = {
		"arg1>0 && (arg1>0 || arg3==48)",
		"arg1>0 && arg4==1",
		"arg4==1 && arg1>0",
	};
	/* arg4 could not be read */
	static const char *const unknown[] = {
		"arg4==0",          "!arg4==0",           "arg4==0 || arg1>0",
		"arg1<0 && arg4>1", "arg4==1 || arg4!=1",
	};

	check_all(PROBE_FILTER_YES, yes, ARRAY_SIZE(yes));
	check_all(PROBE_FILTER_NO, no, ARRAY_SIZE(no));
	check_all(PROBE_FILTER_UNKNOWN, unknown, ARRAY_SIZE(unknown));
}

static void test_filter_invalid(void)
{
	static const char *const invalid[] = {
		"",
		" ",
		"arg1",
		"arg0==1",
		"arg6==1",
		"arg==1",
		"pid==1",
		"arg1=1",
		"arg1==",
		"arg1==x",
		"arg1==1x",
		"arg1==1 arg2==1",
		"(arg1==1",
		"arg1==1)",
		"arg1==1 &&",
		"|| arg1==1",
		"arg5&1",
		"arg1==99999999999999999999",
		"arg99999999999999999999==1",
		"arg1==\"x\"",
	};
	char deep[256];
	const char *at = NULL;

	check_all(PROBE_FILTER_INVALID, invalid, ARRAY_SIZE(invalid));
	memset(deep, '(', sizeof(deep) - 1);
	deep[sizeof(deep) - 1] = '\0';
	CHECK_INT(test(deep), PROBE_FILTER_INVALID);
	CHECK_INT(probe_filter_test("arg1==1 && pid==2", numbers, 1, &at), PROBE_FILTER_INVALID);
	CHECK_STR(at, "pid==2");
}

/* NaN equals no number, and is neither less nor greater than any number. */
static void test_filter_nan(void)
{
	static const char *const texts[] = { "arg1==0", "arg1<=0", "arg1>=0", "arg1<0", "arg1>0" };
	const double number = NAN;
	struct probe_number none = { .is_float = true, .is_known = true };

	memcpy(&none.value, &number, sizeof(number));
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		CHECK_INT(probe_filter_test(texts[i], &none, 1, NULL), PROBE_FILTER_NO);
	CHECK_INT(probe_filter_test("arg1!=0", &none, 1, NULL), PROBE_FILTER_YES);
}

int main(void)
{
	RUN(test_filter_numbers);
	RUN(test_filter_nan);
	RUN(test_filter_logic);
	RUN(test_filter_invalid);
	return test_end();
}
