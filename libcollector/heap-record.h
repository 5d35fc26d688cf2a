/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Heap record - what a hook writes of a call: docs/ring.md, "Allocations"
 *
 * errno stays. Nothing is recorded, and nothing counted, where no session records the process.
 */
#pragma once

#include "libcollector/call-tree.h"
#include "libcollector/control.h"
#include "libcollector/message.h"
#include "libcollector/prof-collector.h"
#include "libcollector/ring-own.h"

#define HEAP_VARIABLE "PROF_MEMORY"

/* What was called, and by whom. */
struct heap_call {
	uint32_t kind; /* enum ring_alloc_kind */
	uint32_t alignment_log2;
	uint64_t size;
	struct walk_registers caller; /* see own_calls_get_caller() */
};

/* A record that is begun before a block is given up and ended when another one is there. */
struct heap_change {
	struct ring *ring;
	struct ring_realloc *record; /* NULL: lost */
	bool is_nested;
};

/* Of each thread. */
struct heap_thread {
	uint64_t guard;  /* the frame of a call that a foreign allocator is in; 0: none */
	uint64_t inside; /* the frame of a hook that has begun to record; 0: none */
	struct own_stack own;
};

extern __thread struct heap_thread heap_thread
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/*
 * kind: enum ring_alloc_kind, and 0x100 times the alignment's log2. address: NULL where it failed.
 * pc, sp, fp: the caller's, as own_calls_get_caller() has them; in registers all of it. Returns the
 * address.
 */
void *heap_record_alloc(uint32_t kind, uint64_t size, void *address, uint64_t pc, uint64_t sp,
			uint64_t fp);
/* pages: of 4096 bytes, of a mapping; else 0. */
void heap_record_free(enum ring_free_kind kind, const void *address, uint32_t pages);

/* The record's time is that of this call. */
void heap_record_begin(const struct heap_call *call, const void *prior,
		       struct heap_change *ret_change);
/* address: NULL where it failed, or is freed. */
void heap_record_end(struct heap_change *change, const void *address, bool is_freed);

/* ---- The short way of a block's end ---- */

static inline __attribute__((always_inline)) uint64_t heap_frame(void)
{
	return (uint64_t)(uintptr_t)__builtin_frame_address(0);
}

enum heap_outcome {
	HEAP_RECORDED,
	HEAP_UNRECORDED, /* nothing has happened */
	HEAP_UNENDED,    /* it is written, but handlers left something behind it */
	HEAP_LAST,       /* the session has ended meanwhile */
};

static inline __attribute__((always_inline)) bool heap_can_record(const struct producer *producer)
{
	/* An engine that does not know the types would put the ring aside. */
	return __builtin_expect(producer != NULL, 1) &&
	       __builtin_expect(producer->n_types > RING_CALLS, 1);
}

/* Behind a record. A child that was forked meanwhile has no producer. */
static inline __attribute__((always_inline)) bool heap_is_last(void)
{
	const struct producer *producer = register_self.producer;

	return producer && RING_LOAD(producer->ended) != 0;
}

static inline void heap_fill_free(struct ring_free_block *freed, enum ring_free_kind kind,
				  const void *address, uint32_t pages)
{
	*freed = (struct ring_free_block){
		.address = (uintptr_t)address,
		.kind = kind,
		.pages = pages,
	};
}

/*
 * Calls nothing, so that free() keeps no registers for later; and few instructions: a processor
 * looks some hundred ahead, so with each of ours there are fewer loads of the program under way.
 */
static inline __attribute__((always_inline)) enum heap_outcome heap_try_record_free(
	enum ring_free_kind kind, const void *address, uint32_t pages)
{
	const struct producer *producer = register_self.producer;
	struct ring_free_block *freed;
	struct ring *ring;

	if (!heap_can_record(producer))
		return HEAP_UNRECORDED;
	ring = producer->current;
	freed = ring_try_begin(ring, RING_FREE_BLOCK,
			       sizeof(struct ring_record_header) + sizeof(*freed));
	if (__builtin_expect(!freed, 0))
		return HEAP_UNRECORDED;
	heap_fill_free(freed, kind, address, pages);
	if (__builtin_expect(!ring_try_end(ring), 0))
		return HEAP_UNENDED;
	return __builtin_expect(heap_is_last(), 0) ? HEAP_LAST : HEAP_RECORDED;
}

/* What that left to be done. frame: of the function that it was used in. */
void heap_record_free_rest(enum ring_free_kind kind, const void *address, uint32_t pages,
			   enum heap_outcome outcome, uint64_t frame);
