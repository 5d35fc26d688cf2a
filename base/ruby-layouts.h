/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ruby-layouts - the offsets that a walk needs, for the builds of each version of Ruby
 *
 * For builds with the options that Ruby's own configuration chooses, on 64-bit machines. profd
 * gives these numbers to the BPF program, so that an engine cannot choose what is read.
 *
 * BPF code includes this header, so it does not use libc.
 */
#pragma once

#include "base/cpython-layouts.h"

#define RUBY_FIRST_MINOR 1u
#define RUBY_LAST_MINOR 4u

/* Offsets in the structures of one version of Ruby, in bytes. INTERP_ABSENT: no such field. A
 * thread's state is its execution context, which has a stack of words, with the control frames at
 * its end. A code object is the body of an instruction sequence (iseq). */
struct interp_ruby {
	__u16 minor; /* MINOR of version 3.MINOR */
	__u16 thread_stack, thread_stack_words, thread_frame, thread_tag;
	__u16 thread_machine_stack, thread_machine_stack_bytes; /* its highest address; its size */
	/* Places to which exceptions jump. Each activation of rb_vm_exec() has one. */
	__u16 tag_resume, tag_previous;
	__u16 is_resume_mangled; /* glibc's _setjmp(), which Ruby uses, mangles the address */
	__u16 frame_bytes, frame_pc, frame_iseq, frame_ep;
	__u16 iseq_body;
	__u16 body_size, body_code, body_path, body_label, body_first_line;
	__u16 body_lines, body_n_lines, body_positions;
	__u16 is_first_line_tagged; /* the line is an Integer object */
	__u16 text_embedded;        /* start of a short text's characters */
	__u16 text_embedded_bytes;  /* length of a short text; ABSENT: it is in the flags */
	/* The variables of a class are in a table of its extension. From 3.2 on, they are in an
	 * array, in the order of the class's shape. The VM has a list of all shapes. */
	__u16 class_extension; /* 0: the class itself has the fields of the extension */
	__u16 extension_variables;
	__u16 thread_object; /* ABSENT: the extension has a table, not an array */
	__u16 object_vm, vm_shapes;
	/* The name of a class, and the object of a singleton class. ABSENT: they are variables of
	 * the class. */
	__u16 class_name, class_attached;
	__u16 singleton_bit; /* bit in a class's flags */
};

/* Returns NULL if the version 3.MINOR is not supported. */
static inline const struct interp_ruby *ruby_layout(unsigned minor)
{
	/* clang-format off */
	static const struct interp_ruby layouts[] = {
		{ .minor = 1,
		  .thread_stack = 0, .thread_stack_words = 8, .thread_frame = 16, .thread_tag = 24,
		  .thread_machine_stack = 144, .thread_machine_stack_bytes = 160,
		  .tag_resume = 24, .tag_previous = 56,
		  .frame_bytes = 64, .frame_pc = 0, .frame_iseq = 16, .frame_ep = 32,
		  .iseq_body = 16,
		  .body_size = 4, .body_code = 8, .body_path = 64, .body_label = 80,
		  .body_first_line = 88, .body_lines = 120, .body_n_lines = 136, .body_positions = 144,
		  .is_first_line_tagged = 1,
		  .text_embedded = 16, .text_embedded_bytes = INTERP_ABSENT,
		  .class_extension = 24, .extension_variables = 8,
		  .thread_object = INTERP_ABSENT,
		  .class_name = INTERP_ABSENT, .class_attached = INTERP_ABSENT,
		  .singleton_bit = 12 },
		{ .minor = 2,
		  .thread_stack = 0, .thread_stack_words = 8, .thread_frame = 16, .thread_tag = 24,
		  .thread_machine_stack = 152, .thread_machine_stack_bytes = 168,
		  .tag_resume = 72, .tag_previous = 216, .is_resume_mangled = 1,
		  .frame_bytes = 64, .frame_pc = 0, .frame_iseq = 16, .frame_ep = 32,
		  .iseq_body = 16,
		  .body_size = 4, .body_code = 8, .body_path = 64, .body_label = 80,
		  .body_first_line = 88, .body_lines = 112, .body_n_lines = 128, .body_positions = 136,
		  .text_embedded = 24, .text_embedded_bytes = 16,
		  .extension_variables = 32,
		  .thread_object = 48, .object_vm = 32, .vm_shapes = 376,
		  .class_name = INTERP_ABSENT, .class_attached = INTERP_ABSENT,
		  .singleton_bit = 12 },
		{ .minor = 3,
		  .thread_stack = 0, .thread_stack_words = 8, .thread_frame = 16, .thread_tag = 24,
		  .thread_machine_stack = 152, .thread_machine_stack_bytes = 168,
		  .tag_resume = 72, .tag_previous = 216, .is_resume_mangled = 1,
		  .frame_bytes = 56, .frame_pc = 0, .frame_iseq = 16, .frame_ep = 32,
		  .iseq_body = 16,
		  .body_size = 4, .body_code = 8, .body_path = 64, .body_label = 80,
		  .body_first_line = 88, .body_lines = 112, .body_n_lines = 128, .body_positions = 136,
		  .text_embedded = 24, .text_embedded_bytes = 16,
		  .class_name = 152, .class_attached = 128,
		  .singleton_bit = 12 },
		{ .minor = 4,
		  .thread_stack = 0, .thread_stack_words = 8, .thread_frame = 16, .thread_tag = 24,
		  .thread_machine_stack = 144, .thread_machine_stack_bytes = 160,
		  .tag_resume = 72, .tag_previous = 216, .is_resume_mangled = 1,
		  .frame_bytes = 56, .frame_pc = 0, .frame_iseq = 16, .frame_ep = 32,
		  .iseq_body = 16,
		  .body_size = 4, .body_code = 8, .body_path = 64, .body_label = 80,
		  .body_first_line = 88, .body_lines = 112, .body_n_lines = 128, .body_positions = 136,
		  .text_embedded = 24, .text_embedded_bytes = 16,
		  .class_name = 152, .class_attached = 128,
		  .singleton_bit = 13 },
	};
	/* clang-format on */

	for (unsigned i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
		if (layouts[i].minor == minor)
			return &layouts[i];
	return 0;
}
