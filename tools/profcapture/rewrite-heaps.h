/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Rewrite-heaps - the blocks of each process that are live when a cut begins
 *
 * Block numbers are never reused, so the live blocks follow from all records before the cut. Memory
 * is proportional to the live blocks.
 */
#pragma once

#include "tools/profcapture/row-copier.h"

/* One epoch of one segment. */
struct rewrite_part {
	uint64_t key; /* parts are sorted by segment and epoch */
	uint32_t segment, epoch;
	uint64_t dictionary_rows; /* number of rows of the epoch's dictionary of stacks */
};

/* Adds a row of `heap` for each process that has a heap at `start`, and rows of `live` for its
 * blocks. `parts`: struct rewrite_part; only those of the segment are read. */
bool rewrite_heaps_copy(struct capture *from, uint32_t segment, uint64_t start, const GArray *parts,
			struct row_copier *copier, GError **error);
