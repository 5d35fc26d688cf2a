/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/heap-forks.h"
#include "daemon/engine/heap.h"

struct heap_rows;

/* A block that is not there yet: a realloc's, or one that waits for the end of another one at
 * its address. */
struct heap_pending {
	uint64_t time_ns;
	struct heap_rows *rows;
	struct heap_block prior; /* label 0: none, or it stays */
	uint64_t prior_number;
	struct heap_block block; /* its number is given when it is there */
	bool is_second;          /* it does not wait again */
};

/* What those of all processes share. */
struct heap_merge {
	struct heap_pending *pending; /* a heap by time */
	size_t n, room;
	uint64_t last_ns; /* of the last row */
	struct heap_budget budget;
	struct heap_forks forks;
	GArray *pauses;    /* struct heap_pause, which no row has come to yet */
	uint64_t pause_ns; /* the first of those; UINT64_MAX: none */
	bool is_paused;
	uint32_t epoch;          /* at whose beginning it was told what lives */
	struct heap_yield yield; /* amid what takes long, as whose turn it is waits */
};

/* The tasks are borrowed. */
void heap_merge_init(struct heap_merge *merge, struct tasks *tasks);
void heap_merge_done(struct heap_merge *merge);
/* From then on what is allocated is no row; or it is again. What ends is one, if its block was. */
void heap_merge_pause(struct heap_merge *merge, bool is_paused, uint64_t time_ns);
/* Before a record of that time is added: what came to be until then is a row. */
void heap_merge_apply(struct heap_merge *merge, uint64_t time_ns);
static inline void heap_merge_run(struct heap_merge *merge, uint64_t time_ns)
{
	if ((merge->n > 0 && merge->pending[0].time_ns <= time_ns) || time_ns > merge->pause_ns)
		heap_merge_apply(merge, time_ns);
}

/* Takes a copy. */
void heap_merge_push(struct heap_merge *merge, const struct heap_pending *pending);
/* All of a process, whatever their times, as it has ended then; or none of it, as it is freed. */
void heap_merge_complete(struct heap_merge *merge, const struct heap_rows *rows, uint64_t time_ns);
void heap_merge_forget(struct heap_merge *merge, const struct heap_rows *rows);
