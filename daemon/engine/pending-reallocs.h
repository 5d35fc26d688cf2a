/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/heap-forks.h"
#include "daemon/engine/live-blocks.h"

struct heap_rows;

/* A block that is still to come: a realloc's, or one that waits for the end of the block at its
 * address. */
struct pending_realloc {
	uint64_t time_ns;
	struct heap_rows *rows;
	struct live_block prior; /* label 0: none, or it remains */
	uint64_t prior_number;
	struct live_block block; /* gets its number when it is added */
	bool is_second;          /* it must not wait again */
};

/* The state that all processes share. */
struct pending_reallocs {
	struct pending_realloc *items; /* a heap by time */
	size_t n, room;
	uint64_t last_ns; /* of the last row */
	struct heap_budget budget;
	struct heap_forks forks;
	GArray *pauses;    /* struct alloc_pause, which rows have not reached */
	uint64_t pause_ns; /* time of the first one; UINT64_MAX: none */
	bool is_paused;
	uint32_t epoch;          /* in which checkpoints were last written for all */
	struct live_yield yield; /* called during long steps */
};

/* The tasks are borrowed. */
void pending_reallocs_init(struct pending_reallocs *pending, struct tasks *tasks);
void pending_reallocs_done(struct pending_reallocs *pending);
/* From that time on, allocations are not written as rows, or are again. An end is written if its
 * block was. */
void pending_reallocs_pause(struct pending_reallocs *pending, bool is_paused, uint64_t time_ns);
/* Called before a record of that time is added: completes all that is due. */
void pending_reallocs_apply(struct pending_reallocs *pending, uint64_t time_ns);
static inline void pending_reallocs_run(struct pending_reallocs *pending, uint64_t time_ns)
{
	if ((pending->n > 0 && pending->items[0].time_ns <= time_ns) || time_ns > pending->pause_ns)
		pending_reallocs_apply(pending, time_ns);
}

/* Takes a copy. */
void pending_reallocs_push(struct pending_reallocs *pending, const struct pending_realloc *item);
/* Completes all of a process that has ended, whatever their times; or drops all, because it is
 * freed. */
void pending_reallocs_complete(struct pending_reallocs *pending, const struct heap_rows *rows,
			       uint64_t time_ns);
void pending_reallocs_drop(struct pending_reallocs *pending, const struct heap_rows *rows);
