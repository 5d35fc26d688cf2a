/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Top-screen - draws a live view on a terminal, with ncurses
 *
 *     title                       what is recorded, how busy it is, and what is lost
 *     status                      filters, a pause, or the end; else this line is missing
 *     self %  total %  function
 *     rows                        scrolled so that the selected row is visible
 *     keys
 */
#include "config.h"

#include "tools/profctl/top-screen.h"

#include "arch/base.h"
#include "tools/present/table.h"
#include "tools/profile/function-names.h"

#include <curses.h>
#include <glib/gi18n.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define FIRST_ROW 3 /* first row below the titles */

static SCREEN *screen;

bool top_screen_open(void)
{
	const char *terminal = getenv("TERM");

	screen = newterm(terminal && *terminal ? terminal : "dumb", stdout, stdin);
	if (!screen)
		return false;
	cbreak();
	noecho();
	nonl();
	keypad(stdscr, TRUE);
	nodelay(stdscr, TRUE);
	set_escdelay(50);
	curs_set(0);
	return true;
}

void top_screen_close(void)
{
	if (!screen)
		return;
	endwin();
	delscreen(screen);
	screen = NULL;
}

void top_screen_resize(void)
{
	struct winsize size;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row && size.ws_col)
		resizeterm(size.ws_row, size.ws_col);
}

guint top_screen_rows(void)
{
	return (guint)MAX_OF(LINES - FIRST_ROW - 1, 1);
}

/* ---- Drawing --------------------------------------------------------------------------------- */

/* Prints a line, cut at the edge of the screen. */
static void put_line(int line, attr_t attributes, const char *text)
{
	g_autofree char *fitted = NULL;

	if (line >= LINES || COLS <= 0)
		return;
	fitted = text_fit(text, (unsigned)COLS, TEXT_LEFT);
	attrset(attributes);
	mvaddnstr(line, 0, fitted, -1);
	attrset(A_NORMAL);
}

enum field {
	FIELD_SELF,
	FIELD_TOTAL,
	FIELD_CPU,
	FIELD_SAMPLES,
	FIELD_NUMBER,
	FIELD_NAME,
	FIELD_PLACE
};

struct page {
	const struct top_content *content;
	const struct top_browse *browse;
	guint first, n;
};

static const struct top_row *row_at(const struct page *page, size_t row)
{
	return &g_array_index(page->browse->rows, struct top_row, page->first + row);
}

static bool shows_functions(const struct top_browse *browse)
{
	return browse->view.kind == TOP_FUNCTIONS || browse->view.kind == TOP_CALLERS;
}

static const struct live_function *function_at(const struct page *page, size_t row)
{
	return LIVE_AT(page->browse->live->functions, live_function, row_at(page, row)->number);
}

/* Returns whether the row sums up the places of all files whose names are still being read. */
static bool is_pending(const struct page *page, size_t row)
{
	uint32_t number = row_at(page, row)->number;

	return shows_functions(page->browse) && number && number == page->browse->live->pending;
}

/* Returns the name without parameters, unless another function on the page differs only in its
 * parameters. */
static const char *function_name(const struct page *page, size_t row)
{
	if (page->browse->full_names ||
	    (page->browse->view.kind == TOP_CALLERS && !row_at(page, row)->number))
		return row_at(page, row)->name;
	for (size_t other = 0; other < page->n; other++)
		if (other != row &&
		    strcmp(function_at(page, other)->shown, function_at(page, row)->shown) == 0)
			return row_at(page, row)->name;
	return function_at(page, row)->shown;
}

static struct cell share_of(uint64_t part, double whole)
{
	return whole > 0 ? cell_double(100 * (double)part / whole) : cell_unknown();
}

static struct cell get_cell(const void *data, size_t row, unsigned field)
{
	const struct page *page = data;
	const struct live *live = page->browse->live;
	double all = (double)page->browse->all.weight;
	const struct top_row *of = row_at(page, row);
	g_autofree char *base = NULL;
	uint32_t image;

	switch (field) {
	case FIELD_SELF:
		return share_of(of->self.weight, all);
	case FIELD_TOTAL:
		return share_of(of->total.weight, all);
	case FIELD_CPU:
		return share_of(of->self.samples, page->content->cpu_samples);
	case FIELD_SAMPLES:
		return cell_uint(of->total.samples);
	case FIELD_NUMBER:
		return cell_uint(page->browse->view.kind == TOP_PROCESSES
					 ? LIVE_AT(live->processes, live_process, of->number)->pid
					 : LIVE_AT(live->threads, live_thread, of->number)->tid);
	case FIELD_NAME:
		return cell_text(shows_functions(page->browse) ? function_name(page, row)
							       : of->name);
	default:
		image = function_at(page, row)->image;
		base = image ? g_path_get_basename(LIVE_AT(live->images, live_image, image)->path)
			     : NULL;
		/* The name "libc.so.6+0x26000" already includes the image. */
		if (base && (!g_str_has_prefix(of->name, base) || of->name[strlen(base)] != '+'))
			return cell_own_text(g_steal_pointer(&base));
		return cell_none();
	}
}

/* Draws the titles and rows of a page, starting at `line`. */
static void draw_rows(const struct page *page, int line)
{
	bool of_processes = page->browse->view.kind == TOP_PROCESSES;
	struct table table = { .rows = page->n,
			       .get = get_cell,
			       .data = page,
			       .is_coarse = page->browse->all.samples < 1000,
			       .fit = &function_name_fits };
	g_auto(GStrv) lines = NULL;
	CLEANUP_OUT struct out out = out_buffer();

	if (shows_functions(page->browse)) {
		table_add_column(&table, FIELD_SELF, COLUMN_PERCENT, _("self %"));
		table_add_column(&table, FIELD_TOTAL, COLUMN_PERCENT, _("total %"));
		table_add_column(&table, FIELD_SAMPLES, COLUMN_COUNT, _("samples"));
		table_add_column(&table, FIELD_NAME, COLUMN_NAME,
				 page->browse->view.kind == TOP_CALLERS ? _("called by")
									: _("function"));
		table_add_column(&table, FIELD_PLACE, COLUMN_PLACE, NULL);
	} else {
		table_add_column(&table, FIELD_CPU, COLUMN_PERCENT, _("CPU %"));
		table_add_column(&table, FIELD_SELF, COLUMN_PERCENT, _("share %"));
		table_add_column(&table, FIELD_SAMPLES, COLUMN_COUNT, _("samples"));
		table_add_column(&table, FIELD_NUMBER, COLUMN_NUMBER,
				 of_processes ? _("pid") : _("tid"));
		table_add_column(&table, FIELD_NAME, COLUMN_NAME,
				 of_processes ? _("process") : _("thread"));
	}
	table_print(&table, &(struct table_style){ .out = &out, .columns = (unsigned)COLS },
		    page->n);
	lines = g_strsplit(out.text->str, "\n", -1);
	for (guint i = 0; i <= page->n && lines[i]; i++)
		put_line(line + (int)i,
			 i == 0                                          ? A_BOLD
			 : page->first + i - 1 == page->browse->selected ? A_STANDOUT
			 : is_pending(page, i - 1)                       ? A_DIM
									 : A_NORMAL,
			 lines[i]);
}

static const struct {
	const char *keys, *text;
} help[] = {
	{ "f p t", N_("show functions, processes, threads") },
	{ "Enter", N_("callers of the function; functions of the process or thread") },
	{ "Backspace", N_("go back (also Esc)") },
	{ "Up Down", N_("select a row (also j k, PgUp PgDn, Home End)") },
	{ "s", N_("sort by self, total or name") },
	{ "/", N_("show only names that contain a text; Esc drops it") },
	{ "Space", N_("hold the screen; the recording continues") },
	{ "q", N_("quit") },
};

void top_screen_draw(const struct top_content *content)
{
	const struct top_browse *browse = content->browse;
	guint room = top_screen_rows();
	int line = *content->status ? 2 : 1;
	struct page page = { .content = content, .browse = browse };

	page.first = browse->selected >= room ? browse->selected - room + 1 : 0;
	page.n = MIN_OF(room, browse->rows->len - MIN_OF(page.first, browse->rows->len));
	erase();
	put_line(0, A_BOLD, content->title);
	put_line(1, A_NORMAL, content->status);
	for (size_t i = 0; browse->shows_keys && i < ARRAY_SIZE(help); i++) {
		g_autofree char *text = g_strdup_printf("  %-11s%s", help[i].keys, _(help[i].text));

		put_line(line + 1 + (int)i, A_NORMAL, text);
	}
	if (!browse->shows_keys && page.n == 0)
		put_line(line, A_DIM, _("nothing to show"));
	else if (!browse->shows_keys)
		draw_rows(&page, line);
	if (LINES > FIRST_ROW + 1)
		put_line(
			LINES - 1, A_DIM,
			browse->shows_keys ? _("any key returns")
			: shows_functions(browse)
				? _("f p t view  Enter callers  Bksp back  s sort  / find  Space hold  ? keys  q quit")
				: _("f p t view  Enter open  Bksp back  s sort  / find  Space hold  ? keys  q quit"));
	refresh();
}

/* ---- Keys ------------------------------------------------------------------------------------ */

static const struct {
	wint_t curses;
	enum top_key key;
} keys[] = {
	{ KEY_UP, TOP_KEY_UP },         { KEY_DOWN, TOP_KEY_DOWN },
	{ KEY_PPAGE, TOP_KEY_PAGE_UP }, { KEY_NPAGE, TOP_KEY_PAGE_DOWN },
	{ KEY_HOME, TOP_KEY_HOME },     { KEY_END, TOP_KEY_END },
	{ KEY_ENTER, TOP_KEY_ENTER },   { KEY_BACKSPACE, TOP_KEY_BACK },
};

unsigned top_screen_key(void)
{
	wint_t key = 0;

	switch (get_wch(&key)) {
	case ERR:
		return TOP_KEY_NONE;
	case KEY_CODE_YES:
		for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
			if (keys[i].curses == key)
				return keys[i].key;
		return TOP_KEY_OTHER;
	default:
		break;
	}
	switch (key) {
	case L'\r':
	case L'\n':
		return TOP_KEY_ENTER;
	case L'\b':
	case 0x7f:
		return TOP_KEY_BACK;
	case 0x1b:
		return TOP_KEY_ESCAPE;
	default:
		return key ? (unsigned)key : TOP_KEY_OTHER;
	}
}
