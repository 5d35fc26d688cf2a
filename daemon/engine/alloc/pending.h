/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/alloc/live-blocks.h"

struct heap_rows;

/* An event that is applied later: a block (the result of a realloc, or one that waits for the end
 * of the block at its address), or a pause. */
struct pending_alloc {
	uint64_t due_ns;
	/* time of the event; orders blocks, or pauses, that have the same due_ns */
	uint64_t time_ns;
	struct heap_rows *rows; /* NULL: begins or ends a pause */
	bool is_paused;
	bool is_second; /* must not be deferred again */
	/* the realloc's old block; label 0: none, or the old block remains */
	struct live_block prior;
	uint64_t prior_number;
	struct live_block block; /* numbered when it is added */
};

struct pending_allocs {
	struct pending_alloc *items; /* a binary heap; the first item is due next */
	size_t n, room;
};

void pending_allocs_done(struct pending_allocs *pending);
/* Copies the item. */
void pending_allocs_push(struct pending_allocs *pending, const struct pending_alloc *item);
/* Called when all records before time_ns are rows, but perhaps not all records of time_ns. Returns
 * the next item that is due, or NULL. */
const struct pending_alloc *pending_allocs_due(const struct pending_allocs *pending,
					       uint64_t time_ns);
/* Removes the next item. */
struct pending_alloc pending_allocs_pop(struct pending_allocs *pending);
/* For a process that has ended: moves all its items to the front, so that pending_allocs_due(…, 0)
 * returns them in order, and limits their times to time_ns. Returns false if it has no items. */
bool pending_allocs_expedite(struct pending_allocs *pending, const struct heap_rows *rows,
			     uint64_t time_ns);
/* Drops the process's items, because `rows` is about to be freed. */
void pending_allocs_drop(struct pending_allocs *pending, const struct heap_rows *rows);
