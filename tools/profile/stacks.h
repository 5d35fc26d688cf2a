/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Stacks - the calling-context tree of one epoch, with the samples that ended in each node
 *
 * A sample is counted in its node with one addition. stacks_walk() then walks once through
 * the nodes with samples in their subtrees, so its cost does not depend on the number of samples.
 * The name of a frame may depend on the time. A row with such a frame at or above it needs a node
 * for each combination of names. stacks_row_at() creates these nodes after the rows of the table.
 * In stacks of interpreted programs, the frames of the interpreter's own file are left out: their
 * samples count in the function that was interpreted. With names->native_frames, the interpreted
 * functions are left out instead; with names->interpreter_frames, no frame is left out.
 */
#pragma once

#include "tools/common/number-map.h"
#include "tools/profile/amount.h"
#include "tools/profile/functions.h"

/* Stacks are cut at this depth, and where a parent's id is not smaller than its child's. */
#define STACKS_MAX_DEPTH 4096
#define STACKS_NO_ROW UINT32_MAX

struct stacks {
	struct names_epoch *epoch;
	size_t n, n_rows; /* n: nodes; n_rows: rows of the table, the first nodes */
	size_t room;
	/* indexed by node, like the next arrays; STACKS_NO_ROW = root */
	uint32_t *parent;
	uint32_t *entity;           /* entity that the caller counts; set by stacks_settle() */
	struct amount *self;        /* samples that end in the node */
	struct amount *total;       /* samples in its subtree; set by stacks_settle() */
	uint32_t *order;            /* all nodes, each after its parent */
	uint64_t cut;               /* number of nodes cut off from their parent */
	struct stacks_timed *timed; /* indexed by row; NULL if no name depends on the time */
	/* indexed by row: the nearest row at or above it that is not left out; NULL: no row is left
	 * out */
	uint32_t *shown;
	struct number_map made; /* parent + 1 and function → created node */
};

/* Loads the stacks and frames of the epoch, which must outlive the result. */
struct stacks *stacks_load(struct names_epoch *epoch, GError **error);
void stacks_free(struct stacks *stacks);
/*
 * stacks_row_at() returns the node in which to count a sample of a row at `time_ns`: the node of
 * the innermost frame that is not left out. If the frame's name depends on the time and `functions`
 * includes inlined calls, it returns the node of the innermost call. Names that depend on the time
 * are considered only after stacks_time().
 */
void stacks_time(struct stacks *stacks, struct functions *functions);
uint32_t stacks_row_at(struct stacks *stacks, struct functions *functions, uint32_t row,
		       uint32_t segment, uint64_t time_ns);
/* Returns the node of a function that the frame of `node` calls, and that the table of frames
 * lacks. */
uint32_t stacks_below(struct stacks *stacks, uint32_t node, uint32_t function);
/* Computes totals, and sets the entity of each node with samples in its subtree from its row of the
 * frame table. Nodes of a lost frame get `lost`. Nodes created by the functions above keep their
 * entity. Must be called after the last sample of the epoch. */
void stacks_settle(struct stacks *stacks,
		   uint32_t (*entity_of)(struct names_epoch *epoch, size_t frame_row, void *data),
		   void *data, uint32_t lost);

/* Computes totals, which must be zero, from the samples that end in each node. */
void stacks_sum(struct stacks *stacks);
/* Returns the same samples as a new, settled tree from the innermost frames to the outermost. The
 * roots are the functions that were executing, and the nodes below are their callers. A sample ends
 * in the outermost frame of its stack. */
struct stacks *stacks_invert(const struct stacks *stacks);
/*
 * Inserts nodes for inlined calls between the node of their frame and its children. `inlined`
 * stores the calls' entities, outermost first, at most FUNCTIONS_MAX_INLINED. The frame's samples
 * then end in the innermost call. Must be called after stacks_settle(). Nodes created by
 * stacks_row_at() already have their inlined calls.
 */
void stacks_insert(struct stacks *stacks,
		   size_t (*inlined)(struct names_epoch *epoch, size_t frame_row,
				     uint32_t *ret_entities, void *data),
		   void *data);

/* Visits each node with samples in its subtree, before its children (enters) and after them. */
void stacks_walk(const struct stacks *stacks,
		 void (*visit)(const struct stacks *stacks, uint32_t row, bool enters, void *data),
		 void *data);
