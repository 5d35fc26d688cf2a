/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * fake-python - a process that looks like Python 3.12, with frames that are wrong
 *
 *     fake-python cycle|names|nothing|key|thread|type     burns CPU until it is killed
 *
 * cycle: a frame is its own caller. names: like cycle, with a name of 2^40 hostile characters, and
 * other texts at bad addresses. nothing: the list of frames begins at a bad address. key:
 * _PyRuntime has a key that no thread can have. thread: the thread's state is in the kernel's
 * memory. type: a frame's code is no code object.
 */
#include "arch/base.h"
#include "tests/tools/hostile-name.h"

#include <pthread.h>
#include <stdio.h>

#define EXPORTED __attribute__((visibility("default")))

/* Only the offsets of cpython_layout(12) matter. */
EXPORTED const unsigned long Py_Version = 0x030c00f0;
EXPORTED uint64_t PyCode_Type[64];
EXPORTED uint8_t _PyRuntime[4096];
EXPORTED void _PyEval_EvalFrameDefault(void);

static uint8_t thread[256], activation[64], frame[128], code[256], name[8192], lines[64];

void _PyEval_EvalFrameDefault(void)
{
	for (volatile unsigned i = 0;; i++)
		;
}

static void put(uint8_t *object, size_t offset, const void *address)
{
	memcpy(object + offset, &address, sizeof(address));
}

int main(int argc, char **argv)
{
	static const char *const cases[] = { "cycle", "names", "nothing", "key", "thread", "type" };
	const char *what = NULL;
	bool has_names;
	uint64_t huge;
	const uint32_t state = 1u << 2 | 1u << 5 | 1u << 6; /* one byte a character, ASCII */
	const uint32_t first_line = 7;
	pthread_key_t key;
	uint32_t tss[2] = { 1, 0 };

	for (size_t i = 0; argc == 2 && i < ARRAY_SIZE(cases); i++)
		if (strcmp(argv[1], cases[i]) == 0)
			what = cases[i];
	if (!what) {
		fputs("Usage: fake-python cycle|names|nothing|key|thread|type\n", stderr);
		return 2;
	}
	has_names = strcmp(what, "names") == 0;
	huge = has_names ? UINT64_C(1) << 40 : 4;
	if (pthread_key_create(&key, NULL) != 0 ||
	    pthread_setspecific(key, strcmp(what, "thread") == 0
					     ? (void *)(uintptr_t)0xffff888000000000
					     : thread) != 0)
		return 1;
	tss[1] = strcmp(what, "key") == 0 ? UINT32_MAX : key;
	memcpy(_PyRuntime + 1544, tss, sizeof(tss));
	put(thread, 56, activation);
	put(activation, 0, strcmp(what, "nothing") == 0 ? (void *)8 : frame);
	put(frame, 0, code);
	put(frame, 8, frame);
	put(frame, 56, code + 192);
	put(code, 8, strcmp(what, "type") == 0 ? (void *)name : PyCode_Type);
	memcpy(code + 68, &first_line, sizeof(first_line));
	put(code, 112, has_names ? (void *)16 : name);
	put(code, 120, name);
	put(code, 128, name);
	put(code, 136, has_names ? (void *)24 : lines);
	memcpy(name + 16, &huge, sizeof(huge));
	memcpy(name + 32, &state, sizeof(state));
	memset(name + 40, 'f', sizeof(name) - 40);
	if (has_names)
		hostile_name(name + 40, sizeof(name) - 40);
	_PyEval_EvalFrameDefault();
	return 0;
}
