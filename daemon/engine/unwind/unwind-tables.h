/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/model/images.h"

#include <glib.h>

/* The unwind tables of a session, and the thread that compiles them. */
struct unwind_tables;

/* Parts of a file that can be determined. image.program is always determined. */
enum unwind_tables_part {
	UNWIND_TABLES_TABLE = 1,       /* image.unwind or image.jit */
	UNWIND_TABLES_INTERPRETER = 2, /* image.runtime */
	UNWIND_TABLES_FRAMES = 4,      /* allows unwind_tables_frame_bytes() */
};

enum unwind_frame_state {
	UNWIND_FRAME_UNKNOWN,
	UNWIND_FRAME_PENDING, /* requested; unwind_tables_receive() receives it */
	UNWIND_FRAME_KNOWN,
};

/* Creates the thread, so it must be called before the system call filter is installed. Returns NULL
 * on failure. */
struct unwind_tables *unwind_tables_new(GError **error);
/* Leaks the memory instead of waiting if the thread is stuck in a read. NULL is allowed. */
void unwind_tables_free(struct unwind_tables *tables);

/* Returns a descriptor that is readable when unwind_tables_receive() has work. */
int unwind_tables_fd(const struct unwind_tables *tables);
/* From now on, only these parts of new files are determined. Initially, all parts are. */
void unwind_tables_limit(struct unwind_tables *tables, unsigned int parts);
/* Requests the parts of an image's file. Takes ownership of `fd`. The image's identity must be
 * known; if its file was read already, the image gets the parts at once. */
void unwind_tables_add(struct unwind_tables *tables, struct image *image, int fd);
/* Assigns finished tables to their images. Returns whether there were any. */
bool unwind_tables_receive(struct unwind_tables *tables);
/* Finds the distance from sp to fp at an address of an image's file, like
 * unwind_file_frame_bytes(). */
enum unwind_frame_state unwind_tables_frame_bytes(struct unwind_tables *tables,
						  const struct image *image, uint64_t address,
						  uint32_t *ret_bytes);
/* Requests the next part of a jitdump file, because a frame is in code that was not read yet. */
void unwind_tables_request_more(const struct unwind_tables *tables, const struct image *dump);
/* Returns a number that changes if code that was walked without a rule may have a rule now. */
uint32_t unwind_tables_version(const struct unwind_tables *tables);
/* Returns the number of unfinished tables. */
unsigned int unwind_tables_waiting(const struct unwind_tables *tables);
/* Returns the table of the vdso, which all 64-bit processes share; NULL if it is unusable. */
const struct unwind_file *unwind_tables_vdso(const struct unwind_tables *tables);
