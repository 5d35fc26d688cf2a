/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Rewrite - makes a cut, compacted or recovered capture from another
 *
 * Rows of every table, including tables that this version does not define, are copied with the
 * dictionary rows that they refer to. Names without references are dropped. Segments are kept.
 * Epochs are kept or merged. An additional last epoch has the symbols and lines of the copied
 * images. Memory: one epoch of the source, one of the result, and the blocks that are live at the
 * start of a cut.
 */
#pragma once

#include "tools/profcapture/capture.h"

struct rewrite_options {
	const char *file; /* name of the result, for messages */
	bool timed;       /* keep only rows of [from_ns, to_ns], and the state at from_ns */
	int64_t from_ns, to_ns;
	bool merge_epochs; /* merge parts of the source into full epochs and chunks */
	/* struct prof_damage, or NULL; a loss row is added for each damage that lost rows */
	GArray *file_damages;
};

struct rewrite_result {
	uint64_t rows; /* rows of tables that are not dictionaries */
	uint64_t lost; /* references to rows that the source does not have */
};

/* Writes to fd, which must be an empty regular file, open for reading and writing. */
bool rewrite_capture(struct capture *from, int fd, const struct rewrite_options *options,
		     struct rewrite_result *ret_result, GError **error);
