/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-svg - a flame graph: callers on top, the largest callee on the left
 *
 * The picture needs no script: names are drawn where they fit, and each box has a tooltip. The
 * script (data/report/flame-svg.js) adds search and zoom. Nothing is fetched, and no attribute
 * holds a script. Branches of a box that are narrower than LEAST_WIDTH share one box, because a
 * file with all of them would be too large to open; the file reports their sum.
 *
 * In a comparison, the width is the sum of both captures, so that vanished functions can be seen. A
 * box has a color if its change exceeds the noise of counting samples.
 */
#include "config.h"

#include "tools/profcapture/export-tree.h"

#include "tools/present/flame-svg-parts.h"
#include "tools/profile/function-names.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define WIDTH 1180.0
#define LEFT 10
#define TOP 72
#define ROW 17
#define PADDING 3
#define LETTER 7.3 /* width of a letter in the widest font */
#define LEAST_LETTERS 3
#define LEAST_WIDTH 0.3
/* A change is noise if it is less than this many standard errors. */
#define NOISE_ERRORS 1.96

struct svg_box {
	uint32_t node;   /* node of the box; for small branches, their parent */
	uint32_t hidden; /* number of small branches; 0: the box is a node */
	double x, width;
	uint32_t row;
};

struct flame_svg {
	const struct export *export;
	struct out *out;
	struct export_tree tree;
	double now, before; /* values of the whole graph */
	const char *unit;
	GArray *boxes; /* struct svg_box, in the order of the tree */
	uint32_t rows, hidden;
	double hidden_width;
	char **labels; /* by frame: name to show; NULL: not made yet */
};

/* ---- layout ---------------------------------------------------------------------------------- */

static double value_of(const struct flame_svg *svg, uint32_t node, unsigned side)
{
	return export_tree_value(&svg->tree, export_node_at(&svg->tree, node)->total, side);
}

static double width_of(const struct flame_svg *svg, uint32_t node)
{
	return WIDTH * (value_of(svg, node, EXPORT_NOW) + value_of(svg, node, EXPORT_BEFORE)) /
	       (svg->now + svg->before);
}

/* Adds one box for the branches of `above` from `first` on, which are the smallest, unless that box
 * would be too narrow, too. */
static void hide_rest(struct flame_svg *svg, const struct svg_box *above, double x, uint32_t first)
{
	uint32_t end = svg->tree.children[above->node + 1];
	struct svg_box rest = {
		.node = above->node, .hidden = end - first, .x = x, .row = above->row + 1
	};

	for (uint32_t i = first; i < end; i++)
		rest.width += width_of(svg, svg->tree.order[i]);
	svg->hidden += rest.hidden;
	svg->hidden_width += rest.width;
	if (rest.width >= LEAST_WIDTH)
		g_array_append_val(svg->boxes, rest);
}

static void lay_out(struct flame_svg *svg)
{
	const struct export_tree *tree = &svg->tree;
	g_autoptr(GArray) work = g_array_new(FALSE, FALSE, sizeof(struct svg_box));
	struct svg_box box = { .x = LEFT, .width = WIDTH };

	g_array_append_val(work, box);
	while (work->len > 0) {
		uint32_t i, end;
		double x;

		box = g_array_index(work, struct svg_box, work->len - 1);
		g_array_set_size(work, work->len - 1);
		g_array_append_val(svg->boxes, box);
		svg->rows = MAX_OF(svg->rows, box.row + 1);
		if (box.hidden || !(svg->now + svg->before > 0))
			continue;
		x = box.x;
		end = tree->children[box.node + 1];
		for (i = tree->children[box.node]; i < end; i++) {
			struct svg_box child = { .node = tree->order[i],
						 .x = x,
						 .width = width_of(svg, tree->order[i]),
						 .row = box.row + 1 };

			if (child.width < LEAST_WIDTH)
				break;
			g_array_append_val(work, child);
			x += child.width;
		}
		if (i < end)
			hide_rest(svg, &box, x, i);
		svg->rows = MAX_OF(svg->rows, box.row + 1 + (i < end));
	}
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Writes a number with two decimals and a point in any locale. */
static void write_decimal(struct out *out, double value)
{
	long long hundredths = llround(value * 100);

	out_printf(out, "%lld.%02lld", hundredths / 100, hundredths % 100);
}

static void write_escaped(struct out *out, const char *text)
{
	g_autofree char *escaped = g_markup_escape_text(text, -1);

	out_text(out, escaped);
}

/* Writes "12 samples, 3.40 %". */
static void write_value(struct flame_svg *svg, double value, double whole)
{
	out_printf(svg->out, "%.0f %s, ", value, svg->unit);
	write_decimal(svg->out, whole > 0 ? 100 * value / whole : 0);
	out_text(svg->out, " %");
}

static const struct export_frame *frame_of(const struct flame_svg *svg, uint32_t node)
{
	return svg->tree.frames->pdata[export_node_at(&svg->tree, node)->frame];
}

static const char *label_of(struct flame_svg *svg, uint32_t node)
{
	const struct export_frame *frame = frame_of(svg, node);
	char **label = &svg->labels[export_node_at(&svg->tree, node)->frame];

	if (!frame->export)
		return frame->text;
	if (!*label) {
		const struct function *function =
			functions_at(frame->export->profile.functions, frame->function);
		g_autofree char *name =
			function_name_for_people(function->name, function->raw_name);

		*label = text_escape_utf8(name, strlen(name));
	}
	return *label;
}

/* Returns as much of a label as fits, or NULL. */
static char *fit(const char *label, double width)
{
	unsigned room = (unsigned)(MAX_OF(width - 2 * PADDING, 0.0) / LETTER), used = 0;
	g_autofree char *short_name = NULL;
	const char *last, *end;

	if (room < LEAST_LETTERS)
		return NULL;
	if (text_width(label) <= room)
		return g_strdup(label);
	short_name = function_name_fit(label, room);
	if (text_width(short_name) <= room)
		return g_steal_pointer(&short_name);
	last = g_strrstr(short_name, "::");
	last = last ? last + 2 : short_name;
	for (end = last; *end; end = g_utf8_next_char(end)) {
		g_autofree char *letter = g_strndup(end, (gsize)(g_utf8_next_char(end) - end));

		used += text_width(letter);
		if (used >= room)
			break;
	}
	return g_strdup_printf("%.*s…", (int)(end - last), last);
}

static const char *origin_class(const struct export_frame *frame)
{
	const struct functions *functions = frame->export ? frame->export->profile.functions : NULL;
	const char *kind = functions ? functions_at(functions, frame->function)->kind : "";

	if (!functions || strcmp(kind, "unresolved") == 0)
		return "other";
	if (strcmp(kind, "jit") == 0)
		return "runtime";
	switch (code_origin_of(functions, frame->function)) {
	case CODE_ORIGIN_OWN:
		return "own";
	case CODE_ORIGIN_LIBRARY:
		return "library";
	case CODE_ORIGIN_LIBC:
		return "libc";
	case CODE_ORIGIN_KERNEL:
		return "kernel";
	default:
		return "other";
	}
}

/* Returns the standard error of a sum of samples; 0 for other values. */
static double error_of(struct amount amount, double value)
{
	return amount.samples ? value / sqrt((double)amount.samples) : 0;
}

static bool is_noise(const struct flame_svg *svg, uint32_t node)
{
	const struct export_node *at = export_node_at(&svg->tree, node);
	double now = value_of(svg, node, EXPORT_NOW), before = value_of(svg, node, EXPORT_BEFORE);

	return fabs(now - before) <=
	       NOISE_ERRORS * hypot(error_of(at->total[EXPORT_NOW], now),
				    error_of(at->total[EXPORT_BEFORE], before));
}

static const char *change_class(const struct flame_svg *svg, uint32_t node)
{
	static const char *const classes[2][3] = { { "less1", "less2", "less3" },
						   { "more1", "more2", "more3" } };
	double now = value_of(svg, node, EXPORT_NOW), before = value_of(svg, node, EXPORT_BEFORE);

	if (is_noise(svg, node))
		return "other";
	return classes[now > before]
		      [MIN_OF((int)(3 * fabs(now - before) / MAX_OF(now, before)), 2)];
}

static void write_tip(struct flame_svg *svg, uint32_t node)
{
	/* the root has no frame */
	const struct export_frame *frame = node ? frame_of(svg, node) : NULL;
	const struct export_node *at = export_node_at(&svg->tree, node);
	struct out *out = svg->out;

	write_escaped(out, frame ? frame->text : "all");
	out_char(out, '\n');
	write_value(svg, value_of(svg, node, EXPORT_NOW), svg->now);
	if (svg->tree.sides[EXPORT_BEFORE]) {
		out_text(out, "\nbefore: ");
		write_value(svg, value_of(svg, node, EXPORT_BEFORE), svg->before);
		out_text(out, is_noise(svg, node) ? " (within noise)" : "");
	} else if (frame) {
		out_text(out, "\nself: ");
		write_value(svg, export_tree_value(&svg->tree, at->self, EXPORT_NOW), svg->now);
	}
	if (frame && frame->export) {
		g_autofree char *place =
			functions_place(frame->export->profile.functions, frame->function, true);
		g_autofree char *escaped = place ? text_escape_utf8(place, strlen(place)) : NULL;

		out_char(out, '\n');
		write_escaped(out, escaped ? escaped : "");
	}
}

static void write_box(struct flame_svg *svg, const struct svg_box *box)
{
	bool compares = svg->tree.sides[EXPORT_BEFORE];
	struct out *out = svg->out;
	const char *label = box->hidden ? "" : box->node ? label_of(svg, box->node) : "all";
	g_autofree char *shown = fit(label, box->width);

	if (box->hidden) {
		out_printf(out, "<g class=\"other\"><title>%" PRIu32 " small branches, ",
			   box->hidden);
		write_decimal(out, 100 * box->width / WIDTH);
		out_text(out, " %");
	} else {
		out_printf(out, "<g class=\"%s\" data-v=\"%.0f\"",
			   !box->node ? "other"
			   : compares ? change_class(svg, box->node)
				      : origin_class(frame_of(svg, box->node)),
			   value_of(svg, box->node, EXPORT_NOW));
		if (compares)
			out_printf(out, " data-b=\"%.0f\"",
				   value_of(svg, box->node, EXPORT_BEFORE));
		if (box->node && strcmp(label, frame_of(svg, box->node)->text) != 0) {
			out_text(out, " data-n=\"");
			write_escaped(out, label);
			out_char(out, '"');
		}
		out_text(out, "><title>");
		write_tip(svg, box->node);
	}
	out_text(out, "</title><rect x=\"");
	write_decimal(out, box->x);
	out_printf(out, "\" y=\"%" PRIu32 "\" width=\"", TOP + box->row * ROW);
	write_decimal(out, box->width);
	out_printf(out, "\" height=\"%d\"/>", ROW - 1);
	if (shown) {
		out_text(out, "<text x=\"");
		write_decimal(out, box->x + PADDING);
		out_printf(out, "\" y=\"%" PRIu32 "\">", TOP + box->row * ROW + 12);
		write_escaped(out, shown);
		out_text(out, "</text>");
	}
	out_text(out, "</g>\n");
}

static void write_legend(struct flame_svg *svg)
{
	static const char *const origins[][2] = {
		{ "own", "own code" },           { "library", "library" }, { "libc", "libc" },
		{ "runtime", "generated code" }, { "kernel", "kernel" },   { "other", "unknown" }
	};
	static const char *const changes[][2] = { { "more3", "more" },
						  { "less3", "less" },
						  { "other", "within noise" } };
	bool compares = svg->tree.sides[EXPORT_BEFORE];
	size_t n = compares ? ARRAY_SIZE(changes) : ARRAY_SIZE(origins);
	size_t x = LEFT;

	for (size_t i = 0; i < n; i++) {
		const char *const *entry = compares ? changes[i] : origins[i];

		out_printf(
			svg->out,
			"<rect class=\"%s\" x=\"%zu\" y=\"50\" width=\"11\" height=\"11\"/><text "
			"class=\"head muted\" x=\"%zu\" y=\"60\">%s</text>\n",
			entry[0], x, x + 16, entry[1]);
		x += 36 + 7 * strlen(entry[1]);
	}
	if (svg->hidden) {
		out_printf(svg->out,
			   "<text class=\"head muted\" id=\"hidden\" x=\"%zu\" y=\"60\">%" PRIu32
			   " branches narrower than 0.3 pixels are merged: ",
			   x + 20, svg->hidden);
		write_decimal(svg->out, 100 * svg->hidden_width / WIDTH);
		out_text(svg->out, " %</text>\n");
	}
}

static void write_head(struct flame_svg *svg, uint32_t height)
{
	g_autofree char *title = export_title(svg->tree.sides[EXPORT_NOW]);
	g_autofree char *escaped = text_escape_utf8(title, strlen(title));
	g_autofree char *cut = fit(escaped, WIDTH - 320);
	const char *event = svg->export->value == EXPORT_SAMPLES && svg->export->profile.event
				    ? export_weight_name(svg->export)
				    : NULL;
	g_autofree char *name = event ? text_escape_utf8(event, strlen(event)) : NULL;
	struct out *out = svg->out;

	out_printf(out,
		   "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
		   "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%" PRIu32
		   "\" viewBox=\"0 0 %d %" PRIu32 "\">\n<title>Flame graph%s%s: ",
		   (int)WIDTH + 2 * LEFT, height, (int)WIDTH + 2 * LEFT, height,
		   name && export_counts_waits(svg->export) ? " of " : "",
		   name && export_counts_waits(svg->export) ? name : "");
	write_escaped(out, escaped);
	out_text(out, "</title>\n<style>\n");
	out_write(out, flame_svg_style, flame_svg_style_size);
	out_printf(out,
		   "</style>\n<rect class=\"bg\" width=\"100%%\" height=\"100%%\"/>\n"
		   "<text class=\"strong\" x=\"%d\" y=\"22\">",
		   LEFT);
	write_escaped(out, cut);
	out_printf(out, "</text>\n<text class=\"head\" x=\"%d\" y=\"42\">%.0f %s", LEFT, svg->now,
		   svg->unit);
	if (name) {
		out_text(out, " of ");
		write_escaped(out, name);
	}
	if (svg->tree.sides[EXPORT_BEFORE]) {
		out_printf(out, ", before: %" PRIu64,
			   export_value_of(svg->export,
					   export_node_at(&svg->tree, 0)->total[EXPORT_BEFORE]));
		if (svg->tree.scale != 1)
			out_text(out, ", scaled to the same total");
	}
	out_printf(out,
		   "</text>\n<text class=\"head\" id=\"found\" text-anchor=\"end\" x=\"%d\" "
		   "y=\"50\"></text>\n",
		   LEFT + (int)WIDTH);
	write_legend(svg);
}

bool export_svg(struct export *export, struct out *out, GError **error)
{
	static const char *const units[] = { NULL, "blocks", "bytes", "blocks", "bytes" };
	struct flame_svg svg = {
		.export = export,
		.out = out,
		.boxes = g_array_new(FALSE, FALSE, sizeof(struct svg_box)),
	};

	export_tree_init(&svg.tree, export, true);
	svg.unit = export->value != EXPORT_SAMPLES ? units[export->value]
		   : profile_is_weighted(&svg.tree.sides[EXPORT_NOW]->profile)
			   ? profile_unit(&export->profile)
			   : export_sample_name(export);
	svg.now = value_of(&svg, 0, EXPORT_NOW);
	svg.before = value_of(&svg, 0, EXPORT_BEFORE);
	svg.labels = g_new0(char *, svg.tree.frames->len);
	lay_out(&svg);
	write_head(&svg, TOP + svg.rows * ROW + LEFT);
	out_printf(
		out,
		"<g id=\"boxes\" data-left=\"%d\" data-width=\"%d\" data-v=\"%.0f\" data-b=\"%.0f\">\n",
		LEFT, (int)WIDTH, svg.now, svg.before);
	for (guint i = 0; i < svg.boxes->len && !out_failed(out); i++)
		write_box(&svg, &g_array_index(svg.boxes, struct svg_box, i));
	out_text(out, "</g>\n<script><![CDATA[\n");
	out_write(out, flame_svg_script, flame_svg_script_size);
	out_text(out, "]]></script>\n</svg>\n");
	for (guint i = 0; i < svg.tree.frames->len; i++)
		g_free(svg.labels[i]);
	g_free(svg.labels);
	g_array_unref(svg.boxes);
	export_tree_done(&svg.tree);
	return true;
}
