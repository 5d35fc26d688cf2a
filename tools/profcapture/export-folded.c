/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-folded - a line "comm;outermost;…;innermost count" for each thread name and stack
 *
 * This is the format of flamegraph.pl and inferno: a name has no ';' and no line break. The count
 * is the number of a clock's samples, or the weight of another event's samples. A comparison has
 * two counts, that of the earlier capture first, as difffolded.pl writes them.
 */
#include "config.h"

#include "base/order.h"
#include "tools/profcapture/export-tree.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

struct folded_line {
	char *stack;
	double before;
	uint64_t now;
};

COMPARE_BY(compare_lines, struct folded_line, strcmp(a->stack, b->stack))

static void free_line(gpointer data)
{
	struct folded_line *line = data;

	g_free(line->stack);
}

/* Returns a line for each node in which a stack ends, sorted by stack. */
static GArray *folded_lines(const struct export_tree *tree)
{
	GArray *lines = g_array_new(FALSE, FALSE, sizeof(struct folded_line));
	g_autoptr(GArray) path = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	g_autoptr(GString) stack = g_string_new(NULL);

	g_array_set_clear_func(lines, free_line);
	for (uint32_t i = 1; i < tree->nodes->len; i++) {
		const struct export_node *node = export_node_at(tree, i);
		struct folded_line line = {
			.before = export_tree_value(tree, node->self, EXPORT_BEFORE),
			.now = export_value_of(tree->sides[EXPORT_NOW], node->self[EXPORT_NOW]),
		};

		if (line.now == 0 && !(line.before > 0))
			continue;
		g_array_set_size(path, 0);
		for (uint32_t at = i; at; at = export_node_at(tree, at)->parent)
			g_array_append_val(path, at);
		g_string_truncate(stack, 0);
		for (guint k = path->len; k > 0; k--) {
			uint32_t at = g_array_index(path, uint32_t, k - 1);
			const struct export_frame *frame =
				tree->frames->pdata[export_node_at(tree, at)->frame];

			g_string_append(stack, k < path->len ? ";" : "");
			for (const char *c = frame->text; *c; c++)
				g_string_append_c(stack, *c == ';' ? ':' : *c);
		}
		line.stack = g_strdup(stack->str);
		g_array_append_val(lines, line);
	}
	g_array_sort(lines, compare_lines);
	return lines;
}

bool export_folded(struct export *export, struct out *out, GError **error)
{
	g_autoptr(GArray) lines = NULL;
	struct export_tree tree;
	double before = 0, written = 0; /* sums of the earlier counts: exact, and as written */

	export_tree_init(&tree, export, true);
	lines = folded_lines(&tree);
	for (guint i = 0; i < lines->len; i++) {
		struct folded_line *line = &g_array_index(lines, struct folded_line, i);

		before += line->before;
		if (i + 1 < lines->len && compare_lines(line, line + 1) == 0) {
			line[1].now += line->now;
			continue;
		}
		out_text(out, line->stack);
		/* Rounding to whole numbers must not change the sum. */
		if (tree.sides[EXPORT_BEFORE]) {
			out_printf(out, " %.0f", round(before) - written);
			written = round(before);
		}
		out_printf(out, " %" PRIu64 "\n", line->now);
	}
	export_tree_done(&tree);
	return true;
}
