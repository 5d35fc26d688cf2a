/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "tools/profctl/top-view.h"

/* What stands on the screen. Texts are borrowed, and harmless to a terminal. */
struct top_content {
	const char *title;
	const char *status; /* "" = none */
	enum top_kind kind;
	enum top_sort sort;
	const struct live *live;
	const GArray *rows; /* of struct top_row */
	struct amount all;  /* that the rows are shares of */
	double cpu_samples; /* that a CPU which is never idle would have */
	guint selected;     /* of the rows */
};

/* Keys that are no characters. */
enum top_key {
	TOP_KEY_NONE,
	TOP_KEY_UP = 0x110000, /* above all characters */
	TOP_KEY_DOWN,
	TOP_KEY_PAGE_UP,
	TOP_KEY_PAGE_DOWN,
	TOP_KEY_HOME,
	TOP_KEY_END,
	TOP_KEY_ENTER,
	TOP_KEY_BACK, /* backspace */
	TOP_KEY_ESCAPE,
	TOP_KEY_OTHER,
};

/* Takes the terminal over. False: it is of a kind that cannot show this. */
bool top_screen_open(void);
/* Gives it back as it was; may be called twice. */
void top_screen_close(void);
/* After the terminal's size has changed. */
void top_screen_resize(void);
void top_screen_draw(const struct top_content *content);
/* A character, or an enum top_key; TOP_KEY_NONE: no key is there. */
unsigned top_screen_key(void);
/* How many rows there is room for, at least 1. */
guint top_screen_rows(void);
