/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Profile-tree - the calling-context tree of all epochs, merged by entity
 *
 * A whole tree can have as many nodes as there are distinct stacks in all epochs together. A caller
 * that shows only branches above a share sets min_share and gets only those, with exact counts. A
 * branch with that share of all weight has that share in at least one epoch. So the first pass
 * keeps the branches that are heavy in any epoch. If there are several epochs, a second pass counts
 * these branches.
 */
#pragma once

#include "tools/common/number-map.h"
#include "tools/profile/stacks.h"

struct profile_count {
	struct amount self, total;
};

/* Node 0 is above the roots. Node 1 has the samples without a stack, node 2 those whose stack the
 * capture lost. */
struct profile_node {
	uint32_t parent, entity;
	struct profile_count count;
};

struct profile_tree {
	/* options */
	double min_share; /* of the weight; 0 = everything */
	/* results */
	GArray *nodes; /* struct profile_node, a parent before its children */
	bool cut;      /* branches were left out */
	/* during the passes */
	struct number_map index; /* parent and entity → node */
	GArray *node_of;         /* uint32_t: node by row of stacks */
	unsigned epochs;
	bool counting; /* the second pass: all nodes exist */
};

void profile_tree_init(struct profile_tree *tree);
void profile_tree_done(struct profile_tree *tree);
/* Adds the stacks of an epoch, which must be settled. `weight` is that of all of its samples. */
void profile_tree_add(struct profile_tree *tree, const struct stacks *stacks, uint64_t weight);
/* In a whole tree, returns the node for a row of the stacks that were added last. */
static inline uint32_t profile_tree_node(const struct profile_tree *tree, uint32_t row)
{
	return g_array_index(tree->node_of, uint32_t, row);
}
/* Returns a node of a whole tree. Creates it with zero counts if needed. */
uint32_t profile_tree_get(struct profile_tree *tree, uint32_t parent, uint32_t entity);
/* Must be called after the last epoch. Returns whether all epochs must be added once more, and
 * resets the counts in that case. */
bool profile_tree_again(struct profile_tree *tree);
