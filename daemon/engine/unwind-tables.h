/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/images.h"

#include <glib.h>

/* The unwind tables of a session, and the thread that makes them. */
struct unwind_tables;

/* Makes the thread, so it comes before the filter of system calls. NULL with an error. */
struct unwind_tables *unwind_tables_new(GError **error);
/* Does not wait for a file that cannot be read: then the thread keeps what it uses. Takes NULL. */
void unwind_tables_free(struct unwind_tables *tables);

/* Readable when unwind_tables_take has something to do. */
int unwind_tables_fd(const struct unwind_tables *tables);
/* Only what programs are is wanted, and no table. */
void unwind_tables_only_programs(struct unwind_tables *tables);
/* Has the table of an image made from its file, which is taken; its identity is known by now. An
 * identity that has a table gets the same one, at once. And image.program. */
void unwind_tables_add(struct unwind_tables *tables, struct image *image, int fd);
/* Gives tables that were made to their images; false: there were none. */
bool unwind_tables_take(struct unwind_tables *tables);
/* A frame is in code that was not in what was read of this dump: the next part is read soon. */
void unwind_tables_want_more(const struct unwind_tables *tables, const struct image *dump);
/* Changes whenever more of a dump was read. */
uint32_t unwind_tables_dump_version(const struct unwind_tables *tables);
/* How many are being made. */
unsigned int unwind_tables_waiting(const struct unwind_tables *tables);
/* Of this process, which is that of every 64-bit process; NULL: it cannot be used. */
const struct unwind_file *unwind_tables_vdso(const struct unwind_tables *tables);
