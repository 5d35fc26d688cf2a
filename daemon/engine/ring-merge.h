/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/ring.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RING_MERGE_SLACK_NS UINT64_C(1000000)

struct ring_merge_input {
	struct ring *ring;
	void *owner;    /* for the handlers */
	bool side_band; /* its records come before samples of the same time */
	uint64_t time_ns;
	const struct perf_event_header
		*record; /* the next record; NULL = the ring is empty below the loaded head */
};

struct ring_merge_handlers {
	/* late: a record that is more than RING_MERGE_SLACK_NS newer has been handled before. */
	void (*record)(const struct ring_merge_input *input, bool late, void *data);
	/* A ring held bytes that are not a record; its content was dropped. */
	void (*corrupt)(const struct ring_merge_input *input, void *data);
	/* The memory of handled records is about to be released. */
	void (*finalize)(void *data);
	void *data;
};

struct ring_merge {
	struct ring_merge_input *inputs;
	size_t n_inputs;
	struct ring_merge_input **heap; /* room for n_inputs */
	size_t n_heap;
	uint64_t last_ns; /* the newest time handled */
	struct ring_merge_handlers handlers;
};

void ring_merge_init(struct ring_merge *merge, const struct ring_merge_handlers *handlers);
void ring_merge_done(struct ring_merge *merge);
void ring_merge_add_ring(struct ring_merge *merge, struct ring *ring, void *owner, bool side_band);
void ring_merge_remove_owner(struct ring_merge *merge, const void *owner);
/* Handles the records of all rings up to limit_ns, oldest first; newer ones stay in their rings.
 * All records up to limit_ns are visible in the rings at limit_ns + RING_MERGE_SLACK_NS of the
 * clock. */
void ring_merge_run(struct ring_merge *merge, uint64_t limit_ns);
/* The same, but stops at until_ns of the clock. Returns false if it stopped there; the remaining
 * records are still in the rings. */
bool ring_merge_run_until(struct ring_merge *merge, uint64_t limit_ns, uint64_t until_ns);
