/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-call-tree - the answer as a tree: calls from the roots down, or callers from the
 * allocating functions up
 *
 * A node includes all nodes below it. Small branches are shown only with --limit 0. Growth and
 * shrinkage can cancel out in a node of --diff, so shares are relative to the total change, and a
 * node ranks by the largest node below it. The tree of callers has many more nodes than there are
 * stacks, so only the nodes that are shown are created.
 */
#include "config.h"

#include "tools/profcapture/cct.h"
#include "tools/profcapture/code-origin.h"
#include "tools/profcapture/memory.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Stacks may be deeper: nodes below that depth count for the node at it. Few JSON readers accept
 * more nesting. */
#define MAX_DEPTH CCT_MAX_DEPTH
#define MIN_SHARE 0.005

/* How much stacks grew and shrank, whichever way. */
struct change {
	double self, total;
};

struct tree {
	struct memory *memory;
	const GArray *nodes;     /* struct memory_node */
	const GArray *self;      /* struct memory_sum by node */
	GArray *totals, *before; /* the same by node, with all below; before: of --diff, or NULL */
	GArray *callers[2];      /* nodes and self, where this tree owns them; or NULL */
	uint32_t *first, *next;  /* first child, and next child of the same parent; 0: none */
	GArray *changes;         /* struct change by node, of --diff */
	double *most;            /* by node: the largest key of it and all nodes below */
	double all;              /* the sum of all stacks' keys, which shares are relative to */
};

static const struct memory_node *node_at(const struct tree *tree, uint32_t index)
{
	return &g_array_index(tree->nodes, struct memory_node, index);
}

static double key_of(const struct memory *memory, const GArray *sums, const GArray *before,
		     uint32_t node)
{
	struct memory_sum sum = memory_sum_at(sums, node), sum_before;
	double key = memory_key_of(memory, &sum);

	if (!before)
		return key;
	sum_before = memory_sum_at(before, node);
	return fabs(key - memory_key_of(memory, &sum_before));
}

static double key_at(const struct tree *tree, uint32_t node)
{
	return key_of(tree->memory, tree->totals, tree->before, node);
}

/* The key of one stack alone. The node is one of the call tree. */
static double key_of_stack(const struct memory *memory, uint32_t node)
{
	return key_of(memory, memory->sums, memory->before, node);
}

static bool is_worth_showing(const struct tree *tree, double key)
{
	return tree->memory->reader.limit == 0 || key >= tree->all * MIN_SHARE;
}

/* ---- callers --------------------------------------------------------------------------------- */

struct step {
	uint32_t leaf, at; /* nodes of the call tree: the counted stack, and the current frame */
	uint32_t function; /* of node at */
};

static gint compare_steps(gconstpointer left, gconstpointer right)
{
	const struct step *a = left, *b = right;

	return a->function != b->function ? (a->function < b->function ? -1 : 1)
	       : a->leaf < b->leaf        ? -1
					  : a->leaf > b->leaf;
}

static void add_sum(struct memory_sum *to, struct memory_sum sum)
{
	to->bytes += sum.bytes;
	to->blocks += sum.blocks;
}

/* The steps belong to stacks with the same frames so far. Their sum is the node's. */
static void add_node(struct tree *tree, uint32_t parent, const struct step *steps, size_t n)
{
	const struct memory *memory = tree->memory;
	struct memory_node node = { .parent = parent, .function = steps->function };
	uint32_t index = tree->callers[0]->len;

	g_array_append_val(tree->callers[0], node);
	g_array_set_size(tree->callers[1], index + 1);
	g_array_set_size(tree->changes, index + 1);
	for (size_t i = 0; i < n; i++) {
		struct memory_sum sum = memory_sum_at(memory->sums, steps[i].leaf);

		add_sum(memory_sum_of(tree->totals, index), sum);
		if (tree->before) {
			add_sum(memory_sum_of(tree->before, index),
				memory_sum_at(memory->before, steps[i].leaf));
			g_array_index(tree->changes, struct change, index).total +=
				key_of_stack(memory, steps[i].leaf);
		}
		if (memory_node_at(&memory->tree, steps[i].at)->parent)
			continue;
		add_sum(memory_sum_of(tree->callers[1], index), sum);
		g_array_index(tree->changes, struct change, index).self +=
			key_of_stack(memory, steps[i].leaf);
	}
}

/* Moves each step one frame up and drops the steps that have no caller. */
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

/* An upper bound for each node below these steps. */
static double most_of(const struct tree *tree, const struct step *steps, size_t n)
{
	double most = 0;

	for (size_t i = 0; i < n; i++)
		most += key_of_stack(tree->memory, steps[i].leaf);
	return most;
}

static void add_callers(struct tree *tree, uint32_t parent, struct step *steps, size_t n,
			unsigned depth)
{
	uint32_t node = tree->callers[0]->len;

	if (n > 0)
		qsort(steps, n, sizeof(*steps), compare_steps);
	for (size_t i = 0, end; i < n; i = end) {
		end = end_of_group(steps, i, n);
		add_node(tree, parent, &steps[i], end - i);
	}
	for (size_t i = 0, end; i < n; i = end, node++) {
		end = end_of_group(steps, i, n);
		if (depth < MAX_DEPTH && is_worth_showing(tree, most_of(tree, &steps[i], end - i)))
			add_callers(tree, node, &steps[i],
				    step_up(&tree->memory->tree, &steps[i], end - i), depth + 1);
	}
}

/* The site that the allocation counts for, above C++'s new. */
static struct step first_step(const struct memory_tree *calls, uint32_t leaf)
{
	uint32_t site = memory_node_at(calls, leaf)->site, at = leaf;

	while (memory_node_at(calls, at)->function != site && memory_node_at(calls, at)->parent)
		at = memory_node_at(calls, at)->parent;
	return (struct step){ leaf, at, site };
}

static void find_callers(struct tree *tree)
{
	const struct memory *memory = tree->memory;
	const struct memory_node root = { 0 };
	g_autoptr(GArray) steps = g_array_new(FALSE, FALSE, sizeof(struct step));

	tree->nodes = tree->callers[0] = g_array_new(FALSE, FALSE, sizeof(struct memory_node));
	tree->self = tree->callers[1] = g_array_new(FALSE, TRUE, sizeof(struct memory_sum));
	tree->totals = g_array_new(FALSE, TRUE, sizeof(struct memory_sum));
	if (memory->before)
		tree->before = g_array_new(FALSE, TRUE, sizeof(struct memory_sum));
	g_array_append_val(tree->callers[0], root);
	for (uint32_t i = 1; i < memory->tree.nodes->len; i++) {
		struct memory_sum sum = memory_sum_at(memory->sums, i);

		add_sum(memory_sum_of(tree->totals, 0), sum);
		if (memory->before) {
			add_sum(memory_sum_of(tree->before, 0), memory_sum_at(memory->before, i));
			add_sum(&sum, memory_sum_at(memory->before, i));
		}
		if (sum.bytes > 0 || sum.blocks > 0) {
			struct step step = first_step(&memory->tree, i);

			g_array_append_val(steps, step);
		}
	}
	g_array_set_size(tree->changes, 1);
	g_array_index(tree->changes, struct change, 0).total = tree->all;
	add_callers(tree, 0, (struct step *)(void *)steps->data, steps->len, 0);
}

/* ---- the tree -------------------------------------------------------------------------------- */

static void find_calls(struct tree *tree)
{
	const struct memory *memory = tree->memory;

	tree->nodes = memory->tree.nodes;
	tree->self = memory->sums;
	tree->totals = memory_tree_totals(&memory->tree, memory->sums);
	if (!memory->before)
		return;
	tree->before = memory_tree_totals(&memory->tree, memory->before);
	g_array_set_size(tree->changes, tree->nodes->len);
	for (uint32_t i = tree->nodes->len; i-- > 1;) {
		struct change *change = &g_array_index(tree->changes, struct change, i);

		change->self = key_of_stack(memory, i);
		change->total += change->self;
		g_array_index(tree->changes, struct change, node_at(tree, i)->parent).total +=
			change->total;
	}
}

static void tree_init(struct tree *tree, struct memory *memory)
{
	guint n;

	*tree = (struct tree){ .memory = memory };
	tree->changes = g_array_new(FALSE, TRUE, sizeof(struct change));
	for (uint32_t i = 1; i < memory->tree.nodes->len; i++)
		tree->all += key_of_stack(memory, i);
	if (memory->is_inverted)
		find_callers(tree);
	else
		find_calls(tree);
	n = tree->nodes->len;
	tree->first = g_new0(uint32_t, n);
	tree->next = g_new0(uint32_t, n);
	tree->most = g_new0(double, n);
	for (uint32_t i = n; i-- > 1;) {
		uint32_t parent = node_at(tree, i)->parent;
		struct memory_sum sum = memory_sum_at(tree->totals, i);

		tree->most[i] = MAX_OF(tree->most[i], key_at(tree, i));
		tree->most[parent] = MAX_OF(tree->most[parent], tree->most[i]);
		if (tree->most[i] < 0.5 && sum.blocks < 0.5)
			continue;
		tree->next[i] = tree->first[parent];
		tree->first[parent] = i;
	}
}

static void tree_done(struct tree *tree)
{
	for (unsigned i = 0; i < ARRAY_SIZE(tree->callers); i++)
		if (tree->callers[i])
			g_array_unref(tree->callers[i]);
	g_array_unref(tree->totals);
	g_array_unref(tree->changes);
	if (tree->before)
		g_array_unref(tree->before);
	g_free(tree->first);
	g_free(tree->next);
	g_free(tree->most);
}

static gint compare_nodes(gconstpointer left, gconstpointer right, gpointer data)
{
	const struct tree *tree = data;
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	double by_a = tree->most[a], by_b = tree->most[b];
	const struct functions *functions = tree->memory->tree.functions;
	int order;

	if (by_a != by_b)
		return by_a > by_b ? -1 : 1;
	order = g_strcmp0(functions_at(functions, node_at(tree, a)->function)->name,
			  functions_at(functions, node_at(tree, b)->function)->name);
	return order ? order : a < b ? -1 : 1;
}

/* The children of a node that are shown, in order. Sets *cut if others are hidden. */
static GArray *open_children(const struct tree *tree, uint32_t node, unsigned depth, bool *cut)
{
	GArray *children = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	uint64_t limit = tree->memory->reader.limit;

	for (uint32_t i = tree->first[node]; i; i = tree->next[i]) {
		if (depth < MAX_DEPTH && is_worth_showing(tree, tree->most[i]))
			g_array_append_val(children, i);
		else
			*cut = true;
	}
	g_array_sort_with_data(children, compare_nodes, (gpointer)tree);
	if (limit && children->len > limit) {
		*cut = true;
		g_array_set_size(children, (guint)limit);
	}
	return children;
}

static bool is_cut(const struct tree *tree, uint32_t node, unsigned depth)
{
	bool cut = false;
	g_autoptr(GArray) children = open_children(tree, node, depth, &cut);

	for (guint i = 0; !cut && i < children->len; i++)
		cut = is_cut(tree, g_array_index(children, uint32_t, i), depth + 1);
	return cut;
}

bool memory_tree_is_cut(struct memory *memory)
{
	struct tree tree;
	bool cut;

	tree_init(&tree, memory);
	cut = is_cut(&tree, 0, 0);
	tree_done(&tree);
	return cut;
}

static void write_node(const struct tree *tree, struct json *json, uint32_t node, const char *key,
		       unsigned depth)
{
	bool cut = false;
	g_autoptr(GArray) children = open_children(tree, node, depth, &cut);
	struct memory_sum self = memory_sum_at(tree->self, node);
	struct memory_sum total = memory_sum_at(tree->totals, node);
	struct memory_sum before = tree->before ? memory_sum_at(tree->before, node)
						: (struct memory_sum){ 0 };

	if (depth == MAX_DEPTH)
		self = total;
	json_begin_object(json, key);
	memory_write_node(tree->memory, json, node_at(tree, node)->function, node == 0, &self,
			  &total, &before);
	json_begin_array(json, "children");
	for (guint i = 0; i < children->len; i++)
		write_node(tree, json, g_array_index(children, uint32_t, i), NULL, depth + 1);
	json_end(json);
	json_end(json);
}

void memory_write_tree(struct memory *memory, struct json *json)
{
	struct tree tree;

	tree_init(&tree, memory);
	write_node(&tree, json, 0, "root", 0);
	tree_done(&tree);
}

/* ---- text ------------------------------------------------------------------------------------ */

/* A branch below this share has no line of its own without --limit 0. */
#define TEXT_MIN_PCT 1.0

enum field { PERCENT, BYTES, BLOCKS, CHANGE, NAME, PLACE };

struct tree_text {
	const struct memory *memory;
	const GArray *nodes, *lines; /* struct cct_node, struct cct_line */
	const struct cct_options *options;
	bool by_blocks;
};

static double percent_of(const struct tree_text *text, double part)
{
	double all = g_array_index(text->nodes, struct cct_node, 0).total;

	return all > 0 ? 100 * part / all : 0;
}

static void get_cell(const void *data, size_t row, unsigned field, struct cell *ret_cell)
{
	const struct tree_text *text = data;
	const struct cct_line *line = &g_array_index(text->lines, struct cct_line, row);
	const struct cct_node *node = &g_array_index(text->nodes, struct cct_node, line->node);
	bool is_hidden = line->node == 0;

	if (field == NAME) {
		*ret_cell = cell_own_text(cct_describe(text->nodes, line, text->options));
		ret_cell->prefix = g_strdup(line->prefix);
	} else if (is_hidden || (field == PLACE && line->caller)) {
		return;
	} else if (field == PERCENT) {
		*ret_cell = cell_double(percent_of(text, node->total));
	} else if (field == PLACE) {
		char *place = functions_place(text->memory->tree.functions, node->function, false);

		if (place)
			*ret_cell = cell_own_text(place);
	} else if (field == CHANGE) {
		*ret_cell = cell_int(llround(node->total_count));
	} else {
		*ret_cell = cell_uint(memory_integer(
			(field == BLOCKS) == text->by_blocks ? node->total : node->total_count));
	}
}

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

/* Growth and shrinkage of a branch cancel out. So with --diff, the measure that counts is the sum
 * of both, and the other measure is the difference. */
static GArray *copy_nodes(const struct tree *tree, bool by_blocks)
{
	GArray *nodes = g_array_sized_new(FALSE, TRUE, sizeof(struct cct_node), tree->nodes->len);

	for (uint32_t i = 0; i < tree->nodes->len; i++) {
		struct memory_sum self = memory_sum_at(tree->self, i);
		struct memory_sum total = memory_sum_at(tree->totals, i);
		struct cct_node node = { .parent = node_at(tree, i)->parent,
					 .function = node_at(tree, i)->function,
					 .self = by_blocks ? self.blocks : self.bytes,
					 .total = by_blocks ? total.blocks : total.bytes,
					 .self_count = by_blocks ? self.bytes : self.blocks,
					 .total_count = by_blocks ? total.bytes : total.blocks };

		if (tree->before) {
			struct memory_sum before = memory_sum_at(tree->before, i);

			node.total_count = node.total - (by_blocks ? before.blocks : before.bytes);
			node.total = g_array_index(tree->changes, struct change, i).total;
			node.self = g_array_index(tree->changes, struct change, i).self;
			node.self_count = 0;
		}
		g_array_append_val(nodes, node);
	}
	return nodes;
}

/* Moves what a library allocates to the first of its functions. A chain would end in the allocator
 * otherwise, which says least. */
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
	bool by_blocks = memory_key_of(memory, &one_block) > 0, folds = !memory->no_fold, hides;
	bool all = memory->reader.limit == 0;
	struct cct_options options = {
		.kind_of = kind_of,
		.name_of = name_of,
		.shown_name = shown_name,
		.data = memory,
		.is_inverted = memory->is_inverted,
		.folds = folds,
		.min_share = all ? 0 : TEXT_MIN_PCT / 100,
		.most = memory->reader.limit,
		.columns = memory->reader.columns,
	};
	const struct table_style style = { .out = out,
					   .is_colored = memory->reader.colored,
					   .columns = memory->full_names ? 0
									 : memory->reader.columns };
	struct tree_text text = { .memory = memory, .options = &options, .by_blocks = by_blocks };
	struct table table = { .get = get_cell, .data = &text };
	g_autoptr(GArray) whole = NULL, folded = NULL, lines = NULL;
	struct tree tree;

	tree_init(&tree, memory);
	whole = copy_nodes(&tree, by_blocks);
	if (folds && !memory->is_inverted)
		move_to_outermost(memory, whole);
	folded = folds ? cct_fold(whole, &options) : NULL;
	text.nodes = folded ? folded : whole;
	text.lines = lines = cct_lines(text.nodes, &options, &hides);
	options.whole = g_array_index(text.nodes, struct cct_node, 0).total;
	table.rows = lines->len;
	table_add_column(&table, PERCENT, COLUMN_PERCENT, _("total %"));
	if (memory->before) {
		table_add_column(&table, CHANGE, by_blocks ? COLUMN_COUNT : COLUMN_SIZE,
				 _("change"));
		table.columns[1].is_signed = true;
	} else {
		table_add_column(&table, BYTES, COLUMN_SIZE, _("bytes"));
		table_add_column(&table, BLOCKS, COLUMN_COUNT, _("blocks"));
	}
	table_add_column(&table, NAME, COLUMN_NAME,
			 memory->is_inverted ? _("function < caller") : _("function"));
	table_add_column(&table, PLACE, COLUMN_PLACE, NULL);
	table_print(&table, &style, lines->len);
	cct_print_end(out, &options, hides);
	tree_done(&tree);
}
