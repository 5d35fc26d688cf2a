/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Rewrite-heaps - what each process had allocated when a slice begins
 *
 * A number is that of one block, so whatever was told of blocks until then adds up to those that
 * live, and the memory that takes goes with these.
 */
#pragma once

#include "tools/profcapture/row-copier.h"

struct rewrite_heaps;

struct rewrite_heaps *rewrite_heaps_new(struct capture *from, uint64_t start);
void rewrite_heaps_free(struct rewrite_heaps *heaps); /* takes NULL */
/* Reads what an epoch of the segment tells of the time until then: one after the other. */
bool rewrite_heaps_read(struct rewrite_heaps *heaps, uint32_t segment, uint32_t epoch,
			GError **error);
/* Adds a row of heap for each process that has one then, and of live for its blocks. */
bool rewrite_heaps_write(struct rewrite_heaps *heaps, struct row_copier *copier, GError **error);
