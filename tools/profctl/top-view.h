/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Top view - the rows of a live view, in order
 *
 * Counted again from the samples of the window each time. For one thread.
 */
#pragma once

#include "tools/profctl/live.h"

enum top_kind { TOP_FUNCTIONS, TOP_PROCESSES, TOP_THREADS, TOP_CALLERS, TOP_KINDS };
enum top_sort { TOP_BY_SELF, TOP_BY_TOTAL, TOP_BY_NAME, TOP_SORTS };

struct top_row {
	const char *name; /* borrowed from `live` until rows are added to it */
	struct amount self,
		total;   /* total: including callees. For processes and threads both are equal */
	uint32_t number; /* of the function, process or thread in `live` */
};

/* The selection and order of the rows. */
struct top_view {
	enum top_kind kind;
	enum top_sort sort;
	uint32_t process;   /* only samples of this one; 0 = of all */
	uint32_t function;  /* TOP_CALLERS: the function whose callers are shown */
	const char *filter; /* only rows whose name contains this text, ignoring case; NULL = all */
};

/* Returns struct top_row; *ret_all: the samples of the window, or of the view's process. */
GArray *top_view_rows(const struct top_view *view, const struct live *live, struct amount *ret_all);
/* Returns the samples of the window. */
uint64_t top_view_samples(const struct live *live);
/* Returns the seconds of the window that have samples. */
unsigned top_view_seconds(const struct live *live);
