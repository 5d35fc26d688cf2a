/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Call tree - the stack of a record, as a node of the call tree that the ring's owner has sent
 *
 *     unwind_cache_get_caller(&caller);
 *     stack = call_tree_get(producer, &caller);
 *     message_try_write(producer, call_tree_epoch(producer), RING_ALLOC, …);
 *
 * For hooks. A RING_CALLS record sends a node before its first user. Ids are valid in one epoch,
 * like those of strings: a handler may have begun another epoch, or moved to a larger ring. So a
 * caller compares the epoch after ring_begin(), like message_try_write(), and retries.
 *
 * A hook that a handler entered in the middle of another hook must not use this: the state would be
 * incomplete. A call that siglongjmp() left is discarded: everything is computed again. Call
 * self_unwind_setup() first, and self_unwind_invalidate() whenever a module may have been unloaded:
 * after dlclose(), and when the loader frees a module's record, because libc closes modules of its
 * own by an inner call, but frees through malloc's.
 */
#pragma once

#include "libcollector/message.h"
#include "libcollector/register.h"
#include "libcollector/unwind-cache.h"

/* The middle of a deeper stack is dropped: the outermost and the innermost frames are kept. */
#define CALL_TREE_MAX_DEPTH 1024u
#define CALL_TREE_INNER 64u

struct call_tree_slot {
	uint64_t hash;
	uint32_t generation; /* with another one: empty */
	uint32_t id;
};

/* A frame without a node, or, if the stack is too deep, any frame. */
struct call_tree_frame {
	uint64_t hash;
	uint64_t pc;
	uint32_t flags; /* UNWIND_CACHE_* */
	uint32_t id;    /* 0: not assigned yet */
};

/* One a ring's owner; its memory is reused by the next one. */
struct call_tree {
	uint32_t generation;
	uint32_t n_nodes; /* number of assigned ids, from 1 on */
	uint32_t own_generation, n_replaced;
	uint32_t n_slots;
	struct call_tree_slot *slots;
	struct call_tree_frame frames[CALL_TREE_MAX_DEPTH];
	const void *places[CALL_TREE_MAX_DEPTH];
	struct unwind_cache calls;
};

/*
 * Returns the node of the calls that `caller` is in, which is the innermost frame: see
 * unwind_cache_get_caller(). Sends it if it is new. Returns 0 if it could not be sent. Preserves
 * errno.
 */
uint32_t call_tree_get(struct producer *producer, const struct walk_registers *caller);

/* The system calls that a walk of the calling thread, which is the producer's, may make. */
static inline uint32_t call_tree_quiet(const struct producer *producer)
{
	if (!(producer->current->flags & RING_NO_SYSCALL))
		return SELF_UNWIND_ANY;
	return register_self.no_syscall ? SELF_UNWIND_SILENT : SELF_UNWIND_PROBES;
}

/* The epoch in which the last returned id is valid. */
static inline uint32_t call_tree_epoch(const struct producer *producer)
{
	return producer->calls_epoch;
}

/* True if the tree's ids are this owner's, of this epoch, and of the loaded code. */
static inline bool call_tree_is_ready(const struct producer *producer)
{
	const struct call_tree *tree = producer->calls;

	return tree && !message_is_other(producer, producer->calls_epoch) &&
	       tree->own_generation == self_unwind_generation();
}

/* Like call_tree_get(), for the caller's pc, sp, and fp, but only from remembered stacks. Returns 0
 * if call_tree_get() must be called. Calls nothing. */
static inline __attribute__((always_inline)) uint32_t call_tree_recall(
	const struct producer *producer, uint64_t pc, uint64_t sp, uint64_t fp)
{
	return __builtin_expect(call_tree_is_ready(producer), 1)
		       ? unwind_cache_recall(&producer->calls->calls, pc, sp, fp)
		       : 0;
}
