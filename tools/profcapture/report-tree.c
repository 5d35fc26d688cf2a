/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Report-tree - the call tree, from the roots down, or from the hottest functions up to their
 * callers
 *
 * JSON has each frame. Text is folded (cct.h) unless --no-fold is given.
 */
#include "config.h"

#include "tools/profcapture/cct.h"
#include "tools/profcapture/function-names.h"
#include "tools/profcapture/report.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

/* A branch below this share of the weight has no line of its own without --limit 0. */
#define TEXT_MIN_PCT 1.0

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

/* ---- JSON ------------------------------------------------------------------------------------ */

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

/* The children of a node that are shown, in order. Sets *hides if others are hidden. */
static GArray *open_children(const struct tree *tree, uint32_t index, unsigned depth, bool *hides)
{
	GArray *children = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	uint64_t limit = tree->report->reader.limit;

	for (uint32_t i = tree->first[index]; i != NO_NODE; i = tree->next[i]) {
		if (depth < CCT_MAX_DEPTH && is_worth_showing(tree->report, i))
			g_array_append_val(children, i);
		else
			*hides = true;
	}
	g_array_sort_with_data(children, compare_nodes, (gpointer)tree->report);
	if (limit && children->len > limit) {
		*hides = true;
		g_array_set_size(children, (guint)limit);
	}
	return children;
}

/* Returns whether branches below the node are hidden. */
static bool hides_branches(const struct tree *tree, uint32_t index, unsigned depth)
{
	bool hides = false;
	g_autoptr(GArray) children = open_children(tree, index, depth, &hides);

	for (guint i = 0; !hides && i < children->len; i++)
		hides = hides_branches(tree, g_array_index(children, uint32_t, i), depth + 1);
	return hides;
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
	bool hides = false;
	g_autoptr(GArray) children = open_children(tree, index, depth, &hides);

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

static void write_tree(struct report *report)
{
	struct tree tree;

	tree_init(&tree, report);
	reader_begin(&report->reader, &report->json, "report",
		     report->tally.tree.cut || hides_branches(&tree, 0, 0));
	report_write_head(report, &report->json);
	write_node(&tree, &report->json, 0, "root", 0);
	reader_end(&report->reader, &report->json);
	tree_done(&tree);
}

/* ---- text ------------------------------------------------------------------------------------ */

static enum cct_kind kind_of(uint32_t entity, const void *data)
{
	const struct report *report = data;

	return report->tally.by == TALLY_FUNCTION
		       ? code_origin_cct_kind(report->tally.functions, entity)
		       : CCT_UNKNOWN;
}

static const char *name_of(uint32_t entity, const void *data)
{
	struct report_line line = { .entity = entity };

	report_describe(data, &line);
	return line.name;
}

static char *shown_name(uint32_t entity, const void *data)
{
	const struct report *report = data;
	const char *name = name_of(entity, data);
	const struct function *function;

	if (report->tally.by != TALLY_FUNCTION || report->full_names)
		return g_strdup(name ? name : "-");
	function = functions_at(report->tally.functions, entity);
	return function_name_for_people(function->name, function->raw_name);
}

struct tree_rows {
	const struct report *report;
	const GArray *nodes, *lines;
	const struct cct_options *options;
};

enum field { SELF_PERCENT, TOTAL_PERCENT, SAMPLES, NAME, PLACE };

static double percent_of(const struct tree_rows *rows, double weight)
{
	double all = (double)rows->report->tally.all.weight;

	return all > 0 ? 100 * weight / all : 0;
}

static void get_cell(const void *data, size_t row, unsigned field, struct cell *ret_cell)
{
	const struct tree_rows *rows = data;
	const struct cct_line *line = &g_array_index(rows->lines, struct cct_line, row);
	const struct cct_node *node = &g_array_index(rows->nodes, struct cct_node, line->node);
	bool is_hidden = line->node == 0;

	switch ((enum field)field) {
	case SELF_PERCENT:
		if (!is_hidden)
			*ret_cell = cell_double(percent_of(rows, node->self));
		break;
	case TOTAL_PERCENT:
		if (!is_hidden)
			*ret_cell = cell_double(percent_of(rows, node->total));
		break;
	case SAMPLES:
		if (!is_hidden)
			*ret_cell = cell_uint((uint64_t)node->total_count);
		break;
	case NAME:
		*ret_cell = cell_own_text(cct_describe(rows->nodes, line, rows->options));
		ret_cell->prefix = g_strdup(line->prefix);
		break;
	case PLACE:
		if (!is_hidden && !line->caller && rows->report->tally.by == TALLY_FUNCTION)
			ret_cell->owned = functions_place(rows->report->tally.functions,
							  node->function, false);
		if (ret_cell->owned)
			*ret_cell = cell_own_text(ret_cell->owned);
		break;
	}
}

static bool is_bold(const void *data, size_t row)
{
	const struct tree_rows *rows = data;
	const struct cct_line *line = &g_array_index(rows->lines, struct cct_line, row);

	return line->node != 0 &&
	       percent_of(rows, g_array_index(rows->nodes, struct cct_node, line->node).self) >= 10;
}

static GArray *copy_nodes(const struct report *report)
{
	guint n = report->tally.tree.nodes->len;
	GArray *nodes = g_array_sized_new(FALSE, TRUE, sizeof(struct cct_node), n);

	for (uint32_t i = 0; i < n; i++) {
		const struct tally_node *from = node_at(report, i);
		const struct cct_node node = {
			.parent = from->parent,
			.function = from->entity,
			.self = (double)from->count.self.weight,
			.total = (double)from->count.total.weight,
			.self_count = (double)from->count.self.samples,
			.total_count = (double)from->count.total.samples,
		};

		g_array_append_val(nodes, node);
	}
	return nodes;
}

static void print_tree(const struct report *report, struct out *out)
{
	bool folds = !report->no_fold && report->tally.by == TALLY_FUNCTION;
	bool all = report->reader.limit == 0, hides;
	const struct cct_options options = {
		.kind_of = kind_of,
		.name_of = name_of,
		.shown_name = shown_name,
		.whole = (double)report->tally.all.weight,
		.data = report,
		.is_inverted = report->tally.inverted,
		.folds = folds,
		.min_share = all ? 0 : TEXT_MIN_PCT / 100,
		.most = report->reader.limit,
		.columns = report->reader.columns,
	};
	g_autoptr(GArray) whole = copy_nodes(report);
	g_autoptr(GArray) folded = folds ? cct_fold(whole, &options) : NULL;
	const GArray *nodes = folded ? folded : whole;
	g_autoptr(GArray) lines = cct_lines(nodes, &options, &hides);
	struct tree_rows rows = {
		.report = report, .nodes = nodes, .lines = lines, .options = &options
	};
	struct table table = { .rows = lines->len,
			       .get = get_cell,
			       .data = &rows,
			       .is_coarse = report->tally.all.samples < 1000,
			       .fit = report->full_names ? NULL : function_name_fit,
			       .is_bold = is_bold };
	const struct table_style style = { .out = out,
					   .is_colored = report->reader.colored,
					   .columns = report->full_names ? 0
									 : report->reader.columns };

	report_print_head(report, out);
	if (report->tally.inverted) {
		table_add_column(&table, TOTAL_PERCENT, COLUMN_PERCENT, _("self %"));
		table_add_column(&table, SAMPLES, COLUMN_COUNT, _("samples"));
		table_add_column(&table, NAME, COLUMN_NAME, _("function < caller"));
	} else {
		table_add_column(&table, TOTAL_PERCENT, COLUMN_PERCENT, _("total %"));
		table_add_column(&table, SELF_PERCENT, COLUMN_PERCENT, _("self %"));
		table_add_column(&table, SAMPLES, COLUMN_COUNT, _("samples"));
		table_add_column(&table, NAME, COLUMN_NAME, _("function"));
	}
	table_add_column(&table, PLACE, COLUMN_PLACE, NULL);
	table_print(&table, &style, lines->len);
	cct_print_end(out, &options, hides || (!all && report->tally.tree.cut));
}

void report_show_tree(struct report *report, struct out *out)
{
	struct tally_node *root = &g_array_index(report->tally.tree.nodes, struct tally_node, 0);

	root->count = (struct tally_count){ .total = amount_less(report->tally.all,
								 report->tally.filtered) };
	if (report->reader.format == READER_TEXT)
		print_tree(report, out);
	else
		write_tree(report);
}
