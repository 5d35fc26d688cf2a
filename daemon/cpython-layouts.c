/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "daemon/cpython-layouts.h"

#include <stddef.h>

#define ABSENT INTERP_ABSENT

/* clang-format off */
#define FRAMES_3_8(position) \
	.thread_id = 176, .thread_frame = 24, .thread_cframe = ABSENT, \
	.frame_previous = 24, .frame_code = 32, .frame_position = (position), \
	.frame_owner = ABSENT, .frame_is_entry = ABSENT, \
	.code_first_line = 40, .code_file = 104, .code_name = 112, .code_qualname = 112, \
	.code_lines = 120, .code_start = ABSENT, .text_ascii = 48, .text_other = 72

static const struct interp_cpython layouts[] = {
	{ .minor = 8, .runtime_tss = 1392, .runtime_current = 1368, FRAMES_3_8(104) },
	{ .minor = 9, .runtime_tss = 584, .runtime_current = 568, FRAMES_3_8(104) },
	{ .minor = 10, .runtime_tss = 584, .runtime_current = 568, FRAMES_3_8(96) },
	{ .minor = 11, .runtime_tss = 592, .runtime_current = 576,
	  .thread_id = 152, .thread_frame = ABSENT, .thread_cframe = 56,
	  .cframe_frame = 8, .cframe_previous = 16,
	  .frame_previous = 48, .frame_code = 32, .frame_position = 56,
	  .frame_owner = 69, .frame_is_entry = 68,
	  .code_first_line = 72, .code_file = 112, .code_name = 120, .code_qualname = 128,
	  .code_lines = 136, .code_start = 184, .text_ascii = 48, .text_other = 72 },
	{ .minor = 12, .runtime_tss = 1544, .runtime_current = ABSENT,
	  .thread_id = 136, .thread_frame = ABSENT, .thread_cframe = 56,
	  .cframe_frame = 0, .cframe_previous = 8,
	  .frame_previous = 8, .frame_code = 0, .frame_position = 56,
	  .frame_owner = 70, .frame_is_entry = ABSENT,
	  .code_first_line = 68, .code_file = 112, .code_name = 120, .code_qualname = 128,
	  .code_lines = 136, .code_start = 192, .text_ascii = 40, .text_other = 56 },
	{ .minor = 13, .runtime_tss = 2160, .runtime_current = ABSENT,
	  .thread_id = 152, .thread_frame = 72, .thread_cframe = ABSENT,
	  .frame_previous = 8, .frame_code = 0, .frame_position = 56,
	  .frame_owner = 70, .frame_is_entry = ABSENT,
	  .code_first_line = 68, .code_file = 112, .code_name = 120, .code_qualname = 128,
	  .code_lines = 136, .code_start = 200, .text_ascii = 40, .text_other = 56 },
	{ .minor = 14, .runtime_tss = 2336, .runtime_current = ABSENT,
	  .thread_id = 152, .thread_frame = 72, .thread_cframe = ABSENT,
	  .frame_previous = 8, .frame_code = 0, .frame_position = 56,
	  .frame_owner = 74, .frame_is_entry = ABSENT,
	  .code_first_line = 68, .code_file = 112, .code_name = 120, .code_qualname = 128,
	  .code_lines = 136, .code_start = 208, .text_ascii = 40, .text_other = 56 },
};
/* clang-format on */

const struct interp_cpython *cpython_layout(unsigned minor)
{
	for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
		if (layouts[i].minor == minor)
			return &layouts[i];
	return NULL;
}
