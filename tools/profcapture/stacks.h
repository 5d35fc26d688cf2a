/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Stacks - the call tree of one epoch, with the samples that ended in each node
 *
 * Samples are counted by node (stacks_count(), one addition a sample); then stacks_walk() visits
 * each node that has samples below it once, parents first, whatever the number of samples and
 * however deep the stacks are. What a frame is called may depend on the time. A node that has such
 * a frame above it stands for several, one for each way to name them: stacks_row_at() makes these
 * behind the rows of the table.
 */
#pragma once

#include "tools/common/number-map.h"
#include "tools/profcapture/amount.h"
#include "tools/profcapture/functions.h"

/* A stack is cut where it is deeper, and where a parent's id is not smaller than its own. */
#define STACKS_MAX_DEPTH 4096
#define STACKS_NO_ROW UINT32_MAX

struct stacks {
	struct names_epoch *epoch;
	size_t n, n_rows; /* of them are of the table */
	size_t room;
	uint32_t *parent; /* by row of the table of stacks, as all of these; STACKS_NO_ROW = root */
	uint32_t *entity; /* what the caller counts by: set by stacks_settle() */
	struct amount *self;        /* samples that end in the node */
	struct amount *total;       /* samples in it or below: after stacks_settle() */
	uint32_t *order;            /* rows by rising id, so that parents come first */
	uint64_t cut;               /* nodes cut off from a parent that cannot be */
	struct stacks_timed *timed; /* by row; NULL where no name depends on the time */
	struct number_map made;     /* parent + 1 and function → row */
};

/* Tables of stacks and frames of the epoch; the epoch must outlive it. */
struct stacks *stacks_load(struct names_epoch *epoch, GError **error);
void stacks_free(struct stacks *stacks);
/*
 * Which node of that row of the table a sample of that time is counted in: of its innermost frame,
 * or, where the functions are to have inlined calls, of the innermost of these. By function only,
 * and only where stacks_time() was called before the first one.
 */
void stacks_time(struct stacks *stacks, struct functions *functions);
uint32_t stacks_row_at(struct stacks *stacks, struct functions *functions, uint32_t row,
		       uint32_t segment, uint64_t time_ns);
/* Sums up totals and asks for the entity of each node with samples by its row of the table of
 * frames; nodes of a lost frame get `lost`, those that were made have theirs. After the last
 * sample of the epoch. */
void stacks_settle(struct stacks *stacks,
		   uint32_t (*entity_of)(struct names_epoch *epoch, size_t frame_row, void *data),
		   void *data, uint32_t lost);

/* Sums up totals, which are zero, from what ended in each node. */
void stacks_sum(struct stacks *stacks);
/* The same samples from the innermost frame to the outermost, settled: a root is what was hit,
 * and below it is who called it. A sample ends in the outermost frame of its stack. */
struct stacks *stacks_invert(const struct stacks *stacks);
/*
 * Puts nodes for what is inlined into a frame between its node and its children: `inlined` gives
 * their entities, outermost first, at most FUNCTIONS_MAX_INLINED. Samples that ended in the frame
 * end in the innermost. After stacks_settle(). What depends on the time has them already.
 */
void stacks_insert(struct stacks *stacks,
		   size_t (*inlined)(struct names_epoch *epoch, size_t frame_row,
				     uint32_t *ret_entities, void *data),
		   void *data);

/* enter() is called when the walk goes down into a node, leave() when it comes back. Only nodes
 * with samples. */
struct stacks_visitor {
	void (*enter)(const struct stacks *stacks, uint32_t row, void *data);
	void (*leave)(const struct stacks *stacks, uint32_t row, void *data);
	void *data;
};
void stacks_walk(const struct stacks *stacks, const struct stacks_visitor *visitor);
