/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/call-nodes.h"
#include "daemon/engine/heap-merge.h"
#include "daemon/engine/tasks.h"
#include "libcollector/ring-reader.h"

struct collector_process;
struct collector_stacks;

/* Rows of a process's allocations. */
struct heap_rows;

/* The process is bound. */
struct heap_rows *heap_rows_new(struct collector_process *process);
/* It has ended, or the session has: what lives still is told. */
void heap_rows_end(struct heap_rows *rows, uint64_t time_ns);
void heap_rows_free(struct heap_rows *rows); /* takes NULL */
/* By the merge: a realloc's block is there; and a pause begins or ends, at that time or that of
 * the last row. */
void heap_rows_complete(struct heap_pending *pending);
void heap_rows_pause(struct heap_rows *rows, bool is_paused, uint64_t time_ns);
/* Whether there are so many blocks that they are worth being fetched before they are needed. */
bool heap_rows_are_far(const struct heap_rows *rows);
/* Records that are about these addresses come soon; or sooner, and have blocks there. */
void heap_rows_prefetch_slots(const struct heap_rows *rows, const uint64_t *addresses, size_t n);
void heap_rows_prefetch_blocks(const struct heap_rows *rows, const uint64_t *addresses, size_t n);

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
