/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Heap rows, own - what heap-rows.c and heap-owner.c know of each other
 */
#pragma once

#include "arch/base.h"
#include "daemon/engine/collector-stacks.h"
#include "daemon/engine/heap-rows.h"

/* Of a thread: handlers that reallocate amid a realloc. More are a lie. */
#define HEAP_MAX_PENDING 8u

/* Who has blocks that live; what names it may be written when it is long gone. */
struct heap_thread {
	struct thread *thread; /* NULL: nobody has this number */
	uint32_t next_free;    /* then */
	uint32_t n_blocks;     /* with those that wait */
	uint32_t n_pending;
	uint32_t n_owners;
	uint32_t epoch; /* that has its row */
};

struct heap_rows {
	struct collector_process *process;
	struct output *output;
	struct heap_merge *merge;
	struct heap_budget budget;
	struct heap heap;
	struct heap_parent parent; /* as those know it that it forks */
	struct heap passed;        /* what was allocated in a pause */
	struct call_nodes nodes;
	uint32_t lost; /* node; 0: not made yet */
	GArray *threads;
	uint32_t first_free;                   /* of those; UINT32_MAX: none */
	uint64_t last_number;                  /* of a block */
	uint64_t last_row_number, last_row_ns; /* of the last block that has an alloc row */
	uint64_t n_events;                     /* since what lives was told */
	uint32_t epoch;                        /* in which it was */
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

/* The number of a thread that is one owner's more; and when that, or a block of its, is gone. */
uint32_t heap_rows_take_thread(struct heap_rows *rows, struct thread *thread);
void heap_rows_drop_thread(struct heap_rows *rows, uint32_t number);

/* Before each event; returns the time of its row. */
uint64_t heap_rows_prepare(struct heap_rows *rows, uint64_t time_ns);
/* A block is there now, which its thread has counted already. */
void heap_rows_add(struct heap_rows *rows, struct heap_block *block, uint64_t prior,
		   uint64_t time_ns, bool may_wait);
void heap_rows_remove(struct heap_rows *rows, uint32_t thread, uint64_t address,
		      enum prof_free_kind kind, uint64_t time_ns);
/* What is mapped there ends; false: nothing is, as far as we know. time_ns: of
 * heap_rows_prepare(). */
bool heap_rows_unmap(struct heap_rows *rows, uint32_t thread, uint64_t from, uint64_t to,
		     enum prof_free_kind kind, uint64_t time_ns);
void heap_rows_write_free(struct heap_rows *rows, uint32_t thread, uint64_t time_ns,
			  uint64_t number, uint64_t address, enum prof_free_kind kind);
/* It was allocated in a pause; and whether that is so, so that its end is no row. */
void heap_rows_pass(struct heap_rows *rows, const struct heap_block *block, uint64_t time_ns);
bool heap_rows_has_passed(struct heap_rows *rows, uint64_t address);
/* Of a realloc: what it gave up has ended, and what it got is there. */
void heap_rows_complete_at(struct heap_pending *pending, uint64_t time_ns);
