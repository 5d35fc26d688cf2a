/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/images.h"

#include <glib.h>

/* The unwind tables of a session, and the thread that compiles them. */
struct unwind_tables;

/* Creates the thread, so call it before the filter of system calls is installed. NULL with an
 * error. */
struct unwind_tables *unwind_tables_new(GError **error);
/* Does not wait for a thread that is stuck in a read: it keeps its memory. Takes NULL. */
void unwind_tables_free(struct unwind_tables *tables);

/* Readable when unwind_tables_receive has something to do. */
int unwind_tables_fd(const struct unwind_tables *tables);
/* Only image.program is needed, not the tables. */
void unwind_tables_only_programs(struct unwind_tables *tables);
/* Requests the table of an image from its file, and sets image.program. Takes ownership of fd. The
 * image's identity must be known; if that identity has a table, the image gets it at once. */
void unwind_tables_add(struct unwind_tables *tables, struct image *image, int fd);
/* Assigns finished tables to their images. Returns whether there were any. */
bool unwind_tables_receive(struct unwind_tables *tables);
/* Requests the next part of this dump, because a frame is in code that has not been read yet. */
void unwind_tables_request_more(const struct unwind_tables *tables, const struct image *dump);
/* Changes whenever more of a dump has been read. */
uint32_t unwind_tables_dump_version(const struct unwind_tables *tables);
/* The number of tables that are not finished. */
unsigned int unwind_tables_waiting(const struct unwind_tables *tables);
/* Returns the table of the vdso, which all 64-bit processes share, or NULL if it is unusable. */
const struct unwind_file *unwind_tables_vdso(const struct unwind_tables *tables);
