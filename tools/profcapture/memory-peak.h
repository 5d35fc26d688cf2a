/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-peak - what is live now, and what was live when the heap was largest
 *
 * A caller that replays allocations adds and subtracts blocks, and calls memory_peak_note() at each
 * time at which the heap may be the largest so far. The first peak is the state at the first call.
 *                                                         [test-memory: peak, equal peaks]
 */
#pragma once

#include "tools/profcapture/memory-tree.h"

struct memory_peak {
	double bytes, blocks; /* live now */
	double most_bytes;
	int64_t most_ns;
	bool has_begun;
};

/* Records the current state if it is a new peak, and returns whether it is. The first of several
 * equal peaks counts. */
static inline bool memory_peak_note(struct memory_peak *peak, int64_t time_ns)
{
	if (peak->has_begun && peak->bytes <= peak->most_bytes)
		return false;
	peak->has_begun = true;
	peak->most_bytes = peak->bytes;
	peak->most_ns = time_ns;
	return true;
}

/* The parts of the heap by index of a node, process or row. memory_parts_note() copies only what
 * changed since the previous peak. */
struct memory_parts {
	GArray *now, *most; /* struct memory_sum by index: now, and at the peak */
	GArray *changed;    /* uint32_t: indices that changed since `most` */
	GByteArray *flags;  /* by index: whether it is in `changed` */
};

void memory_parts_init(struct memory_parts *parts);
void memory_parts_done(struct memory_parts *parts);
/* Adds to the current part. `wants_most`: also adds the index to `changed`, for
 * memory_parts_note(). */
void memory_parts_add(struct memory_parts *parts, uint32_t index, double bytes, double blocks,
		      bool wants_most);
/* Copies the current parts to `most`. */
void memory_parts_note(struct memory_parts *parts);
