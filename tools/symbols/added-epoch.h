/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Added epoch - the rows that a capture gets after its recording
 *
 * The rows form an epoch of their own after the existing ones. Each row is written before the rows
 * that refer to it. For one thread.
 */
#pragma once

#include "tools/symbols/jit-names.h"
#include "tools/symbols/symbols.h"

struct added_epoch {
	struct prof_writer *writer; /* NULL: not begun */
	int fd;                     /* borrowed */
	off_t size;                 /* of the file before; -1: do not restore it */
	struct prof_block *blocks[PROF_TABLE_LAST + 1]; /* by table; NULL: no rows of it yet */
	GHashTable *texts;                              /* text → id */
	GStringChunk *kept;                             /* owns the texts that are keys */
	uint64_t next_ids[PROF_TABLE_LAST + 1];
	int result; /* of libprofcapture: the first that is not 0 */
};

/* `fd` as for symbolize_capture(). */
bool added_epoch_begin(struct added_epoch *added, int fd, GError **error);
/* Marks the capture as finished again; does nothing if the epoch was not begun. */
bool added_epoch_finish(struct added_epoch *added, GError **error);
/* Without a successful added_epoch_finish() this restores the file to its state before. */
void added_epoch_done(struct added_epoch *added);

/*
 * Rows. After the first error nothing is added: added_epoch_ok() and added_epoch_finish() return
 * it. The functions that return a number return the id of the row.
 */
bool added_epoch_ok(const struct added_epoch *added, GError **error);
/* `process`: the id in this epoch of the process that owns the image; 0 if none does. */
uint64_t added_epoch_image(struct added_epoch *added, const struct names_image *image,
			   const GByteArray *build_id, uint64_t process);
/* The symbol belongs to an image of this epoch; first_id: the id of symbol number 0. */
void added_epoch_symbol(struct added_epoch *added, uint64_t image, uint64_t first_id,
			const struct symbol *symbol);
void added_epoch_line(struct added_epoch *added, uint64_t image, uint64_t first_symbol,
		      const struct symbol_line *line);
/* Adds the identity of a process, for rows that refer to it. */
uint64_t added_epoch_process(struct added_epoch *added, const struct names_process *process);
void added_epoch_jit(struct added_epoch *added, uint64_t process, const struct jit_name *name);
/* Returns the id of the next symbol. */
uint64_t added_epoch_next_symbol(const struct added_epoch *added);
