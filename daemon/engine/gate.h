/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "libcollector/control.h"

#include <glib.h>

/* The state of a session whose switch has a page (libcollector/control.h). All zeros: no page, and
 * all time counts. */
struct gate {
	struct control_page *page;
	/* uint64_t, ascending: begins and ends of blocks; older edges are dropped */
	GArray *edges;
	uint64_t n_taken; /* edges that came from the page */
	uint64_t n_forgotten;
	uint64_t used_ns;   /* of the caller's clock: last new edge or request */
	uint64_t linger_ns; /* how long events stay enabled after that */
	bool is_broken;     /* the page had impossible contents, and is not read any more */
};

/* Makes the page; *ret_fd is its memfd, for the program. Returns false if that fails. */
bool gate_open(struct gate *gate, int *ret_fd);
void gate_done(struct gate *gate);
static inline bool gate_is_open(const struct gate *gate)
{
	return gate->page != NULL;
}

/* Tells the program whether events are enabled. */
void gate_set_on(struct gate *gate, bool on);
/* Like gate_set_on(gate, false), unless a block is open: then it returns false and changes
 * nothing. */
bool gate_try_off(struct gate *gate);
/* Notes that a begin asked for events, or that the page was handed over; `late`: events were
 * disabled. */
void gate_use(struct gate *gate, uint64_t now_ns, bool late);
/* Returns whether the linger time is over, so that events may be disabled; clears ON then. */
bool gate_is_over(struct gate *gate, uint64_t now_ns);
/* Takes the edges that the program has written. now_ns is of the caller's clock, read before this
 * call. */
void gate_take(struct gate *gate, uint64_t now_ns);
/* Returns whether that time was in a block; valid up to the last gate_take(). */
bool gate_includes(const struct gate *gate, uint64_t time_ns);
/* Drops edges before that time: no earlier time will be queried. */
void gate_forget(struct gate *gate, uint64_t before_ns);
