/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Test - a minimal framework for tests in C; prints TAP
 *
 *     static void test_order(void)
 *     {
 *             CHECK(ring_next(&ring) == 3);
 *             CHECK_INT(ring.tail, 3);
 *     }
 *     int main(void)
 *     {
 *             RUN(test_order);
 *             return test_end();
 *     }
 *
 * A failed CHECK prints its source line and values, and the case continues. A failed REQUIRE ends
 * the case. SKIP("why") also ends the case. CHECK may be used on any thread, REQUIRE and SKIP only
 * in the function that RUN calls.
 */
#pragma once

#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int test_count;
static int test_failed_cases;
static atomic_int test_failures;
static const char *test_skip_reason;

static inline bool test_check(bool ok, const char *file, int line, const char *what)
{
	if (!ok) {
		printf("# %s:%d: failed: %s\n", file, line, what);
		atomic_fetch_add(&test_failures, 1);
	}
	return ok;
}

static inline bool test_check_int(intmax_t got, intmax_t want, const char *file, int line,
				  const char *what)
{
	if (got != want) {
		printf("# %s:%d: failed: %s: got %" PRIdMAX ", want %" PRIdMAX "\n", file, line,
		       what, got, want);
		atomic_fetch_add(&test_failures, 1);
	}
	return got == want;
}

static inline bool test_check_str(const char *got, const char *want, const char *file, int line,
				  const char *what)
{
	bool same = got == want || (got && want && strcmp(got, want) == 0);

	if (!same) {
		printf("# %s:%d: failed: %s: got \"%s\", want \"%s\"\n", file, line, what,
		       got ? got : "(null)", want ? want : "(null)");
		atomic_fetch_add(&test_failures, 1);
	}
	return same;
}

#define CHECK(condition) test_check((condition), __FILE__, __LINE__, #condition)
#define CHECK_INT(got, want) \
	test_check_int((intmax_t)(got), (intmax_t)(want), __FILE__, __LINE__, #got " == " #want)
#define CHECK_STR(got, want) test_check_str((got), (want), __FILE__, __LINE__, #got " == " #want)
#define REQUIRE(condition)             \
	do {                           \
		if (!CHECK(condition)) \
			return;        \
	} while (0)
#define SKIP(why)                         \
	do {                              \
		test_skip_reason = (why); \
		return;                   \
	} while (0)

static inline void test_run(const char *name, void (*function)(void))
{
	int before = atomic_load(&test_failures);

	test_skip_reason = NULL;
	function();
	test_count++;
	if (atomic_load(&test_failures) != before) {
		test_failed_cases++;
		printf("not ok %d %s\n", test_count, name);
	} else if (test_skip_reason) {
		printf("ok %d %s # SKIP %s\n", test_count, name, test_skip_reason);
	} else {
		printf("ok %d %s\n", test_count, name);
	}
	fflush(stdout);
}
#define RUN(function) test_run(#function, function)

/* Runs the function in a child process. Returns the function's result, or -1 if the child was
 * killed. */
static inline int test_in_child(int (*function)(void))
{
	pid_t child = fork();
	int status = -1;

	if (child == 0)
		_exit(function());
	return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/*
 * A loop over many similar inputs tries every test_stride()th one, from test_start() on. ./dev sets
 * PROF_TEST_SEED, a hexadecimal number that depends on the commit, so that later commits try other
 * inputs. ./dev soak sets PROF_TEST_SOAK=1, so that every input is tried.
 */
static inline size_t test_stride(size_t standard)
{
	const char *soak = getenv("PROF_TEST_SOAK");

	return soak && strcmp(soak, "1") == 0 ? 1 : standard;
}

static inline size_t test_start(size_t stride)
{
	const char *seed = getenv("PROF_TEST_SEED");

	return seed ? strtoul(seed, NULL, 16) % stride : 0;
}

static inline int test_end(void)
{
	printf("1..%d\n", test_count);
	return test_failed_cases ? 1 : 0;
}

/* Ends the test, and removes its directory. */
static inline int test_end_without(const char *folder)
{
	char command[4096];

	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	if (system(command) != 0)
		printf("# %s is left\n", folder);
	return test_end();
}
