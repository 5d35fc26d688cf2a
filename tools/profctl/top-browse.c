/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Top browse - the state of browsing a live view
 *
 * Invariants: (1) row numbers belong to one generation of the live view: after adding rows to it,
 *                 count again if the generation has changed  [test-live: forgets]
 *             (2) Backspace shows the previous view, as far back as the first one
 *                 [test-live: browse]
 * Reads no keys and draws nothing (top-screen.c).
 */
#include "config.h"

#include "tools/profctl/top-browse.h"

#include "tools/profctl/top-screen.h"

#include <glib/gi18n.h>
#include <inttypes.h>

#define MAX_FILTER 64 /* characters */
#define MAX_STEPS 64u

static const char *const sorts[] = { N_("self"), N_("total"), N_("name") };

/* The state that Backspace restores. */
struct step {
	enum top_kind kind;
	uint32_t process, function;
	guint selected;
};

void top_browse_init(struct top_browse *browse, const struct live *live, enum top_kind kind)
{
	*browse = (struct top_browse){ .live = live, .view.kind = kind };
	browse->rows = g_array_new(FALSE, FALSE, sizeof(struct top_row));
	browse->steps = g_array_new(FALSE, FALSE, sizeof(struct step));
	browse->filter = g_string_new(NULL);
}

void top_browse_done(struct top_browse *browse)
{
	g_array_unref(browse->rows);
	g_array_unref(browse->steps);
	g_string_free(browse->filter, TRUE);
}

/* The selected row stays selected when it moves. */
static void find_selected(struct top_browse *browse)
{
	for (guint i = 0; i < browse->rows->len; i++)
		if (g_array_index(browse->rows, struct top_row, i).number ==
			    browse->selected_number &&
		    browse->selected > 0)
			browse->selected = i;
	if (browse->selected >= browse->rows->len)
		browse->selected = browse->rows->len ? browse->rows->len - 1 : 0;
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
	find_selected(browse);
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

static void go_to(struct top_browse *browse, enum top_kind kind, uint32_t process,
		  uint32_t function)
{
	const struct step step = { browse->view.kind, browse->view.process, browse->view.function,
				   browse->selected };

	if (browse->steps->len == MAX_STEPS)
		g_array_remove_index(browse->steps, 0);
	g_array_append_val(browse->steps, step);
	browse->view.kind = kind;
	browse->view.process = process;
	browse->view.function = function;
	browse->selected = 0;
	top_browse_count(browse);
	select_row(browse, 0);
}

static void go_back(struct top_browse *browse)
{
	struct step step;

	if (browse->steps->len == 0)
		return;
	step = g_array_index(browse->steps, struct step, browse->steps->len - 1);
	g_array_set_size(browse->steps, browse->steps->len - 1);
	browse->view.kind = step.kind;
	browse->view.process = step.process;
	browse->view.function = step.function;
	browse->selected = 0;
	top_browse_count(browse);
	select_row(browse, step.selected);
}

/* Opens the callers of a function, or the functions of a process or of a thread's process. */
static void enter(struct top_browse *browse)
{
	uint32_t number, process;

	if (browse->selected >= browse->rows->len)
		return;
	number = g_array_index(browse->rows, struct top_row, browse->selected).number;
	switch (browse->view.kind) {
	case TOP_PROCESSES:
		go_to(browse, TOP_FUNCTIONS, number, 0);
		break;
	case TOP_THREADS:
		process = LIVE_AT(browse->live->threads, live_thread, number)->process;
		go_to(browse, TOP_FUNCTIONS, process, 0);
		break;
	default:
		if (number)
			go_to(browse, TOP_CALLERS, browse->view.process, number);
		break;
	}
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

	switch (key) {
	case TOP_KEY_UP:
	case 'k':
		at--;
		break;
	case TOP_KEY_DOWN:
	case 'j':
		at++;
		break;
	case TOP_KEY_PAGE_UP:
		at -= page;
		break;
	case TOP_KEY_PAGE_DOWN:
		at += page;
		break;
	case TOP_KEY_HOME:
		at = 0;
		break;
	case TOP_KEY_END:
		at = (gint64)browse->rows->len;
		break;
	default:
		return;
	}
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

static void add_status(GString *status, const char *text)
{
	if (status->len)
		g_string_append(status, "   ");
	g_string_append(status, text);
}

static void add_view_status(const struct top_browse *browse, GString *status)
{
	const struct live *live = browse->live;

	if (browse->view.process) {
		const struct live_process *process =
			LIVE_AT(live->processes, live_process, browse->view.process);
		g_autofree char *text =
			g_strdup_printf(_("only %s, pid %" PRIu64), process->comm, process->pid);

		add_status(status, text);
	}
	if (browse->view.kind == TOP_CALLERS) {
		g_autofree char *text = g_strdup_printf(
			_("callers of %s"),
			LIVE_AT(live->functions, live_function, browse->view.function)->name);

		add_status(status, text);
	}
}

char *top_browse_status(const struct top_browse *browse)
{
	GString *status = g_string_new(NULL);
	g_autofree char *sort = g_strdup_printf(_("by %s"), _(sorts[browse->view.sort]));

	if (browse->held)
		add_status(status, _("held; Space continues"));
	add_view_status(browse, status);
	if (browse->view.sort != TOP_BY_SELF)
		add_status(status, sort);
	if (browse->editing || browse->filter->len) {
		g_autofree char *text =
			g_strdup_printf("/%s%s", browse->filter->str, browse->editing ? "_" : "");

		add_status(status, text);
	}
	return g_string_free(status, FALSE);
}
