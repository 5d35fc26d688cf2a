/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profile/cct.h"

#include "base/order.h"
#include "tools/common/number-map.h"
#include "tools/common/text.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Library functions with this share of the whole as self weight keep their node. */
#define HOT_LIBRARY_SHARE 0.03
/* A frame joins its only callee if all but this share of the whole goes through the callee. */
#define CHAIN_SHARE 0.005
/* A hit function shares its line with a caller that has all but this share of its samples. */
#define ONLY_CALLER_SHARE 0.005

static struct cct_node *node_at(const GArray *nodes, uint32_t index)
{
	return &g_array_index(nodes, struct cct_node, index);
}

/* The children of each node, in lists. */
struct children {
	uint32_t *first, *next; /* 0 = none */
};

/* Returns the lists. Omits nodes with a negative key or, if `keys` is NULL, without a total. */
static struct children children_new(const GArray *nodes, const double *keys)
{
	struct children of = { g_new0(uint32_t, nodes->len), g_new0(uint32_t, nodes->len) };

	for (uint32_t i = nodes->len; i-- > 1;) {
		uint32_t parent = node_at(nodes, i)->parent;

		if (keys ? keys[i] < 0 : node_at(nodes, i)->total <= 0)
			continue;
		of.next[i] = of.first[parent];
		of.first[parent] = i;
	}
	return of;
}

static void children_done(struct children *of)
{
	g_free(of->first);
	g_free(of->next);
}

/* ---- folding --------------------------------------------------------------------------------- */

/* The state of an old node. */
struct folding {
	uint32_t node; /* new node that counts its weight; inverted: 0 = not known yet */
	/* from the roots down: */
	uint32_t run;    /* new node of the run of library frames that has this node; 0 = none */
	uint32_t caller; /* kernel frames: the new node that called the kernel */
	uint32_t call;   /* kernel frames: the function that represents the run of kernel frames */
	/* inverted: */
	uint32_t hit;    /* new node of the hit function */
	uint32_t passed; /* number of frames between the hit function and this one */
};

struct fold {
	const GArray *nodes;
	const struct cct_options *options;
	struct folding *state;    /* indexed by old node */
	GArray *folded;           /* the new nodes */
	struct number_map index;  /* parent and function → new node */
	struct number_map joined; /* new node and function: already counted as folded */
	struct number_map hot;    /* library functions that keep their node; the value is 1 */
};

static enum cct_kind kind_of(const struct cct_options *options, uint32_t function)
{
	return options->kind_of(function, options->data);
}

static bool is_kernel(enum cct_kind kind)
{
	return kind == CCT_KERNEL || kind == CCT_ENTRY || kind == CCT_SYSCALL;
}

/* Returns whether a kernel frame says more about its run than the one that represents it. */
static bool says_more(enum cct_kind kind, enum cct_kind known)
{
	return (kind == CCT_SYSCALL && known != CCT_SYSCALL) ||
	       (kind == CCT_KERNEL && known == CCT_ENTRY);
}

static void add_counts(struct cct_node *to, const struct cct_node *node, bool adds_total)
{
	to->self += node->self;
	to->self_count += node->self_count;
	if (adds_total) {
		to->total += node->total;
		to->total_count += node->total_count;
	}
}

static uint32_t child_of(struct fold *fold, uint32_t parent, uint32_t function)
{
	uint32_t *known = number_map_at(&fold->index, (uint64_t)parent << 32 | function);

	if (*known == 0) {
		*known = fold->folded->len;
		g_array_append_val(fold->folded,
				   ((struct cct_node){ .parent = parent, .function = function }));
	}
	return *known;
}

static void find_hot(struct fold *fold)
{
	/* indexed by function */
	g_autoptr(GArray) selfs = g_array_new(FALSE, TRUE, sizeof(double));
	double least = HOT_LIBRARY_SHARE * node_at(fold->nodes, 0)->total;

	for (uint32_t i = 1; i < fold->nodes->len; i++) {
		const struct cct_node *node = node_at(fold->nodes, i);
		double *self;

		if (node->function >= selfs->len)
			g_array_set_size(selfs, node->function + 1);
		self = &g_array_index(selfs, double, node->function);
		*self += node->self;
		if (*self >= least && least > 0)
			*number_map_at(&fold->hot, node->function) = 1;
	}
}

/* Returns the new node that counts the weight of an old node. */
static uint32_t fold_down(struct fold *fold, uint32_t i)
{
	const struct cct_node *node = node_at(fold->nodes, i);
	const struct folding *parent = &fold->state[node->parent];
	enum cct_kind kind = kind_of(fold->options, node->function);
	struct folding *state = &fold->state[i];

	if (is_kernel(kind)) {
		state->caller = parent->call ? parent->caller : parent->node;
		state->call = parent->call ? parent->call : node->function;
		if (says_more(kind, kind_of(fold->options, state->call)))
			state->call = node->function;
		return child_of(fold, state->caller, state->call);
	}
	if (kind == CCT_LIBRARY) {
		bool joins = parent->run && !number_map_get(&fold->hot, node->function);

		state->run = joins ? parent->run : child_of(fold, parent->node, node->function);
		return state->run;
	}
	return child_of(fold, parent->node, node->function);
}

static void add_down(struct fold *fold, uint32_t i)
{
	const struct cct_node *node = node_at(fold->nodes, i);
	uint32_t from = fold->state[node->parent].node;
	uint32_t to = fold->state[i].node = fold_down(fold, i);
	struct cct_node *target = node_at(fold->folded, to);

	add_counts(target, node, to != from);
	/* A system call is known only below the kernel's entry frames. Its new node is their
	 * sibling, so its total must be subtracted from theirs. */
	if (to != from && target->parent != from) {
		node_at(fold->folded, from)->total -= node->total;
		node_at(fold->folded, from)->total_count -= node->total_count;
	}
	if (target->function != node->function) {
		uint32_t *joined =
			number_map_at(&fold->joined, (uint64_t)to << 32 | node->function);

		target->folded += *joined == 0;
		*joined = 1;
	}
}

static void add_inverted(struct fold *fold, uint32_t i)
{
	const struct cct_node *node = node_at(fold->nodes, i);
	const struct folding *parent = &fold->state[node->parent];
	struct folding *state = &fold->state[i];
	struct cct_node *target;

	*state = (struct folding){ .node = parent->node,
				   .hit = parent->hit,
				   .passed = parent->passed + 1 };
	if (node->parent == 0) {
		state->hit = child_of(fold, 0, node->function);
		state->passed = 0;
		target = node_at(fold->folded, state->hit);
	} else {
		/* Only the nearest caller in own code gets a node. */
		if (parent->node || kind_of(fold->options, node->function) != CCT_OWN)
			return;
		state->node = child_of(fold, state->hit, node->function);
		target = node_at(fold->folded, state->node);
		/* If there are several paths, show the shortest. */
		if (target->total == 0 || parent->passed < target->folded)
			target->folded = parent->passed;
	}
	add_counts(target, node, true);
}

GArray *cct_fold(const GArray *nodes, const struct cct_options *options)
{
	struct fold fold = { .nodes = nodes,
			     .options = options,
			     .state = g_new0(struct folding, nodes->len),
			     .folded = g_array_new(FALSE, TRUE, sizeof(struct cct_node)) };

	number_map_init(&fold.index);
	number_map_init(&fold.joined);
	number_map_init(&fold.hot);
	g_array_append_val(fold.folded, *node_at(nodes, 0));
	if (!options->is_inverted)
		find_hot(&fold);
	for (uint32_t i = 1; i < nodes->len; i++) {
		if (options->is_inverted)
			add_inverted(&fold, i);
		else
			add_down(&fold, i);
	}
	for (uint32_t i = 1; i < fold.folded->len; i++) {
		struct cct_node *node = node_at(fold.folded, i);

		/* Kernel code calls only kernel code: omitted branches are the kernel's own
		 * weight. */
		if (!options->is_inverted && is_kernel(kind_of(options, node->function))) {
			node->self = node->total;
			node->self_count = node->total_count;
		}
	}
	number_map_done(&fold.index);
	number_map_done(&fold.joined);
	number_map_done(&fold.hot);
	g_free(fold.state);
	return fold.folded;
}

/* ---- lines ----------------------------------------------------------------------------------- */

struct lines {
	const GArray *nodes;
	const struct cct_options *options;
	struct children all;
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
			   struct cct_line *ret_hidden)
{
	const struct cct_node *of = node_at(lines->nodes, index);
	GArray *children = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	guint kept = 0;

	*ret_hidden = (struct cct_line){ .hidden = of->total - of->self,
					 .hidden_count = of->total_count - of->self_count };
	for (uint32_t i = lines->all.first[index]; i; i = lines->all.next[i])
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
	const struct cct_options *options = lines->options;
	uint32_t child = children->len == 1 ? g_array_index(children, uint32_t, 0) : 0;
	enum cct_kind kind, kind_of_child;

	if (!child || !options->folds || options->is_inverted ||
	    node_at(lines->nodes, index)->total - node_at(lines->nodes, child)->total >=
		    CHAIN_SHARE * lines->whole)
		return 0;
	kind = kind_of(options, node_at(lines->nodes, index)->function);
	kind_of_child = kind_of(options, node_at(lines->nodes, child)->function);
	/* Hide neither a function of the program behind one of a library, nor missing frames. */
	return (kind_of_child == CCT_OWN && kind != CCT_UNKNOWN) ||
			       (kind == CCT_LIBRARY && kind_of_child == CCT_LIBRARY)
		       ? child
		       : 0;
}

/* Returns the line-drawing characters before a node. `outer` are those of its siblings' parent. */
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
	struct cct_line line = { .prefix = prefix_of(lines, outer, depth, is_last) }, hidden;
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
	struct cct_line hidden;
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
	g_free(((struct cct_line *)line)->prefix);
}

GArray *cct_lines(const GArray *nodes, const struct cct_options *options, bool *ret_hides)
{
	struct lines lines = { .nodes = nodes,
			       .options = options,
			       .all = children_new(nodes, NULL),
			       .whole = node_at(nodes, 0)->total,
			       .lines = g_array_new(FALSE, TRUE, sizeof(struct cct_line)) };

	g_array_set_clear_func(lines.lines, line_clear);
	add_children(&lines, 0, "", 0);
	children_done(&lines.all);
	*ret_hides = lines.hides;
	return lines.lines;
}

/* ---- text ------------------------------------------------------------------------------------ */

struct rows {
	const GArray *nodes, *lines;
	const struct cct_options *options;
};

static double share_of(const struct rows *rows, double part)
{
	return rows->options->whole > 0 ? 100 * part / rows->options->whole : 0;
}

static bool is_kernel_run(const struct cct_options *options, uint32_t function)
{
	return options->folds && !options->is_inverted && is_kernel(kind_of(options, function));
}

/* Returns the name on a line, such as "shop::worker  +3", "kernel: futex  +20" or "memcmp <
 * shop::Stats::add  +8", or the number and share of hidden branches. */
static char *describe(const struct rows *rows, const struct cct_line *line)
{
	const struct cct_options *options = rows->options;
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

static void get_cell(const void *data, size_t row, unsigned field, struct cell *ret_cell)
{
	const struct rows *rows = data;
	const struct cct_line *line = &g_array_index(rows->lines, struct cct_line, row);
	const struct cct_node *node = node_at(rows->nodes, line->node);
	char *place;

	if (line->node == 0 && field != CCT_NAME)
		return;
	switch ((enum cct_field)field) {
	case CCT_TOTAL_SHARE:
		*ret_cell = cell_double(share_of(rows, node->total));
		break;
	case CCT_SELF_SHARE:
		*ret_cell = cell_double(share_of(rows, node->self));
		break;
	case CCT_TOTAL:
		*ret_cell = rounded(node->total);
		break;
	case CCT_COUNT:
		*ret_cell = rounded(node->total_count);
		break;
	case CCT_CHANGE:
		*ret_cell = cell_int(llround(node->total_count));
		break;
	case CCT_NAME:
		*ret_cell = cell_own_text(describe(rows, line));
		ret_cell->prefix = g_strdup(line->prefix);
		break;
	case CCT_PLACE:
		/* "kernel: futex" has its place in its name. */
		place = line->caller || is_kernel_run(rows->options, node->function)
				? NULL
				: rows->options->place_of(node->function, rows->options->data);
		if (place)
			*ret_cell = cell_own_text(place);
		break;
	}
}

static bool is_bold(const void *data, size_t row)
{
	const struct rows *rows = data;
	uint32_t node = g_array_index(rows->lines, struct cct_line, row).node;
	double least = rows->options->bold_share;

	return least > 0 && node && share_of(rows, node_at(rows->nodes, node)->self) >= 100 * least;
}

COMPARE_BY(compare_totals, double, ORDER(*b, *a))

/* Returns the lines of the heaviest branches: at most options->rows, unless branches of one weight
 * have more. Stores the share below which branches have no line. */
static GArray *heaviest_lines(const GArray *nodes, const struct cct_options *options,
			      double *ret_share, bool *ret_hides)
{
	GArray *lines = cct_lines(nodes, options, ret_hides);
	struct cct_options stricter = *options;
	g_autoptr(GArray) totals = g_array_new(FALSE, FALSE, sizeof(double));
	double whole = node_at(nodes, 0)->total;
	guint low = 0, high;

	*ret_share = options->min_share;
	if (options->rows == 0 || lines->len <= options->rows || !(whole > 0))
		return lines;
	for (guint i = 0; i < lines->len; i++) {
		uint32_t node = g_array_index(lines, struct cct_line, i).node;

		if (node)
			g_array_append_val(totals, node_at(nodes, node)->total);
	}
	g_array_unref(lines);
	stricter.sum_share = options->min_share;
	g_array_sort(totals, compare_totals);
	/* Find how many of the heaviest nodes fit, with the lines that sum up hidden ones. */
	for (high = (guint)MIN_OF(options->rows, (uint64_t)totals->len); low < high;) {
		guint middle = low + (high - low + 1) / 2;
		g_autoptr(GArray) some = NULL;

		stricter.min_share = g_array_index(totals, double, middle - 1) / whole;
		some = cct_lines(nodes, &stricter, ret_hides);
		if (some->len <= options->rows)
			low = middle;
		else
			high = middle - 1;
	}
	*ret_share = stricter.min_share = g_array_index(totals, double, MAX_OF(low, 1u) - 1) /
					  whole;
	return cct_lines(nodes, &stricter, ret_hides);
}

void cct_print(const GArray *nodes, const struct cct_options *options, struct table *table,
	       const struct table_style *style, bool cut)
{
	g_autoptr(GArray) folded = options->folds ? cct_fold(nodes, options) : NULL;
	struct rows rows = { .nodes = folded ? folded : nodes, .options = options };
	size_t shown;
	bool hides;
	double least;
	g_autoptr(GArray) lines = heaviest_lines(rows.nodes, options, &least, &hides);

	rows.lines = lines;
	table->rows = lines->len;
	table->get = get_cell;
	table->data = &rows;
	table->is_bold = is_bold;
	table->is_tree = true;
	table_add_column(table, CCT_NAME, COLUMN_NAME,
			 options->is_inverted ? _("function < caller") : _("function"));
	table_add_column(table, CCT_PLACE, COLUMN_PLACE, NULL);
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

/* Returns the children of a node to write, sorted. Sets *cut if others are left out. */
static GArray *written_children(const struct cct_writer *writer, const struct children *of,
				uint32_t node, unsigned depth, bool *cut)
{
	GArray *children = g_array_new(FALSE, FALSE, sizeof(uint32_t));

	for (uint32_t i = of->first[node]; i; i = of->next[i]) {
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

/* Writes a node and its subtree; without `json`, writes nothing. Returns whether any is left
 * out. */
static bool write_node(const struct cct_writer *writer, const struct children *of,
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

void cct_write(const struct cct_writer *writer, struct json *json)
{
	struct children children = children_new(writer->nodes, writer->keys);

	(void)write_node(writer, &children, json, 0, 0);
	children_done(&children);
}

bool cct_is_cut(const struct cct_writer *writer)
{
	struct children children = children_new(writer->nodes, writer->keys);
	bool cut = write_node(writer, &children, NULL, 0, 0);

	children_done(&children);
	return cut;
}
