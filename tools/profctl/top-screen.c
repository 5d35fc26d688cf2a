/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Top screen - a live view on a terminal, by ncurses
 *
 *     title                       what is recorded, and how busy it is
 *     status                      loss, filters, a pause, the end
 *     SELF  TOTAL  NAME
 *     rows                        always including the selected one
 *     keys
 */
#include "config.h"

#include "tools/profctl/top-screen.h"

#include "arch/base.h"
#include "tools/common/text.h"

#include <curses.h>
#include <glib/gi18n.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define FIRST_ROW 3
#define FEW_COLUMNS 20 /* narrower terminals show what fits */

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

/* Writes a line from `column` on, cut at the edge of the screen. */
static void put(int line, int column, const char *text, enum text_align align)
{
	int columns = COLS - column;
	g_autofree char *fitted = NULL;

	if (line >= LINES || columns <= 0)
		return;
	fitted = text_fit(text, (unsigned)columns, align);
	/* leaves the last cell of the last line alone, because writing it would scroll */
	mvaddnstr(line, column, fitted, -1);
}

static void put_line(int line, attr_t attributes, const char *text)
{
	attrset(attributes);
	put(line, 0, text, TEXT_LEFT);
	attrset(A_NORMAL);
}

static const char *head_of(enum top_kind kind)
{
	switch (kind) {
	case TOP_FUNCTIONS:
		return _("  SELF %  TOTAL %  SAMPLES  FUNCTION");
	case TOP_PROCESSES:
		return _("   CPU %        %  SAMPLES      PID  PROCESS");
	case TOP_THREADS:
		return _("   CPU %        %  SAMPLES      TID  THREAD");
	default:
		return _("  SELF %  TOTAL %  SAMPLES  CALLED BY");
	}
}

/* Appends "  12.3", or "-" if the whole is 0. */
static void append_share(GString *line, uint64_t part, double whole)
{
	if (whole > 0)
		g_string_append_printf(line, "%8.2f ", 100 * (double)part / whole);
	else
		g_string_append(line, "       - ");
}

static void append_function(GString *line, const struct live *live, uint32_t number,
			    const char *name)
{
	uint32_t image = LIVE_AT(live->functions, live_function, number)->image;
	g_autofree char *base = g_path_get_basename(LIVE_AT(live->images, live_image, image)->path);

	g_string_append_printf(line, "  %s", name);
	if (image && strcmp(base, name) != 0)
		g_string_append_printf(line, *base == '[' ? "  %s" : "  [%s]", base);
}

static char *row_text(const struct top_content *content, const struct top_row *row)
{
	GString *line = g_string_new(NULL);
	const struct live *live = content->live;

	switch (content->kind) {
	case TOP_PROCESSES:
	case TOP_THREADS:
		append_share(line, row->self.samples, content->cpu_samples);
		append_share(line, row->self.weight, (double)content->all.weight);
		g_string_append_printf(
			line, "%8" PRIu64 " %8" PRIu64 "  %s", row->self.samples,
			content->kind == TOP_PROCESSES
				? LIVE_AT(live->processes, live_process, row->number)->pid
				: LIVE_AT(live->threads, live_thread, row->number)->tid,
			row->name);
		break;
	default:
		append_share(line, row->self.weight, (double)content->all.weight);
		append_share(line, row->total.weight, (double)content->all.weight);
		g_string_append_printf(line, "%8" PRIu64, row->total.samples);
		append_function(line, live, row->number, row->name);
		break;
	}
	return g_string_free(line, FALSE);
}

static const char *keys_of(enum top_kind kind)
{
	return kind == TOP_FUNCTIONS || kind == TOP_CALLERS
		       ? _("f functions  p processes  t threads  Enter callers  "
			   "Backspace back  s sort  / filter  Space pause  q quit")
		       : _("f functions  p processes  t threads  Enter functions of it  "
			   "Backspace back  s sort  / filter  Space pause  q quit");
}

void top_screen_draw(const struct top_content *content)
{
	guint room = top_screen_rows();
	guint first = content->selected >= room ? content->selected - room + 1 : 0;

	erase();
	put_line(0, A_BOLD, content->title);
	put_line(1, A_NORMAL, content->status);
	put_line(2, A_REVERSE, head_of(content->kind));
	for (guint i = 0; i < room && first + i < content->rows->len; i++) {
		g_autofree char *text =
			row_text(content, &g_array_index(content->rows, struct top_row, first + i));

		put_line(FIRST_ROW + (int)i, first + i == content->selected ? A_STANDOUT : A_NORMAL,
			 text);
	}
	if (LINES > FIRST_ROW + 1)
		put_line(LINES - 1, A_DIM, keys_of(content->kind));
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
