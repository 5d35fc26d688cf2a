/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "libcollector/control.h"

#include <glib.h>

/* Of a session whose switch has a page (libcollector/control.h). Zeros: none, and all time
 * counts. */
struct gate {
	struct control_page *page;
	/* uint64_t, rising: begins and ends of blocks, from the first that is not forgotten */
	GArray *edges;
	uint64_t n_taken; /* edges that came from the page */
	uint64_t n_forgotten;
	uint64_t used_ns;   /* of the caller's clock: when there were new ones, or somebody asked */
	uint64_t linger_ns; /* for which events stay enabled after that */
	bool is_broken;     /* what the page says cannot be: nothing more is taken from it */
};

/* Makes the page; *ret_fd is its memfd, for the program. False: it cannot be made, and there is
 * none. */
bool gate_open(struct gate *gate, int *ret_fd);
void gate_done(struct gate *gate);
static inline bool gate_is_open(const struct gate *gate)
{
	return gate->page != NULL;
}

/* Whether events are enabled, as the program is to know it. */
void gate_set_on(struct gate *gate, bool on);
/* The same as gate_set_on(gate, false), unless a block is open: then false, and nothing has
 * changed. */
bool gate_try_off(struct gate *gate);
/* Somebody asked to begin then, or has just got the page; `late`: for events, which were
 * disabled. */
void gate_use(struct gate *gate, uint64_t now_ns, bool late);
/* Whether nobody has used it for so long that events need not be enabled any more, and now they
 * need not. */
bool gate_is_over(struct gate *gate, uint64_t now_ns);
/* Takes what the program has written until now_ns, a time of the caller's clock that was read
 * before. */
void gate_take(struct gate *gate, uint64_t now_ns);
/* Whether that time, up to the last gate_take(), was in a block. */
bool gate_includes(const struct gate *gate, uint64_t time_ns);
/* Nobody will ask for an earlier time. */
void gate_forget(struct gate *gate, uint64_t before_ns);
