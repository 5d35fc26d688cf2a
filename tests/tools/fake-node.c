/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * fake-node - a process that looks like Node.js 20, with frames that are wrong
 *
 *     fake-node deep|names|text|nothing|loop|type|entry|thread     burns CPU until it is killed
 *
 * deep: more frames than are read. names: like deep, with names of 2^32 - 1 hostile bytes, and a
 * file at a bad address. text: the function begins after more text than a sample may read.
 * nothing: the frame is at a bad address. loop: a frame is its own caller. type: a function's
 * description is of another type. entry: the chain ends at an entry that is not the outermost.
 * thread: a thread has the isolate of another thread, as threads that collect garbage do.
 */
#include "arch/base.h"
#include "tests/tools/hostile-name.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))
#define FRAMES 400u
#define TEXT_BYTES (1u << 20) /* each is a newline */
#define FRAME_WORDS 16u
#define TAGGED(object) ((uint64_t)(uintptr_t)(object) + 1)
#define SMALL(number) ((uint64_t)(number) << 32)

/* Only the values of v8_layout(113) matter. The names are those of V8's variables in C++. */
EXPORTED __thread uint64_t *current_isolate __asm__("_ZN2v88internal18g_current_isolate_E");
/* A test searches this file for the text after the number, and changes the number. */
EXPORTED struct {
	uint32_t number;
	char text[8];
} version_major __asm__("_ZN2v88internal7Version6major_E") = { 11, "major_" };
EXPORTED uint32_t version_minor __asm__("_ZN2v88internal7Version6minor_E") = 3;

#define CONSTANT(name, value)        \
	extern int32_t v8dbg_##name; \
	EXPORTED int32_t v8dbg_##name = value
CONSTANT(TaggedSize, 8);
CONSTANT(off_fp_context_or_frame_type, -8);
CONSTANT(off_fp_function, -16);
CONSTANT(frametype_EntryFrame, 1);
CONSTANT(frametype_ConstructEntryFrame, 2);
CONSTANT(frametype_BuiltinExitFrame, 25);
CONSTANT(class_Map__instance_type__uint16_t, 12);
CONSTANT(type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE, 262);
CONSTANT(type_Script__SCRIPT_TYPE, 167);
CONSTANT(type_ScopeInfo__SCOPE_INFO_TYPE, 261);
CONSTANT(type_DebugInfo__DEBUG_INFO_TYPE, 153);
CONSTANT(type_Oddball__ODDBALL_TYPE, 131);
CONSTANT(FirstNonstringType, 128);
CONSTANT(class_JSFunction__shared__SharedFunctionInfo, 24);
CONSTANT(class_SharedFunctionInfo__function_data__Object, 8);
CONSTANT(class_SharedFunctionInfo__name_or_scope_info__Object, 16);
CONSTANT(class_SharedFunctionInfo__script_or_debug_info__HeapObject, 32);
CONSTANT(class_SharedFunctionInfo__flags__int, 48);
CONSTANT(class_Script__source__Object, 8);
CONSTANT(class_Script__name__Object, 16);
CONSTANT(class_String__length__int32_t, 12);
CONSTANT(class_SeqOneByteString__chars__char, 16);
CONSTANT(class_ConsString__first__String, 16);
CONSTANT(class_ConsString__second__String, 24);
CONSTANT(class_SlicedString__parent__String, 16);
CONSTANT(class_SlicedString__offset__SMI, 24);

static uint64_t isolate[64], map_of_info[2], map_of_script[2], map_of_scope[2], map_of_string[2];
static uint64_t function[8], script[11], *info, *scope, *name, *file;
static uint64_t source[2 + TEXT_BYTES / 8];

static void set_type(uint64_t map[2], uint32_t type)
{
	map[1] = (uint64_t)type << 32;
}

/* Returns memory for an object. The page after the object cannot be read. */
static uint64_t *make_last(size_t words)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *pages =
		mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (pages == MAP_FAILED || mprotect(pages + page, page, PROT_NONE) < 0)
		abort();
	return (uint64_t *)(void *)(pages + page) - words;
}

static void make_objects(const char *what)
{
	const bool has_bad_names = strcmp(what, "names") == 0;
	const size_t name_words = has_bad_names ? 72 : 3;

	info = make_last(7);
	scope = make_last(8);
	name = make_last(name_words);
	file = make_last(3);
	set_type(map_of_info, strcmp(what, "type") == 0 ? 9 : 262);
	set_type(map_of_script, 167);
	set_type(map_of_scope, 261);
	set_type(map_of_string, 8);
	name[0] = file[0] = source[0] = TAGGED(map_of_string);
	name[1] = SMALL(has_bad_names ? UINT32_MAX : 4);
	memset(name + 2, 'f', 8 * (name_words - 2));
	if (has_bad_names)
		hostile_name(name + 2, 8 * (name_words - 2));
	file[1] = SMALL(4);
	memcpy(file + 2, "f.js", 4);
	source[1] = SMALL(TEXT_BYTES);
	memset(source + 2, '\n', TEXT_BYTES);
	/* the scope of a function that has no variables, but a name and a position */
	scope[0] = TAGGED(map_of_scope);
	scope[1] = SMALL(2 | 1 << 12);
	scope[4] = TAGGED(name);
	scope[6] = SMALL(strcmp(what, "text") == 0 ? TEXT_BYTES : 0);
	script[0] = TAGGED(map_of_script);
	script[1] = TAGGED(source);
	script[2] = has_bad_names ? 9 : TAGGED(file);
	script[8] = SMALL(7);
	info[0] = TAGGED(map_of_info);
	info[2] = TAGGED(scope);
	info[4] = TAGGED(script);
	function[3] = TAGGED(info);
}

/* As in Node.js, a thread executes code that has no unwind tables. */
static void *spin(void *unused)
{
	/* push %rbp; mov %rsp, %rbp; jmp . */
	static const uint8_t code[] = { 0x55, 0x48, 0x89, 0xe5, 0xeb, 0xfe };
	void *generated = mmap(NULL, sizeof(code), PROT_READ | PROT_WRITE | PROT_EXEC,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)unused;
	if (generated == MAP_FAILED)
		return NULL;
	memcpy(generated, code, sizeof(code));
	current_isolate = isolate;
	((void (*)(void))generated)();
	return NULL;
}

int main(int argc, char **argv)
{
	static const char *const cases[] = { "deep", "names", "text",  "nothing",
					     "loop", "type",  "entry", "thread" };
	uint64_t frames[(FRAMES + 1) * FRAME_WORDS] = { 0 };
	const char *what = NULL;
	pthread_t thread;

	for (size_t i = 0; argc == 2 && i < ARRAY_SIZE(cases); i++)
		if (strcmp(argv[1], cases[i]) == 0)
			what = cases[i];
	if (!what) {
		fputs("Usage: fake-node deep|names|text|nothing|loop|type|entry|thread\n", stderr);
		return 2;
	}
	make_objects(what);
	/* The frame pointer points to a frame's ninth word. The last frame is an entry. */
	for (size_t i = 0; i < FRAMES; i++) {
		uint64_t *frame = frames + i * FRAME_WORDS + 8;

		frame[-2] = TAGGED(function);
		frame[-1] = 1;
		frame[0] = (uint64_t)(uintptr_t)(frame +
						 (strcmp(what, "loop") == 0 ? 0 : FRAME_WORDS));
	}
	frames[FRAMES * FRAME_WORDS + 7] = 2;
	isolate[0x1a0 / 8] = (uint64_t)(uintptr_t)(frames + FRAMES * FRAME_WORDS + 8);
	if (strcmp(what, "entry") == 0)
		frames[FRAME_WORDS + 7] = 2;
	isolate[0x180 / 8] = (uint64_t)(uintptr_t)(frames + 8);
	if (strcmp(what, "nothing") == 0)
		isolate[0x180 / 8] = UINT64_C(1) << 62;
	/* Only three frames, so that the length of the text alone decides whether they have
	 * names. */
	if (strcmp(what, "text") == 0)
		isolate[0x180 / 8] += 8 * FRAME_WORDS * (FRAMES - 3);
	if (strcmp(what, "thread") == 0 && pthread_create(&thread, NULL, spin, NULL) == 0)
		pthread_join(thread, NULL);
	spin(NULL);
	return 0;
}
