/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of arch/errno-text.c: a text names the process's limit and its value. test_limits checks
 * the limit of a cgroup.
 */
#include "arch/errno-text.h"

#include "arch/base.h"
#include "tests/unit/test.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static void test_process(void)
{
	static const struct {
		int error;
		__rlimit_resource_t resource;
		const char *limit, *unit;
	} cases[] = {
		{ EMFILE, RLIMIT_NOFILE, "RLIMIT_NOFILE, `ulimit -n`, is ", "" },
		{ EFBIG, RLIMIT_FSIZE, "RLIMIT_FSIZE, `ulimit -f`, is ", " bytes" },
		{ EAGAIN, RLIMIT_NPROC, "RLIMIT_NPROC, `ulimit -u`, is ", "" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct rlimit before, limit;
		char want[ERRNO_TEXT_BYTES];

		REQUIRE(getrlimit(cases[i].resource, &before) == 0);
		limit = before;
		limit.rlim_cur = MIN_OF(before.rlim_max, 4096u);
		REQUIRE(setrlimit(cases[i].resource, &limit) == 0);
		(void)snprintf(want, sizeof(want), "%s (%s%ju%s)", strerror(cases[i].error),
			       cases[i].limit, (uintmax_t)limit.rlim_cur, cases[i].unit);
		CHECK_STR(ERRNO_TEXT(cases[i].error), want);
		REQUIRE(setrlimit(cases[i].resource, &before) == 0);
	}
}

/* A limit that does not cause the error is not named. */
static void test_other(void)
{
	CHECK_STR(ERRNO_TEXT(ENOENT), strerror(ENOENT));
}

int main(void)
{
	RUN(test_process);
	RUN(test_other);
	return test_end();
}
