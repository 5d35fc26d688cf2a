/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ring merge - merges the rings by time
 *
 * A sample can be interpreted only with the mappings and names at its time, which are in other
 * rings. ring_merge_run() loads the heads of the sample rings first and those of the side bands
 * after them, so that every record that a loaded sample depends on is loaded too. Then it handles
 * records in time order across all rings. The limit is RING_MERGE_SLACK_NS before the current time,
 * because a record becomes visible after its time; newer records wait.
 * Invariants: (1) records are handled in time order, except late ones, which are reported
 *                 [test-engine-ring: merge]
 *             (2) a record newer than the limit is not touched  [test-engine-ring: limit]
 *             (3) a corrupt ring does not stop the others  [test-engine-ring: corrupt]
 *             (4) a ring counts as filled until its records are handled  [test-engine-ring: filled]
 *             (5) records stay valid until finalize() was called, except corrupt ones
 *                 [test-engine-ring: finalize]
 * Runs on the drain thread only. Parses nothing of a record but its time.
 */
#include "daemon/engine/perf/ring-merge.h"

#include "base/clock.h"
#include "base/pqueue.h"
#include "daemon/engine/perf/record.h"

#include <glib.h>

void ring_merge_init(struct ring_merge *merge, const struct ring_merge_handlers *handlers)
{
	*merge = (struct ring_merge){ .handlers = *handlers };
}

void ring_merge_done(struct ring_merge *merge)
{
	g_free(merge->inputs);
	g_free(merge->heap);
	*merge = (struct ring_merge){ 0 };
}

void ring_merge_add_ring(struct ring_merge *merge, struct ring *ring, void *owner, bool side_band)
{
	merge->inputs = g_renew(struct ring_merge_input, merge->inputs, merge->n_inputs + 1);
	merge->heap = g_renew(struct ring_merge_input *, merge->heap, merge->n_inputs + 1);
	merge->inputs[merge->n_inputs++] = (struct ring_merge_input){
		.ring = ring,
		.owner = owner,
		.side_band = side_band,
	};
}

void ring_merge_remove_owner(struct ring_merge *merge, const void *owner)
{
	size_t from, to = 0;

	for (from = 0; from < merge->n_inputs; from++)
		if (merge->inputs[from].owner != owner)
			merge->inputs[to++] = merge->inputs[from];
	merge->n_inputs = to;
}

/* Orders by time, then side band first: a mapping may have the time of a sample that hits it. */
static bool before(const struct ring_merge_input *a, const struct ring_merge_input *b)
{
	if (a->time_ns != b->time_ns)
		return a->time_ns < b->time_ns;
	return a->side_band && !b->side_band;
}

PQUEUE_DEFINE(merge, struct ring_merge_input *, before)

/* Gets the next record of a ring. Returns false if the ring is empty or corrupt. */
static bool advance(struct ring_merge *merge, struct ring_merge_input *input)
{
	switch (ring_peek(input->ring, &input->record)) {
	case RING_RECORD:
		if (!record_time(input->record, &input->time_ns))
			input->time_ns = merge->last_ns;
		return true;
	case RING_CORRUPT:
		merge->handlers.corrupt(input, merge->handlers.data);
		break;
	case RING_EMPTY:
		break;
	}
	input->record = NULL;
	return false;
}

static void load(struct ring_merge *merge)
{
	for (size_t i = 0; i < merge->n_inputs; i++)
		if (!merge->inputs[i].side_band)
			ring_load(merge->inputs[i].ring);
	for (size_t i = 0; i < merge->n_inputs; i++)
		if (merge->inputs[i].side_band)
			ring_load(merge->inputs[i].ring);
	merge->n_heap = 0;
	for (size_t i = 0; i < merge->n_inputs; i++)
		if (advance(merge, &merge->inputs[i]))
			merge->heap[merge->n_heap++] = &merge->inputs[i];
	merge_order(merge->heap, merge->n_heap);
}

bool ring_merge_is_filled(const struct ring_merge *merge)
{
	for (size_t i = 0; i < merge->n_inputs; i++)
		if (ring_used(merge->inputs[i].ring) >= merge->inputs[i].ring->size / 8)
			return true;
	return false;
}

bool ring_merge_run_until(struct ring_merge *merge, uint64_t limit_ns, uint64_t until_ns)
{
	struct ring_merge_input *input;
	unsigned int records = 0;
	bool over = false;

	load(merge);
	while (merge->n_heap > 0 && merge->heap[0]->time_ns <= limit_ns && !over) {
		/* Read the clock only for every 16th record, because reading it takes time. Up to
		 * 16 records may be handled after until_ns. */
		over = until_ns != UINT64_MAX && records++ % 16 == 15 && clock_now() >= until_ns;
		input = merge->heap[0];
		merge->handlers.record(input, input->time_ns + RING_MERGE_SLACK_NS < merge->last_ns,
				       merge->handlers.data);
		merge->last_ns = MAX(merge->last_ns, input->time_ns);
		if (ring_skip(input->ring, input->record)) {
			merge->handlers.finalize(merge->handlers.data);
			ring_release_skipped(input->ring);
		}
		if (advance(merge, input))
			merge_sift_down(merge->heap, merge->n_heap, 0);
		else
			merge_pop(merge->heap, &merge->n_heap);
	}
	merge->handlers.finalize(merge->handlers.data);
	for (size_t i = 0; i < merge->n_inputs; i++)
		ring_release_skipped(merge->inputs[i].ring);
	return !over;
}

void ring_merge_run(struct ring_merge *merge, uint64_t limit_ns)
{
	(void)ring_merge_run_until(merge, limit_ns, UINT64_MAX);
}
