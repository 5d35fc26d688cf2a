/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/model/images.h"

#include <glib.h>

/* The unwind tables of a session, and the thread that compiles them. */
struct unwind_tables;

/* Creates the thread, so it must be called before the system call filter is installed. Returns NULL
 * on failure. */
struct unwind_tables *unwind_tables_new(GError **error);
/* Leaks the memory instead of waiting if the thread is stuck in a read. NULL is allowed. */
void unwind_tables_free(struct unwind_tables *tables);

/* Returns a descriptor that is readable when unwind_tables_receive() has work. */
int unwind_tables_fd(const struct unwind_tables *tables);
/* From now on only image.program is determined, no tables. */
void unwind_tables_only_programs(struct unwind_tables *tables);
/* Requests the table of an image, and sets image.program and image.runtime. Takes ownership of
 * `fd`. The image's identity must be known; if it has a table already, the image gets that at
 * once. */
void unwind_tables_add(struct unwind_tables *tables, struct image *image, int fd);
/* Assigns finished tables to their images. Returns whether there were any. */
bool unwind_tables_receive(struct unwind_tables *tables);
/* Requests the next part of a dump, because a frame is in code that was not read yet. */
void unwind_tables_request_more(const struct unwind_tables *tables, const struct image *dump);
/* Returns a number that changes whenever more of a dump has been read. */
uint32_t unwind_tables_dump_version(const struct unwind_tables *tables);
/* Returns the number of unfinished tables. */
unsigned int unwind_tables_waiting(const struct unwind_tables *tables);
/* Returns the table of the vdso, which all 64-bit processes share; NULL if it is unusable. */
const struct unwind_file *unwind_tables_vdso(const struct unwind_tables *tables);
