/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/present/tree.h"

#include "base/order.h"
#include "tools/common/text.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* A frame joins its only callee if their totals differ by less than this share of the whole. */
#define CHAIN_SHARE 0.005
/* Inverted: a function shares its line with a caller that has all but this share of the function's
 * samples. */
#define ONLY_CALLER_SHARE 0.005

static struct cct_node *node_at(const GArray *nodes, uint32_t index)
{
	return &g_array_index(nodes, struct cct_node, index);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static enum cct_kind kind_of(const struct tree_options *options, uint32_t function)
{
	return options->kind_of(function, options->data);
}

struct lines {
	const GArray *nodes;
	const struct tree_options *options;
	struct cct_children all;
	double whole;
	bool hides; /* some branches have no line */
	GArray *lines;
};

static gint compare_children(gconstpointer left, gconstpointer right, gpointer data)
{
	const struct lines *lines = data;
	const struct cct_node *a = node_at(lines->nodes, *(const uint32_t *)left);
	const struct cct_node *b = node_at(lines->nodes, *(const uint32_t *)right);

	return ORDER_BY(ORDER(b->total, a->total),
			g_strcmp0(lines->options->name_of(a->function, lines->options->data),
				  lines->options->name_of(b->function, lines->options->data)),
			ORDER(a->function, b->function));
}

/* Returns the children that get a line. Sums up the others in *ret_hidden. */
static GArray *children_of(const struct lines *lines, uint32_t index, unsigned depth,
			   struct tree_line *ret_hidden)
{
	const struct cct_node *of = node_at(lines->nodes, index);
	GArray *children = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	guint kept = 0;

	*ret_hidden = (struct tree_line){ .hidden = of->total - of->self,
					  .hidden_count = of->total_count - of->self_count };
	for (uint32_t i = lines->all.first[index]; i; i = lines->all.next[i])
		if (node_at(lines->nodes, i)->total > 0)
			g_array_append_val(children, i);
	g_array_sort_with_data(children, compare_children, (gpointer)lines);
	for (guint i = 0; i < children->len; i++) {
		const struct cct_node *node =
			node_at(lines->nodes, g_array_index(children, uint32_t, i));

		if (depth < CCT_MAX_DEPTH && (!lines->options->most || i < lines->options->most) &&
		    node->total >= lines->options->min_share * lines->whole) {
			kept++;
			ret_hidden->hidden -= node->total;
			ret_hidden->hidden_count -= node->total_count;
			continue;
		}
		ret_hidden->n_hidden++;
	}
	g_array_set_size(children, kept);
	return children;
}

/* Returns the only callee, if the node is joined with it; otherwise 0. */
static uint32_t joined_callee(const struct lines *lines, uint32_t index, const GArray *children)
{
	const struct tree_options *options = lines->options;
	uint32_t child = children->len == 1 ? g_array_index(children, uint32_t, 0) : 0;
	enum cct_kind kind, kind_of_child;

	if (!child || !options->folds || options->is_inverted ||
	    node_at(lines->nodes, index)->total - node_at(lines->nodes, child)->total >=
		    CHAIN_SHARE * lines->whole)
		return 0;
	kind = kind_of(options, node_at(lines->nodes, index)->function);
	kind_of_child = kind_of(options, node_at(lines->nodes, child)->function);
	/* Do not hide missing frames, or a program's function that calls a library function. */
	return (kind_of_child == CCT_OWN && kind != CCT_UNKNOWN) ||
			       (kind == CCT_LIBRARY && kind_of_child == CCT_LIBRARY)
		       ? child
		       : 0;
}

/* Returns the prefix of a node's line: line-drawing characters or, if they are too wide, the depth.
 * `outer`: the characters with which all lines below the parent begin. */
static char *prefix_of(const struct lines *lines, const char *outer, unsigned depth, bool is_last)
{
	g_autofree char *prefix = NULL;

	if (depth == 0)
		return g_strdup("");
	prefix = g_strconcat(outer, text_sign(is_last ? TEXT_LAST_BRANCH : TEXT_BRANCH), NULL);
	if (lines->options->columns && text_width(prefix) > lines->options->columns * 2 / 3)
		return g_strdup_printf("%u: ", depth);
	return g_steal_pointer(&prefix);
}

static void add_children(struct lines *lines, uint32_t index, const char *outer, unsigned depth);

static void add_node(struct lines *lines, uint32_t index, const char *outer, unsigned depth,
		     bool is_last)
{
	struct tree_line line = { .prefix = prefix_of(lines, outer, depth, is_last) }, hidden;
	g_autofree char *inner = NULL;
	uint32_t callee;

	for (;;) {
		g_autoptr(GArray) children = children_of(lines, index, depth + 1, &hidden);

		line.folded += node_at(lines->nodes, index)->folded;
		callee = joined_callee(lines, index, children);
		if (!callee) {
			uint32_t child = children->len ? g_array_index(children, uint32_t, 0) : 0;

			if (child && lines->options->is_inverted && lines->options->folds &&
			    node_at(lines->nodes, child)->total >=
				    (1 - ONLY_CALLER_SHARE) * node_at(lines->nodes, index)->total)
				line.caller = child;
			break;
		}
		lines->hides |= hidden.n_hidden > 0;
		line.folded++;
		index = callee;
	}
	line.node = index;
	if (line.caller)
		line.folded = node_at(lines->nodes, line.caller)->folded;
	else if (lines->options->is_inverted && depth == 0)
		line.folded = 0;
	g_array_append_val(lines->lines, line);
	if (line.caller)
		return;
	inner = depth == 0 ? g_strdup("")
			   : g_strconcat(outer, is_last ? "   " : text_sign(TEXT_LINE), NULL);
	add_children(lines, index, inner, depth + 1);
}

static void add_children(struct lines *lines, uint32_t index, const char *outer, unsigned depth)
{
	struct tree_line hidden;
	g_autoptr(GArray) children = children_of(lines, index, depth, &hidden);
	double least = lines->options->sum_share ? lines->options->sum_share
						 : lines->options->min_share;
	/* Small hidden branches get no line, and neither do callers that folding hides. */
	bool has_hidden = hidden.hidden > 0 && children->len > 0 &&
			  hidden.hidden >= least * lines->whole &&
			  !(lines->options->folds && lines->options->is_inverted && depth > 1);

	for (guint i = 0; i < children->len; i++)
		add_node(lines, g_array_index(children, uint32_t, i), outer, depth,
			 i + 1 == children->len && !has_hidden);
	lines->hides |= hidden.n_hidden > 0;
	if (!has_hidden)
		return;
	hidden.prefix = prefix_of(lines, outer, depth, true);
	g_array_append_val(lines->lines, hidden);
}

static void line_clear(gpointer line)
{
	g_free(((struct tree_line *)line)->prefix);
}

GArray *tree_find_lines(const GArray *nodes, const struct tree_options *options, bool *ret_hides)
{
	struct lines lines = { .nodes = nodes,
			       .options = options,
			       .all = cct_children_new(nodes),
			       .whole = node_at(nodes, 0)->total,
			       .lines = g_array_new(FALSE, TRUE, sizeof(struct tree_line)) };

	g_array_set_clear_func(lines.lines, line_clear);
	add_children(&lines, 0, "", 0);
	cct_children_done(&lines.all);
	*ret_hides = lines.hides;
	return lines.lines;
}

/* ---- text ------------------------------------------------------------------------------------ */

struct rows {
	const GArray *nodes, *lines;
	const struct tree_options *options;
};

static double share_of(const struct rows *rows, double part)
{
	return rows->options->whole > 0 ? 100 * part / rows->options->whole : 0;
}

static bool is_kernel_run(const struct tree_options *options, uint32_t function)
{
	return options->folds && !options->is_inverted && cct_is_kernel(kind_of(options, function));
}

/* Returns the name on a line, such as "shop::worker  +3", "kernel: futex  +20" or "memcmp <
 * shop::Stats::add  +8", or the number and share of hidden branches. */
static char *describe(const struct rows *rows, const struct tree_line *line)
{
	const struct tree_options *options = rows->options;
	uint32_t function = node_at(rows->nodes, line->node)->function;
	bool is_call = is_kernel_run(options, function);
	g_autofree char *name = NULL, *caller = NULL, *folded = NULL;

	if (line->node == 0) {
		g_autofree char *share = text_percent(share_of(rows, line->hidden), true);

		return line->n_hidden ? g_strdup_printf(ngettext("%u smaller branch, %s %%",
								 "%u smaller branches, %s %%",
								 line->n_hidden),
							line->n_hidden, share)
				      : g_strdup_printf(_("smaller branches, %s %%"), share);
	}
	name = options->shown_name(function, options->data);
	if (line->caller)
		caller = options->shown_name(node_at(rows->nodes, line->caller)->function,
					     options->data);
	if (line->folded)
		folded = g_strdup_printf("  +%" PRIu32, line->folded);
	return g_strconcat(is_call ? _("kernel: ") : "", name, caller ? " < " : "",
			   caller ? caller : "", folded, NULL);
}

static struct cell rounded(double number)
{
	return cell_uint(!(number > 0)     ? 0
			 : number < 0x1p64 ? (uint64_t)(number + 0.5)
					   : UINT64_MAX);
}

static struct cell get_cell(const void *data, size_t row, unsigned field)
{
	const struct rows *rows = data;
	const struct tree_line *line = &g_array_index(rows->lines, struct tree_line, row);
	const struct cct_node *node = node_at(rows->nodes, line->node);
	struct cell name;

	if (line->node == 0 && field != TREE_NAME)
		return cell_none();
	switch ((enum tree_field)field) {
	case TREE_TOTAL_SHARE:
		return cell_double(share_of(rows, node->total));
	case TREE_SELF_SHARE:
		return cell_double(share_of(rows, node->self));
	case TREE_TOTAL:
		return rounded(node->total);
	case TREE_COUNT:
		return rounded(node->total_count);
	case TREE_CHANGE:
		return cell_int(llround(node->total_count));
	case TREE_NAME:
		name = cell_own_text(describe(rows, line));
		name.prefix = g_strdup(line->prefix);
		return name;
	default:
		/* A name such as "kernel: futex" contains its place, and a line with two functions
		 * has no single place. */
		return line->caller || is_kernel_run(rows->options, node->function)
			       ? cell_none()
			       : cell_own_or_none(rows->options->place_of(node->function,
									  rows->options->data));
	}
}

static bool is_bold(const void *data, size_t row)
{
	const struct rows *rows = data;
	uint32_t node = g_array_index(rows->lines, struct tree_line, row).node;
	double least = rows->options->bold_share;

	return least > 0 && node && share_of(rows, node_at(rows->nodes, node)->self) >= 100 * least;
}

COMPARE_BY(compare_totals, double, ORDER(*b, *a))

/* Returns the lines of the heaviest branches: at most options->rows, or more if the branches of the
 * greatest weight alone need more. Stores the share below which branches have no line. */
static GArray *heaviest_lines(const GArray *nodes, const struct tree_options *options,
			      double *ret_share, bool *ret_hides)
{
	GArray *lines = tree_find_lines(nodes, options, ret_hides);
	struct tree_options stricter = *options;
	g_autoptr(GArray) totals = g_array_new(FALSE, FALSE, sizeof(double));
	double whole = node_at(nodes, 0)->total;
	guint low = 0, high;

	*ret_share = options->min_share;
	if (options->rows == 0 || lines->len <= options->rows || !(whole > 0))
		return lines;
	for (guint i = 0; i < lines->len; i++) {
		uint32_t node = g_array_index(lines, struct tree_line, i).node;

		if (node)
			g_array_append_val(totals, node_at(nodes, node)->total);
	}
	g_array_unref(lines);
	stricter.sum_share = options->min_share;
	g_array_sort(totals, compare_totals);
	/* Find how many of the heaviest nodes fit, including the lines that sum up hidden nodes. */
	for (high = (guint)MIN_OF(options->rows, (uint64_t)totals->len); low < high;) {
		guint middle = low + (high - low + 1) / 2;
		g_autoptr(GArray) some = NULL;

		stricter.min_share = g_array_index(totals, double, middle - 1) / whole;
		some = tree_find_lines(nodes, &stricter, ret_hides);
		if (some->len <= options->rows)
			low = middle;
		else
			high = middle - 1;
	}
	*ret_share = stricter.min_share = g_array_index(totals, double, MAX_OF(low, 1u) - 1) /
					  whole;
	return tree_find_lines(nodes, &stricter, ret_hides);
}

void tree_print(const GArray *nodes, const struct tree_options *options, struct table *table,
		const struct table_style *style, bool cut)
{
	struct rows rows = { .nodes = nodes, .options = options };
	size_t shown;
	bool hides;
	double least;
	g_autoptr(GArray) lines = heaviest_lines(nodes, options, &least, &hides);

	rows.lines = lines;
	table->rows = lines->len;
	table->get = get_cell;
	table->data = &rows;
	table->is_bold = is_bold;
	table->is_tree = true;
	table_add_column(table, TREE_NAME, COLUMN_NAME,
			 options->is_inverted ? _("function < caller") : _("function"));
	table_add_column(table, TREE_PLACE, COLUMN_PLACE, NULL);
	shown = options->rows ? MIN_OF(options->rows, (uint64_t)lines->len) : lines->len;
	table_print(table, style, shown);
	if (shown < lines->len) {
		unsigned long more = lines->len - shown;

		out_printf(style->out,
			   ngettext("%lu more line (--limit 0)\n", "%lu more lines (--limit 0)\n",
				    more),
			   more);
	}
	if (least > 0 && (hides || cut))
		out_printf(style->out, _("Branches below %.*f %% are not shown (--limit 0).\n"),
			   least == options->min_share ? 0 : 1, 100 * least);
	else if (hides)
		out_printf(style->out, _("Branches deeper than %d are not shown.\n"),
			   CCT_MAX_DEPTH);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Returns the children of a node that are written, sorted. Sets *cut if others are left out. */
static GArray *written_children(const struct tree_writer *writer, const struct cct_children *of,
				uint32_t node, unsigned depth, bool *cut)
{
	GArray *children = g_array_new(FALSE, FALSE, sizeof(uint32_t));

	for (uint32_t i = of->first[node]; i; i = of->next[i]) {
		if (writer->keys[i] < 0)
			continue;
		if (depth < CCT_MAX_DEPTH && writer->keys[i] >= writer->least)
			g_array_append_val(children, i);
		else
			*cut = true;
	}
	g_array_sort_with_data(children, writer->compare, (gpointer)writer->data);
	if (writer->most && children->len > writer->most) {
		*cut = true;
		g_array_set_size(children, (guint)writer->most);
	}
	return children;
}

/* Writes a node and its subtree; without `json`, writes nothing. Returns whether a branch is left
 * out. */
static bool write_node(const struct tree_writer *writer, const struct cct_children *of,
		       struct json *json, uint32_t node, unsigned depth)
{
	bool cut = false;
	g_autoptr(GArray) children = written_children(writer, of, node, depth, &cut);

	if (json) {
		json_begin_object(json, node ? NULL : "root");
		writer->write(json, node, depth, writer->data);
		json_begin_array(json, "children");
	}
	for (guint i = 0; i < children->len && (json || !cut); i++)
		cut |= write_node(writer, of, json, g_array_index(children, uint32_t, i),
				  depth + 1);
	if (json) {
		json_end(json);
		json_end(json);
	}
	return cut;
}

void tree_write(const struct tree_writer *writer, struct json *json)
{
	struct cct_children children = cct_children_new(writer->nodes);

	(void)write_node(writer, &children, json, 0, 0);
	cct_children_done(&children);
}

bool tree_is_cut(const struct tree_writer *writer)
{
	struct cct_children children = cct_children_new(writer->nodes);
	bool cut = write_node(writer, &children, NULL, 0, 0);

	cct_children_done(&children);
	return cut;
}
