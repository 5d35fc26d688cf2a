/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Heap record - writes the records of hooks: docs/ring.md, "Allocations"
 *
 * errno does not change. Nothing is recorded or counted while no session records the process.
 */
#pragma once

#include "libcollector/control.h"
#include "libcollector/hooks/call-tree.h"
#include "libcollector/hooks/message.h"
#include "libcollector/prof-collector.h"
#include "libcollector/ring/ring-inline.h"

#define HEAP_VARIABLE "PROF_MEMORY"

/* A call of the allocator, with its caller. */
struct heap_call {
	uint32_t kind; /* enum ring_alloc_kind */
	uint32_t alignment_log2;
	uint64_t size;
	struct walk_registers caller; /* see unwind_cache_get_caller() */
};

/* A record that begins before a block is released and ends when the new block exists. */
struct heap_change {
	struct ring *ring;
	struct ring_realloc *record; /* NULL: the record was lost */
	bool is_nested;
};

/* One for each thread. */
struct heap_thread {
	uint64_t guard;  /* frame of the hook that is calling a foreign allocator; 0: none */
	uint64_t inside; /* frame of the recording hook; 0: none */
	struct self_unwind own;
};

extern __thread struct heap_thread heap_thread
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/*
 * kind: enum ring_alloc_kind, plus 0x100 times the alignment's log2. address: NULL if the call
 * failed. pc, sp, fp: the caller's registers, as from unwind_cache_get_caller(). All parameters are
 * scalars, so that they are passed in registers. Returns `address`.
 */
void *heap_record_alloc(uint32_t kind, uint64_t size, void *address, uint64_t pc, uint64_t sp,
			uint64_t fp);
/* pages: number of pages of 4096 bytes for a mapping, else 0. */
void heap_record_free(enum ring_free_kind kind, const void *address, uint32_t pages);

/* The record gets the time of this call. */
void heap_record_begin(const struct heap_call *call, const void *prior,
		       struct heap_change *ret_change);
/* address: NULL if the call failed or freed the block. */
void heap_record_end(struct heap_change *change, const void *address, bool is_freed);

/* ---- The fast path of frees ---- */

static inline __attribute__((always_inline)) uint64_t heap_frame(void)
{
	return (uint64_t)(uintptr_t)__builtin_frame_address(0);
}

enum heap_outcome {
	HEAP_RECORDED,
	HEAP_UNRECORDED, /* nothing was written */
	HEAP_UNENDED,    /* written, but not published: handlers left open records after it */
	HEAP_LAST,       /* written, but the session has ended meanwhile */
};

static inline __attribute__((always_inline)) bool heap_can_record(const struct producer *producer)
{
	/* An engine that does not support the types would quarantine the ring. */
	return __builtin_expect(producer != NULL, 1) &&
	       __builtin_expect(producer->n_types > RING_CALLS, 1);
}

/* Returns whether the session has ended, so that this record is the last. A child that was forked
 * meanwhile has no producer. */
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

/* Tries to record a free. Calls no function, so that free() saves no registers. Has few
 * instructions, because a processor looks only some hundred instructions ahead for the program's
 * loads. */
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

/* Completes heap_try_record_free(). frame: frame of its caller. */
void heap_record_free_rest(enum ring_free_kind kind, const void *address, uint32_t pages,
			   enum heap_outcome outcome, uint64_t frame);
