/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Call tree - sends the stack of a record as a node of a call tree
 *
 *     unwind_cache_get_caller(&caller);
 *     stack = call_tree_get(producer, &caller);
 *     message_try_write(producer, call_tree_epoch(producer), RING_ALLOC, …);
 *
 * For hooks. A RING_CALLS record sends a node before the first record that uses it. Like ids of
 * strings, ids of nodes are valid in one epoch, and a handler may have begun another epoch or moved
 * to a larger ring. So callers compare the epoch after ring_begin(), and retry.
 *
 * A hook that a handler entered in the middle of another hook must not call these functions,
 * because their state may be incomplete. If siglongjmp() leaves a call, the next call discards its
 * work. Call self_unwind_setup() first, and self_unwind_invalidate() whenever a module may have
 * been unloaded: after dlclose(), and when the loader frees a module's record. Only the latter can
 * be observed for libc's own modules, because libc closes them through an internal call instead of
 * dlclose().
 */
#pragma once

#include "libcollector/hooks/message.h"
#include "libcollector/hooks/python-frames.h"
#include "libcollector/register/register.h"
#include "libcollector/unwind/unwind-cache.h"

/* The middle of a deeper stack is dropped: the outermost and the innermost frames are kept. */
#define CALL_TREE_MAX_DEPTH 1024u
#define CALL_TREE_INNER 64u
/* A flag of a frame besides UNWIND_CACHE_*: a Python function. */
#define CALL_TREE_CODE 0x04u
/* number of slots in `known`, the cache for stacks with Python functions; a hit saves the merge */
#define CALL_TREE_KNOWN 1024u

struct call_tree_slot {
	uint64_t hash;
	uint32_t generation; /* the slot is empty if this differs from the tree's generation */
	uint32_t id;
};

/* A frame to send: one without a node, or one of the innermost frames of a stack that is too
 * deep. */
struct call_tree_frame {
	uint64_t hash;
	/* CALL_TREE_CODE: at first the index in the chain (UINT64_MAX: unreadable); later the value
	 * to send: position + 2^32 * id of the code object */
	uint64_t pc;
	uint32_t flags; /* UNWIND_CACHE_*, CALL_TREE_CODE */
	uint32_t id;    /* 0: not assigned yet */
};

/* The node of a stack with Python functions. */
struct call_tree_known {
	uint64_t native, python; /* hashes of the native and of the Python frames */
	uint32_t node, generation;
};

/* Each owner of a ring has a tree; the ring's next owner reuses the memory. */
struct call_tree {
	uint32_t generation;
	uint32_t n_nodes; /* ids 1 to n_nodes are assigned */
	uint32_t own_generation, n_replaced;
	uint32_t n_slots;
	struct call_tree_slot *slots;
	struct call_tree_frame frames[CALL_TREE_MAX_DEPTH];
	const void *places[CALL_TREE_MAX_DEPTH];
	struct call_tree_known known[CALL_TREE_KNOWN];
	struct python_chain python;
	/* native frames with the Python functions between them, outermost first */
	struct call_tree_frame merged[UNWIND_CACHE_MAX_FRAMES + PYTHON_MAX_FRAMES];
	struct unwind_cache calls;
};

/* Returns the node of the stack whose innermost frame is `caller` (see unwind_cache_get_caller()).
 * Sends the node if it is new. Returns 0 if the node could not be sent. Preserves errno. */
uint32_t call_tree_get(struct producer *producer, const struct walk_registers *caller);

/* Returns which system calls a stack walk may make. The caller must be the producer's thread. */
static inline uint32_t call_tree_quiet(const struct producer *producer)
{
	if (!(producer->current->flags & RING_NO_SYSCALL))
		return SELF_UNWIND_ANY;
	return register_self.no_syscall ? SELF_UNWIND_SILENT : SELF_UNWIND_PROBES;
}

/* Returns the epoch in which the last returned id is valid. */
static inline uint32_t call_tree_epoch(const struct producer *producer)
{
	return producer->calls_epoch;
}

/* Returns whether the tree's ids are valid for this producer, this epoch, and the loaded code. */
static inline bool call_tree_is_ready(const struct producer *producer)
{
	const struct call_tree *tree = producer->calls;

	return tree && !message_is_other(producer, producer->calls_epoch) &&
	       tree->own_generation == self_unwind_generation();
}

/* Like call_tree_get(), for the caller's pc, sp, and fp, but finds only stacks that
 * unwind_cache_remember() kept. Returns 0 if call_tree_get() must be called. Calls no other
 * function. */
static inline __attribute__((always_inline)) uint32_t call_tree_recall(
	const struct producer *producer, uint64_t pc, uint64_t sp, uint64_t fp)
{
	return __builtin_expect(call_tree_is_ready(producer), 1)
		       ? unwind_cache_recall(&producer->calls->calls, pc, sp, fp)
		       : 0;
}
