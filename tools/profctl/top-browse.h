/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "tools/profctl/top-view.h"

/* The state of browsing a live view: the rows, the selected one, and the way back. */
struct top_browse {
	const struct live *live;
	struct top_view view; /* without its filter */
	GArray *rows;         /* of struct top_row */
	struct amount all;    /* the total of which the rows are shares */
	guint selected;       /* index into rows */
	uint32_t selected_number;
	GArray *steps;   /* for going back */
	GString *filter; /* "" = none */
	uint32_t generation;
	bool editing; /* the filter */
	bool held;    /* the rows do not change */
	bool shows_keys;
};

void top_browse_init(struct top_browse *browse, const struct live *live, enum top_kind kind);
void top_browse_done(struct top_browse *browse);
/* Counts the rows again. The selected row stays selected unless it is the first. */
void top_browse_count(struct top_browse *browse);
/* Handles a key (top-screen.h); `page` is the rows per page. Returns true if it ends the view. */
bool top_browse_press(struct top_browse *browse, unsigned key, guint page);
/* Returns the description of the view, if it is not all by self: "only python3, pid 12   by name
 * /filter"; g_free. */
char *top_browse_status(const struct top_browse *browse);
