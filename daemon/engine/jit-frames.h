/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "arch/table.h"

#include <glib.h>

/* The unwind tables of generated code, of which its program writes a file (arch/jit-dump.h). */
struct jit_frames;

/* NULL: the file is none. Takes the descriptor if it is one. */
struct jit_frames *jit_frames_new(int fd);
void jit_frames_free(struct jit_frames *frames); /* takes NULL */

/* The worker: reads what was added to the file, and makes tables of at most max_bytes. Returns
 * how many bytes they have. */
uint64_t jit_frames_read(struct jit_frames *frames, uint64_t max_bytes);

/* The drain thread, while the worker does not read: from here on jit_frames_find() knows what
 * was read. False: nothing new. */
bool jit_frames_take(struct jit_frames *frames);
/* The table of the code at pc, and what that calls the place; NULL: there is none. */
const struct table *jit_frames_find(const struct jit_frames *frames, uint64_t pc,
				    uint64_t *ret_address);
