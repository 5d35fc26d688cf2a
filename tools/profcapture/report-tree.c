/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Report-tree - the call tree: from the roots to their callees, or from the hottest functions to
 * their callers
 *
 * JSON is not folded. Text is folded (cct-fold.h) unless --no-fold is given.
 */
#include "config.h"

#include "base/each.h"
#include "tools/present/tree.h"
#include "tools/profcapture/report.h"
#include "tools/profile/cct-fold.h"
#include "tools/profile/function-names.h"

#include <glib/gi18n.h>

/* A branch with a smaller share of the weight has no line, unless --limit 0 is given. */
#define TEXT_MIN_PCT 1.0

static const struct profile_node *node_at(const struct report *report, uint32_t index)
{
	return &g_array_index(report->profile.tree.nodes, struct profile_node, index);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static gint compare_nodes(gconstpointer left, gconstpointer right, gpointer data)
{
	const struct report *report = data;
	struct report_line lines[2];

	for (unsigned i = 0; i < 2; i++) {
		const struct profile_node *node =
			node_at(report, *(const uint32_t *)(i ? right : left));

		/* Sort branches by total: swap total and self. */
		lines[i] = (struct report_line){ .entity = node->entity,
						 .count = { .self = node->count.total,
							    .total = node->count.self } };
		report_describe(report, &lines[i]);
	}
	return report_compare_lines(&lines[0], &lines[1]);
}

static void write_node(struct json *json, uint32_t index, unsigned depth, const void *data)
{
	const struct report *report = data;
	const struct profile_node *node = node_at(report, index);
	const struct profile_node *parent = index ? node_at(report, node->parent) : node;

	if (index == 0) {
		json_string(json, "name", "<root>");
		json_string(json, "raw_name", "<root>");
		json_null(json, "image");
		json_null(json, "build_id");
		json_null(json, "offset");
		json_string(json, "kind", "unresolved");
		json_null(json, "file");
		json_null(json, "line");
	} else {
		report_write_entity(report, json, node->entity);
	}
	report_write_counts(report, json, node->count);
	json_double(json, "parent_pct", amount_percent(node->count.total, parent->count.total));
}

static void write_tree(struct report *report, const GArray *nodes)
{
	g_autofree double *shares = g_new(double, nodes->len);
	const struct tree_writer writer = {
		.nodes = nodes,
		.keys = shares,
		.least = report->reader.limit ? REPORT_TREE_MIN_PCT : 0,
		.most = report->reader.limit,
		.compare = compare_nodes,
		.write = write_node,
		.data = report,
	};

	for (uint32_t i = 0; i < nodes->len; i++) {
		struct amount total = node_at(report, i)->count.total;

		shares[i] = total.samples ? report_percent(report, total) : -1;
	}
	reader_begin(&report->reader, &report->json, "report",
		     report->profile.tree.cut || tree_is_cut(&writer), READER_TOTAL_UNKNOWN);
	report_write_head(report, &report->json);
	tree_write(&writer, &report->json);
	reader_end(&report->reader, &report->json);
}

/* ---- text ------------------------------------------------------------------------------------ */

static enum cct_kind kind_of(uint32_t entity, const void *data)
{
	const struct report *report = data;

	return report->profile.by == PROFILE_FUNCTION
		       ? code_origin_cct_kind(report->profile.functions, entity)
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

	return report->labels ? function_labels_name(report->labels, entity)
			      : g_strdup(name ? name : "-");
}

static char *place_of(uint32_t entity, const void *data)
{
	const struct report *report = data;

	return report->labels ? function_labels_place(report->labels, entity) : NULL;
}

/* Returns the labels of the functions of all branches that may get a line. */
static struct function_labels *labels_of(const struct report *report, const GArray *nodes,
					 double min_share)
{
	const struct functions *functions = report->profile.functions;
	struct function_labels *labels = function_labels_new(functions, report->full_names);
	g_autofree bool *is_added = g_new0(bool, functions->all->len);

	for (guint i = 1; i < nodes->len; i++) {
		const struct cct_node *node = &g_array_index(nodes, struct cct_node, i);

		if (is_added[node->function] ||
		    node->total < min_share * g_array_index(nodes, struct cct_node, 0).total)
			continue;
		is_added[node->function] = true;
		function_labels_add(labels, node->function);
	}
	return labels;
}

static void print_tree(struct report *report, const GArray *nodes, struct out *out)
{
	bool all = report->reader.limit == 0;
	const struct tree_options options = {
		.kind_of = kind_of,
		.name_of = name_of,
		.shown_name = shown_name,
		.place_of = place_of,
		.whole = (double)report->profile.all.weight,
		.data = report,
		.is_inverted = report->profile.inverted,
		.folds = !report->no_fold && report->profile.by == PROFILE_FUNCTION,
		.min_share = all ? 0 : TEXT_MIN_PCT / 100,
		.most = report->reader.limit,
		.rows = report->tree_lines,
		.columns = report->reader.columns,
		.bold_share = 0.1,
	};
	struct table table = { .is_coarse = report->profile.all.samples < REPORT_FINE_SAMPLES,
			       .fit = report->full_names ? NULL : &function_name_fits };
	const struct table_style style = { .out = out,
					   .is_colored = report->reader.colored,
					   .columns = report->full_names ? 0
									 : report->reader.columns };
	g_autoptr(GArray) folded = NULL;

	if (options.folds)
		folded = cct_fold(nodes, kind_of, report, options.is_inverted);
	if (report->profile.by == PROFILE_FUNCTION)
		report->labels = labels_of(report, nodes, options.min_share);
	report_print_head(report, out);
	table_add_column(&table, TREE_TOTAL_SHARE, COLUMN_PERCENT,
			 report->profile.inverted ? _("self %") : _("total %"));
	if (!report->profile.inverted)
		table_add_column(&table, TREE_SELF_SHARE, COLUMN_PERCENT, _("self %"));
	table_add_column(&table, TREE_COUNT, COLUMN_COUNT, report_count_title(report));
	tree_print(folded ? folded : nodes, &options, &table, &style,
		   !all && report->profile.tree.cut);
	g_clear_pointer(&report->labels, function_labels_free);
}

void report_show_tree(struct report *report, struct out *out)
{
	const GArray *from = report->profile.tree.nodes;
	g_autoptr(GArray)
		nodes = g_array_sized_new(FALSE, TRUE, sizeof(struct cct_node), from->len);

	g_array_index(from, struct profile_node, 0).count = (struct profile_count){
		.total = amount_less(report->profile.all, report->profile.filtered)
	};
	ARRAY_EACH(const struct profile_node, node, from) {
		const struct cct_node copy = {
			.parent = node->parent,
			.function = node->entity,
			.self = (double)node->count.self.weight,
			.total = (double)node->count.total.weight,
			.self_count = (double)node->count.self.samples,
			.total_count = (double)node->count.total.samples,
		};

		g_array_append_val(nodes, copy);
	}
	if (report->reader.format == READER_TEXT)
		print_tree(report, nodes, out);
	else
		write_tree(report, nodes);
}
