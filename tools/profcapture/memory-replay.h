/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-replay - a stretch of a capture's allocations and frees in their order, with the blocks
 * that live
 *
 * Begins with the blocks of the last marks (memory-heaps.h) that are before the stretch, so what it
 * costs goes with the distance from there, and memory with the blocks that live.
 */
#pragma once

#include "tools/profcapture/memory-heaps.h"

struct memory_event {
	uint64_t time;
	uint64_t block; /* 0: the call failed, or what was freed is not known */
	uint64_t size, prior;
	uint32_t segment, heap, thread; /* thread: index of names */
	uint32_t node;                  /* of an allocation, where nodes are wanted */
	/* of a free: allocations of its thread since the block's own, where more is wanted */
	uint32_t others;
	uint8_t kind; /* enum prof_alloc_kind or prof_free_kind */
	bool is_free, has_address;
	bool is_counted; /* it is in the stretch, and not only before it */
	bool is_wanted;  /* its thread passes the filters */
};

/* What an allocation makes. */
static inline struct memory_block memory_event_block(const struct memory_event *event)
{
	return (struct memory_block){ .number = event->block,
				      .size = event->size,
				      .node = event->node,
				      .thread = event->thread,
				      .is_mapping = event->kind >= PROF_ALLOC_MMAP };
}

/* Did its prior block become this one? Of other kinds that is one whose end nobody told, or a
 * mapping of which a part ended. */
static inline bool memory_event_moves(const struct memory_event *event)
{
	return event->kind == PROF_ALLOC_REALLOC || event->kind == PROF_ALLOC_REALLOCARRAY ||
	       event->kind == PROF_ALLOC_MREMAP;
}

/* Of an allocation: is it what is left of a mapping? Then it is no new one. */
static inline bool memory_event_is_rest(const struct memory_event *event)
{
	return event->kind == PROF_ALLOC_MMAP && event->prior;
}

enum memory_release { MEMORY_FREED, MEMORY_REALLOCATED, MEMORY_GONE };

/* Any may be NULL. A block that moves is first released and then allocated. */
struct memory_ops {
	void (*loaded)(const struct memory_live *live, void *data);
	/* Each row of a thread that is wanted, before what it does. */
	void (*call)(const struct memory_event *event, void *data);
	void (*allocated)(const struct memory_event *event, const struct memory_block *block,
			  const struct memory_block_more *more, void *data);
	/* `more` is zeros where it is not wanted. Gone: its number is used anew, so its free was
	 * lost. */
	void (*released)(const struct memory_event *event, const struct memory_block *block,
			 const struct memory_block_more *more, enum memory_release how, void *data);
	/* Its process has ended; the blocks are still there. */
	void (*ended)(uint32_t heap, void *data);
};

struct memory_replay {
	/* what is wanted */
	struct memory_heaps *heaps;
	const struct memory_ops *ops;
	void *data;
	int64_t from_ns, to_ns; /* the stretch, both included */
	uint32_t segment;       /* 0: all */
	bool wants_more, wants_nodes;
	bool (*wants_heap)(uint32_t heap, void *data); /* NULL: all */
	/* the answer, until memory_replay_done() */
	/* struct memory_blocks by heap, or NULL: the last segment's are there at the end */
	GPtrArray *blocks;
	uint64_t unknown;    /* frees of blocks that did not live, in the stretch */
	GArray *orders;      /* uint32_t by thread */
	GArray *skip_before; /* uint64_t by heap */
};

/* `replay` holds what is wanted and zeros. */
bool memory_replay_run(struct memory_replay *replay, GError **error);
void memory_replay_done(struct memory_replay *replay);
struct memory_blocks *memory_replay_blocks(const struct memory_replay *replay, uint32_t heap);
