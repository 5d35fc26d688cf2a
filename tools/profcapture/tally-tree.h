/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Tally-tree - the call tree of all epochs, merged by what is called
 *
 * A tree of everything can have as many nodes as there are distinct stacks in all epochs together.
 * Who shows only branches above a share sets min_share, and gets those alone, with exact counts.
 * What has the share of all weight has it of the weight of at least one epoch: so the first pass
 * keeps what is heavy in any epoch, and a second one, where there was more than one epoch, counts
 * those.
 */
#pragma once

#include "tools/common/number-map.h"
#include "tools/profcapture/stacks.h"

struct tally_count {
	struct amount self, total;
};

/* Node 0 is above the roots. Nodes 1 and 2 are samples without a stack and with one that the
 * capture lost. */
struct tally_node {
	uint32_t parent, entity;
	struct tally_count count;
};

struct tally_tree {
	/* what is wanted */
	double min_share; /* of the weight; 0 = everything */
	/* the answer */
	GArray *nodes; /* struct tally_node, a parent before its children */
	bool cut;      /* branches were left out */
	/* while it is built */
	struct number_map index; /* parent and entity → node */
	GArray *node_of;         /* uint32_t: node by row of stacks */
	unsigned epochs;
	bool counting; /* the second pass: all nodes are there */
};

void tally_tree_init(struct tally_tree *tree);
void tally_tree_done(struct tally_tree *tree);
/* Adds the stacks of an epoch, which are settled. `weight` is that of all of its samples. */
void tally_tree_add(struct tally_tree *tree, const struct stacks *stacks, uint64_t weight);
/* Of a whole tree, the node that a node of the stacks added last became. */
static inline uint32_t tally_tree_node(const struct tally_tree *tree, uint32_t row)
{
	return g_array_index(tree->node_of, uint32_t, row);
}
/* A node of a whole tree; made where there was none, with nothing counted. */
uint32_t tally_tree_get(struct tally_tree *tree, uint32_t parent, uint32_t entity);
/* After the last epoch: must all be added once more? The counts begin anew then. */
bool tally_tree_again(struct tally_tree *tree);
