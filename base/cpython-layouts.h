/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Cpython-layouts - the offsets that a walk needs, for the builds of each version of CPython
 *
 * For 64-bit machines. profd gives these numbers to the BPF program, so that an engine cannot
 * choose what is read. Interpreters since 3.13 contain their own offsets: the engine and the
 * collector compare them with these, and ignore interpreters that differ.
 *
 * BPF code includes this header, so it does not use libc.
 */
#pragma once

#include <linux/types.h>

#define CPYTHON_FIRST_MINOR 8u
#define CPYTHON_LAST_MINOR 14u
#define CPYTHON_FIRST_DEBUG_MINOR 13u /* from 3.13 on, _PyRuntime begins with offsets */
#define CPYTHON_DEBUG_WORDS 64u       /* words of _PyRuntime that cpython_offsets_agree() needs */
/* added to MINOR for a free-threaded build, which has no global interpreter lock */
#define CPYTHON_FREE_THREADED 32u

#define INTERP_ABSENT 0xffffu

/* Offsets in the structures of one version of CPython, in bytes. INTERP_ABSENT: no such field. */
struct interp_cpython {
	__u16 minor;           /* MINOR of version 3.MINOR, see CPYTHON_FREE_THREADED */
	__u16 runtime_tss;     /* the key of the thread's state: {int is_set; int key} */
	__u16 runtime_current; /* the state of the thread that holds the GIL; ABSENT from 3.12 on */
	__u16 thread_id;       /* in the thread's state: its pthread_self() */
	__u16 thread_frame;    /* innermost frame; ABSENT: use thread_cframe */
	__u16 thread_cframe;   /* innermost activation, which points to the innermost frame */
	__u16 cframe_frame, cframe_previous;
	__u16 frame_previous, frame_code, frame_position;
	__u16 frame_owner;    /* from 3.11 on */
	__u16 frame_is_entry; /* 3.11: outermost frame of an activation */
	__u16 code_first_line, code_file, code_name, code_qualname, code_lines;
	__u16 code_start;             /* the bytecode; ABSENT: positions are not addresses */
	__u16 text_ascii, text_other; /* start of a text's characters */
	/* An object's type. The size or length follows it; then, in a text, the hash and the state;
	 * in a bytes object, the hash and the bytes. */
	__u16 object_type;
	/* 3.14, free-threaded: each thread executes its own copy of the bytecode. A frame has the
	 * index of its copy, and the code object a pointer to {size, addresses of the copies}. */
	__u16 frame_copy, code_copies;
};
#define CPYTHON_SIZE(layout) ((layout)->object_type + 8u)
#define CPYTHON_TEXT_HASH(layout) ((layout)->object_type + 16u)
#define CPYTHON_BYTES(layout) ((layout)->object_type + 24u)

/* clang-format off */
#define CPYTHON_LOCKED \
	.object_type = 8, .frame_copy = INTERP_ABSENT, .code_copies = INTERP_ABSENT
#define CPYTHON_FRAMES_3_8(position) \
	.thread_id = 176, .thread_frame = 24, .thread_cframe = INTERP_ABSENT, \
	.frame_previous = 24, .frame_code = 32, .frame_position = (position), \
	.frame_owner = INTERP_ABSENT, .frame_is_entry = INTERP_ABSENT, \
	.code_first_line = 40, .code_file = 104, .code_name = 112, .code_qualname = 112, \
	.code_lines = 120, .code_start = INTERP_ABSENT, .text_ascii = 48, .text_other = 72, \
	CPYTHON_LOCKED
/* clang-format on */

/* Returns a text's state without the bits before the width: three bits are the width of a
 * character, one says whether the characters follow the object, one whether they are ASCII. */
static inline __u32 cpython_text_state(__u32 state)
{
	/* 2, 8 or 16 bits precede the width, which is not 0. */
	return state >> 2 & 7 ? state >> 2 : state >> 8 & 7 ? state >> 8 : state >> 16;
}

/* `minor`: see CPYTHON_FREE_THREADED. Returns NULL if the version is not supported. */
static inline const struct interp_cpython *cpython_layout(unsigned minor)
{
	/* clang-format off */
	static const struct interp_cpython layouts[] = {
		{ .minor = 8, .runtime_tss = 1392, .runtime_current = 1368, CPYTHON_FRAMES_3_8(104) },
		{ .minor = 9, .runtime_tss = 584, .runtime_current = 568, CPYTHON_FRAMES_3_8(104) },
		{ .minor = 10, .runtime_tss = 584, .runtime_current = 568, CPYTHON_FRAMES_3_8(96) },
		{ .minor = 11, .runtime_tss = 592, .runtime_current = 576,
		  .thread_id = 152, .thread_frame = INTERP_ABSENT, .thread_cframe = 56,
		  .cframe_frame = 8, .cframe_previous = 16,
		  .frame_previous = 48, .frame_code = 32, .frame_position = 56,
		  .frame_owner = 69, .frame_is_entry = 68,
		  .code_first_line = 72, .code_file = 112, .code_name = 120, .code_qualname = 128,
		  .code_lines = 136, .code_start = 184, .text_ascii = 48, .text_other = 72,
		  CPYTHON_LOCKED },
		{ .minor = 12, .runtime_tss = 1544, .runtime_current = INTERP_ABSENT,
		  .thread_id = 136, .thread_frame = INTERP_ABSENT, .thread_cframe = 56,
		  .cframe_frame = 0, .cframe_previous = 8,
		  .frame_previous = 8, .frame_code = 0, .frame_position = 56,
		  .frame_owner = 70, .frame_is_entry = INTERP_ABSENT,
		  .code_first_line = 68, .code_file = 112, .code_name = 120, .code_qualname = 128,
		  .code_lines = 136, .code_start = 192, .text_ascii = 40, .text_other = 56,
		  CPYTHON_LOCKED },
		{ .minor = 13, .runtime_tss = 2160, .runtime_current = INTERP_ABSENT,
		  .thread_id = 152, .thread_frame = 72, .thread_cframe = INTERP_ABSENT,
		  .frame_previous = 8, .frame_code = 0, .frame_position = 56,
		  .frame_owner = 70, .frame_is_entry = INTERP_ABSENT,
		  .code_first_line = 68, .code_file = 112, .code_name = 120, .code_qualname = 128,
		  .code_lines = 136, .code_start = 200, .text_ascii = 40, .text_other = 56,
		  CPYTHON_LOCKED },
		{ .minor = 14, .runtime_tss = 2336, .runtime_current = INTERP_ABSENT,
		  .thread_id = 152, .thread_frame = 72, .thread_cframe = INTERP_ABSENT,
		  .frame_previous = 8, .frame_code = 0, .frame_position = 56,
		  .frame_owner = 74, .frame_is_entry = INTERP_ABSENT,
		  .code_first_line = 68, .code_file = 112, .code_name = 120, .code_qualname = 128,
		  .code_lines = 136, .code_start = 208, .text_ascii = 40, .text_other = 56,
		  CPYTHON_LOCKED },
		{ .minor = 13 + CPYTHON_FREE_THREADED, .runtime_tss = 2160, .runtime_current = INTERP_ABSENT,
		  .thread_id = 152, .thread_frame = 72, .thread_cframe = INTERP_ABSENT,
		  .frame_previous = 8, .frame_code = 0, .frame_position = 56,
		  .frame_owner = 70, .frame_is_entry = INTERP_ABSENT,
		  .code_first_line = 84, .code_file = 128, .code_name = 136, .code_qualname = 144,
		  .code_lines = 152, .code_start = 216, .text_ascii = 56, .text_other = 72,
		  .object_type = 24, .frame_copy = INTERP_ABSENT, .code_copies = INTERP_ABSENT },
		{ .minor = 14 + CPYTHON_FREE_THREADED, .runtime_tss = 2336, .runtime_current = INTERP_ABSENT,
		  .thread_id = 152, .thread_frame = 72, .thread_cframe = INTERP_ABSENT,
		  .frame_previous = 8, .frame_code = 0, .frame_position = 56,
		  .frame_owner = 78, .frame_is_entry = INTERP_ABSENT,
		  .code_first_line = 84, .code_file = 128, .code_name = 136, .code_qualname = 144,
		  .code_lines = 152, .code_start = 232, .text_ascii = 56, .text_other = 72,
		  .object_type = 24, .frame_copy = 72, .code_copies = 224 },
	};
	/* clang-format on */

	for (unsigned i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
		if (layouts[i].minor == minor)
			return &layouts[i];
	return 0;
}

/* Returns `minor`, with CPYTHON_FREE_THREADED added if the build is free-threaded. `words`: start
 * of _PyRuntime, which has offsets since CPYTHON_FIRST_DEBUG_MINOR. */
static inline unsigned cpython_build(unsigned minor, const __u64 *words)
{
	return words[2] == 1 ? minor + CPYTHON_FREE_THREADED : minor;
}

/* Returns whether an interpreter's own offsets, with which _PyRuntime begins since
 * CPYTHON_FIRST_DEBUG_MINOR, are those of the layout. */
static inline int cpython_offsets_agree(const struct interp_cpython *layout, const __u64 *words)
{
	/* The words of _Py_DebugOffsets that are compared. */
	static const struct {
		unsigned minor;
		__u8 thread_frame, thread_id, frame_previous, frame_code, frame_position,
			frame_owner, code_file, code_name, code_qualname, code_lines,
			code_first_line, code_start, object_type, frame_copy, code_copies;
	} debug_words[] = {
		{ 13, 23, 24, 29, 30, 31, 33, 35, 36, 37, 38, 39, 43, 45, 0, 0 },
		{ 14, 26, 27, 32, 33, 34, 36, 40, 41, 42, 43, 44, 48, 51, 38, 49 },
	};
	const unsigned minor = layout->minor % CPYTHON_FREE_THREADED;

	if (__builtin_memcmp(words, "xdebugpy", 8) != 0 ||
	    words[2] != layout->minor / CPYTHON_FREE_THREADED)
		return 0;
	for (unsigned i = 0; i < sizeof(debug_words) / sizeof(debug_words[0]); i++) {
		if (debug_words[i].minor != minor)
			continue;
#define IS(name) (layout->name == INTERP_ABSENT || words[debug_words[i].name] == layout->name)
		return IS(thread_frame) && IS(thread_id) && IS(frame_previous) && IS(frame_code) &&
		       IS(frame_position) && IS(frame_owner) && IS(code_file) && IS(code_name) &&
		       IS(code_qualname) && IS(code_lines) && IS(code_first_line) &&
		       IS(code_start) && IS(object_type) && IS(frame_copy) && IS(code_copies);
#undef IS
	}
	return 0;
}
