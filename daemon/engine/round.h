/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/ring.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ROUND_SLACK_NS UINT64_C(1000000)

struct round_input {
	struct ring *ring;
	void *owner;    /* for the handlers */
	bool side_band; /* its records come before samples of the same time */
	uint64_t time_ns;
	const struct perf_event_header
		*record; /* the next one; NULL = there is none below the head */
};

struct round_handlers {
	/* late: other records of a time more than the slack after this one's have been handled. */
	void (*record)(const struct round_input *input, bool late, void *data);
	/* A ring held bytes that are no record; what was in it is gone. */
	void (*corrupt)(const struct round_input *input, void *data);
	/* The memory of records that were handled is about to be given back. */
	void (*settle)(void *data);
	void *data;
};

struct round {
	struct round_input *inputs;
	size_t n_inputs;
	struct round_input **heap; /* room for n_inputs */
	size_t n_heap;
	uint64_t last_ns; /* the newest time handled */
	struct round_handlers handlers;
};

void round_init(struct round *round, const struct round_handlers *handlers);
void round_done(struct round *round);
void round_add_ring(struct round *round, struct ring *ring, void *owner, bool side_band);
void round_remove_owner(struct round *round, const void *owner);
/* Handles the records of all rings up to limit_ns, oldest first; newer ones stay in their rings.
 * Everything that was written a slack before limit_ns + slack is in the rings by then. */
void round_run(struct round *round, uint64_t limit_ns);
/* The same, but not after until_ns of the clock. False: it stopped there, and the rest is still
 * in the rings. */
bool round_run_until(struct round *round, uint64_t limit_ns, uint64_t until_ns);
