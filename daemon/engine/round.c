/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Round - merges the rings by time
 *
 * A sample means something only together with the mappings and names of its time, which are in
 * other rings. A round loads the heads of the sample rings first and those of the side bands after
 * them, so that every record that a sample depends on is there. Then it handles records in time
 * order across all rings. The limit is ROUND_SLACK_NS before the time at which the clock was read,
 * because a record becomes visible a little after its time; newer records wait for the next round.
 * Invariants: (1) records are handled in time order, except late ones, which are reported
 *                 [test-engine-ring: merge]
 *             (2) a record newer than the limit is not touched  [test-engine-ring: limit]
 *             (3) a corrupt ring does not stop the others  [test-engine-ring: corrupt]
 *             (4) records stay valid until settle() was called, except corrupt ones
 *                 [test-engine-ring: settle]
 * Runs on the drain thread only. Reads nothing of a record but its time.
 */
#include "daemon/engine/round.h"

#include "daemon/engine/record.h"

#include <glib.h>

void round_init(struct round *round, const struct round_handlers *handlers)
{
	*round = (struct round){ .handlers = *handlers };
}

void round_done(struct round *round)
{
	g_free(round->inputs);
	g_free(round->heap);
	*round = (struct round){ 0 };
}

void round_add_ring(struct round *round, struct ring *ring, void *owner, bool side_band)
{
	round->inputs = g_renew(struct round_input, round->inputs, round->n_inputs + 1);
	round->heap = g_renew(struct round_input *, round->heap, round->n_inputs + 1);
	round->inputs[round->n_inputs++] = (struct round_input){
		.ring = ring,
		.owner = owner,
		.side_band = side_band,
	};
}

void round_remove_owner(struct round *round, const void *owner)
{
	size_t from, to = 0;

	for (from = 0; from < round->n_inputs; from++)
		if (round->inputs[from].owner != owner)
			round->inputs[to++] = round->inputs[from];
	round->n_inputs = to;
}

/* The side band comes first: a mapping may have the time of the sample that hits it. */
static bool before(const struct round_input *a, const struct round_input *b)
{
	if (a->time_ns != b->time_ns)
		return a->time_ns < b->time_ns;
	return a->side_band && !b->side_band;
}

static void sift_down(struct round *round)
{
	struct round_input **heap = round->heap, *moved = heap[0];
	size_t i = 0, child;

	while ((child = 2 * i + 1) < round->n_heap) {
		if (child + 1 < round->n_heap && before(heap[child + 1], heap[child]))
			child++;
		if (!before(heap[child], moved))
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = moved;
}

static void push(struct round *round, struct round_input *input)
{
	size_t i = round->n_heap++, parent;

	while (i > 0 && before(input, round->heap[parent = (i - 1) / 2])) {
		round->heap[i] = round->heap[parent];
		i = parent;
	}
	round->heap[i] = input;
}

/* Reads the next record of a ring; false if the ring is empty or corrupt. */
static bool advance(struct round *round, struct round_input *input)
{
	switch (ring_peek(input->ring, &input->record)) {
	case RING_RECORD:
		if (!record_time(input->record, &input->time_ns))
			input->time_ns = round->last_ns;
		return true;
	case RING_CORRUPT:
		round->handlers.corrupt(input, round->handlers.data);
		break;
	case RING_EMPTY:
		break;
	}
	input->record = NULL;
	return false;
}

static void load(struct round *round)
{
	size_t i;

	for (i = 0; i < round->n_inputs; i++)
		if (!round->inputs[i].side_band)
			ring_load(round->inputs[i].ring);
	for (i = 0; i < round->n_inputs; i++)
		if (round->inputs[i].side_band)
			ring_load(round->inputs[i].ring);
	round->n_heap = 0;
	for (i = 0; i < round->n_inputs; i++)
		if (advance(round, &round->inputs[i]))
			push(round, &round->inputs[i]);
}

static void skip(struct round *round, struct round_input *input)
{
	if (!ring_skip(input->ring, input->record))
		return;
	round->handlers.settle(round->handlers.data);
	ring_give_back(input->ring);
}

/* Reads the clock on each 16th record only: records take long only with large stacks, and then
 * each of them does. */
static bool is_over(uint64_t until_ns, unsigned int records)
{
	return until_ns != UINT64_MAX && records % 16 == 15 &&
	       (uint64_t)g_get_monotonic_time() * 1000 >= until_ns;
}

bool round_run_until(struct round *round, uint64_t limit_ns, uint64_t until_ns)
{
	struct round_input *input;
	unsigned int records = 0;
	bool over = false;
	size_t i;

	load(round);
	while (round->n_heap > 0 && round->heap[0]->time_ns <= limit_ns && !over) {
		over = is_over(until_ns, records++);
		input = round->heap[0];
		round->handlers.record(input, input->time_ns + ROUND_SLACK_NS < round->last_ns,
				       round->handlers.data);
		round->last_ns = MAX(round->last_ns, input->time_ns);
		skip(round, input);
		if (!advance(round, input))
			round->heap[0] = round->heap[--round->n_heap];
		if (round->n_heap > 1)
			sift_down(round);
	}
	round->handlers.settle(round->handlers.data);
	for (i = 0; i < round->n_inputs; i++)
		ring_give_back(round->inputs[i].ring);
	return !over;
}

void round_run(struct round *round, uint64_t limit_ns)
{
	(void)round_run_until(round, limit_ns, UINT64_MAX);
}
