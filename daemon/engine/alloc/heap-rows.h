/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/alloc/heap-forks.h"
#include "daemon/engine/alloc/live-list.h"
#include "daemon/engine/alloc/pending.h"
#include "daemon/engine/model/tasks.h"

struct call_nodes;
struct interpreted_code;
struct loss_stream;

/* Live blocks that are being written. */
struct heap_listing {
	struct heap_rows *rows; /* their process; NULL: nothing is being written */
	struct live_list list;
	uint32_t n_written;
	uint64_t time_ns; /* time of the rows */
};

/* The state that the allocations of all processes share. */
struct all_heaps {
	struct output *output;
	struct tasks *tasks;
	struct interpreted_code *code; /* NULL: functions of interpreters are not shown */
	struct pending_allocs pending;
	struct heap_budget budget;
	struct heap_forks forks;
	uint64_t last_ns; /* time of the last row */
	bool is_paused;
	bool is_switching; /* a pause begins or ends, and some processes lack the row for it */
	uint64_t switch_ns;
	uint32_t epoch; /* last epoch at whose start all due checkpoints were written */
	struct heap_listing listing;
};

/* `output` and `tasks` are borrowed. */
void all_heaps_init(struct all_heaps *all, struct output *output, struct tasks *tasks);
void all_heaps_done(struct all_heaps *all);
/* Begins or ends a pause at time_ns. In a pause, allocations are not written as rows. The end of a
 * block is written only if its allocation was written. */
void all_heaps_pause(struct all_heaps *all, bool is_paused, uint64_t time_ns);

/* Steps that write or copy all blocks of a process take long, so all_heaps_apply(), the functions
 * *_run() and heap_rows_end() do such steps in pieces. If such a function returns false, pieces
 * remain: call it again with the same arguments (heap_rows_run() only after all_heaps_run()). Until
 * it returns true, call no other function of this header, because the blocks must not change.
 * Meanwhile, the caller may queue records. */

/* Called before a record of time_ns is added. Applies all pending events that are due. */
bool all_heaps_apply(struct all_heaps *all, uint64_t time_ns);
static inline bool all_heaps_run(struct all_heaps *all, uint64_t time_ns)
{
	if (!all->listing.rows && (all->pending.n == 0 || all->pending.items[0].due_ns > time_ns))
		return true;
	return all_heaps_apply(all, time_ns);
}

/* Writes the rows of a process's allocations. */
struct heap_rows;

/* `losses` is borrowed. */
struct heap_rows *heap_rows_new(struct all_heaps *all, struct process *process,
				struct loss_stream *losses);
/* Called before a record of the process is added, after all_heaps_run(). Copies the blocks that the
 * process inherits, and writes checkpoints that are due. */
bool heap_rows_run(struct heap_rows *rows, uint64_t time_ns);
/* Called when the process or the session has ended. Writes the blocks that are still live. */
bool heap_rows_end(struct heap_rows *rows, uint64_t time_ns);
void heap_rows_free(struct heap_rows *rows); /* NULL is allowed */
/* Returns the live blocks, for prefetching. */
const struct live_blocks *heap_rows_live(const struct heap_rows *rows);
/* Returns the process's tree of stacks, to which its producers add stacks. */
struct call_nodes *heap_rows_nodes(struct heap_rows *rows);

/* Adds the thread of a producer. Returns its number, by which the functions below refer to it. */
uint32_t heap_rows_add_thread(struct heap_rows *rows, struct thread *thread);
void heap_rows_end_producer(struct heap_rows *rows, uint32_t number);

/* Returns whether there is a pause. A block that is allocated in a pause needs no `calls`. */
bool heap_rows_are_paused(const struct heap_rows *rows);
/* Adds an allocated block. Numbers the block, so the number in its label must be 0 on entry.
 * `calls` of the block is a node of heap_rows_nodes(). */
void heap_rows_alloc(struct heap_rows *rows, struct live_block *block, uint64_t time_ns);
void heap_rows_free_block(struct heap_rows *rows, uint32_t thread, uint64_t address,
			  enum prof_free_kind kind, uint64_t time_ns);
/* Ends the mappings in [from, to). */
void heap_rows_unmap(struct heap_rows *rows, uint32_t thread, uint64_t from, uint64_t to,
		     enum prof_free_kind kind, uint64_t time_ns);

struct heap_realloc {
	struct live_block block; /* as for heap_rows_alloc(); address 0: there is no new block */
	uint64_t prior;          /* address of the old block; 0: none */
	uint64_t time_ns, duration_ns;
	bool is_freed; /* the old block was freed; only used without a new block */
};
void heap_rows_realloc(struct heap_rows *rows, const struct heap_realloc *moved);
