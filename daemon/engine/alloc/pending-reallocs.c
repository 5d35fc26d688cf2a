/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Pending reallocs - defers rows of allocations: the second half of a realloc, a block at an
 * address whose old block has not ended yet, and a pause
 *
 * Each deferred row waits until the records of all processes up to its time are rows.
 * Invariants: (1) deferred rows are in time order with the records of all processes
 *                 [test-engine-heap: realloc, reuse]
 *             (2) a pause is written after all rows up to its time, and before all others
 *                 [test-engine-heap-live: pause]
 * Runs on the drain thread only.
 */
#include "daemon/engine/alloc/pending-reallocs.h"

#include "arch/base.h"
#include "base/pqueue.h"
#include "daemon/engine/alloc/heap-rows.h"

struct alloc_pause {
	uint64_t time_ns;
	bool is_paused;
};

void pending_reallocs_init(struct pending_reallocs *pending, struct tasks *tasks)
{
	*pending = (struct pending_reallocs){
		.budget.limit = HEAP_ALL_BYTES,
		.pauses = g_array_new(FALSE, FALSE, sizeof(struct alloc_pause)),
		.pause_ns = UINT64_MAX,
	};
	heap_forks_init(&pending->forks, tasks, pending);
}

void pending_reallocs_done(struct pending_reallocs *pending)
{
	heap_forks_done(&pending->forks);
	g_array_free(pending->pauses, TRUE);
	g_free(pending->items);
	*pending = (struct pending_reallocs){ 0 };
}

static bool is_earlier(struct pending_realloc a, struct pending_realloc b)
{
	return a.time_ns < b.time_ns;
}

PQUEUE_DEFINE(pending, struct pending_realloc, is_earlier)

void pending_reallocs_push(struct pending_reallocs *pending, const struct pending_realloc *item)
{
	size_t i = pending->n++, parent;

	if (pending->n > pending->room) {
		pending->room = MAX_OF(pending->room * 2, (size_t)16);
		pending->items = g_renew(struct pending_realloc, pending->items, pending->room);
	}
	while (i > 0 && item->time_ns < pending->items[parent = (i - 1) / 2].time_ns) {
		pending->items[i] = pending->items[parent];
		i = parent;
	}
	pending->items[i] = *item;
}

static void apply_pending(struct pending_reallocs *pending, uint64_t time_ns)
{
	while (pending->n > 0 && pending->items[0].time_ns <= time_ns) {
		struct pending_realloc item = pending->items[0];

		pending_pop(pending->items, &pending->n);
		heap_rows_complete(&item);
	}
}

/* Updates the time of the first pending pause or resume. */
static void note_pause(struct pending_reallocs *pending)
{
	pending->pause_ns = pending->pauses->len
				    ? g_array_index(pending->pauses, struct alloc_pause, 0).time_ns
				    : UINT64_MAX;
}

void pending_reallocs_pause(struct pending_reallocs *pending, bool is_paused, uint64_t time_ns)
{
	const struct alloc_pause pause = { time_ns, is_paused };

	g_array_append_val(pending->pauses, pause);
	note_pause(pending);
}

/* Must be called when all rows up to the pause are written. */
static void write_pause(struct pending_reallocs *pending, const struct alloc_pause *pause)
{
	GHashTableIter iter;
	gpointer value;

	if (pending->is_paused == pause->is_paused)
		return;
	pending->is_paused = pause->is_paused;
	g_hash_table_iter_init(&iter, pending->forks.parents);
	while (g_hash_table_iter_next(&iter, NULL, &value))
		heap_rows_pause(((struct heap_parent *)value)->rows, pause->is_paused,
				pause->time_ns);
}

void pending_reallocs_apply(struct pending_reallocs *pending, uint64_t time_ns)
{
	while (time_ns > MAX_OF(pending->pause_ns, pending->last_ns)) {
		const struct alloc_pause pause =
			g_array_index(pending->pauses, struct alloc_pause, 0);

		apply_pending(pending, pause.time_ns);
		g_array_remove_index(pending->pauses, 0);
		note_pause(pending);
		write_pause(pending, &pause);
	}
	apply_pending(pending, time_ns);
}

/* Makes all items of the process due at time_ns. Returns false if there are none. */
static bool expedite(struct pending_reallocs *pending, const struct heap_rows *rows,
		     uint64_t time_ns)
{
	bool is_any = false;

	for (size_t i = 0; i < pending->n; i++)
		if (pending->items[i].rows == rows) {
			pending->items[i].time_ns = MIN_OF(pending->items[i].time_ns, time_ns);
			is_any = true;
		}
	pending_order(pending->items, pending->n);
	return is_any;
}

/* Completes the items in order, as if their times had been reached. An item may be deferred again,
 * but only once, so the loop ends. */
void pending_reallocs_complete(struct pending_reallocs *pending, const struct heap_rows *rows,
			       uint64_t time_ns)
{
	while (expedite(pending, rows, time_ns))
		apply_pending(pending, time_ns);
}

void pending_reallocs_drop(struct pending_reallocs *pending, const struct heap_rows *rows)
{
	size_t n = 0;

	for (size_t i = 0; i < pending->n; i++)
		if (pending->items[i].rows != rows)
			pending->items[n++] = pending->items[i];
	pending->n = n;
	pending_order(pending->items, pending->n);
}
