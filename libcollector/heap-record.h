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

/* address: NULL where it failed. */
void heap_record_alloc(const struct heap_call *call, const void *address);
/* pages: of 4096 bytes, of a mapping; else 0. */
void heap_record_free(enum ring_free_kind kind, const void *address, uint32_t pages);

/* The record's time is that of this call. */
void heap_record_begin(const struct heap_call *call, const void *prior,
		       struct heap_change *ret_change);
/* address: NULL where it failed, or is freed. */
void heap_record_end(struct heap_change *change, const void *address, bool is_freed);
