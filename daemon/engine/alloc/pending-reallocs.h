/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/alloc/heap-forks.h"
#include "daemon/engine/alloc/live-blocks.h"

struct heap_rows;

/* A deferred block: the result of a realloc, or one that waits for the end of the block at its
 * address. */
struct pending_realloc {
	uint64_t time_ns;
	struct heap_rows *rows;
	struct live_block prior; /* the realloc's old block; label 0: none, or it remains */
	uint64_t prior_number;
	struct live_block block; /* numbered when it is added */
	bool is_second;          /* must not be deferred again */
};

/* The state that the allocations of all processes share. */
struct pending_reallocs {
	struct pending_realloc *items; /* a binary heap, by time */
	size_t n, room;
	uint64_t last_ns; /* time of the last row */
	struct heap_budget budget;
	struct heap_forks forks;
	GArray *pauses;    /* struct alloc_pause that rows have not reached */
	uint64_t pause_ns; /* time of the first of `pauses`; UINT64_MAX: none */
	bool is_paused;
	uint32_t epoch;          /* last epoch with checkpoints of all processes */
	struct live_yield yield; /* called during long steps */
};

/* `tasks` is borrowed. */
void pending_reallocs_init(struct pending_reallocs *pending, struct tasks *tasks);
void pending_reallocs_done(struct pending_reallocs *pending);
/* Begins or ends a pause at time_ns. In a pause, allocations are not written as rows; the end of a
 * block is written if the block was. */
void pending_reallocs_pause(struct pending_reallocs *pending, bool is_paused, uint64_t time_ns);
/* Called before a record of time_ns is added. Completes all items that are due. */
void pending_reallocs_apply(struct pending_reallocs *pending, uint64_t time_ns);
static inline void pending_reallocs_run(struct pending_reallocs *pending, uint64_t time_ns)
{
	if ((pending->n > 0 && pending->items[0].time_ns <= time_ns) || time_ns > pending->pause_ns)
		pending_reallocs_apply(pending, time_ns);
}

/* Copies the item. */
void pending_reallocs_push(struct pending_reallocs *pending, const struct pending_realloc *item);
/* For a process that has ended: pending_reallocs_complete() completes all its items now;
 * pending_reallocs_drop() drops them, because `rows` is about to be freed. */
void pending_reallocs_complete(struct pending_reallocs *pending, const struct heap_rows *rows,
			       uint64_t time_ns);
void pending_reallocs_drop(struct pending_reallocs *pending, const struct heap_rows *rows);
