/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Rewrite-heaps - the blocks that each process had when a slice begins
 *
 * A block's number is never reused, so all records before the slice add up to the live blocks.
 * Memory is proportional to these.
 */
#pragma once

#include "tools/profcapture/row-copier.h"

struct rewrite_heaps;

struct rewrite_heaps *rewrite_heaps_new(struct capture *from, uint64_t start);
void rewrite_heaps_free(struct rewrite_heaps *heaps); /* takes NULL */
/* Reads the rows of an epoch of the segment up to `start`. Epochs must be read in order. */
bool rewrite_heaps_read(struct rewrite_heaps *heaps, uint32_t segment, uint32_t epoch,
			GError **error);
/* Adds a row of `heap` for each process that has a heap at that time, and rows of `live` for its
 * blocks. */
bool rewrite_heaps_write(struct rewrite_heaps *heaps, struct row_copier *copier, GError **error);
