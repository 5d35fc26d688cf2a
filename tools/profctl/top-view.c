/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Top view - the rows of a live view, in order
 *
 * Invariants: (1) a sample counts once for a function, even if the function recurs in its stack
 *                 [test-live: recursion]
 *             (2) equal rows are ordered by name, so that lines do not jump
 *                 [test-live: order]
 */
#include "config.h"

#include "tools/profctl/top-view.h"

#include "arch/base.h"

#include <string.h>

/* A node of a stack with its function, kept compact because counting reads mostly these. */
struct step {
	uint32_t parent, function;
};

struct counting {
	const struct top_view *view;
	const struct live *live;
	const struct step *steps; /* by node; NULL if stacks do not count */
	struct top_row *rows;     /* by number */
	uint64_t *seen;           /* by number: the last sample that counted for it */
	uint64_t serial;
};

/* Inlined calls are steps after those of the nodes. */
static struct step *steps_new(const struct live *live)
{
	const uint32_t *callers = (const uint32_t *)(const void *)live->callers->data;
	uint32_t n = live->nodes->len;
	struct step *steps;

	for (guint i = 0; i < live->nodes->len; i++) {
		uint32_t place = LIVE_AT(live->nodes, live_node, i)->place;

		for (uint32_t at = LIVE_AT(live->places, live_place, place)->callers; callers[at];
		     at++)
			n++;
	}
	steps = g_new(struct step, n);
	n = live->nodes->len;
	for (guint i = 0; i < live->nodes->len; i++) {
		const struct live_node *node = LIVE_AT(live->nodes, live_node, i);
		const struct live_place *place = LIVE_AT(live->places, live_place, node->place);
		struct step *step = &steps[i];

		step->function = place->function;
		for (uint32_t at = place->callers; callers[at]; at++) {
			step->parent = n;
			step = &steps[n++];
			step->function = callers[at];
		}
		step->parent = node->parent;
	}
	return steps;
}

static void count_function(struct counting *counting, uint32_t function, struct amount amount)
{
	if (counting->seen[function] == counting->serial)
		return;
	counting->seen[function] = counting->serial;
	amount_add(&counting->rows[function].total, amount);
}

static void count_stack(struct counting *counting, uint32_t node, struct amount amount)
{
	const struct step *steps = counting->steps;

	amount_add(&counting->rows[steps[node].function].self, amount);
	do {
		count_function(counting, steps[node].function, amount);
		node = steps[node].parent;
	} while (node);
}

/* self: samples in which the function was the innermost one. */
static void count_callers(struct counting *counting, uint32_t node, struct amount amount)
{
	const struct step *steps = counting->steps;

	for (uint32_t at = node; at; at = steps[at].parent) {
		uint32_t parent = steps[at].parent;
		uint32_t caller = parent ? steps[parent].function : 0;

		if (steps[at].function != counting->view->function ||
		    counting->seen[caller] == counting->serial)
			continue;
		count_function(counting, caller, amount);
		if (at == node)
			amount_add(&counting->rows[caller].self, amount);
	}
}

static void count(struct counting *counting, uint32_t node, uint32_t thread, struct amount amount)
{
	uint32_t process = LIVE_AT(counting->live->threads, live_thread, thread)->process;

	counting->serial++;
	switch (counting->view->kind) {
	case TOP_FUNCTIONS:
		count_stack(counting, node, amount);
		break;
	case TOP_CALLERS:
		count_callers(counting, node, amount);
		break;
	case TOP_PROCESSES:
		amount_add(&counting->rows[process].self, amount);
		break;
	default:
		amount_add(&counting->rows[thread].self, amount);
		break;
	}
}

static bool in_window(const struct live *live, const struct live_slice *slice)
{
	return slice->counts.used && slice->second + live->n_slices > live->last_second;
}

unsigned top_view_seconds(const struct live *live)
{
	unsigned seconds = 0;

	for (unsigned i = 0; i < live->n_slices; i++)
		seconds += in_window(live, &live->slices[i]);
	return seconds;
}

uint64_t top_view_samples(const struct live *live)
{
	uint64_t samples = 0;

	for (unsigned i = 0; i < live->n_slices; i++) {
		const struct live_slice *slice = &live->slices[i];

		for (guint n = 0; in_window(live, slice) && n < slice->amounts->len; n++)
			samples += g_array_index(slice->amounts, struct amount, n).samples;
	}
	return samples;
}

static struct amount count_window(struct counting *counting)
{
	const struct live *live = counting->live;
	struct amount all = { 0 };
	uint64_t key;
	uint32_t index;

	for (unsigned i = 0; i < live->n_slices; i++) {
		const struct live_slice *slice = &live->slices[i];
		size_t at = 0;

		if (!in_window(live, slice))
			continue;
		while (number_map_next(&slice->counts, &at, &key, &index)) {
			struct amount amount =
				g_array_index(slice->amounts, struct amount, index - 1);
			uint32_t thread = (uint32_t)key;

			if (counting->view->process &&
			    LIVE_AT(live->threads, live_thread, thread)->process !=
				    counting->view->process)
				continue;
			amount_add(&all, amount);
			count(counting, (uint32_t)(key >> 32), thread, amount);
		}
	}
	return all;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static const char *name_of(const struct top_view *view, const struct live *live, uint32_t number)
{
	switch (view->kind) {
	case TOP_PROCESSES:
		return LIVE_AT(live->processes, live_process, number)->comm;
	case TOP_THREADS:
		return LIVE_AT(live->threads, live_thread, number)->comm;
	case TOP_CALLERS:
		return number ? LIVE_AT(live->functions, live_function, number)->name : "-";
	default:
		return LIVE_AT(live->functions, live_function, number)->name;
	}
}

static gint compare(gconstpointer a, gconstpointer b, gpointer data)
{
	const struct top_row *x = a, *y = b;
	enum top_sort sort = *(const enum top_sort *)data;
	int order = sort == TOP_BY_SELF ? amount_compare(x->self, y->self)
					: amount_compare(x->total, y->total);
	int by_name;

	if (sort != TOP_BY_NAME && order)
		return order;
	by_name = strcmp(x->name, y->name);
	return by_name ? by_name : (x->number > y->number) - (x->number < y->number);
}

static size_t numbers_of(const struct top_view *view, const struct live *live)
{
	switch (view->kind) {
	case TOP_PROCESSES:
		return live->processes->len;
	case TOP_THREADS:
		return live->threads->len;
	default:
		return live->functions->len;
	}
}

static bool is_wanted(const char *filter, const char *name)
{
	g_autofree char *folded = filter ? g_utf8_casefold(name, -1) : NULL;

	return !filter || strstr(folded, filter);
}

GArray *top_view_rows(const struct top_view *view, const struct live *live, struct amount *ret_all)
{
	GArray *rows = g_array_new(FALSE, FALSE, sizeof(struct top_row));
	g_autofree char *filter = view->filter ? g_utf8_casefold(view->filter, -1) : NULL;
	size_t n = numbers_of(view, live);
	g_autofree struct top_row *all = g_new0(struct top_row, n);
	g_autofree uint64_t *seen = g_new0(uint64_t, n);
	bool by_stack = view->kind == TOP_FUNCTIONS || view->kind == TOP_CALLERS;
	g_autofree struct step *steps = by_stack ? steps_new(live) : NULL;
	struct counting counting = {
		.view = view, .live = live, .steps = steps, .rows = all, .seen = seen
	};
	enum top_sort sort = view->sort;

	*ret_all = count_window(&counting);
	for (size_t i = 0; i < n; i++) {
		if (view->kind == TOP_PROCESSES || view->kind == TOP_THREADS)
			all[i].total = all[i].self;
		if (!all[i].total.samples)
			continue;
		all[i].number = (uint32_t)i;
		all[i].name = name_of(view, live, (uint32_t)i);
		if (is_wanted(filter, all[i].name))
			g_array_append_val(rows, all[i]);
	}
	g_array_sort_with_data(rows, compare, &sort);
	return rows;
}
