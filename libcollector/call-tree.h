/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Call tree - where a record was made, as a node of the tree of calls that the ring's owner has
 * told of
 *
 *     own_calls_get_caller(&caller);
 *     stack = call_tree_get(producer, &caller);
 *     message_try_write(producer, call_tree_epoch(producer), RING_ALLOC, …);
 *
 * For hooks. A node is told of by a RING_CALLS of its own, before its first user. Ids are those of
 * an epoch, as strings' are: a handler may have begun another one, or moved on to a bigger ring, so
 * whoever uses an id compares the epoch behind ring_begin(), as message_try_write() does, and asks
 * again.
 *
 * A hook that was entered by a handler in the middle of one must not come here: it would find it
 * half done. One that was left by siglongjmp() is nothing: all is found anew. own_stack_setup() is
 * to be called before, and own_stack_forget() whenever a module may have gone: behind dlclose(),
 * and where the loader gives its record of one back: libc closes modules of its own by an inner
 * call, but frees through malloc's.
 */
#pragma once

#include "libcollector/message.h"
#include "libcollector/own-calls.h"
#include "libcollector/register.h"

/* Of a deeper stack the middle is left out: the outermost frames are there, and the innermost. */
#define CALL_TREE_MAX_DEPTH 1024u
#define CALL_TREE_INNER 64u

struct call_tree_slot {
	uint64_t hash;
	uint32_t turn; /* another one: empty */
	uint32_t id;
};

/* A frame that has no node, or where the stack is too deep, any. */
struct call_tree_frame {
	uint64_t hash;
	uint64_t pc;
	uint32_t flags; /* OWN_CALLS_* */
	uint32_t id;    /* 0: none yet */
};

/* One a ring's owner; its memory is kept for the next one. */
struct call_tree {
	uint32_t turn;
	uint32_t n_nodes; /* ids that were given, from 1 on */
	uint32_t forgotten, n_replaced;
	uint32_t n_slots;
	struct call_tree_slot *slots;
	struct call_tree_frame frames[CALL_TREE_MAX_DEPTH];
	const void *places[CALL_TREE_MAX_DEPTH];
	struct own_calls calls;
};

/*
 * The node of the calls that `caller` is in, which is the innermost frame: see
 * own_calls_get_caller(). Told of where it is new. 0: there is none, as it could not be told of.
 * Leaves errno alone.
 */
uint32_t call_tree_get(struct producer *producer, const struct walk_registers *caller);

/* What the calling thread, which is the producer's, may call in a walk. */
static inline uint32_t call_tree_quiet(const struct producer *producer)
{
	if (!(producer->current->flags & RING_NO_SYSCALL))
		return OWN_STACK_ANY;
	return register_self.no_syscall ? OWN_STACK_SILENT : OWN_STACK_PROBES;
}

/* In which the last id is one. */
static inline uint32_t call_tree_epoch(const struct producer *producer)
{
	return producer->calls_epoch;
}

/* Its ids are this owner's, of this epoch, and of the code that is there. */
static inline bool call_tree_is_ready(const struct producer *producer)
{
	const struct call_tree *tree = producer->calls;

	return tree && !message_is_other(producer, producer->calls_epoch) &&
	       tree->forgotten == own_stack_forgotten();
}

/* As call_tree_get(), for the caller's pc, sp, and fp; by what is remembered only. 0: that has
 * to be asked. Calls nothing. */
static inline __attribute__((always_inline)) uint32_t call_tree_recall(
	const struct producer *producer, uint64_t pc, uint64_t sp, uint64_t fp)
{
	return __builtin_expect(call_tree_is_ready(producer), 1)
		       ? own_calls_recall(&producer->calls->calls, pc, sp, fp)
		       : 0;
}
