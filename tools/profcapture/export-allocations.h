/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-allocations - reads allocations into the tree of an export
 *
 * Stacks of allocations become nodes of the tree of samples, with the same kind of entities: with
 * the lines of frames if the format has them, and with inlined functions on request.
 */
#pragma once

#include "tools/profcapture/export.h"
#include "tools/profcapture/memory-replay.h"

/* At most this many single calls are kept, because viewers cannot open a larger profile. */
#define ALLOCATIONS_MOST_EVENTS 500000u

/* The allocation of a block, or, if `bytes` is negative, its release. */
struct allocation_event {
	uint64_t thread; /* index in names of the thread that allocated the block */
	int64_t time_ns; /* the first two members form a struct export_key */
	double bytes;    /* scaled up if blocks are sampled */
	uint64_t block;  /* unique in its process; below 2^53 in the first 512 segments */
	uint32_t by;     /* the thread that called malloc() or free(), as an index in names */
	uint32_t node;   /* 0 for a release */
};

/* Sums of a thread and a node, scaled up if allocations are sampled. */
struct allocation_sum {
	uint32_t thread, node;
	double objects, bytes;           /* allocated */
	double live_objects, live_bytes; /* live at the end, including earlier blocks */
};

enum allocation_kind {
	ALLOCATION_FREED,
	ALLOCATION_KEPT, /* not freed before its process or the recording ended */
	/* also not freed, but in a pool of the runtime, which `memory` suppresses */
	ALLOCATION_RUNTIME,
	ALLOCATION_EARLIER, /* allocated before the time range */
};

/* Blocks that are equal in all members but the sums (bytes, blocks and brief). Times are in units
 * of `unit_ns`. */
struct allocation_life {
	uint32_t time; /* time of the allocation */
	/* 1 + the time at which the block was freed or its process ended; 0: live at the end */
	uint32_t freed;
	uint32_t thread, node;
	uint8_t kind;         /* enum allocation_kind */
	uint8_t size;         /* memory_size_class() */
	double bytes, blocks; /* scaled up if allocations are sampled */
	double brief;         /* number of blocks that lived for less than ALLOCATIONS_BRIEF_NS */
};
#define ALLOCATIONS_BRIEF_NS 100000

/* The largest live heap in a part of the time. */
struct allocation_most {
	int64_t time_ns; /* time of the part's start, or of the peak */
	double bytes;
};

struct allocations {
	/* a power of two, which grows if there are too many lives; 0: lives are not wanted */
	int64_t unit_ns;
	GArray *lives; /* struct allocation_life by time of allocation */
	GArray *heap;  /* only with lives: struct allocation_most of equal parts of the time */
	struct allocation_most peak; /* only with lives */
	GArray *events; /* struct allocation_event in the order of the capture; NULL: not wanted */
	uint64_t left_out;
	GArray *sums; /* struct allocation_sum */
};

/* Returns whether the capture has any allocations. */
bool allocations_are_there(const struct export *export);
/* Reads all allocations; adds stacks to the export's tree. `wants_events`: keeps single calls. */
bool allocations_read(struct allocations *allocations, struct export *export, bool wants_events,
		      GError **error);
/* These functions are for a format that reads each row and keeps none. allocations_open() prepares
 * a tree and the heaps, which the caller frees, also after an error. allocations_replay() replays
 * the time range and may be called several times; the caller sets all options of the replay except
 * `heaps` and the range. */
bool allocations_open(struct export *export, struct memory_tree *tree, struct memory_heaps *heaps,
		      GError **error);
bool allocations_replay(const struct export *export, struct memory_heaps *heaps,
			struct memory_replay *replay, GError **error);
/* Stores the number of allocations in the range up to and including the one that reaches the peak;
 * 0: the peak is at the start. `keeps`: blocks stay live when their process ends. */
bool allocations_find_peak(const struct export *export, struct memory_heaps *heaps, bool keeps,
			   uint64_t *ret_rows, GError **error);
void allocations_done(struct allocations *allocations);
