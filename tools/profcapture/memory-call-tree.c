/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-call-tree - the answer as a call tree: from the roots to the allocating functions, or from
 * these to their callers
 *
 * A node includes all nodes below it. Small branches are shown only with --limit 0. With --diff,
 * growth and shrinkage can cancel out in a node, so shares are relative to the sum of absolute
 * changes, and JSON sorts a node by the largest key in its subtree. A tree of callers would have
 * many more nodes than there are stacks, so only its large branches are created.
 */
#include "config.h"

#include "base/each.h"
#include "base/order.h"
#include "tools/present/tree.h"
#include "tools/profcapture/memory.h"
#include "tools/profile/cct-fold.h"
#include "tools/profile/code-origin.h"
#include "tools/profile/function-names.h"

#include <glib/gi18n.h>
#include <math.h>

#define MIN_SHARE 0.005 /* smallest share of a branch in JSON */
/* In text, a branch with a smaller share has no line, unless --limit 0 is given. */
#define TEXT_MIN_PCT 1.0

struct branch {
	uint32_t parent, function;
	struct memory_sum self, total; /* total: with all branches below */
	struct memory_sum before;      /* with --diff: the total at the first time */
	double self_change, change;    /* sums of the stacks' keys (--diff: absolute changes) */
};

/* The tree of the answer. Its depth is limited to CCT_MAX_DEPTH, because few JSON readers accept
 * more nesting. Deeper frames count in the deepest branch. */
struct tree {
	struct memory *memory;
	GArray *branches; /* struct branch, a parent before its children */
	double all;       /* sum of the keys of all stacks; shares are relative to it */
};

static struct branch *branch_at(const struct tree *tree, uint32_t index)
{
	return &g_array_index(tree->branches, struct branch, index);
}

static struct memory_sum before_of(const struct memory *memory, uint32_t node)
{
	return memory->before ? memory_sum_at(memory->before, node) : (struct memory_sum){ 0 };
}

static double key_of(const struct memory *memory, struct memory_sum now, struct memory_sum before)
{
	double key = memory_key_of(memory, &now);

	return memory->before ? fabs(key - memory_key_of(memory, &before)) : key;
}

/* Returns the key of one node of the call tree, without the nodes below it: bytes or blocks; with
 * --diff, the absolute change. */
static double key_of_stack(const struct memory *memory, uint32_t node)
{
	return key_of(memory, memory_sum_at(memory->sums, node), before_of(memory, node));
}

static void add_sum(struct memory_sum *to, struct memory_sum sum)
{
	memory_sum_add(to, sum.bytes, sum.blocks);
}

/* ---- callers --------------------------------------------------------------------------------- */

struct step {
	uint32_t leaf, at; /* call tree nodes: the leaf of the stack, and the current frame */
	uint32_t function; /* function of node `at` */
};

COMPARE_BY(compare_steps, struct step, ORDER(a->function, b->function), ORDER(a->leaf, b->leaf))

/* Adds one branch for all steps, because their stacks have the same functions so far. */
static void add_branch(struct tree *tree, uint32_t parent, const struct step *steps, size_t n)
{
	const struct memory *memory = tree->memory;
	struct branch branch = { .parent = parent, .function = steps->function };

	for (size_t i = 0; i < n; i++) {
		uint32_t leaf = steps[i].leaf;

		add_sum(&branch.total, memory_sum_at(memory->sums, leaf));
		add_sum(&branch.before, before_of(memory, leaf));
		branch.change += key_of_stack(memory, leaf);
		if (memory_node_at(&memory->tree, steps[i].at)->parent)
			continue;
		add_sum(&branch.self, memory_sum_at(memory->sums, leaf));
		branch.self_change += key_of_stack(memory, leaf);
	}
	g_array_append_val(tree->branches, branch);
}

/* Moves each step to its caller. Drops steps without a caller, and returns how many are left. */
static size_t step_up(const struct memory_tree *calls, struct step *steps, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		uint32_t at = memory_node_at(calls, steps[i].at)->parent;

		if (at)
			steps[kept++] = (struct step){ steps[i].leaf, at,
						       memory_node_at(calls, at)->function };
	}
	return kept;
}

static size_t end_of_group(const struct step *steps, size_t at, size_t n)
{
	size_t end = at + 1;

	while (end < n && steps[end].function == steps[at].function)
		end++;
	return end;
}

static void add_callers(struct tree *tree, uint32_t parent, struct step *steps, size_t n,
			unsigned depth)
{
	uint32_t branch = tree->branches->len;

	if (n > 0)
		qsort(steps, n, sizeof(*steps), compare_steps);
	for (size_t i = 0, end; i < n; i = end) {
		end = end_of_group(steps, i, n);
		add_branch(tree, parent, &steps[i], end - i);
	}
	for (size_t i = 0, end; i < n; i = end, branch++) {
		double most = 0; /* sum of the keys of the group's stacks */

		end = end_of_group(steps, i, n);
		for (size_t k = i; k < end; k++)
			most += key_of_stack(tree->memory, steps[k].leaf);
		if (depth < CCT_MAX_DEPTH &&
		    (tree->memory->reader.limit == 0 || most >= tree->all * MIN_SHARE))
			add_callers(tree, branch, &steps[i],
				    step_up(&tree->memory->tree, &steps[i], end - i), depth + 1);
	}
}

static void find_callers(struct tree *tree)
{
	const struct memory *memory = tree->memory;
	struct branch root = { .change = tree->all };
	g_autoptr(GArray) steps = g_array_new(FALSE, FALSE, sizeof(struct step));

	for (uint32_t i = 1; i < memory->tree.nodes->len; i++) {
		struct memory_sum sum = memory_sum_at(memory->sums, i);
		uint32_t site = memory_node_at(&memory->tree, i)->site;
		struct step step = { i, i, site };

		add_sum(&root.total, sum);
		add_sum(&root.before, before_of(memory, i));
		add_sum(&sum, before_of(memory, i));
		/* Start at the function that the stack is charged to, such as the caller of new. */
		while (memory_node_at(&memory->tree, step.at)->function != site &&
		       memory_node_at(&memory->tree, step.at)->parent)
			step.at = memory_node_at(&memory->tree, step.at)->parent;
		if (sum.bytes > 0 || sum.blocks > 0)
			g_array_append_val(steps, step);
	}
	g_array_append_val(tree->branches, root);
	add_callers(tree, 0, (struct step *)(void *)steps->data, steps->len, 0);
}

/* ---- the tree -------------------------------------------------------------------------------- */

static void find_calls(struct tree *tree)
{
	const struct memory *memory = tree->memory;

	for (uint32_t i = 0; i < memory->tree.nodes->len; i++) {
		const struct memory_node *node = memory_node_at(&memory->tree, i);
		struct branch branch = { .parent = node->parent,
					 .function = node->function,
					 .self = memory_sum_at(memory->sums, i),
					 .total = memory_sum_at(memory->sums, i),
					 .before = before_of(memory, i),
					 .self_change = i ? key_of_stack(memory, i) : 0 };

		g_array_append_val(tree->branches, branch);
	}
	for (uint32_t i = tree->branches->len; i-- > 1;) {
		struct branch *branch = branch_at(tree, i);
		struct branch *parent = branch_at(tree, branch->parent);

		branch->change += branch->self_change;
		parent->change += branch->change;
		add_sum(&parent->total, branch->total);
		add_sum(&parent->before, branch->before);
	}
}

static struct tree tree_new(struct memory *memory)
{
	struct tree tree = { .memory = memory,
			     .branches = g_array_new(FALSE, FALSE, sizeof(struct branch)) };

	for (uint32_t i = 1; i < memory->tree.nodes->len; i++)
		tree.all += key_of_stack(memory, i);
	if (memory->is_inverted)
		find_callers(&tree);
	else
		find_calls(&tree);
	return tree;
}

/* In a diff, growth and shrinkage within a branch cancel out. So sort and prune branches by the sum
 * of absolute changes, and show the net change. */
static GArray *nodes_of(const struct tree *tree, bool by_blocks)
{
	GArray *nodes =
		g_array_sized_new(FALSE, TRUE, sizeof(struct cct_node), tree->branches->len);

	ARRAY_EACH(const struct branch, b, tree->branches) {
		struct cct_node node = { .parent = b->parent,
					 .function = b->function,
					 .self = by_blocks ? b->self.blocks : b->self.bytes,
					 .total = by_blocks ? b->total.blocks : b->total.bytes,
					 .self_count = by_blocks ? b->self.bytes : b->self.blocks,
					 .total_count = by_blocks ? b->total.bytes
								  : b->total.blocks };

		if (tree->memory->before) {
			node.total_count = node.total -
					   (by_blocks ? b->before.blocks : b->before.bytes);
			node.total = b->change;
			node.self = b->self_change;
			node.self_count = 0;
		}
		g_array_append_val(nodes, node);
	}
	return nodes;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

struct written {
	struct tree tree;
	double *most; /* by branch: the largest key in its subtree; -1: nothing to show */
};

static gint compare_branches(gconstpointer left, gconstpointer right, gpointer data)
{
	const struct written *written = data;
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	const struct functions *functions = written->tree.memory->tree.functions;

	return ORDER_BY(
		ORDER(written->most[b], written->most[a]),
		g_strcmp0(functions_at(functions, branch_at(&written->tree, a)->function)->name,
			  functions_at(functions, branch_at(&written->tree, b)->function)->name),
		ORDER(a, b));
}

static void write_branch(struct json *json, uint32_t index, unsigned depth, const void *data)
{
	const struct written *written = data;
	const struct branch *branch = branch_at(&written->tree, index);

	struct memory_line line = { .entity = index ? branch->function : MEMORY_ROOT,
				    .self = depth == CCT_MAX_DEPTH ? branch->total : branch->self,
				    .total = branch->total,
				    .before = branch->before };

	memory_write_node(written->tree.memory, json, &line);
}

/* Writes the tree. If `json` is NULL, only returns whether branches are left out. */
static bool write_tree(struct memory *memory, struct json *json)
{
	struct written written = { .tree = tree_new(memory) };
	const struct tree *tree = &written.tree;
	g_autoptr(GArray) nodes = nodes_of(tree, false);
	g_autofree double *most = written.most = g_new0(double, nodes->len);
	const struct tree_writer writer = {
		.nodes = nodes,
		.keys = most,
		.least = memory->reader.limit ? tree->all * MIN_SHARE : 0,
		.most = memory->reader.limit,
		.compare = compare_branches,
		.write = write_branch,
		.data = &written,
	};
	bool cut = false;

	for (uint32_t i = nodes->len; i-- > 1;) {
		const struct branch *branch = branch_at(tree, i);

		most[i] = MAX_OF(most[i], key_of(memory, branch->total, branch->before));
		most[branch->parent] = MAX_OF(most[branch->parent], most[i]);
		if (most[i] < 0.5 && branch->total.blocks < 0.5)
			most[i] = -1;
	}
	if (json)
		tree_write(&writer, json);
	else
		cut = tree_is_cut(&writer);
	g_array_unref(tree->branches);
	return cut;
}

bool memory_tree_is_cut(struct memory *memory)
{
	return write_tree(memory, NULL);
}

void memory_write_tree(struct memory *memory, struct json *json)
{
	(void)write_tree(memory, json);
}

/* ---- text ------------------------------------------------------------------------------------ */

static enum cct_kind kind_of(uint32_t function, const void *data)
{
	const struct memory *memory = data;

	return code_origin_cct_kind(memory->tree.functions, function);
}

static const char *name_of(uint32_t function, const void *data)
{
	const struct memory *memory = data;

	return functions_at(memory->tree.functions, function)->name;
}

static char *shown_name(uint32_t function, const void *data)
{
	return memory_name(data, function);
}

static char *place_of(uint32_t function, const void *data)
{
	const struct memory *memory = data;

	return functions_place(memory->tree.functions, function, false);
}

/* In a chain of library functions, charges all allocations to the outermost function. Otherwise,
 * the chain would end in the allocator, which says least about the cause. */
static void move_to_outermost(const struct memory *memory, GArray *nodes)
{
	for (uint32_t i = nodes->len; i-- > 1;) {
		struct cct_node *node = &g_array_index(nodes, struct cct_node, i);
		struct cct_node *parent = &g_array_index(nodes, struct cct_node, node->parent);

		if (node->parent == 0 || kind_of(node->function, memory) != CCT_LIBRARY ||
		    kind_of(parent->function, memory) != CCT_LIBRARY)
			continue;
		parent->self += node->self;
		parent->self_count += node->self_count;
		node->total -= node->self;
		node->total_count -= node->self_count;
		node->self = node->self_count = 0;
	}
}

void memory_print_tree(struct memory *memory, struct out *out)
{
	const struct memory_sum one_block = { .blocks = 1 };
	bool by_blocks = memory_key_of(memory, &one_block) > 0;
	struct tree tree = tree_new(memory);
	g_autoptr(GArray) nodes = nodes_of(&tree, by_blocks);
	const struct tree_options options = {
		.kind_of = kind_of,
		.name_of = name_of,
		.shown_name = shown_name,
		.place_of = place_of,
		.data = memory,
		.whole = g_array_index(nodes, struct cct_node, 0).total,
		.is_inverted = memory->is_inverted,
		.folds = !memory->no_fold,
		.min_share = memory->reader.limit == 0 ? 0 : TEXT_MIN_PCT / 100,
		.most = memory->reader.limit,
		.rows = memory->tree_lines,
		.columns = memory->reader.columns,
	};
	const struct table_style style = { .out = out,
					   .is_colored = memory->reader.colored,
					   .columns = memory->full_names ? 0
									 : memory->reader.columns };
	struct table table = { .fit = memory->full_names ? NULL : &function_name_fits };
	g_autoptr(GArray) folded = NULL;

	g_array_unref(tree.branches);
	if (!memory->no_fold && !memory->is_inverted)
		move_to_outermost(memory, nodes);
	table_add_column(&table, TREE_TOTAL_SHARE, COLUMN_PERCENT, _("total %"));
	if (memory->before) {
		table_add_column(&table, TREE_CHANGE, by_blocks ? COLUMN_COUNT : COLUMN_SIZE,
				 _("change"));
		table.columns[1].is_signed = true;
	} else {
		table_add_column(&table, by_blocks ? TREE_COUNT : TREE_TOTAL, COLUMN_SIZE,
				 _("bytes"));
		table_add_column(&table, by_blocks ? TREE_TOTAL : TREE_COUNT, COLUMN_COUNT,
				 _("blocks"));
	}
	if (options.folds)
		folded = cct_fold(nodes, kind_of, memory, options.is_inverted);
	tree_print(folded ? folded : nodes, &options, &table, &style, false);
}
