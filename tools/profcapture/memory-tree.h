/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-tree - the stacks that blocks were allocated by, as one call tree over all epochs
 *
 * Ids of stacks mean something within an epoch only, and a block may outlive many: so each stack
 * that is asked for becomes a node here, found by its parent and its function, or the place in one
 * where the functions are to be such. Node 0 is above the roots; 1 and 2 are no stack and one that
 * the capture lost.
 */
#pragma once

#include "tools/common/number-map.h"
#include "tools/profcapture/reader.h"
#include "tools/profcapture/stacks.h"

#define MEMORY_NODE_NONE 1u
#define MEMORY_NODE_LOST 2u

struct memory_node {
	uint32_t parent, function;
	/* function that a block of this stack counts for: the leaf, or who called C++'s new */
	uint32_t site;
};

struct memory_sum {
	double bytes, blocks;
};

/* Of one epoch: nodes by row of the table of stacks, 0 = not asked for yet. */
struct memory_epoch {
	uint32_t number;
	struct names_epoch *names;
	struct stacks *stacks;
	uint32_t *nodes;
	size_t n;
};

struct memory_tree {
	struct reader *reader;
	/* patterns (suppressions.h) of functions that allocate for their callers, or NULL */
	const GPtrArray *through;
	struct functions *functions;
	GArray *nodes; /* struct memory_node, a parent before its children */
	struct number_map index;
	struct memory_epoch epochs[2];
	unsigned next;
	bool is_borrowed; /* functions */
	GArray *path;     /* uint32_t: rows of a stack that have no node yet; between calls empty */
	GByteArray *passes; /* by function: is it of an allocator? 0 = not asked yet */
};

bool memory_tree_init(struct memory_tree *tree, struct reader *reader, const GPtrArray *through,
		      GError **error);
/* With functions that are borrowed, and as they are: with none that allocate for their callers. */
void memory_tree_init_with(struct memory_tree *tree, struct reader *reader,
			   struct functions *functions);
void memory_tree_done(struct memory_tree *tree);

static inline const struct memory_node *memory_node_at(const struct memory_tree *tree,
						       uint32_t index)
{
	return &((const struct memory_node *)(void *)tree->nodes->data)[index];
}

/* Loaded if it is not: of an epoch whose rows are being read. NULL: error. */
struct memory_epoch *memory_tree_epoch(struct memory_tree *tree, struct names_epoch *names,
				       GError **error);
/* Node of a stack's id, as it was called at that time. */
uint32_t memory_tree_node(struct memory_tree *tree, struct memory_epoch *epoch, uint64_t stack,
			  uint32_t segment, uint64_t time);

/*
 * From what blocks of each node sum up to (by node, shorter arrays are zeros): `self` by function
 * that they count for, and `total` of all that a function is on the stack of, once however often.
 * Both are set to as many as there are functions.
 */
void memory_tree_by_function(const struct memory_tree *tree, const GArray *sums, GArray *self,
			     GArray *total);
/* A copy in which a node's sum has that of its callees in it. */
GArray *memory_tree_totals(const struct memory_tree *tree, const GArray *sums);

static inline struct memory_sum memory_sum_at(const GArray *sums, uint32_t index)
{
	return index < sums->len ? g_array_index(sums, struct memory_sum, index)
				 : (struct memory_sum){ 0 };
}

static inline struct memory_sum *memory_sum_of(GArray *sums, uint32_t index)
{
	if (index >= sums->len)
		g_array_set_size(sums, index + 1);
	return &((struct memory_sum *)(void *)sums->data)[index];
}
