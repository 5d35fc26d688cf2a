/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-replay - replays the allocations and frees of a stretch of a capture in order, with the
 * live blocks
 *
 * The replay begins with the blocks of the last marks (memory-heaps.h) before the stretch. So its
 * cost depends on the distance from there, and its memory on the live blocks.
 */
#pragma once

#include "tools/profcapture/memory-heaps.h"

struct memory_event {
	uint64_t time;
	int64_t time_ns; /* relative */
	uint64_t block;  /* 0: the call failed, or the freed block is unknown */
	uint64_t size, prior;
	uint32_t segment, heap, thread; /* thread: index of names */
	uint32_t node;                  /* of an allocation, if nodes are wanted */
	/* of a free: allocations of its thread since the block's own, if wants_more */
	uint32_t others;
	uint8_t kind; /* enum prof_alloc_kind or prof_free_kind */
	bool is_free, has_address;
	bool is_counted; /* it is in the stretch, not before it */
	bool is_wanted;  /* its thread passes the filters */
};

/* The block that an allocation creates. */
static inline struct memory_block memory_event_block(const struct memory_event *event)
{
	return (struct memory_block){ .number = event->block,
				      .size = event->size,
				      .node = event->node,
				      .thread = event->thread,
				      .is_mapping = event->kind >= PROF_ALLOC_MMAP };
}

/* Returns whether the prior block became this one. For other kinds, the prior block is one whose
 * free was not recorded, or a mapping that was partly unmapped. */
static inline bool memory_event_moves(const struct memory_event *event)
{
	return event->kind == PROF_ALLOC_REALLOC || event->kind == PROF_ALLOC_REALLOCARRAY ||
	       event->kind == PROF_ALLOC_MREMAP;
}

/* Returns whether an allocation is the rest of a partly unmapped mapping, which is not a new
 * allocation. */
static inline bool memory_event_is_rest(const struct memory_event *event)
{
	return event->kind == PROF_ALLOC_MMAP && event->prior;
}

enum memory_release { MEMORY_FREED, MEMORY_REALLOCATED, MEMORY_GONE };

/* Each callback may be NULL. A block that moves is released first, then allocated. */
struct memory_ops {
	void (*loaded)(const struct memory_live *live, void *data);
	/* Called for each row of a wanted thread, before the row takes effect. */
	void (*call)(const struct memory_event *event, void *data);
	void (*allocated)(const struct memory_event *event, const struct memory_live *live,
			  void *data);
	/* live->more is zeros without wants_more. MEMORY_GONE: the block's number was reused, so
	 * its free was lost. */
	void (*released)(const struct memory_event *event, const struct memory_live *live,
			 enum memory_release how, void *data);
	/* Called for each live block of a process that has ended. */
	void (*ended)(const struct memory_live *live, void *data);
};

struct memory_replay {
	/* options */
	struct memory_heaps *heaps;
	const struct memory_ops *ops;
	void *data;
	int64_t from_ns, to_ns; /* the stretch, both included */
	uint32_t segment;       /* 0: all */
	bool wants_more, wants_nodes;
	bool ends_all;             /* blocks that live at the end are passed to ended(), too */
	const GByteArray *skipped; /* by heap: 1 = not read, 0 = read; NULL or beyond: by --pid */
	/* result */
	uint64_t unknown; /* frees of blocks that were not live, in the stretch */
	/* during the replay */
	GPtrArray *blocks;   /* struct memory_blocks by heap, or NULL */
	GArray *orders;      /* uint32_t by thread */
	GArray *skip_before; /* uint64_t by heap */
};

/* `replay` holds the options and zeros. */
bool memory_replay_run(struct memory_replay *replay, GError **error);
void memory_replay_done(struct memory_replay *replay);
