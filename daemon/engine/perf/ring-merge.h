/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/perf/ring.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RING_MERGE_SLACK_NS UINT64_C(1000000)

struct ring_merge_input {
	struct ring *ring;
	void *owner;    /* passed to the handlers */
	bool side_band; /* its records precede samples of the same time */
	uint64_t time_ns;
	const struct perf_event_header *record; /* next record; NULL: no loaded record is left */
};

struct ring_merge_handlers {
	/* `late`: a record more than RING_MERGE_SLACK_NS newer was handled before this one. */
	void (*record)(const struct ring_merge_input *input, bool late, void *data);
	/* A ring contained bytes that are not a record; its contents were dropped. */
	void (*corrupt)(const struct ring_merge_input *input, void *data);
	/* Called before the memory of handled records is released. */
	void (*finalize)(void *data);
	void *data;
};

struct ring_merge {
	struct ring_merge_input *inputs;
	size_t n_inputs;
	struct ring_merge_input **heap; /* room for n_inputs */
	size_t n_heap;
	uint64_t last_ns; /* newest time of a handled record */
	struct ring_merge_handlers handlers;
};

void ring_merge_init(struct ring_merge *merge, const struct ring_merge_handlers *handlers);
void ring_merge_done(struct ring_merge *merge);
void ring_merge_add_ring(struct ring_merge *merge, struct ring *ring, void *owner, bool side_band);
void ring_merge_remove_owner(struct ring_merge *merge, const void *owner);
/* Returns whether any ring is at least an eighth full. */
bool ring_merge_is_filled(const struct ring_merge *merge);
/* Handles the records of all rings up to limit_ns, oldest first; newer ones stay in their rings.
 * Call it when the clock is at least at limit_ns + RING_MERGE_SLACK_NS: only then are all records
 * up to limit_ns visible. */
void ring_merge_run(struct ring_merge *merge, uint64_t limit_ns);
/* Like ring_merge_run(), but stops when the clock reaches until_ns. Returns false if it stopped;
 * the remaining records are still in the rings. */
bool ring_merge_run_until(struct ring_merge *merge, uint64_t limit_ns, uint64_t until_ns);
