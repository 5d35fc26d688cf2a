/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Heap record - writes the records of hooks: docs/ring.md, "Allocations"
 *
 * A handler may interrupt an update of the call tree. So a hook that finds another hook running on
 * its thread records a separate stack. After siglongjmp() from a hook, the hook's state is rebuilt.
 * Invariants: (1) a call is one record, or counted as lost           [test_heap_zoo: all]
 *             (2) a block's end is recorded before its release       [test_heap_zoo: reuse]
 *             (3) errno does not change                               [test_heap_zoo: all]
 *             (4) no lock of the loader is taken, not even by a thread's first record
 *                 [test_heap_zoo: loader_locked]
 */
#include "libcollector/hooks/heap-record.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>

#define NESTED_FRAMES 64 /* small, because a handler's stack may be small */

__thread struct heap_thread heap_thread
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/* ---- Handlers ---- */

static void get_signal_stack(stack_t *ret_stack)
{
	int error = errno;

	if (!register_self.producer || (register_self.producer->current->flags & RING_NO_SYSCALL) ||
	    syscall(SYS_sigaltstack, NULL, ret_stack) < 0 || (ret_stack->ss_flags & SS_DISABLE))
		*ret_stack = (stack_t){ .ss_size = 0 };
	errno = error;
}

static bool is_on(const stack_t *stack, uint64_t sp)
{
	return sp - (uint64_t)(uintptr_t)stack->ss_sp < stack->ss_size;
}

/* Returns whether the hook with the frame heap_thread.inside continues after this hook; otherwise
 * siglongjmp() left it. Uses the same rule as is_alive() in ring.c. */
static __attribute__((noinline)) bool is_within(uint64_t frame, bool *ret_may_walk)
{
	uint64_t outer = heap_thread.inside;
	stack_t stack;
	bool is_here, is_there;

	get_signal_stack(&stack);
	is_here = is_on(&stack, frame);
	is_there = is_on(&stack, outer);
	/* A signal stack may be too small for a walk. */
	*ret_may_walk = !is_here;
	return is_here == is_there ? frame < outer : is_here;
}

struct nested {
	const struct heap_call *call;
	const void *address;
	const struct stack *stack;
};

static void fill_nested(void *payload, const uint32_t *ids, const void *data)
{
	const struct nested *nested = data;

	*(struct ring_alloc *)payload = (struct ring_alloc){
		.address = (uintptr_t)nested->address,
		.size = nested->call->size,
		.stack = nested->stack->id,
		.kind = (uint8_t)nested->call->kind,
		.alignment_log2 = (uint8_t)nested->call->alignment_log2,
		.flags = nested->stack->id != 0 ? RING_ALLOC_STACK : 0,
	};
}

/* Records the stack separately, because the call tree may be incomplete. */
static __attribute__((noinline)) void record_nested(const struct heap_call *call,
						    const void *address, bool may_walk)
{
	struct producer *producer = producer_get();
	union {
		uint64_t pcs[NESTED_FRAMES];
		const void *places[NESTED_FRAMES];
	} all;
	struct self_unwind_chain chain = { .n = 0 };
	struct prof_stack from = { .pcs = all.places, .kind = PROF_STACK_RETURNS };
	struct stack stack = { .from = &from };
	struct message message = { .type = RING_ALLOC,
				   .payload_bytes = sizeof(struct ring_alloc),
				   .stack = &stack };

	if (!producer || producer->n_types <= RING_CALLS)
		return;
	heap_thread.own.quiet = call_tree_quiet(producer);
	if (may_walk)
		self_unwind_walk(&heap_thread.own, &call->caller, all.pcs, NESTED_FRAMES, &chain);
	for (size_t i = 0; i < chain.n; i++)
		all.places[i] = (const void *)(uintptr_t)all.pcs[i];
	from.n = (uint32_t)chain.n;
	message_write(&message, fill_nested, &(struct nested){ call, address, &stack });
}

/* ---- Records ---- */

struct begun {
	void *payload; /* NULL: the record is lost, or nothing is recorded */
	struct ring *ring;
	uint32_t stack;
};

/* Returns whether the ring is still the thread's and the stack's id is valid: a handler may have
 * moved the thread to a larger ring or begun a new epoch. */
static inline __attribute__((always_inline)) bool is_good(const struct producer *producer,
							  const struct ring *ring, uint32_t stack)
{
	return __builtin_expect(!ring->bigger, 1) &&
	       (stack == 0 ||
		__builtin_expect(call_tree_epoch(producer) == producer->intern.epoch, 1));
}

static inline __attribute__((always_inline)) void end_record(void)
{
	if (__builtin_expect(heap_is_last(), 0))
		register_ended(register_self.producer);
}

static __attribute__((noinline)) void *end_alloc(struct ring *ring, void *address)
{
	if (ring->open[0].sp != 0)
		ring_end_first(ring);
	end_record();
	RING_SIGNAL_FENCE();
	heap_thread.inside = 0;
	return address;
}

static __attribute__((noinline)) struct begun begin(uint32_t type, uint32_t bytes,
						    const struct heap_call *call)
{
	for (int i = 0; i < MESSAGE_TRIES; i++) {
		struct producer *producer = producer_get();
		struct begun begun = { 0 };

		if (!heap_can_record(producer))
			return begun;
		message_follow(producer);
		if (call)
			begun.stack = call_tree_get(producer, &call->caller);
		begun.ring = producer->current;
		begun.payload = ring_begin(begun.ring, type, bytes);
		if (!begun.payload) {
			if (!register_again(producer))
				return begun;
			continue;
		}
		if (is_good(producer, begun.ring, begun.stack))
			return begun;
		message_waste(begun.ring, begun.payload, bytes);
	}
	register_count_lost();
	return (struct begun){ 0 };
}

static inline __attribute__((always_inline)) void fill_alloc(struct ring_alloc *alloc,
							     uint32_t kind, uint64_t size,
							     const void *address, uint32_t stack)
{
	*alloc = (struct ring_alloc){
		.address = (uintptr_t)address,
		.size = size,
		.stack = stack,
		.kind = (uint8_t)kind,
		.alignment_log2 = (uint8_t)(kind >> 8),
	};
}

/* Records an allocation if the fast path cannot. `ring`: the ring that the fast path tried; NULL:
 * it tried none, because another hook may run on the thread, or no ring can take the record.
 * `wasted`: a record begun in `ring` whose ids are not valid, or NULL. `frame`: the hook's
 * frame. */
static __attribute__((noinline)) void *alloc_otherwise(uint32_t kind, uint64_t size, void *address,
						       uint64_t pc, uint64_t sp, uint64_t fp,
						       struct ring *ring, void *wasted,
						       uint64_t frame)
{
	const struct heap_call call = {
		kind & 0xff, kind >> 8, size, { .pc = pc, .sp = sp, .fp = fp }
	};
	struct begun begun;
	bool may_walk;

	if (!ring && heap_thread.inside != 0 && is_within(frame, &may_walk)) {
		record_nested(&call, address, may_walk);
		return address;
	}
	heap_thread.inside = frame;
	RING_SIGNAL_FENCE();
	if (wasted)
		message_waste(ring, wasted, sizeof(struct ring_alloc));
	else if (register_self.producer)
		ring_recover(register_self.producer->current, frame);
	begun = begin(RING_ALLOC, sizeof(struct ring_alloc), &call);
	if (begun.payload) {
		fill_alloc(begun.payload, kind, size, address, begun.stack);
		ring_end(begun.ring, begun.payload);
		end_record();
	}
	RING_SIGNAL_FENCE();
	heap_thread.inside = 0;
	return address;
}

void *heap_record_alloc(uint32_t kind, uint64_t size, void *address, uint64_t pc, uint64_t sp,
			uint64_t fp)
{
	const struct producer *producer = register_self.producer;
	uint64_t frame = heap_frame();
	struct ring *ring;
	struct ring_alloc *alloc = NULL;
	uint32_t stack;

	if (__builtin_expect(heap_thread.inside != 0, 0) || !heap_can_record(producer))
		return alloc_otherwise(kind, size, address, pc, sp, fp, NULL, NULL, frame);
	heap_thread.inside = frame;
	RING_SIGNAL_FENCE();
	ring = producer->current;
	stack = call_tree_recall(producer, pc, sp, fp);
	if (__builtin_expect(stack != 0, 1))
		alloc = ring_try_begin(ring, RING_ALLOC,
				       sizeof(struct ring_record_header) + sizeof(*alloc));
	if (__builtin_expect(!alloc || !is_good(producer, ring, stack), 0))
		return alloc_otherwise(kind, size, address, pc, sp, fp, ring, alloc, frame);
	fill_alloc(alloc, kind, size, address, stack);
	if (__builtin_expect(!ring_try_end(ring) || heap_is_last(), 0))
		return end_alloc(ring, address);
	heap_thread.inside = 0;
	return address;
}

static void free_otherwise(enum ring_free_kind kind, const void *address, uint32_t pages,
			   uint64_t frame)
{
	struct producer *producer = register_self.producer;
	struct begun begun;
	bool may_walk;

	/* Do not recover if this hook runs within another hook, whose record may be open. */
	if (producer && (heap_thread.inside == 0 || !is_within(frame, &may_walk)))
		ring_recover(producer->current, frame);
	/* libc frees NULL pointers after a thread has ended. Do not claim a ring for such a call,
	 * because the thread would never release it. */
	if (!address && !producer && register_self.is_done)
		return;
	begun = begin(RING_FREE_BLOCK, sizeof(struct ring_free_block), NULL);
	if (!begun.payload)
		return;
	heap_fill_free(begun.payload, kind, address, pages);
	ring_end(begun.ring, begun.payload);
	end_record();
}

__attribute__((noinline)) void heap_record_free_rest(enum ring_free_kind kind, const void *address,
						     uint32_t pages, enum heap_outcome outcome,
						     uint64_t frame)
{
	if (outcome == HEAP_UNRECORDED) {
		free_otherwise(kind, address, pages, frame);
		return;
	}
	if (outcome == HEAP_UNENDED && register_self.producer)
		ring_end_first(register_self.producer->current);
	end_record();
}

void heap_record_free(enum ring_free_kind kind, const void *address, uint32_t pages)
{
	enum heap_outcome outcome = heap_try_record_free(kind, address, pages);

	if (__builtin_expect(outcome != HEAP_RECORDED, 0))
		heap_record_free_rest(kind, address, pages, outcome, heap_frame());
}

/* A nested record has no stack: record_nested() is for records that end at once, but this one stays
 * open while the block moves. */
void heap_record_begin(const struct heap_call *call, const void *prior,
		       struct heap_change *ret_change)
{
	uint64_t frame = (uint64_t)(uintptr_t)__builtin_frame_address(0);
	struct begun begun;
	bool may_walk;

	ret_change->is_nested = __builtin_expect(heap_thread.inside != 0, 0) &&
				is_within(frame, &may_walk);
	if (!ret_change->is_nested)
		heap_thread.inside = frame;
	if (!ret_change->is_nested && register_self.producer)
		ring_enter(register_self.producer->current);
	RING_SIGNAL_FENCE();
	begun = begin(RING_REALLOC, sizeof(struct ring_realloc),
		      ret_change->is_nested ? NULL : call);
	ret_change->ring = begun.ring;
	ret_change->record = begun.payload;
	if (begun.payload)
		*ret_change->record = (struct ring_realloc){
			.prior = (uintptr_t)prior,
			.size = call->size,
			.stack = begun.stack,
			.kind = (uint8_t)call->kind,
		};
}

void heap_record_end(struct heap_change *change, const void *address, bool is_freed)
{
	struct ring_realloc *record = change->record;

	if (record) {
		uint64_t begin_ns = ((struct ring_record_header *)(void *)record)[-1].time_ns;

		record->address = (uintptr_t)address;
		record->is_freed = is_freed;
		/* This is correct even if the ring was replaced, because all rings of an arena have
		 * the same clock. */
		record->duration_ns = ring_now(change->ring) - begin_ns;
		ring_end(change->ring, record);
		end_record();
	}
	RING_SIGNAL_FENCE();
	if (!change->is_nested)
		heap_thread.inside = 0;
}
