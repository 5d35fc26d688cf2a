/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-call-tree - the answer as a tree of calls, from the roots down
 *
 * A node has what it and all below it are about; small branches are shown only with --limit 0.
 */
#include "config.h"

#include "tools/profcapture/memory.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MAX_DEPTH 256
#define MIN_SHARE 0.005

struct tree {
	struct memory *memory;
	GArray *totals, *before; /* struct memory_sum by node; before: of --diff, or NULL */
	uint32_t *first, *next;  /* child by node, and child of the same parent; 0: none */
	double all;              /* what a share is of */
};

static double key_at(const struct tree *tree, uint32_t node)
{
	struct memory_sum sum = memory_sum_at(tree->totals, node);
	struct memory_sum before = tree->before ? memory_sum_at(tree->before, node)
						: (struct memory_sum){ 0 };

	return tree->before ? fabs(sum.bytes - before.bytes) : memory_key_of(tree->memory, &sum);
}

static void tree_init(struct tree *tree, struct memory *memory)
{
	guint n = memory->tree.nodes->len;

	*tree = (struct tree){ .memory = memory,
			       .first = g_new0(uint32_t, n),
			       .next = g_new0(uint32_t, n) };
	tree->totals = memory_tree_totals(&memory->tree, memory->sums);
	if (memory->before)
		tree->before = memory_tree_totals(&memory->tree, memory->before);
	for (uint32_t i = n; i-- > 1;) {
		uint32_t parent = memory_node_at(&memory->tree, i)->parent;
		struct memory_sum sum = memory_sum_at(tree->totals, i);

		if (key_at(tree, i) < 0.5 && sum.blocks < 0.5)
			continue;
		tree->next[i] = tree->first[parent];
		tree->first[parent] = i;
		if (parent == 0)
			tree->all += key_at(tree, i);
	}
}

static void tree_done(struct tree *tree)
{
	g_array_unref(tree->totals);
	if (tree->before)
		g_array_unref(tree->before);
	g_free(tree->first);
	g_free(tree->next);
}

static gint compare_nodes(gconstpointer left, gconstpointer right, gpointer data)
{
	const struct tree *tree = data;
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	double by_a = key_at(tree, a), by_b = key_at(tree, b);
	const struct functions *functions = tree->memory->tree.functions;
	int order;

	if (by_a != by_b)
		return by_a > by_b ? -1 : 1;
	order = g_strcmp0(
		functions_at(functions, memory_node_at(&tree->memory->tree, a)->function)->name,
		functions_at(functions, memory_node_at(&tree->memory->tree, b)->function)->name);
	return order ? order : a < b ? -1 : 1;
}

/* The children of a node that are shown, in order; *cut when there are others. */
static GArray *open_children(const struct tree *tree, uint32_t node, unsigned depth, bool *cut)
{
	GArray *children = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	uint64_t limit = tree->memory->reader.limit;

	for (uint32_t i = tree->first[node]; i; i = tree->next[i]) {
		if (depth < MAX_DEPTH && (limit == 0 || key_at(tree, i) >= tree->all * MIN_SHARE))
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
	struct memory_sum self = memory_sum_at(tree->memory->sums, node);
	struct memory_sum total = memory_sum_at(tree->totals, node);
	struct memory_sum before = tree->before ? memory_sum_at(tree->before, node)
						: (struct memory_sum){ 0 };

	json_begin_object(json, key);
	memory_write_node(tree->memory, json, memory_node_at(&tree->memory->tree, node)->function,
			  node == 0, &self, &total, &before);
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

static void print_number(struct out *out, double bytes, bool is_signed)
{
	g_autofree char *text = text_bytes(memory_integer(fabs(bytes)));
	g_autofree char *whole = g_strconcat(!is_signed ? "" : bytes < 0 ? "-" : "+", text, NULL);

	out_printf(out, "%12s ", whole);
}

static void print_node(const struct tree *tree, struct out *out, uint32_t node, unsigned depth)
{
	const struct functions *functions = tree->memory->tree.functions;
	uint32_t function = memory_node_at(&tree->memory->tree, node)->function;
	struct memory_sum total = memory_sum_at(tree->totals, node);
	struct memory_sum before = tree->before ? memory_sum_at(tree->before, node)
						: (struct memory_sum){ 0 };
	bool cut = false;
	g_autoptr(GArray) children = open_children(tree, node, depth, &cut);

	if (node) {
		print_number(out, total.bytes - before.bytes, tree->before);
		out_printf(out, "%11.0f %7.2f  %*s", total.blocks - before.blocks,
			   tree->all > 0 ? 100 * key_at(tree, node) / tree->all : 0,
			   (int)(depth - 1) * 2, "");
		text_cell(out, functions_at(functions, function)->name, 0, TEXT_LEFT);
		if (strcmp(functions_at(functions, function)->kind, "unresolved") != 0)
			functions_print_image(functions, function, out);
		out_char(out, '\n');
	}
	for (guint i = 0; i < children->len; i++)
		print_node(tree, out, g_array_index(children, uint32_t, i), depth + 1);
}

void memory_print_tree(struct memory *memory, struct out *out)
{
	struct tree tree;

	tree_init(&tree, memory);
	reader_style(&memory->reader, out, READER_BOLD);
	out_printf(out, "%12s %11s %7s  %s\n", _("bytes"), _("blocks"), "%", _("function"));
	reader_style(&memory->reader, out, READER_PLAIN);
	print_node(&tree, out, 0, 0);
	if (is_cut(&tree, 0, 0))
		out_text(out, memory->reader.limit
				      ? _("small or deep branches are not shown (--limit 0 shows "
					  "more)\n")
				      : _("deep branches are not shown\n"));
	tree_done(&tree);
}
