/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-allocations - what was allocated, by the tree of an export
 *
 * Stacks of allocations become nodes of the tree of samples, of the same entities: with the lines
 * of frames where the format has them, and what is inlined where that is asked for.
 */
#pragma once

#include "tools/profcapture/export.h"

/* What is kept of single calls at most: a profile with more is nothing that a viewer opens. */
#define ALLOCATIONS_MOST_EVENTS 500000u

/* A block begins, or, with bytes below zero, ends. */
struct allocation_event {
	int64_t time_ns;
	double bytes;    /* that it stands for */
	uint64_t block;  /* a number that no other block of its process has, below 2^53 */
	uint32_t thread; /* index of names: of who allocated it */
	uint32_t by;     /* who calls */
	uint32_t node;   /* 0 where it ends */
};

/* Of a thread and a node, in what the samples of a recording of allocations stand for. */
struct allocation_sum {
	uint32_t thread, node;
	double objects, bytes;           /* that were allocated */
	double live_objects, live_bytes; /* of them and of those before, at the end of the range */
};

struct allocations {
	GArray *events; /* struct allocation_event, as they came, or NULL: not wanted */
	uint64_t left_out;
	GArray *sums; /* struct allocation_sum */
};

/* Is there any in the capture? */
bool allocations_are_there(const struct export *export);
/* Adds to the tree and its functions. `wants_events`: also single calls. */
bool allocations_read(struct allocations *allocations, struct export *export, bool wants_events,
		      GError **error);
void allocations_done(struct allocations *allocations);
