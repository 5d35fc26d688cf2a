/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Invariants: (1) each branch with at least min_share of all weight is in the tree, with all of its
 *                 samples
 *                 [test-report: pruned]
 *             (2) the tree has at most depth / min_share nodes per epoch  [test-report: pruned]
 */
#include "config.h"

#include "tools/profile/profile-tree.h"

#include "tools/profile/functions.h"

#define NO_NODE UINT32_MAX

/* Keep slightly smaller branches, because shares are rounded here and in the output. */
#define ROUNDING 0.999

void profile_tree_init(struct profile_tree *tree)
{
	const struct profile_node first[] = { { .entity = FUNCTION_NO_STACK },
					      { .entity = FUNCTION_NO_STACK },
					      { .entity = FUNCTION_LOST } };

	tree->nodes = g_array_new(FALSE, TRUE, sizeof(struct profile_node));
	g_array_append_vals(tree->nodes, first, ARRAY_SIZE(first));
	number_map_init(&tree->index);
	tree->node_of = g_array_new(FALSE, TRUE, sizeof(uint32_t));
}

void profile_tree_done(struct profile_tree *tree)
{
	if (!tree->nodes)
		return;
	g_array_unref(tree->nodes);
	g_array_unref(tree->node_of);
	number_map_done(&tree->index);
	*tree = (struct profile_tree){ 0 };
}

static void add_count(GArray *nodes, uint32_t index, struct profile_count count)
{
	struct profile_node *node = &g_array_index(nodes, struct profile_node, index);

	amount_add(&node->count.self, count.self);
	amount_add(&node->count.total, count.total);
}

/* Merges stacks into nodes. Parents come before children in order[], so their nodes are known.
 * Without `grow`, leaves out rows without a node. */
static void merge(struct profile_tree *tree, GArray *nodes, struct number_map *index, bool grow,
		  const struct stacks *stacks)
{
	uint32_t *node_of;

	g_array_set_size(tree->node_of, (guint)stacks->n);
	node_of = (uint32_t *)(void *)tree->node_of->data;
	for (size_t i = 0; i < stacks->n; i++) {
		uint32_t row = stacks->order[i];
		uint32_t parent =
			stacks->parent[row] == STACKS_NO_ROW ? 0 : node_of[stacks->parent[row]];

		if (stacks->total[row].samples == 0)
			continue;
		if (grow)
			node_of[row] = cct_child(nodes, index, parent, stacks->entity[row]);
		else if (parent != NO_NODE)
			node_of[row] =
				number_map_get(index, (uint64_t)parent << 32 | stacks->entity[row]);
		if (parent == NO_NODE || node_of[row] == 0)
			node_of[row] = NO_NODE;
		if (node_of[row] == NO_NODE)
			tree->cut = true;
		else
			add_count(nodes, node_of[row],
				  (struct profile_count){ stacks->self[row], stacks->total[row] });
	}
}

/* Adds the heavy nodes of one epoch. The parent of a heavy node is heavy, too, because a parent
 * weighs at least as much as its children. */
static void add_heavy(struct profile_tree *tree, const struct stacks *stacks, double min)
{
	g_autoptr(GArray) nodes = g_array_new(FALSE, TRUE, sizeof(struct profile_node));
	g_autofree uint32_t *kept = NULL;
	struct number_map index;

	number_map_init(&index);
	g_array_set_size(nodes, 1);
	merge(tree, nodes, &index, true, stacks);
	number_map_done(&index);
	kept = g_new0(uint32_t, nodes->len);
	for (guint i = 1; i < nodes->len; i++) {
		const struct profile_node *node = &g_array_index(nodes, struct profile_node, i);

		if ((double)node->count.total.weight < min) {
			tree->cut = true;
			continue;
		}
		kept[i] = cct_child(tree->nodes, &tree->index, kept[node->parent], node->entity);
		add_count(tree->nodes, kept[i], node->count);
	}
}

void profile_tree_add(struct profile_tree *tree, const struct stacks *stacks, uint64_t weight)
{
	tree->epochs++;
	if (tree->counting || tree->min_share == 0)
		merge(tree, tree->nodes, &tree->index, !tree->counting, stacks);
	else
		add_heavy(tree, stacks, tree->min_share * ROUNDING * (double)weight);
}

uint32_t profile_tree_get(struct profile_tree *tree, uint32_t parent, uint32_t entity)
{
	/* FUNCTION_NO_STACK and FUNCTION_LOST are always nodes 1 and 2, outside the index. */
	if (parent == 0 && entity <= FUNCTION_LOST)
		return 1 + entity;
	return cct_child(tree->nodes, &tree->index, parent, entity);
}

bool profile_tree_again(struct profile_tree *tree)
{
	/* The counts are exact if nothing was left out, or if there was only one epoch. */
	if (tree->counting || !tree->cut || tree->epochs < 2)
		return false;
	tree->counting = true;
	tree->cut = false;
	for (guint i = 0; i < tree->nodes->len; i++)
		g_array_index(tree->nodes, struct profile_node, i).count =
			(struct profile_count){ 0 };
	return true;
}
