/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Profile-tree - the calling-context tree of all epochs, with one node for each path of entities
 *
 * A whole tree (min_share is 0) can have as many nodes as all epochs have distinct stacks. A caller
 * that shows only large branches sets min_share and gets only these, with exact counts. A branch
 * with that share of the total weight has at least that share in one epoch. So the first pass keeps
 * the branches that are large in any epoch. If there are several epochs, a second pass counts these
 * branches.
 */
#pragma once

#include "tools/common/cct.h"
#include "tools/profile/stacks.h"

struct profile_count {
	struct amount self, total;
};

/* Node 0 is the parent of the roots. Node 1 has the samples without a stack, node 2 those whose
 * stack the capture lost. */
struct profile_node {
	uint32_t parent, entity;
	struct profile_count count;
};

struct profile_tree {
	/* options */
	double min_share; /* share of the total weight; 0 = keep everything */
	/* results */
	GArray *nodes; /* struct profile_node, a parent before its children */
	bool cut;      /* branches were left out */
	/* during the passes */
	struct number_map index; /* parent and entity → node */
	GArray *node_of;         /* uint32_t: node by row of stacks */
	unsigned epochs;
	bool counting; /* second pass: all nodes exist */
};

void profile_tree_init(struct profile_tree *tree);
void profile_tree_done(struct profile_tree *tree);
/* Adds the stacks of an epoch. Must be called after stacks_settle(). `weight`: total weight of the
 * epoch's samples. */
void profile_tree_add(struct profile_tree *tree, const struct stacks *stacks, uint64_t weight);
/* In a whole tree, returns the node of a row in the stacks that were added last. */
static inline uint32_t profile_tree_node(const struct profile_tree *tree, uint32_t row)
{
	return g_array_index(tree->node_of, uint32_t, row);
}
/* Returns a node of a whole tree. Creates it with zero counts if needed. */
uint32_t profile_tree_get(struct profile_tree *tree, uint32_t parent, uint32_t entity);
/* Must be called after the last epoch. If all epochs must be added a second time, resets the counts
 * and returns true. */
bool profile_tree_again(struct profile_tree *tree);
