/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/call-nodes.h"
#include "daemon/engine/heap-forks.h"
#include "daemon/engine/tasks.h"
#include "libcollector/ring-reader.h"

struct collector_process;
struct collector_stacks;

/* Rows of a process's allocations. */
struct heap_rows;

/* A realloc whose block is not there yet. */
struct heap_pending {
	uint64_t time_ns;
	struct heap_rows *rows;
	struct heap_block prior; /* label 0: none, or it stays */
	uint64_t prior_number;
	struct heap_block block;
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

/* The process is bound. */
struct heap_rows *heap_rows_new(struct collector_process *process);
/* It has ended, or the session has: what lives still is told. */
void heap_rows_end(struct heap_rows *rows, uint64_t time_ns);
void heap_rows_free(struct heap_rows *rows); /* takes NULL */
/* A record that is about this address comes soon; or sooner, and has a block there. */
void heap_rows_prefetch(const struct heap_rows *rows, uint64_t address);
void heap_rows_prefetch_block(const struct heap_rows *rows, uint64_t address);

/* The owner of a ring, as the rows know it. */
struct heap_owner {
	struct heap_rows *rows; /* NULL: it has told of nothing */
	struct collector_stacks *stacks;
	uint32_t number; /* of its thread, in the rows */
	struct call_ids ids;
};

/* The stacks are borrowed. */
void heap_owner_init(struct heap_owner *owner, struct heap_rows *rows, struct thread *thread,
		     struct collector_stacks *stacks);
void heap_owner_done(struct heap_owner *owner);

/* Not NONE: the ring lies. */
enum ring_fault heap_owner_alloc(struct heap_owner *owner, const struct ring_record *record);
enum ring_fault heap_owner_free(struct heap_owner *owner, const struct ring_record *record);
enum ring_fault heap_owner_realloc(struct heap_owner *owner, const struct ring_record *record);
enum ring_fault heap_owner_calls(struct heap_owner *owner, const struct ring_record *record);
