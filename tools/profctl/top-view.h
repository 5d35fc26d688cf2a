/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Top-view - computes and sorts the rows of a live view
 *
 * Each refresh counts all samples of the window again. Not thread-safe.
 */
#pragma once

#include "tools/profctl/live.h"

enum top_kind { TOP_FUNCTIONS, TOP_PROCESSES, TOP_THREADS, TOP_CALLERS, TOP_KINDS };
enum top_sort { TOP_BY_SELF, TOP_BY_TOTAL, TOP_BY_NAME, TOP_SORTS };

struct top_row {
	const char *name; /* borrowed from `live`; valid until rows are added to it */
	struct amount self,
		total;   /* total: with callees; equal to self for processes and threads */
	uint32_t number; /* number of the function, process or thread in `live` */
};

/* The selection and order of the rows. */
struct top_view {
	enum top_kind kind;
	enum top_sort sort;
	uint32_t process;   /* only samples of this process; 0 = all */
	uint32_t function;  /* TOP_CALLERS: the function whose callers are shown */
	const char *filter; /* only rows whose name contains this text, ignoring case; NULL = all */
};

/* Returns struct top_row. Stores in *ret_all the samples of the window, or of the process. */
GArray *top_view_rows(const struct top_view *view, const struct live *live, struct amount *ret_all);
/* Returns the number of samples in the window. */
uint64_t top_view_samples(const struct live *live);
/* Returns the number of seconds in the window that have samples. */
unsigned top_view_seconds(const struct live *live);

/* The state of browsing: the rows, the selected one, and the previous views. */
struct top_browse {
	const struct live *live;
	struct top_view view; /* its filter is unused: see `filter` */
	GArray *rows;         /* struct top_row */
	struct amount all;    /* the sum that is 100 % */
	guint selected;       /* index into rows */
	uint32_t selected_number;
	GArray *steps;   /* previous views */
	GString *filter; /* "" = none */
	uint32_t generation;
	bool editing; /* the filter is being edited */
	bool held;    /* the rows do not change */
	bool shows_keys;
	bool full_names;
};

void top_browse_init(struct top_browse *browse, const struct live *live, enum top_kind kind);
void top_browse_done(struct top_browse *browse);
/* Counts the rows again. Keeps the selected row selected, unless it is the first. */
void top_browse_count(struct top_browse *browse);
/* Handles a key (top-screen.h); `page`: rows per page. Returns true if the key ends the view. */
bool top_browse_press(struct top_browse *browse, unsigned key, guint page);
/* Returns the view's filters and order, such as "only python3, pid 12   by name   /filter"; "" for
 * the default view; g_free. */
char *top_browse_status(const struct top_browse *browse);
