/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "tools/profctl/top-view.h"

/* What somebody looks at in a live view: which rows, which of them is selected, and the way
 * back. */
struct top_browse {
	const struct live *live;
	struct top_view view; /* without its filter */
	GArray *rows;         /* of struct top_row */
	struct amount all;    /* that they are shares of */
	guint selected;       /* of the rows */
	uint32_t selected_number;
	GArray *steps;   /* back */
	GString *filter; /* "" = none */
	uint32_t generation;
	bool editing; /* the filter */
	bool held;    /* the rows stay as they are */
};

void top_browse_init(struct top_browse *browse, const struct live *live, enum top_kind kind);
void top_browse_done(struct top_browse *browse);
/* Counts the rows anew. The row that is selected stays it, unless that is the first one. */
void top_browse_count(struct top_browse *browse);
/* What a key (top-screen.h) does, where a page has so many rows. True: it ends the view. */
bool top_browse_press(struct top_browse *browse, unsigned key, guint page);
/* "only python3, pid 12   by self   /filter": what is shown and how; g_free. */
char *top_browse_status(const struct top_browse *browse);
