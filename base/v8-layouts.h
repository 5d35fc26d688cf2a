/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * V8-layouts - the numbers that a walk needs, for the builds of each version of V8
 *
 * For builds without pointer compression, as Node.js is built, on x86-64. profd gives these numbers
 * to the BPF program, so that an engine cannot choose what is read.
 *
 * BPF code includes this header, so it does not use libc.
 */
#pragma once

#include <linux/types.h>

/* Combines the two numbers of a version into one number. The minor number has one digit. */
#define V8_VERSION(major, minor) (10u * (major) + (minor))
#define V8_VERSIONS 160u /* above all known versions */

/* Offsets in the structures of one version of V8, in bytes from the start of an object; in a frame,
 * downward from the frame pointer. Pointers to objects have the lowest bit set; small integers have
 * their value in the upper half. */
struct interp_v8 {
	__u16 version; /* V8_VERSION() */
	/* Fields of the isolate: the address of the innermost frame that called C++, either through
	 * an exit frame or directly (a fast call), and of the outermost frame of generated code. An
	 * address of 0 means that there is no such frame. */
	__u16 isolate_exit_frame, isolate_fast_call_frame, isolate_entry_frame;
	/* The frame of a function has an object where other frames have their type. */
	__u16 frame_type, frame_function;
	/* Where an entry frame saves each of the isolate's two addresses of frames that called C++;
	 * 0: this version does not save that address. */
	__u16 entry_exit_frame, entry_fast_call_frame;
	__u16 entry_type, construct_entry_type, builtin_exit_type;
	__u16 map_type;
	__u16 type_function_info, type_script, type_scope_info, type_debug_info, type_oddball;
	__u16 types_of_strings; /* types below this are strings */
	__u16 function_info;    /* the SharedFunctionInfo of a function */
	__u16 info_data, info_name, info_script, info_flags, info_number;
	__u16 script_source, script_name, script_line, script_id;
	__u16 debug_info_script;
	__u16 string_hash, string_length, string_bytes, string_external_bytes;
	__u16 string_first, string_second, string_parent, string_offset;
	/* A ScopeInfo with more names than scope_most_names has them elsewhere. If scope_position
	 * is 0, the position follows the names. */
	__u16 scope_flags, scope_n_names, scope_position, scope_names, scope_most_names;
	__u16 scope_function; /* number of the kind of a function's scope */
};

/* Numbers that are equal in all known versions. */
#define V8_COMMON                                                                                  \
	.frame_type = 8, .frame_function = 16, .entry_exit_frame = 64, .entry_type = 1,            \
	.construct_entry_type = 2, .map_type = 12, .type_oddball = 131, .types_of_strings = 128,   \
	.script_source = 8, .script_name = 16, .script_line = 24, .script_id = 64,                 \
	.debug_info_script = 24, .string_hash = 8, .string_length = 12, .string_bytes = 16,        \
	.string_external_bytes = 24, .string_first = 16, .string_second = 24, .string_parent = 16, \
	.string_offset = 24, .scope_n_names = 28, .scope_most_names = 75

/* Returns NULL if the version is not supported. */
static inline const struct interp_v8 *v8_layout(unsigned version)
{
	static const struct interp_v8 layouts[] = {
		{ .version = V8_VERSION(10, 2),
		  V8_COMMON,
		  .isolate_exit_frame = 0x4538,
		  .isolate_fast_call_frame = 0x100,
		  .isolate_entry_frame = 0x4558,
		  .builtin_exit_type = 22,
		  .type_function_info = 257,
		  .type_script = 170,
		  .type_scope_info = 256,
		  .type_debug_info = 156,
		  .function_info = 24,
		  .info_data = 8,
		  .info_name = 16,
		  .info_script = 32,
		  .info_flags = 48,
		  .info_number = 52,
		  .scope_flags = 12,
		  .scope_names = 32,
		  .scope_function = 2 },
		{ .version = V8_VERSION(11, 3),
		  V8_COMMON,
		  .isolate_exit_frame = 0x180,
		  .isolate_fast_call_frame = 0xe8,
		  .isolate_entry_frame = 0x1a0,
		  .builtin_exit_type = 25,
		  .type_function_info = 262,
		  .type_script = 167,
		  .type_scope_info = 261,
		  .type_debug_info = 153,
		  .function_info = 24,
		  .info_data = 8,
		  .info_name = 16,
		  .info_script = 32,
		  .info_flags = 48,
		  .info_number = 52,
		  .scope_flags = 12,
		  .scope_names = 32,
		  .scope_function = 2 },
		{ .version = V8_VERSION(12, 4),
		  V8_COMMON,
		  .isolate_exit_frame = 0x110,
		  .isolate_fast_call_frame = 0xf0,
		  .isolate_entry_frame = 0x1a8,
		  .builtin_exit_type = 26,
		  .type_function_info = 274,
		  .type_script = 167,
		  .type_scope_info = 272,
		  .type_debug_info = 154,
		  .function_info = 32,
		  .info_data = 8,
		  .info_name = 16,
		  .info_script = 32,
		  .info_flags = 48,
		  .info_number = 52,
		  .scope_flags = 12,
		  .scope_names = 32,
		  .scope_function = 2 },
		{ .version = V8_VERSION(13, 6),
		  V8_COMMON,
		  .isolate_exit_frame = 0x140,
		  .isolate_fast_call_frame = 0x128,
		  .isolate_entry_frame = 0x1d8,
		  .entry_fast_call_frame = 72,
		  .builtin_exit_type = 27,
		  .type_function_info = 282,
		  .type_script = 167,
		  .type_scope_info = 280,
		  .type_debug_info = 154,
		  .function_info = 32,
		  .info_data = 16,
		  .info_name = 24,
		  .info_script = 40,
		  .info_flags = 56,
		  .info_number = 60,
		  .scope_flags = 8,
		  .scope_position = 32,
		  .scope_names = 48,
		  .scope_function = 4 },
	};

	for (unsigned i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
		if (layouts[i].version == version)
			return &layouts[i];
	return 0;
}
