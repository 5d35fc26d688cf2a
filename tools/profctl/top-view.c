/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Top-view - computes and sorts the rows of a live view, and handles browsing
 *
 * Invariants: (1) a function counts a sample once, even if the stack has the function several times
 *                 [test-live: recursion]
 *             (2) equal rows are sorted by name, so that lines do not jump [test-live: order]
 *             (3) row numbers are valid in one generation of the live view: rows must be counted
 *                 again when the generation has changed  [test-live: forgets]
 *             (4) Backspace shows the previous view; MAX_STEPS previous views are kept, as long as
 *                 the generation does not change  [test-live: browse]
 * Reading keys and drawing are in top-screen.c.
 */
#include "config.h"

#include "tools/profctl/top-view.h"

#include "arch/base.h"
#include "base/order.h"
#include "tools/profctl/top-screen.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#define MAX_FILTER 64 /* characters */
#define MAX_STEPS 64u

/* A node with its function. A step is small, because counting mostly reads steps. */
struct step {
	uint32_t parent, function;
};

struct counting {
	const struct top_view *view;
	const struct live *live;
	const struct step *steps; /* by node; NULL if stacks are not needed */
	struct top_row *rows;     /* by number of the function, process or thread */
	uint64_t *seen;           /* by number: serial of the last sample that was counted */
	uint64_t serial;
};

/* Creates the steps of all nodes, then those of the functions that the nodes' functions are inlined
 * into. */
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
		uint32_t pending;

		pending = LIVE_AT(live->images, live_image, place->image)->pending;
		step->function = pending && place->function == pending ? live->pending
								       : place->function;
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

/* Counts callers of the view's function. A caller's self: samples in which the view's function is
 * innermost. */
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
	const struct step *steps = counting->steps;
	uint32_t process = LIVE_AT(counting->live->threads, live_thread, thread)->process;

	counting->serial++;
	switch (counting->view->kind) {
	case TOP_FUNCTIONS:
		amount_add(&counting->rows[steps[node].function].self, amount);
		do {
			count_function(counting, steps[node].function, amount);
			node = steps[node].parent;
		} while (node);
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

static gint compare(gconstpointer left, gconstpointer right, gpointer data)
{
	const struct top_row *a = left, *b = right;
	enum top_sort sort = *(const enum top_sort *)data;

	return ORDER_BY(sort == TOP_BY_NAME   ? 0
			: sort == TOP_BY_SELF ? amount_compare(a->self, b->self)
					      : amount_compare(a->total, b->total),
			strcmp(a->name, b->name), ORDER(a->number, b->number));
}

GArray *top_view_rows(const struct top_view *view, const struct live *live, struct amount *ret_all)
{
	GArray *rows = g_array_new(FALSE, FALSE, sizeof(struct top_row));
	g_autofree char *filter = view->filter ? g_utf8_casefold(view->filter, -1) : NULL;
	size_t n = view->kind == TOP_PROCESSES ? live->processes->len
		   : view->kind == TOP_THREADS ? live->threads->len
					       : live->functions->len;
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
		g_autofree char *folded = NULL;

		if (view->kind == TOP_PROCESSES || view->kind == TOP_THREADS)
			all[i].total = all[i].self;
		if (!all[i].total.samples)
			continue;
		all[i].number = (uint32_t)i;
		all[i].name = name_of(view, live, (uint32_t)i);
		folded = filter ? g_utf8_casefold(all[i].name, -1) : NULL;
		if (!filter || strstr(folded, filter))
			g_array_append_val(rows, all[i]);
	}
	g_array_sort_with_data(rows, compare, &sort);
	return rows;
}

/* ---- Browsing -------------------------------------------------------------------------------- */

static const char *const sorts[] = { N_("self"), N_("total"), N_("name") };

/* A view that Backspace restores. The order of rows is not restored. */
struct past_view {
	struct top_view view;
	guint selected;
};

void top_browse_init(struct top_browse *browse, const struct live *live, enum top_kind kind)
{
	*browse = (struct top_browse){ .live = live, .view.kind = kind };
	browse->rows = g_array_new(FALSE, FALSE, sizeof(struct top_row));
	browse->steps = g_array_new(FALSE, FALSE, sizeof(struct past_view));
	browse->filter = g_string_new(NULL);
}

void top_browse_done(struct top_browse *browse)
{
	g_array_unref(browse->rows);
	g_array_unref(browse->steps);
	g_string_free(browse->filter, TRUE);
}

void top_browse_count(struct top_browse *browse)
{
	struct top_view view = browse->view;

	if (browse->generation != browse->live->generation) {
		browse->view.process = view.process = 0;
		browse->view.function = view.function = 0;
		if (view.kind == TOP_CALLERS)
			browse->view.kind = view.kind = TOP_FUNCTIONS;
		g_array_set_size(browse->steps, 0);
	}
	browse->generation = browse->live->generation;
	view.filter = browse->filter->len ? browse->filter->str : NULL;
	g_array_unref(browse->rows);
	browse->rows = top_view_rows(&view, browse->live, &browse->all);
	/* keep the selected row selected if it moved */
	for (guint i = 0; i < browse->rows->len && browse->selected > 0; i++)
		if (g_array_index(browse->rows, struct top_row, i).number ==
		    browse->selected_number)
			browse->selected = i;
	if (browse->selected >= browse->rows->len)
		browse->selected = browse->rows->len ? browse->rows->len - 1 : 0;
}

/* ---- Keys ------------------------------------------------------------------------------------ */

static void select_row(struct top_browse *browse, gint64 row)
{
	gint64 last = (gint64)browse->rows->len - 1;

	browse->selected = (guint)CLAMP(row, 0, MAX(last, 0));
	if (browse->rows->len)
		browse->selected_number =
			g_array_index(browse->rows, struct top_row, browse->selected).number;
}

/* Shows a view in the current order, with a selected row. */
static void show(struct top_browse *browse, const struct top_view *view, guint selected)
{
	enum top_sort sort = browse->view.sort;

	browse->view = *view;
	browse->view.sort = sort;
	browse->selected = 0;
	top_browse_count(browse);
	select_row(browse, selected);
}

static void go_to(struct top_browse *browse, enum top_kind kind, uint32_t process,
		  uint32_t function)
{
	const struct past_view past = { browse->view, browse->selected };
	const struct top_view view = { .kind = kind, .process = process, .function = function };

	if (browse->steps->len == MAX_STEPS)
		g_array_remove_index(browse->steps, 0);
	g_array_append_val(browse->steps, past);
	show(browse, &view, 0);
}

static void go_back(struct top_browse *browse)
{
	struct past_view past;

	if (browse->steps->len == 0)
		return;
	past = g_array_index(browse->steps, struct past_view, browse->steps->len - 1);
	g_array_set_size(browse->steps, browse->steps->len - 1);
	show(browse, &past.view, past.selected);
}

/* Opens the callers of a function, or the functions of a process or of a thread's process. */
static void enter(struct top_browse *browse)
{
	uint32_t number;

	if (browse->selected >= browse->rows->len)
		return;
	number = g_array_index(browse->rows, struct top_row, browse->selected).number;
	if (browse->view.kind == TOP_PROCESSES)
		go_to(browse, TOP_FUNCTIONS, number, 0);
	else if (browse->view.kind == TOP_THREADS)
		go_to(browse, TOP_FUNCTIONS,
		      LIVE_AT(browse->live->threads, live_thread, number)->process, 0);
	else if (number)
		go_to(browse, TOP_CALLERS, browse->view.process, number);
}

static void edit(struct top_browse *browse, unsigned key)
{
	switch (key) {
	case TOP_KEY_ENTER:
		browse->editing = false;
		return;
	case TOP_KEY_ESCAPE:
		browse->editing = false;
		g_string_truncate(browse->filter, 0);
		break;
	case TOP_KEY_BACK:
		if (browse->filter->len) {
			const char *end = browse->filter->str + browse->filter->len;

			g_string_truncate(browse->filter,
					  (gsize)(g_utf8_find_prev_char(browse->filter->str, end) -
						  browse->filter->str));
		}
		break;
	default:
		if (key < TOP_KEY_UP && g_unichar_isprint(key) &&
		    g_utf8_strlen(browse->filter->str, -1) < MAX_FILTER)
			g_string_append_unichar(browse->filter, key);
		break;
	}
	top_browse_count(browse);
	select_row(browse, 0);
}

static void move(struct top_browse *browse, unsigned key, gint64 page)
{
	gint64 at = browse->selected;

	if (key == TOP_KEY_UP || key == 'k')
		at--;
	else if (key == TOP_KEY_DOWN || key == 'j')
		at++;
	else if (key == TOP_KEY_PAGE_UP)
		at -= page;
	else if (key == TOP_KEY_PAGE_DOWN)
		at += page;
	else if (key == TOP_KEY_HOME)
		at = 0;
	else if (key == TOP_KEY_END)
		at = (gint64)browse->rows->len;
	else
		return;
	select_row(browse, at);
}

bool top_browse_press(struct top_browse *browse, unsigned key, guint page)
{
	if (browse->editing) {
		edit(browse, key);
		return false;
	}
	if (browse->shows_keys) {
		browse->shows_keys = false;
		return key == 'q';
	}
	switch (key) {
	case 'q':
		return true;
	case '?':
		browse->shows_keys = true;
		break;
	case 'f':
		go_to(browse, TOP_FUNCTIONS, 0, 0);
		break;
	case 'p':
		go_to(browse, TOP_PROCESSES, 0, 0);
		break;
	case 't':
		go_to(browse, TOP_THREADS, 0, 0);
		break;
	case 's':
		browse->view.sort = (browse->view.sort + 1) % TOP_SORTS;
		top_browse_count(browse);
		break;
	case ' ':
		browse->held = !browse->held;
		break;
	case '/':
		browse->editing = true;
		break;
	case TOP_KEY_ENTER:
		enter(browse);
		break;
	case TOP_KEY_BACK:
	case TOP_KEY_ESCAPE:
		go_back(browse);
		break;
	default:
		move(browse, key, page);
		break;
	}
	return false;
}

/* ---- Status line ----------------------------------------------------------------------------- */

static void PRINTF_LIKE(2, 3) add_status(GString *status, const char *format, ...)
{
	va_list arguments;

	if (status->len)
		g_string_append(status, "   ");
	va_start(arguments, format);
	g_string_append_vprintf(status, format, arguments);
	va_end(arguments);
}

char *top_browse_status(const struct top_browse *browse)
{
	const struct live *live = browse->live;
	const struct live_process *process =
		LIVE_AT(live->processes, live_process, browse->view.process);
	GString *status = g_string_new(NULL);

	if (browse->held)
		g_string_append(status, _("held; Space continues"));
	if (browse->view.process)
		add_status(status, _("only %s, pid %" PRIu64), process->comm, process->pid);
	if (browse->view.kind == TOP_CALLERS)
		add_status(status, _("callers of %s"),
			   LIVE_AT(live->functions, live_function, browse->view.function)->name);
	if (browse->view.sort != TOP_BY_SELF)
		add_status(status, _("by %s"), _(sorts[browse->view.sort]));
	if (browse->editing || browse->filter->len)
		add_status(status, "/%s%s", browse->filter->str, browse->editing ? "_" : "");
	return g_string_free(status, FALSE);
}
