/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Heap record - what a hook writes of a call: docs/ring.md, "Allocations"
 *
 * Invariants: (1) a call is one record, or counted as lost           [test_heap_zoo: all]
 *             (2) a block's end is recorded before it is given up     [test_heap_zoo: reuse]
 *             (3) errno stays                                         [test_heap_zoo: all]
 */
#include "libcollector/heap-record.h"

__thread struct heap_thread heap_thread
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/* NULL: lost, or nobody records. The ring is the one that the thread has when this is done. */
static inline __attribute__((always_inline)) void *begin(uint32_t type, uint32_t bytes,
							 struct ring **ret_ring)
{
	for (int i = 0; i < MESSAGE_TRIES; i++) {
		struct producer *producer = producer_get();
		struct ring *ring;
		void *payload;

		/* An engine that does not know the types would put the ring aside. */
		if (!producer || producer->n_types <= RING_CALLS)
			return NULL;
		message_follow(producer);
		ring = producer->current;
		payload = ring_try_begin(ring, type,
					 bytes + (uint32_t)sizeof(struct ring_record_header));
		if (__builtin_expect(!payload, 0))
			payload = ring_begin(ring, type, bytes);
		if (__builtin_expect(!payload, 0)) {
			if (!register_again(producer))
				return NULL;
			continue;
		}
		if (__builtin_expect(!ring->bigger, 1)) {
			*ret_ring = ring;
			return payload;
		}
		message_waste(ring, payload, bytes);
	}
	register_count_lost();
	return NULL;
}

static inline __attribute__((always_inline)) void end(struct ring *ring, void *payload)
{
	struct producer *producer = register_self.producer;

	ring_end(ring, payload);
	if (producer)
		message_done(producer);
}

void heap_record_alloc(const struct heap_call *call, const void *address)
{
	struct ring *ring;
	struct ring_alloc *alloc = begin(RING_ALLOC, sizeof(*alloc), &ring);

	if (!alloc)
		return;
	*alloc = (struct ring_alloc){
		.address = (uintptr_t)address,
		.size = call->size,
		.kind = (uint8_t)call->kind,
		.alignment_log2 = (uint8_t)call->alignment_log2,
	};
	end(ring, alloc);
}

void heap_record_free(enum ring_free_kind kind, const void *address, uint64_t bytes)
{
	struct ring *ring;
	struct ring_free_block *block = begin(RING_FREE_BLOCK, sizeof(*block), &ring);

	if (!block)
		return;
	*block = (struct ring_free_block){
		.address = (uintptr_t)address,
		.kind = kind,
		.pages = (uint32_t)MIN_OF(bytes / 4096 + (bytes % 4096 != 0), (uint64_t)UINT32_MAX),
	};
	end(ring, block);
}

void heap_record_begin(const struct heap_call *call, const void *prior,
		       struct heap_change *ret_change)
{
	struct ring_realloc *record = begin(RING_REALLOC, sizeof(*record), &ret_change->ring);

	ret_change->record = record;
	if (record)
		*record = (struct ring_realloc){
			.prior = (uintptr_t)prior,
			.size = call->size,
			.kind = (uint8_t)call->kind,
		};
}

void heap_record_end(struct heap_change *change, const void *address, bool is_freed)
{
	struct ring_realloc *record = change->record;
	uint64_t begin_ns;

	if (!record)
		return;
	begin_ns = ((struct ring_record_header *)(void *)record)[-1].time_ns;
	record->address = (uintptr_t)address;
	record->is_freed = is_freed;
	record->duration_ns = ring_now_ns() - begin_ns;
	end(change->ring, record);
}
