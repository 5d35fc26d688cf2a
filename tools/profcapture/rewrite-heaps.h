/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Rewrite-heaps - the blocks that each process had when a slice begins
 *
 * A block's number is never reused, so all records before the slice add up to the live blocks.
 * Memory is proportional to these.
 */
#pragma once

#include "tools/profcapture/row-copier.h"

/* One epoch of one segment. */
struct rewrite_part {
	uint64_t key; /* parts are sorted by segment and epoch */
	uint32_t segment, epoch;
	uint64_t dictionary_rows; /* of its largest dictionary */
};

/* Adds a row of `heap` for each process that has a heap at `start`, and rows of `live` for its
 * blocks. `parts`: struct rewrite_part, of which those of the segment are read. */
bool rewrite_heaps_copy(struct capture *from, uint32_t segment, uint64_t start, const GArray *parts,
			struct row_copier *copier, GError **error);
