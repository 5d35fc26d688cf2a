/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-replay - replays a time range of a capture, event by event, and tracks the live blocks
 *
 * The replay starts from the blocks of the last heap marks (memory-heaps.h) before the range. So
 * its time depends on the distance to those marks, and its memory on the number of live blocks.
 */
#pragma once

#include "tools/profcapture/memory-heaps.h"

struct memory_event {
	uint64_t time;
	int64_t time_ns; /* relative to the capture's start */
	uint64_t block;  /* 0: the call failed, or the freed block is unknown */
	uint64_t size, prior;
	uint32_t segment, heap, thread; /* thread: index in names */
	uint32_t node;                  /* node of an allocation, with wants_nodes */
	/* with wants_more, for a free by the thread that allocated the block: number of the
	 * thread's allocations since then */
	uint32_t others;
	uint8_t kind; /* enum prof_alloc_kind or prof_free_kind */
	bool is_free, has_address;
	bool is_counted; /* the event is in the range, not before it */
	bool is_wanted;  /* the event's thread passes the filters */
};

/* Returns the block that an allocation creates. */
static inline struct memory_block memory_event_block(const struct memory_event *event)
{
	return (struct memory_block){ .number = event->block,
				      .size = event->size,
				      .node = event->node,
				      .thread = event->thread,
				      .is_mapping = event->kind >= PROF_ALLOC_MMAP };
}

/* Returns whether the event moved its prior block. Otherwise, the free of the prior block was not
 * recorded, or the prior block is a mapping that was partly unmapped. */
static inline bool memory_event_moves(const struct memory_event *event)
{
	return event->kind == PROF_ALLOC_REALLOC || event->kind == PROF_ALLOC_REALLOCARRAY ||
	       event->kind == PROF_ALLOC_MREMAP;
}

/* Returns whether an allocation is the remaining part of a partly unmapped mapping, not a new
 * allocation. */
static inline bool memory_event_is_rest(const struct memory_event *event)
{
	return event->kind == PROF_ALLOC_MMAP && event->prior;
}

enum memory_release { MEMORY_FREED, MEMORY_REALLOCATED, MEMORY_GONE };

/* Each callback may be NULL. A block that moves is first released, then allocated. */
struct memory_ops {
	void (*loaded)(const struct memory_live *live, void *data);
	/* Called for each row of a wanted thread, before the row takes effect. */
	void (*call)(const struct memory_event *event, void *data);
	void (*allocated)(const struct memory_event *event, const struct memory_live *live,
			  void *data);
	/* Without wants_more, live->more is zero. MEMORY_GONE: the file is invalid, because another
	 * allocation has the same block number. */
	void (*released)(const struct memory_event *event, const struct memory_live *live,
			 enum memory_release how, void *data);
	/* Called for each block that is live when its process or the segment ends. */
	void (*ended)(const struct memory_live *live, void *data);
};

struct memory_replay {
	/* options */
	struct memory_heaps *heaps;
	const struct memory_ops *ops;
	void *data;
	int64_t from_ns, to_ns; /* the range; both ends included */
	uint32_t segment;       /* 0: all */
	bool wants_more, wants_nodes;
	bool ends_all; /* also pass blocks that are live at the end of the range to ended() */
	const GByteArray *skipped; /* by heap: 1 = skip. NULL, or array too short: --pid decides */
	/* result */
	/* number of frees, in the range, of blocks that were not live; 0 with --tid or --comm */
	uint64_t unknown;
	/* private */
	GPtrArray *blocks;   /* struct memory_blocks by heap, or NULL */
	GArray *orders;      /* uint32_t by thread: `order` of its last allocation */
	GArray *skip_before; /* uint64_t by heap: rows before this time are skipped */
};

/* The caller sets the options and zeroes the rest. */
bool memory_replay_run(struct memory_replay *replay, GError **error);
void memory_replay_done(struct memory_replay *replay);
