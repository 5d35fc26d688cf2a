/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "libcollector/control.h"

#include <glib.h>

/* The state of a session whose switch has a page (libcollector/control.h). All zeros: no page, and
 * all time counts. */
struct sample_window {
	struct control_page *page;
	/* uint64_t, ascending: begins and ends of blocks; older edges are dropped */
	GArray *edges;
	uint64_t n_received; /* edges that came from the page */
	uint64_t n_dropped;
	uint64_t used_ns;       /* of the caller's clock: last new edge or request */
	uint64_t hysteresis_ns; /* how long events stay enabled after that */
	bool is_broken;         /* the page had impossible contents, and is not read any more */
};

/* Makes the page; *ret_fd is its memfd, for the program. Returns false if that fails. */
bool sample_window_open(struct sample_window *window, int *ret_fd);
void sample_window_done(struct sample_window *window);
static inline bool sample_window_is_open(const struct sample_window *window)
{
	return window->page != NULL;
}

/* Tells the program whether events are enabled. */
void sample_window_set_on(struct sample_window *window, bool on);
/* Like sample_window_set_on(window, false), unless a block is open: then it returns false and
 * changes nothing. */
bool sample_window_try_off(struct sample_window *window);
/* Notes that a begin asked for events, or that the page was handed over; `late`: events were
 * disabled. */
void sample_window_use(struct sample_window *window, uint64_t now_ns, bool late);
/* Returns whether the hysteresis is over, so that events may be disabled; clears ON then. */
bool sample_window_is_over(struct sample_window *window, uint64_t now_ns);
/* Takes the edges that the program has written. now_ns is of the caller's clock, read before this
 * call. */
void sample_window_receive(struct sample_window *window, uint64_t now_ns);
/* Returns whether that time was in a block; valid up to the last sample_window_receive(). */
bool sample_window_includes(const struct sample_window *window, uint64_t time_ns);
/* Drops edges before that time: no earlier time will be queried. */
void sample_window_drop(struct sample_window *window, uint64_t before_ns);
