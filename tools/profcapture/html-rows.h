/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Html-rows - the rows that the page adds up: samples, waits, allocations, marks and logs;
 * html-slices.h has the slices of threads, html-counters.h the points of counters
 *
 * The page adds up rows again for each time range that its user selects, so it gets the rows, not
 * their sums. A unit of time is a power of two in nanoseconds. The page's ranges begin and end on a
 * grid whose step is a multiple of every unit, so its sums are those of `report --from --to` for
 * the same range  [test_html: same_numbers]. Rows of the same thread and stack in the same unit are
 * merged. If there are too many rows, the unit grows, and a note on the page says so.
 */
#pragma once

#include "tools/profcapture/html-sides.h"

#include "tools/present/report-page.h"

/* Keys in the order of their first use. The page refers to each by its index. */
struct html_keys {
	GHashTable *known; /* key + 1 → index + 1 */
	GArray *all;       /* uint32_t */
};
void html_keys_init(struct html_keys *keys);
void html_keys_done(struct html_keys *keys);
/* Returns the index of a key; adds a key that is new. */
uint32_t html_index(struct html_keys *keys, uint32_t key);

struct html_mark {
	int64_t start_ns; /* time on the page's axis, like all times here */
	uint64_t length_ns;
	uint64_t time; /* start_ns in units */
	uint32_t thread, name;
};

struct html_rows {
	struct html_sides sides;
	const struct html_side *side; /* the side whose rows are being read */
	struct report_page *page;
	struct json *json;
	GPtrArray *notes; /* what was merged or left out */
	int64_t grid_ns;
	uint64_t sample_unit, place_unit;     /* ns; 0: no rows were added yet */
	uint64_t slice_unit, allocation_unit; /* ns */
	uint64_t wait_unit;                   /* ns */
	uint64_t sample_weight;               /* mean weight of a sample */
	struct html_keys threads, functions;  /* keys: the page's numbers (html-sides.h) */
	GPtrArray *mark_names;                /* for each mark name: its group, then the name */
	struct html_mark longest;             /* its length is 0 if no mark has a length */
	GArray *times; /* result of run_times_each_state() for the last side */
};

void html_rows_init(struct html_rows *rows, struct export *export, struct report_page *page,
		    struct json *json);
void html_rows_done(struct html_rows *rows);
/* Adds the columns to the page, and the members wait_calls, heap, mark_names, logs and counters to
 * the JSON. */
bool html_rows_write(struct html_rows *rows, GError **error);
/* Return the page's index of a thread, and a time on the page's axis, for rows->side. */
uint32_t html_rows_thread(struct html_rows *rows, uint32_t thread);
int64_t html_rows_time(const struct html_rows *rows, int64_t time_ns);
/* Adds the columns of the table `places`: the samples of the first side, each with its place in
 * `stack`. Call this after html_rows_write(). */
void html_rows_write_places(struct html_rows *rows, struct html_samples *samples);
