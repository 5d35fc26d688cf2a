/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/alloc/call-nodes.h"
#include "daemon/engine/alloc/pending-reallocs.h"
#include "daemon/engine/model/tasks.h"
#include "libcollector/ring/ring-reader.h"

struct collector_process;
struct collector_stacks;

/* Writes the rows of a process's allocations. */
struct heap_rows;

/* The process must be bound. */
struct heap_rows *heap_rows_new(struct collector_process *process);
/* Called when the process or the session has ended. Writes the blocks that still live. */
void heap_rows_end(struct heap_rows *rows, uint64_t time_ns);
void heap_rows_free(struct heap_rows *rows); /* NULL is allowed */
/* For pending-reallocs.c: completes a realloc; begins or ends a pause, no earlier than the last
 * row. */
void heap_rows_complete(struct pending_realloc *pending);
void heap_rows_pause(struct heap_rows *rows, bool is_paused, uint64_t time_ns);
/* Returns the live blocks, for prefetching. */
const struct live_blocks *heap_rows_live(const struct heap_rows *rows);

/* A producer's part of the rows. */
struct alloc_decoder {
	struct heap_rows *rows; /* NULL: the producer has reported no allocation */
	struct collector_stacks *stacks;
	uint32_t number; /* number of the producer's thread in the rows */
	struct call_ids ids;
};

/* `stacks` is borrowed. */
void alloc_decoder_init(struct alloc_decoder *decoder, struct heap_rows *rows,
			struct thread *thread, struct collector_stacks *stacks);
void alloc_decoder_done(struct alloc_decoder *decoder);

/* Adds a record of an allocation or of calls. Returns a fault if the record is false. */
enum ring_fault alloc_decoder_add(struct alloc_decoder *decoder, const struct ring_record *record);
