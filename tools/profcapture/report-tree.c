/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Report-tree - the call tree, from the roots down, or from the hottest functions up to their
 * callers
 *
 * Children are linked lists in two arrays, which cost eight bytes a node. Only the children of
 * nodes that are shown are sorted.
 */
#include "config.h"

#include "tools/profcapture/report.h"

#include <glib/gi18n.h>
#include <inttypes.h>

/* Deeper nodes are never shown. */
#define TREE_MAX_DEPTH 256

#define NO_NODE 0 /* the root is not a child of any node */

struct tree {
	const struct report *report;
	uint32_t *first; /* first child, by node */
	uint32_t *next;  /* next child of the same parent */
};

static const struct tally_node *node_at(const struct report *report, uint32_t index)
{
	return &g_array_index(report->tally.tree.nodes, struct tally_node, index);
}

static gint compare_nodes(gconstpointer left, gconstpointer right, gpointer data)
{
	const struct report *report = data;
	struct report_line lines[2];

	for (unsigned i = 0; i < 2; i++) {
		const struct tally_node *node =
			node_at(report, *(const uint32_t *)(i ? right : left));

		/* Branches are ordered by their totals. */
		lines[i] = (struct report_line){ .entity = node->entity,
						 .count = { .self = node->count.total,
							    .total = node->count.self } };
		report_describe(report, &lines[i]);
	}
	return report_compare_lines(&lines[0], &lines[1]);
}

static void tree_init(struct tree *tree, const struct report *report)
{
	guint n = report->tally.tree.nodes->len;

	*tree = (struct tree){ .report = report,
			       .first = g_new0(uint32_t, n),
			       .next = g_new0(uint32_t, n) };
	for (uint32_t i = 1; i < n; i++) {
		const struct tally_node *node = node_at(report, i);

		if (node->count.total.samples == 0)
			continue;
		tree->next[i] = tree->first[node->parent];
		tree->first[node->parent] = i;
	}
}

static void tree_done(struct tree *tree)
{
	g_free(tree->first);
	g_free(tree->next);
}

static bool is_worth_showing(const struct report *report, uint32_t index)
{
	return report->reader.limit == 0 ||
	       report_percent(report, node_at(report, index)->count.total) >= REPORT_TREE_MIN_PCT;
}

/* The children of a node that are shown, in order. Sets *folded if others are hidden. */
static GArray *open_children(const struct tree *tree, uint32_t index, unsigned depth, bool *folded)
{
	GArray *children = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	uint64_t limit = tree->report->reader.limit;

	for (uint32_t i = tree->first[index]; i != NO_NODE; i = tree->next[i]) {
		if (depth < TREE_MAX_DEPTH && is_worth_showing(tree->report, i))
			g_array_append_val(children, i);
		else
			*folded = true;
	}
	g_array_sort_with_data(children, compare_nodes, (gpointer)tree->report);
	if (limit && children->len > limit) {
		*folded = true;
		g_array_set_size(children, (guint)limit);
	}
	return children;
}

/* Returns whether branches below the node are hidden. */
static bool has_folded(const struct tree *tree, uint32_t index, unsigned depth)
{
	bool folded = false;
	g_autoptr(GArray) children = open_children(tree, index, depth, &folded);

	for (guint i = 0; !folded && i < children->len; i++)
		folded = has_folded(tree, g_array_index(children, uint32_t, i), depth + 1);
	return folded;
}

static void write_root(struct json *json)
{
	json_string(json, "name", "<root>");
	json_string(json, "raw_name", "<root>");
	json_null(json, "image");
	json_null(json, "build_id");
	json_null(json, "offset");
	json_string(json, "kind", "unresolved");
	json_null(json, "file");
	json_null(json, "line");
}

static double percent_of_parent(const struct report *report, const struct tally_node *node,
				uint32_t index)
{
	return amount_percent(node->count.total, index ? node_at(report, node->parent)->count.total
						       : node->count.total);
}

static void write_node(const struct tree *tree, struct json *json, uint32_t index, const char *key,
		       unsigned depth)
{
	const struct tally_node *node = node_at(tree->report, index);
	bool folded = false;
	g_autoptr(GArray) children = open_children(tree, index, depth, &folded);

	json_begin_object(json, key);
	if (index == 0)
		write_root(json);
	else
		report_write_entity(tree->report, json, node->entity);
	report_write_counts(tree->report, json, node->count);
	json_double(json, "parent_pct", percent_of_parent(tree->report, node, index));
	json_begin_array(json, "children");
	for (guint i = 0; i < children->len; i++)
		write_node(tree, json, g_array_index(children, uint32_t, i), NULL, depth + 1);
	json_end(json);
	json_end(json);
}

static void print_node(const struct tree *tree, struct out *out, uint32_t index, unsigned depth)
{
	const struct tally_node *node = node_at(tree->report, index);
	bool folded = false;
	g_autoptr(GArray) children = open_children(tree, index, depth, &folded);

	if (index != 0) {
		unsigned used = (depth - 1) * 2 + (tree->report->tally.inverted ? 19 : 28);
		double total = report_percent(tree->report, node->count.total);

		reader_style(&tree->report->reader, out, reader_heat(total));
		out_printf(out, "%8.2f %8.2f ", total,
			   percent_of_parent(tree->report, node, index));
		if (!tree->report->tally.inverted)
			out_printf(out, "%8.2f ", report_percent(tree->report, node->count.self));
		out_printf(out, " %*s", (int)(depth - 1) * 2, "");
		if (reader_heat(total) != READER_PLAIN)
			reader_style(&tree->report->reader, out, READER_PLAIN);
		report_print_entity(tree->report, out, node->entity, used);
	}
	for (guint i = 0; i < children->len; i++)
		print_node(tree, out, g_array_index(children, uint32_t, i), depth + 1);
}

static void print_tree(const struct tree *tree, struct out *out, bool is_cut)
{
	report_print_head(tree->report, out);
	reader_style(&tree->report->reader, out, READER_BOLD);
	if (tree->report->tally.inverted)
		out_printf(out, "%8s %8s  %s\n", _("self %"), _("parent %"),
			   _("function, and who called it"));
	else
		out_printf(out, "%8s %8s %8s  %s\n", _("total %"), _("parent %"), _("self %"),
			   _("function"));
	reader_style(&tree->report->reader, out, READER_PLAIN);
	print_node(tree, out, 0, 0);
	if (is_cut && tree->report->reader.limit)
		out_text(out, _("small or deep branches are not shown (--limit 0 shows more)\n"));
	else if (is_cut)
		out_printf(out, _("branches deeper than %d are not shown\n"), TREE_MAX_DEPTH);
}

void report_show_tree(struct report *report, struct out *out)
{
	struct tally_node *root = &g_array_index(report->tally.tree.nodes, struct tally_node, 0);
	struct tree tree;
	bool is_cut;

	root->count = (struct tally_count){ .total = amount_less(report->tally.all,
								 report->tally.filtered) };
	tree_init(&tree, report);
	is_cut = report->tally.tree.cut || has_folded(&tree, 0, 0);
	if (report->reader.format == READER_TEXT) {
		print_tree(&tree, out, is_cut);
	} else {
		reader_begin(&report->reader, &report->json, "report", is_cut);
		report_write_head(report, &report->json);
		write_node(&tree, &report->json, 0, "root", 0);
		reader_end(&report->reader, &report->json);
	}
	tree_done(&tree);
}
