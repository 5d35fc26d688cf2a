/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "tools/profctl/top-view.h"

/* The content of the screen. Strings are borrowed, and escaped for terminals. */
struct top_content {
	const char *title;
	const char *status; /* "" = none */
	const struct top_browse *browse;
	double cpu_samples; /* samples that an always busy CPU would have */
};

/* Keys that are not characters. */
enum top_key {
	TOP_KEY_NONE,
	TOP_KEY_UP = 0x110000, /* greater than any character */
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

/* Takes over the terminal. Returns false if this kind of terminal is not supported. */
bool top_screen_open(void);
/* Restores the terminal; may be called twice. */
void top_screen_close(void);
/* Must be called after the terminal's size has changed. */
void top_screen_resize(void);
void top_screen_draw(const struct top_content *content);
/* Returns a character or an enum top_key; TOP_KEY_NONE if no key is waiting. */
unsigned top_screen_key(void);
/* Returns how many rows fit, at least 1. */
guint top_screen_rows(void);
