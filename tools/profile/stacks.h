/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Stacks - the calling-context tree of one epoch, with the samples that ended in each node
 *
 * A sample is counted by its node, which is one addition. stacks_walk() then visits each node with
 * samples at or below it, parents first, whatever the number of samples and the depth of the
 * stacks. The name of a frame may depend on the time. A node with such a frame at or above it
 * stands for several nodes, one for each combination of names. stacks_row_at() creates these after
 * the rows of the table.
 */
#pragma once

#include "tools/common/number-map.h"
#include "tools/profile/amount.h"
#include "tools/profile/functions.h"

/* A stack is cut where it is deeper, and where a parent's id is not smaller than its child's. */
#define STACKS_MAX_DEPTH 4096
#define STACKS_NO_ROW UINT32_MAX

struct stacks {
	struct names_epoch *epoch;
	size_t n, n_rows; /* n_rows: those of the table */
	size_t room;
	uint32_t *parent;           /* by row of the table, as all of these; STACKS_NO_ROW = root */
	uint32_t *entity;           /* what the caller counts by; set by stacks_settle() */
	struct amount *self;        /* samples that end in the node */
	struct amount *total;       /* samples in it or below: after stacks_settle() */
	uint32_t *order;            /* rows by rising id, so that parents come first */
	uint64_t cut;               /* nodes cut off from an invalid parent */
	struct stacks_timed *timed; /* by row; NULL if no name depends on the time */
	struct number_map made;     /* parent + 1 and function → row */
};

/* Loads the tables of stacks and frames of the epoch, which must outlive the stacks. */
struct stacks *stacks_load(struct names_epoch *epoch, GError **error);
void stacks_free(struct stacks *stacks);
/*
 * stacks_row_at() returns the node in which a sample of that time counts, for a row of the table.
 * This is the node of its innermost frame or, if the functions include inlined calls, of the
 * innermost of these. The time matters only if samples count by function and stacks_time() was
 * called first.
 */
void stacks_time(struct stacks *stacks, struct functions *functions);
uint32_t stacks_row_at(struct stacks *stacks, struct functions *functions, uint32_t row,
		       uint32_t segment, uint64_t time_ns);
/* Sums up totals, and gets the entity of each node with samples from its row of the table of
 * frames. Nodes of a lost frame get `lost`. Nodes that were made keep their entity. Must be called
 * after the last sample of the epoch. */
void stacks_settle(struct stacks *stacks,
		   uint32_t (*entity_of)(struct names_epoch *epoch, size_t frame_row, void *data),
		   void *data, uint32_t lost);

/* Sums up totals, which must be zero, from the samples that ended in each node. */
void stacks_sum(struct stacks *stacks);
/* Returns the same samples from the innermost frame to the outermost, settled. A root is a function
 * that was hit, and the nodes below it are its callers. A sample ends in the outermost frame of its
 * stack. */
struct stacks *stacks_invert(const struct stacks *stacks);
/*
 * Inserts nodes for calls that are inlined into a frame between its node and its children.
 * `inlined` returns their entities, outermost first, at most FUNCTIONS_MAX_INLINED. Samples that
 * ended in the frame end in the innermost call. Must be called after stacks_settle(). Nodes that
 * depend on the time already have their inlined calls.
 */
void stacks_insert(struct stacks *stacks,
		   size_t (*inlined)(struct names_epoch *epoch, size_t frame_row,
				     uint32_t *ret_entities, void *data),
		   void *data);

/* Visits each node with samples when the walk goes down into it (enters) and when it comes back. */
void stacks_walk(const struct stacks *stacks,
		 void (*visit)(const struct stacks *stacks, uint32_t row, bool enters, void *data),
		 void *data);
