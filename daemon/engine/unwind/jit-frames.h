/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "arch/table.h"

#include <glib.h>

/* The unwind tables of generated code, from a file that the program writes (arch/jit-dump.h). */
struct jit_frames;

/* Takes ownership of fd, unless the file is not such a dump: then returns NULL, and fd stays the
 * caller's. */
struct jit_frames *jit_frames_new(int fd);
void jit_frames_free(struct jit_frames *frames); /* NULL is allowed */

/* Worker: reads what was appended to the file, and makes tables of at most max_bytes. Returns the
 * number of bytes of the new tables. */
uint64_t jit_frames_read(struct jit_frames *frames, uint64_t max_bytes);

/* Drain thread, while the worker does not read: makes what was read visible to jit_frames_find().
 * Returns false if nothing is new. */
bool jit_frames_receive(struct jit_frames *frames);
/* Returns the table of the code at pc, or NULL. *ret_address: the address that the table has for
 * pc. */
const struct unwind_table *jit_frames_find(const struct jit_frames *frames, uint64_t pc,
					   uint64_t *ret_address);
