/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Rewrite - makes one capture from another: cut, compacted, or recovered
 *
 * Rows of every table, including tables that this version does not define, are copied with the
 * dictionary rows that they refer to. Names without references are dropped. Segments are kept.
 * Epochs are kept or merged. Symbols of the images that still have references go into a last epoch.
 * Memory: one epoch of the source and one of the result, and the blocks that are live when a slice
 * begins.
 */
#pragma once

#include "tools/profcapture/capture.h"

struct rewrite_options {
	const char *file; /* of the result, for messages */
	bool timed;       /* only rows of [from_ns, to_ns], and the state at from_ns */
	int64_t from_ns, to_ns;
	bool merge_epochs; /* fill epochs and chunks */
	/* struct prof_damage, or NULL; each that lost rows gets a loss row */
	GArray *file_damages;
};

struct rewrite_result {
	uint64_t rows; /* of tables that are not dictionaries */
	uint64_t lost; /* references that the source does not define */
};

/* Writes into fd, an empty regular file that is open for reading and writing. */
bool rewrite_capture(struct capture *from, int fd, const struct rewrite_options *options,
		     struct rewrite_result *ret_result, GError **error);
