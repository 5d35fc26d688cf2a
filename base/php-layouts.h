/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Php-layouts - the offsets that a walk needs, for the builds of each version of PHP
 *
 * For builds with and without thread safety, on 64-bit machines. profd gives these numbers to the
 * BPF program, so that an engine cannot choose what is read.
 *
 * BPF code includes this header, so it does not use libc.
 */
#pragma once

#include <linux/types.h>

#define PHP_FIRST_MINOR 2u
#define PHP_LAST_MINOR 5u

/* Offsets in the structures of one version of PHP, in bytes. A frame is a zend_execute_data, and a
 * function begins with a zend_function. */
struct interp_php {
	__u16 minor; /* of version 8.MINOR */
	/* globals_bytes: size of executor_globals; other builds have other offsets (php-file.c) */
	__u16 globals_bytes, globals_bailout, globals_frame, globals_exception, globals_fiber;
	__u16 frame_function, frame_this, frame_info, frame_previous;
	__u16 function_name, function_scope, function_handler; /* handler: code of a C function */
	__u16 code_n, code_start, code_file, code_first_line;  /* functions of PHP only */
	__u16 class_name;
	__u16 generator_frame, generator_parent, generator_placeholder;
	__u16 fiber_stack;
};

/* Returns NULL if the version 8.MINOR is not supported. */
static inline const struct interp_php *php_layout(unsigned minor)
{
	/* clang-format off */
	static const struct interp_php layouts[] = {
		{ .minor = 2,
		  .globals_bytes = 1800, .globals_bailout = 416, .globals_frame = 488,
		  .globals_exception = 880, .globals_fiber = 1672,
		  .frame_function = 24, .frame_this = 32, .frame_info = 40, .frame_previous = 48,
		  .function_name = 8, .function_scope = 16, .function_handler = 72,
		  .code_n = 80, .code_start = 88, .code_file = 152, .code_first_line = 160,
		  .class_name = 8,
		  .generator_frame = 56, .generator_parent = 152, .generator_placeholder = 184,
		  .fiber_stack = 32 },
		{ .minor = 3,
		  .globals_bytes = 1792, .globals_bailout = 416, .globals_frame = 488,
		  .globals_exception = 880, .globals_fiber = 1656,
		  .frame_function = 24, .frame_this = 32, .frame_info = 40, .frame_previous = 48,
		  .function_name = 8, .function_scope = 16, .function_handler = 72,
		  .code_n = 76, .code_start = 80, .code_file = 144, .code_first_line = 152,
		  .class_name = 8,
		  .generator_frame = 56, .generator_parent = 152, .generator_placeholder = 184,
		  .fiber_stack = 32 },
		{ .minor = 4,
		  .globals_bytes = 1984, .globals_bailout = 416, .globals_frame = 488,
		  .globals_exception = 952, .globals_fiber = 1744,
		  .frame_function = 24, .frame_this = 32, .frame_info = 40, .frame_previous = 48,
		  .function_name = 8, .function_scope = 16, .function_handler = 88,
		  .code_n = 96, .code_start = 104, .code_file = 168, .code_first_line = 176,
		  .class_name = 8,
		  .generator_frame = 56, .generator_parent = 152, .generator_placeholder = 184,
		  .fiber_stack = 32 },
		{ .minor = 5,
		  .globals_bytes = 1984, .globals_bailout = 416, .globals_frame = 512,
		  .globals_exception = 976, .globals_fiber = 1768,
		  .frame_function = 24, .frame_this = 32, .frame_info = 40, .frame_previous = 48,
		  .function_name = 8, .function_scope = 16, .function_handler = 88,
		  .code_n = 96, .code_start = 104, .code_file = 168, .code_first_line = 176,
		  .class_name = 8,
		  .generator_frame = 56, .generator_parent = 152, .generator_placeholder = 184,
		  .fiber_stack = 32 },
	};
	/* clang-format on */

	for (unsigned i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
		if (layouts[i].minor == minor)
			return &layouts[i];
	return 0;
}
