/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Added epoch - the rows that a capture gets after its recording
 *
 * An epoch of its own behind what is there; rows that are named are written before the rows that
 * name them. Functions return what libprofcapture does. For one thread.
 */
#pragma once

#include "tools/common/jit-names.h"
#include "tools/common/symbols.h"

struct added_epoch {
	struct prof_writer *writer; /* NULL: not begun */
	int fd;                     /* borrowed */
	off_t size;                 /* of the file before; -1: not to be restored */
	struct prof_block *blocks[PROF_TABLE_LAST + 1]; /* by table; NULL: none of it is added */
	GHashTable *texts;                              /* text → id */
	GStringChunk *kept;                             /* owns the texts that are keys */
	uint64_t next_ids[PROF_TABLE_LAST + 1];
};

/* `fd` as for symbolize_capture(). */
bool added_epoch_begin(struct added_epoch *added, int fd, GError **error);
/* Makes the capture finished again; nothing where it was not begun. */
bool added_epoch_finish(struct added_epoch *added, GError **error);
/* Without added_epoch_finish(), or where that failed, the file is as it was before. */
void added_epoch_done(struct added_epoch *added);

/* `process`: the id that it has in this epoch, of an image that belongs to one; else 0. */
int added_epoch_image(struct added_epoch *added, const struct names_image *image,
		      const GByteArray *build_id, uint64_t process, uint64_t *ret_id) MUST_CHECK;
/* Of an image of this epoch; first_id: of the symbol that is number 0. */
int added_epoch_symbol(struct added_epoch *added, uint64_t image, uint64_t first_id,
		       const struct symbol *symbol) MUST_CHECK;
int added_epoch_line(struct added_epoch *added, uint64_t image, uint64_t first_symbol,
		     const struct symbol_line *line) MUST_CHECK;
/* The identity of a process, for what names it. */
int added_epoch_process(struct added_epoch *added, const struct names_process *process,
			uint64_t *ret_id) MUST_CHECK;
int added_epoch_jit(struct added_epoch *added, uint64_t process, const struct jit_name *name)
	MUST_CHECK;
/* The id that the next symbol gets. */
uint64_t added_epoch_next_symbol(const struct added_epoch *added);
