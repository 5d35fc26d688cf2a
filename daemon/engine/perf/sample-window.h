/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "libcollector/control.h"

#include <glib.h>

/* The state of a session whose switch has a page (libcollector/control.h). All zeros: no page, so
 * samples of all times are recorded. */
struct sample_window {
	struct control_page *page;
	/* uint64_t times, ascending: starts and ends of blocks; older edges are dropped */
	GArray *edges;
	uint64_t n_received; /* edges read from the page */
	uint64_t n_dropped;
	uint64_t used_ns;       /* last new edge or request, in the caller's clock */
	uint64_t hysteresis_ns; /* how long events stay enabled after used_ns */
	bool is_broken;         /* the page had impossible contents and is not read any more */
};

/* Makes the page. *ret_fd: its memfd, for the program. Returns false on failure. */
bool sample_window_open(struct sample_window *window, int *ret_fd);
void sample_window_done(struct sample_window *window);
static inline bool sample_window_is_open(const struct sample_window *window)
{
	return window->page != NULL;
}

/* Publishes whether events are enabled. */
void sample_window_set_on(struct sample_window *window, bool on);
/* Like sample_window_set_on(window, false), but if a block is open, changes nothing and returns
 * false. */
bool sample_window_try_off(struct sample_window *window);
/* Notes that a block's start requested events, or that the program received the page. `late`:
 * events were disabled. */
void sample_window_use(struct sample_window *window, uint64_t now_ns, bool late);
/* Returns whether the hysteresis is over, so that events may be disabled. If so, clears ON. */
bool sample_window_is_over(struct sample_window *window, uint64_t now_ns);
/* Reads the edges that the program has written. now_ns: the caller's clock, read before this
 * call. */
void sample_window_receive(struct sample_window *window, uint64_t now_ns);
/* Returns whether time_ns was in a block. Valid up to the last sample_window_receive(). */
bool sample_window_includes(const struct sample_window *window, uint64_t time_ns);
/* Drops edges before before_ns: no earlier time will be queried. */
void sample_window_drop(struct sample_window *window, uint64_t before_ns);
