/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * fake-ruby - a process that looks like Ruby 3.1, with frames that are wrong
 *
 *     fake-ruby deep|names|lines|text|nothing|position|runs     burns CPU until it is killed
 *
 * deep: more frames than are read, and activations without end. names: like deep, with a name of
 * 2^40 hostile bytes, and a path at a bad address. lines: like deep, with a table of 2^32 - 1 lines
 * of 2^32 - 1 words. text: a frame has a string instead of an iseq. nothing: the frames are not on
 * the stack. position: an instruction is after the end of its iseq. runs: each frame is in a
 * separate activation, but the stack has no activation.
 */
#include "arch/base.h"
#include "tests/tools/hostile-name.h"

#include <stdio.h>

#define EXPORTED __attribute__((visibility("default")))
#define FRAMES 1000u

/* Only the offsets of ruby_layout(1) matter. */
EXPORTED const int ruby_api_version[3] = { 3, 1, 0 };
EXPORTED __thread uint64_t *ruby_current_ec;
EXPORTED void rb_vm_exec(void);

static uint64_t thread[64], stack[FRAMES * 8], environment[3], iseq[8], body[64], name[8], path[8],
	table[1024], tag[16];

void rb_vm_exec(void)
{
	for (volatile unsigned i = 0;; i++)
		;
}

static uint64_t address(const void *of)
{
	return (uint64_t)(uintptr_t)of;
}

static void make_code(const char *what)
{
	const bool has_names = strcmp(what, "names") == 0;
	const uint64_t n = strcmp(what, "lines") == 0 ? UINT32_MAX : 1;

	iseq[0] = strcmp(what, "text") == 0 ? 5 : 0x701a;
	iseq[2] = address(body);
	name[0] = 5 | (has_names ? UINT64_C(1) << 13 : UINT64_C(4) << 14);
	name[2] = has_names ? UINT64_C(1) << 40 : 0x66666666;
	name[3] = address(table);
	path[0] = has_names ? 7 : 5 | UINT64_C(4) << 14;
	path[2] = 0x2e2e2e2e;
	path[4] = 8;
	memset(table, 0xff, sizeof(table));
	if (has_names)
		hostile_name(table, sizeof(table));
	body[0] = n << 32;
	body[1] = address(table);
	body[8] = address(path);
	body[10] = address(name);
	body[11] = 2 * 7 + 1;
	body[15] = address(table);
	body[17] = n;
	body[18] = address(table);
}

int main(int argc, char **argv)
{
	static const char *const cases[] = { "deep",    "names",    "lines", "text",
					     "nothing", "position", "runs" };
	const char *what = NULL;

	for (size_t i = 0; argc == 2 && i < ARRAY_SIZE(cases); i++)
		if (strcmp(argv[1], cases[i]) == 0)
			what = cases[i];
	if (!what) {
		fputs("Usage: fake-ruby deep|names|lines|text|nothing|position|runs\n", stderr);
		return 2;
	}
	make_code(what);
	environment[2] = strcmp(what, "runs") == 0 ? 0x20 : 0;
	for (size_t i = 0; i < FRAMES; i++) {
		stack[i * 8] = address(table) + (strcmp(what, "position") == 0 ? 16 : 8);
		stack[i * 8 + 2] = address(iseq);
		stack[i * 8 + 4] = address(environment + 2);
	}
	thread[0] = address(stack);
	thread[1] = ARRAY_SIZE(stack);
	thread[2] = strcmp(what, "nothing") == 0 ? 8 : address(stack);
	thread[3] = address(tag);
	/* an endless list of activations; with "runs", a finite list without activations */
	if (strcmp(what, "runs") != 0) {
		tag[3] = (uint64_t)(uintptr_t)rb_vm_exec;
		tag[7] = address(tag);
	}
	thread[18] = address(__builtin_frame_address(0)) + 4096;
	thread[20] = 1 << 20;
	ruby_current_ec = thread;
	rb_vm_exec();
	return 0;
}
