/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/heap-forks.h"
#include "daemon/engine/live-blocks.h"

struct heap_rows;

/* A block that is still to come: a realloc's, or one that waits for the end of the block at its
 * address. */
struct heap_pending {
	uint64_t time_ns;
	struct heap_rows *rows;
	struct live_block prior; /* label 0: none, or it remains */
	uint64_t prior_number;
	struct live_block block; /* gets its number when it is added */
	bool is_second;          /* it must not wait again */
};

/* The state that all processes share. */
struct heap_merge {
	struct heap_pending *pending; /* a heap by time */
	size_t n, room;
	uint64_t last_ns; /* of the last row */
	struct heap_budget budget;
	struct heap_forks forks;
	GArray *pauses;    /* struct heap_pause, which rows have not reached */
	uint64_t pause_ns; /* time of the first one; UINT64_MAX: none */
	bool is_paused;
	uint32_t epoch;          /* in which checkpoints were last written for all */
	struct live_yield yield; /* called during long steps */
};

/* The tasks are borrowed. */
void heap_merge_init(struct heap_merge *merge, struct tasks *tasks);
void heap_merge_done(struct heap_merge *merge);
/* From that time on, allocations are not written as rows, or are again. An end is written if its
 * block was. */
void heap_merge_pause(struct heap_merge *merge, bool is_paused, uint64_t time_ns);
/* Called before a record of that time is added: completes all that is due. */
void heap_merge_apply(struct heap_merge *merge, uint64_t time_ns);
static inline void heap_merge_run(struct heap_merge *merge, uint64_t time_ns)
{
	if ((merge->n > 0 && merge->pending[0].time_ns <= time_ns) || time_ns > merge->pause_ns)
		heap_merge_apply(merge, time_ns);
}

/* Takes a copy. */
void heap_merge_push(struct heap_merge *merge, const struct heap_pending *pending);
/* Completes all of a process that has ended, whatever their times; or drops all, because it is
 * freed. */
void heap_merge_complete(struct heap_merge *merge, const struct heap_rows *rows, uint64_t time_ns);
void heap_merge_forget(struct heap_merge *merge, const struct heap_rows *rows);
