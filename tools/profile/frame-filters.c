/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Frame-filters - select samples, and which of their frames are shown, by patterns
 *
 * Invariants: (1) samples that pass and samples that are dropped add up to all samples
 *                 [test_frame_filters]
 *             (2) a place is matched once, in however many stacks it occurs
 */
#include "config.h"

#include "tools/profile/frame-filters.h"

#include <glib/gi18n.h>

#define ASKED (1u << FRAME_FILTERS)
#define BIT(filter) (1u << (filter))

#define PATTERN(filter) CLI_STRING, offsetof(struct frame_filters, pattern[filter]), N_("RE")

const struct cli_option frame_filter_options[] = {
	{ "focus", 0, PATTERN(FRAME_FOCUS), N_("Use only samples with a matching frame") },
	{ "ignore", 0, PATTERN(FRAME_IGNORE), N_("Drop samples with a matching frame") },
	{ "hide", 0, PATTERN(FRAME_HIDE), N_("Remove matching frames") },
	{ "show", 0, PATTERN(FRAME_SHOW), N_("Keep only matching frames") },
	{ "show-from", 0, PATTERN(FRAME_SHOW_FROM),
	  N_("Remove callers above the outermost match, and samples without a match") },
	{ NULL },
};

bool frame_filters_open(struct frame_filters *filters, GError **error)
{
	for (size_t i = 0; i < FRAME_FILTERS; i++) {
		g_autoptr(GError) cause = NULL;

		if (!filters->pattern[i])
			continue;
		/* names need not be UTF-8 */
		filters->regex[i] =
			g_regex_new(filters->pattern[i], G_REGEX_RAW | G_REGEX_OPTIMIZE, 0, &cause);
		if (!filters->regex[i]) {
			return cli_set_error(error, CLI_USAGE,
					     _("--%s: '%s' is not a regular expression: %s"),
					     frame_filter_options[i].name, filters->pattern[i],
					     cli_reason(cause));
		}
	}
	filters->matches = g_byte_array_new();
	return true;
}

void frame_filters_done(struct frame_filters *filters)
{
	for (size_t i = 0; i < FRAME_FILTERS; i++)
		g_clear_pointer(&filters->regex[i], g_regex_unref);
	g_clear_pointer(&filters->matches, g_byte_array_unref);
	*filters = (struct frame_filters){ 0 };
}

bool frame_filters_want_bare(const struct frame_filters *filters)
{
	return !filters->pattern[FRAME_FOCUS] && !filters->pattern[FRAME_SHOW] &&
	       !filters->pattern[FRAME_SHOW_FROM];
}

/* Returns ASKED and the bits of the filters that match a function. A pattern may match the file of
 * the code or of the declaration. */
static unsigned matches(struct frame_filters *filters, const struct functions *functions,
			uint32_t function)
{
	const struct function *f = functions_at(functions, function);
	const char *declared = functions_at(functions, functions_whole(functions, function))->file;
	const char *texts[] = { f->name, f->raw_name == f->name ? NULL : f->raw_name, f->file,
				declared == f->file ? NULL : declared,
				functions_image(functions, function) };
	unsigned bits = ASKED;

	if (filters->matches->len <= function) {
		guint before = filters->matches->len;

		g_byte_array_set_size(filters->matches, functions->all->len);
		memset(filters->matches->data + before, 0, filters->matches->len - before);
	}
	if (filters->matches->data[function])
		return filters->matches->data[function];
	for (size_t i = 0; i < FRAME_FILTERS; i++)
		for (size_t k = 0; filters->regex[i] && k < ARRAY_SIZE(texts); k++)
			if (texts[k] && g_regex_match(filters->regex[i], texts[k], 0, NULL))
				bits |= BIT(i);
	filters->matches->data[function] = (uint8_t)bits;
	return bits;
}

/* The state of a node, computed from its parent's. */
struct path {
	unsigned met;   /* bits of the filters that matched a frame on the path so far */
	uint32_t shown; /* the nearest shown node at or above it; STACKS_NO_ROW: none */
	/* the outermost node of its frame: the node itself, unless it is an inlined call */
	uint32_t frame;
};

struct amount frame_filters_apply(struct frame_filters *filters, struct stacks *stacks,
				  const struct functions *functions, bool inlined,
				  uint32_t *ret_nodes, uint32_t *ret_frames)
{
	g_autofree struct path *paths = g_new(struct path, stacks->n);
	struct amount taken = { 0 };

	/* Callers come before callees, so a caller's own samples are processed before samples are
	 * moved to it. */
	for (size_t i = 0; i < stacks->n; i++) {
		uint32_t row = stacks->order[i], parent = stacks->parent[row], above;
		struct path path = { .shown = STACKS_NO_ROW, .frame = row };
		struct amount self = stacks->self[row];
		unsigned match;
		bool shown;

		ret_frames[row] = row;
		if (stacks->total[row].samples == 0)
			continue;
		if (parent != STACKS_NO_ROW)
			path = paths[parent];
		if (functions_at(functions, stacks->entity[row])->depth == 0)
			path.frame = row;
		match = matches(filters, functions, stacks->entity[row]);
		shown = !(match & BIT(FRAME_HIDE)) &&
			(!filters->regex[FRAME_SHOW] || match & BIT(FRAME_SHOW));
		path.met |= match & (BIT(FRAME_FOCUS) | BIT(FRAME_IGNORE));
		if (shown)
			path.met |= match & BIT(FRAME_SHOW_FROM);
		above = path.shown;
		if (shown &&
		    (!filters->regex[FRAME_SHOW_FROM] || path.met & BIT(FRAME_SHOW_FROM))) {
			bool is_inlined = above != STACKS_NO_ROW &&
					  paths[above].frame == path.frame;

			ret_frames[row] = is_inlined ? ret_frames[above] : row;
			stacks->parent[row] = is_inlined && !inlined ? stacks->parent[above]
								     : above;
			path.shown = row;
		}
		paths[row] = path;
		stacks->self[row] = stacks->total[row] = (struct amount){ 0 };
		ret_nodes[row] = path.shown;
		if (path.met & BIT(FRAME_IGNORE) ||
		    (filters->regex[FRAME_FOCUS] && !(path.met & BIT(FRAME_FOCUS))))
			ret_nodes[row] = STACKS_NO_ROW;
		if (ret_nodes[row] == STACKS_NO_ROW)
			amount_add(&taken, self);
		else
			amount_add(&stacks->self[ret_nodes[row]], self);
	}
	stacks_sum(stacks);
	return taken;
}
