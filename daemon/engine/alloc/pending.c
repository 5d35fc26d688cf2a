/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Pending allocs - the events that are applied later than the record that reports them
 *
 * A passive queue: heap-rows.c pushes items, and pops and applies them before each record.
 * Invariants: (1) items are applied in time order among the records of all processes
 *                 [test-engine-heap: realloc, reuse]
 *             (2) a pause follows all blocks and records up to its time, and precedes all others
 *                 [test-engine-heap-live: pause]
 * Runs on the drain thread only.
 */
#include "daemon/engine/alloc/pending.h"

#include "arch/base.h"
#include "base/pqueue.h"

void pending_allocs_done(struct pending_allocs *pending)
{
	g_free(pending->items);
	*pending = (struct pending_allocs){ 0 };
}

static bool is_earlier(struct pending_alloc a, struct pending_alloc b)
{
	if (a.due_ns != b.due_ns)
		return a.due_ns < b.due_ns;
	return !a.rows == !b.rows ? a.time_ns < b.time_ns : a.rows != NULL;
}

PQUEUE_DEFINE(pending, struct pending_alloc, is_earlier)

void pending_allocs_push(struct pending_allocs *pending, const struct pending_alloc *item)
{
	if (pending->n == pending->room) {
		pending->room = MAX_OF(pending->room * 2, (size_t)16);
		pending->items = g_renew(struct pending_alloc, pending->items, pending->room);
	}
	pending_push(pending->items, &pending->n, *item);
}

const struct pending_alloc *pending_allocs_due(const struct pending_allocs *pending,
					       uint64_t time_ns)
{
	const struct pending_alloc *first = pending->items;

	if (pending->n == 0 || first->due_ns > time_ns ||
	    (!first->rows && first->due_ns == time_ns))
		return NULL;
	return first;
}

struct pending_alloc pending_allocs_pop(struct pending_allocs *pending)
{
	const struct pending_alloc first = pending->items[0];

	pending_pop(pending->items, &pending->n);
	return first;
}

bool pending_allocs_expedite(struct pending_allocs *pending, const struct heap_rows *rows,
			     uint64_t time_ns)
{
	bool is_any = false;

	for (size_t i = 0; i < pending->n; i++) {
		struct pending_alloc *item = &pending->items[i];

		if (item->rows != rows)
			continue;
		item->due_ns = 0;
		item->time_ns = MIN_OF(item->time_ns, time_ns);
		is_any = true;
	}
	pending_order(pending->items, pending->n);
	return is_any;
}

void pending_allocs_drop(struct pending_allocs *pending, const struct heap_rows *rows)
{
	size_t n = 0;

	for (size_t i = 0; i < pending->n; i++)
		if (pending->items[i].rows != rows)
			pending->items[n++] = pending->items[i];
	pending->n = n;
	pending_order(pending->items, pending->n);
}
