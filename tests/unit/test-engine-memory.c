/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of an engine that runs out of memory: it exits with a special status, whichever code
 * allocates. Only allocations of large blocks return NULL.
 */
#include "daemon/protocol.h"
#include "tests/unit/test.h"

#include <glib.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define LARGE ((size_t)1 << 20)

static void *use_up(size_t bytes)
{
	void *volatile block;

	while ((block = malloc(bytes)))
		;
	return NULL;
}

static void ask_little(void)
{
	use_up(24);
}

static void ask_for_large_ones(void)
{
	void *volatile zeros, *volatile moved;

	use_up(LARGE);
	zeros = calloc(LARGE, LARGE);
	moved = realloc(NULL, LARGE);
	_exit(zeros || moved ? 1 : 0);
}

/* If an allocation fails, g_malloc() needs memory for its message. */
static void ask_by_glib(void)
{
	void *volatile block;

	use_up(LARGE);
	for (;;)
		block = g_malloc(40);
	(void)block;
}

static void ask_for_zeros(void)
{
	void *volatile block;

	use_up(LARGE);
	do
		block = calloc(3, 40);
	while (block);
}

static int status_of(void (*run)(void))
{
	const struct rlimit none = { 0 };
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		setrlimit(RLIMIT_DATA, &none);
		setrlimit(RLIMIT_CORE, &none);
		run();
		_exit(2);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void test_exit_status(void)
{
	CHECK_INT(status_of(ask_little), ENGINE_EXIT_NO_MEMORY);
	CHECK_INT(status_of(ask_by_glib), ENGINE_EXIT_NO_MEMORY);
	CHECK_INT(status_of(ask_for_zeros), ENGINE_EXIT_NO_MEMORY);
	CHECK_INT(status_of(ask_for_large_ones), 0);
}

int main(void)
{
	RUN(test_exit_status);
	return test_end();
}
