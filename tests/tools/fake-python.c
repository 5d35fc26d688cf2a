/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * fake-python - a process that looks like Python 3.12, with frames that are wrong
 * fake-python-threads - the same for Python 3.14 without the interpreter's lock
 *
 *     fake-python cycle|names|nothing|key|thread|type|lock|moved|copy|copies
 *
 * Burns CPU until it is killed. cycle: a frame is its own caller, in line 7. names: like cycle,
 * with a name of 2^40 hostile characters, and other texts at bad addresses. nothing: the list of
 * frames begins at a bad address. key: _PyRuntime has a key that no thread can have. thread: the
 * thread's state is in the kernel's memory. type: a frame's code is not a code object. The others
 * are for fake-python-threads. lock: objects are laid out as in a build with the lock, although the
 * program's offsets differ. moved: like cycle, with a frame that executes line 8 of a copy
 * of the bytecode. copy: a frame is not in the copy that it names. copies: a frame names a copy at
 * a bad address.
 */
#include "arch/base.h"
#include "tests/tools/hostile-name.h"

#include <pthread.h>
#include <stdio.h>

#define EXPORTED __attribute__((visibility("default")))

/* Offsets, as in struct interp_cpython. */
static const struct {
	unsigned runtime_tss, thread_frame, frame_code, frame_previous, frame_position, frame_copy,
		code_first_line, code_file, code_name, code_qualname, code_lines, code_copies,
		code_start, object_type;
#ifdef FREE_THREADED
} layout = { 2336, 72, 0, 8, 56, 72, 84, 128, 136, 144, 152, 224, 232, 24 };

EXPORTED const unsigned long Py_Version = 0x030e00f0;
/* struct _Py_DebugOffsets */
EXPORTED uint64_t _PyRuntime[512] = {
	[0] = 0x7970677562656478,
	[2] = 1,
	[26] = 72,
	[27] = 152,
	[32] = 8,
	[33] = 0,
	[34] = 56,
	[36] = 78,
	[38] = 72,
	[40] = 128,
	[41] = 136,
	[42] = 144,
	[43] = 152,
	[44] = 84,
	[48] = 232,
	[49] = 224,
	[51] = 24,
};
#else
} layout = { 1544, 56, 0, 8, 56, 0, 68, 112, 120, 128, 136, 0, 192, 8 };

EXPORTED const unsigned long Py_Version = 0x030c00f0;
EXPORTED uint64_t _PyRuntime[512];
#endif
EXPORTED uint64_t PyCode_Type[64];
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

/* Returns whether a case of this name exists. */
static bool is_known(const char *what)
{
	static const char *const cases[] = { "cycle", "names", "nothing", "key",  "thread",
					     "type",  "lock",  "moved",   "copy", "copies" };

	for (size_t i = 0; what && i < ARRAY_SIZE(cases); i++)
		if (strcmp(what, cases[i]) == 0)
			return true;
	return false;
}

/* Makes the frame's code, whose type is at another place if `has_lock`. */
static void make_code(bool has_names, bool has_type, bool has_lock)
{
	const uint64_t length = has_names ? UINT64_C(1) << 40 : 4, size = 100;
	const uint32_t state = 1u << 2 | 1u << 5 | 1u << 6; /* one byte a character, ASCII */
	const uint32_t first_line = 7;
	/* four instructions in each of two lines */
	static const uint8_t table[] = { 0xd3, 0, 0, 0xdb, 0, 0 };
	const uint64_t table_size = sizeof(table);
	const size_t type = has_lock ? 8 : layout.object_type, characters = type + 32;

	put(code, type, has_type ? (void *)PyCode_Type : name);
	memcpy(code + type + 8, &size, sizeof(size));
	memcpy(code + layout.code_first_line, &first_line, sizeof(first_line));
	put(code, layout.code_file, has_names ? (void *)16 : name);
	put(code, layout.code_name, name);
	put(code, layout.code_qualname, name);
	put(code, layout.code_lines, has_names ? (void *)24 : lines);
	memcpy(lines + type + 8, &table_size, sizeof(table_size));
	memcpy(lines + type + 24, table, sizeof(table));
	memcpy(name + type + 8, &length, sizeof(length));
	memcpy(name + type + 24, &state, sizeof(state));
	memset(name + characters, 'f', sizeof(name) - characters);
	if (has_names)
		hostile_name(name + characters, sizeof(name) - characters);
}

/* Makes the frame refer to copy 1 of the bytecode. Without `has_copies`, the address of the code's
 * list of copies is invalid. With `is_in_copy`, the frame's position is in the copy. */
static void make_copy(bool has_copies, bool is_in_copy)
{
	static uint8_t copy[16];
	static void *copies[3] = { NULL, code, copy };
	const uint32_t index = 1;

	memcpy(frame + layout.frame_copy, &index, sizeof(index));
	put(code, layout.code_copies, has_copies ? copies : (void *)40);
	if (is_in_copy)
		put(frame, layout.frame_position, copy + 8);
}

int main(int argc, char **argv)
{
	const char *what = argc == 2 ? argv[1] : NULL;
	uint32_t tss[2] = { 1, 0 };
	pthread_key_t key;

	if (!is_known(what)) {
		fputs("Usage: fake-python cycle|names|nothing|key|thread|type|lock|moved|copy|copies\n",
		      stderr);
		return 2;
	}
	if (pthread_key_create(&key, NULL) != 0 ||
	    pthread_setspecific(key, strcmp(what, "thread") == 0
					     ? (void *)(uintptr_t)0xffff888000000000
					     : thread) != 0)
		return 1;
	tss[1] = strcmp(what, "key") == 0 ? UINT32_MAX : key;
	memcpy((uint8_t *)_PyRuntime + layout.runtime_tss, tss, sizeof(tss));
	put(activation, 0, strcmp(what, "nothing") == 0 ? (void *)8 : frame);
#ifdef FREE_THREADED
	memcpy(thread + layout.thread_frame, activation, sizeof(void *));
#else
	put(thread, layout.thread_frame, activation);
#endif
	put(frame, layout.frame_code, code);
	put(frame, layout.frame_previous, frame);
	put(frame, layout.frame_position, code + layout.code_start);
	make_code(strcmp(what, "names") == 0, strcmp(what, "type") != 0, strcmp(what, "lock") == 0);
	if (strcmp(what, "moved") == 0 || strncmp(what, "cop", 3) == 0)
		make_copy(strcmp(what, "copies") != 0, strcmp(what, "moved") == 0);
	_PyEval_EvalFrameDefault();
	return 0;
}
