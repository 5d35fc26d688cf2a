/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * fake-php - a process that looks like PHP 8.2, with frames that are wrong; fake-php-threads - one
 * that was built with thread safety
 *
 *     fake-php CASE     burns CPU until it is killed
 *
 * deep: a list of frames that never ends. names: like deep, with a name and a file of 2^40 hostile
 * bytes. nothing: the frame is at a bad address. kind: the frame's function is of a kind that does
 * not exist. generators: a generator is its own parent. fiber: a fiber ends within an activation.
 * open: the outermost frame belongs to no activation. suspended: nothing has resumed the fiber.
 * unlinked: nothing has resumed the generator. released: the file's name was released.
 */
#include "arch/base.h"
#include "tests/tools/hostile-name.h"

#include <stdio.h>

#define EXPORTED __attribute__((visibility("default")))

/* Only the offsets of php_layout(2) matter. */
#ifdef THREAD_SAFE
EXPORTED const char zend_build[] = "API420220829,TS";
EXPORTED uint64_t executor_globals_offset = 64;
EXPORTED size_t tsrm_get_ls_cache_tcb_offset(void);

static uint64_t of_thread[(64 + 1968) / 8], *const executor_globals = of_thread + 64 / 8;
static _Thread_local __attribute__((used)) void *pointer = of_thread;

/* `pointer` is the only thread-local variable, so it is directly below the thread pointer. */
size_t tsrm_get_ls_cache_tcb_offset(void)
{
	return -sizeof(pointer);
}
#else
EXPORTED const char zend_build[] = "API420220829,NTS";
EXPORTED uint64_t executor_globals[1800 / 8];
#endif
EXPORTED void execute_ex(void);

static uint64_t frames[2][10], function[21], of_fiber[21], text[16], operation[4], generator[40];
static uint64_t fiber[5], stack[2], released[4];

void execute_ex(void)
{
	for (volatile unsigned i = 0;; i++)
		;
}

static uint64_t address(const void *of)
{
	return (uint64_t)(uintptr_t)of;
}

int main(int argc, char **argv)
{
	static const char *const cases[] = { "deep",       "names",   "nothing", "kind",
					     "generators", "fiber",   "open",    "suspended",
					     "unlinked",   "released" };
	const char *what = NULL;

	for (size_t i = 0; argc == 2 && i < ARRAY_SIZE(cases); i++)
		if (strcmp(argv[1], cases[i]) == 0)
			what = cases[i];
	if (!what) {
		fputs("Usage: fake-php CASE\n", stderr);
		return 2;
	}
	text[0] = UINT64_C(0x16) << 32 | 1;
	text[2] = strcmp(what, "names") == 0 ? UINT64_C(1) << 40 : 4;
	memset(text + 3, 'f', sizeof(text) - 24);
	if (strcmp(what, "names") == 0)
		hostile_name(text + 3, sizeof(text) - 24);
	function[0] = strcmp(what, "kind") == 0 ? 9 : 2;
	function[1] = address(text);
	function[10] = 1;
	function[11] = address(operation);
	function[19] = address(text);
	function[20] = 7;
	of_fiber[0] = 1;
	frames[0][0] = address(operation);
	frames[0][3] = address(function);
	if (strcmp(what, "deep") == 0 || strcmp(what, "names") == 0) {
		frames[0][5] = 1 << 17;
		frames[0][6] = address(frames[0]);
	} else if (strcmp(what, "generators") == 0) {
		frames[0][5] = 1 << 17;
		frames[0][6] = address(generator + 23);
		generator[23 + 4] = generator[19] = address(generator);
	} else if (strcmp(what, "fiber") == 0) {
		frames[0][6] = address(frames[1]);
		frames[1][3] = address(of_fiber);
	} else if (strcmp(what, "suspended") == 0) {
		frames[0][5] = 1 << 17;
		frames[0][6] = address(frames[1]);
		frames[1][3] = address(of_fiber);
		stack[0] = address(__builtin_frame_address(0)) - 4096;
		stack[1] = 8192;
		fiber[4] = address(stack);
		executor_globals[1672 / 8] = address(fiber);
	} else if (strcmp(what, "released") == 0) {
		frames[0][5] = 1 << 17;
		released[0] = address(released);
		function[19] = address(released);
	} else if (strcmp(what, "unlinked") == 0) {
		frames[0][5] = 1 << 17;
		function[0] |= UINT64_C(1) << (32 + 24);
	}
	executor_globals[488 / 8] = strcmp(what, "nothing") == 0 ? 8 : address(frames[0]);
	executor_globals[416 / 8] = address(__builtin_frame_address(0));
	execute_ex();
	return 0;
}
