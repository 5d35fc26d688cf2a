/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Heap rows, internals - shared by heap-rows.c and alloc-decoder.c */
#pragma once

#include "arch/base.h"
#include "daemon/engine/alloc/heap-rows.h"
#include "daemon/engine/peers/collector-stacks.h"

/* Maximum of pending reallocs per thread: signal handlers may reallocate during a realloc. */
#define HEAP_MAX_PENDING 8u

/* A thread with live blocks. Rows may refer to it long after it has exited. */
struct heap_thread {
	struct thread *thread; /* NULL: this number is free */
	uint32_t next_free;    /* next free number, if this one is free */
	uint32_t n_blocks;     /* including pending ones */
	uint32_t n_pending;
	uint32_t n_producers;
	uint32_t epoch; /* the last epoch that has its row */
};

struct heap_rows {
	struct collector_process *process;
	struct output *output;
	struct pending_reallocs *pending;
	struct heap_budget budget;
	struct live_blocks live;
	struct heap_parent parent; /* the data for processes that it forks */
	struct live_blocks passed; /* blocks that were allocated in a pause */
	struct call_nodes nodes;
	uint32_t lost; /* node "<lost>"; 0: not added yet */
	GArray *threads;
	uint32_t first_free;                   /* first free number; UINT32_MAX: none */
	uint64_t last_number;                  /* of the process's latest block */
	uint64_t last_row_number, last_row_ns; /* of the last alloc row with a block */
	uint64_t n_events;                     /* events since the last checkpoint */
	uint32_t epoch;                        /* epoch of the last checkpoint */
	bool has_begun;
};

static inline struct heap_thread *heap_rows_thread(const struct heap_rows *rows, uint32_t number)
{
	return &g_array_index(rows->threads, struct heap_thread, number);
}

static inline void heap_rows_lose(const struct heap_rows *rows, enum prof_loss_cause cause,
				  uint64_t time_ns)
{
	collector_process_lose(rows->process, cause, 1, time_ns, time_ns);
}

/* heap_rows_add_thread() adds another producer's thread and returns its number.
 * heap_rows_drop_thread() releases a number that no producer and no block uses. */
uint32_t heap_rows_add_thread(struct heap_rows *rows, struct thread *thread);
void heap_rows_drop_thread(struct heap_rows *rows, uint32_t number);

/* Called before each event. Returns the time of its row. */
uint64_t heap_rows_prepare(struct heap_rows *rows, uint64_t time_ns);
/* Adds a block that is already counted in its thread's n_blocks. */
void heap_rows_add(struct heap_rows *rows, struct live_block *block, uint64_t prior,
		   uint64_t time_ns, bool may_wait);
void heap_rows_remove(struct heap_rows *rows, uint32_t thread, uint64_t address,
		      enum prof_free_kind kind, uint64_t time_ns);
/* Ends the mappings in [from, to). Returns false if none is known. time_ns: from
 * heap_rows_prepare(). */
bool heap_rows_unmap(struct heap_rows *rows, uint32_t thread, uint64_t from, uint64_t to,
		     enum prof_free_kind kind, uint64_t time_ns);
void heap_rows_write_free(struct heap_rows *rows, uint32_t thread, uint64_t time_ns,
			  uint64_t number, uint64_t address, enum prof_free_kind kind);
/* heap_rows_pass() keeps a block that was allocated in a pause. heap_rows_has_passed() removes such
 * a block and returns whether there was one; its end must not be written. */
void heap_rows_pass(struct heap_rows *rows, const struct live_block *block, uint64_t time_ns);
bool heap_rows_has_passed(struct heap_rows *rows, uint64_t address);
/* Completes a realloc: ends the old block and adds the new one. */
void heap_rows_complete_at(struct pending_realloc *pending, uint64_t time_ns);
