/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Heap merge - what becomes a row of allocations later than its record comes: the second half of a
 * realloc, a block at an address whose old block has not ended yet, and a pause
 *
 * Each waits until all processes' records of its time are rows.
 * Invariants: (1) they are in the order of their times, with the records of all processes
 *                 [test-engine-heap: realloc, reuse]
 *             (2) a pause is written after all rows up to its time, and before all others
 *                 [test-engine-heap-live: pause]
 * Runs on the drain thread only.
 */
#include "daemon/engine/heap-merge.h"

#include "arch/base.h"
#include "daemon/engine/heap-rows.h"

struct heap_pause {
	uint64_t time_ns;
	bool is_paused;
};

void heap_merge_init(struct heap_merge *merge, struct tasks *tasks)
{
	*merge = (struct heap_merge){
		.budget.limit = HEAP_ALL_BYTES,
		.pauses = g_array_new(FALSE, FALSE, sizeof(struct heap_pause)),
		.pause_ns = UINT64_MAX,
	};
	heap_forks_init(&merge->forks, tasks, merge);
}

void heap_merge_done(struct heap_merge *merge)
{
	heap_forks_done(&merge->forks);
	g_array_free(merge->pauses, TRUE);
	g_free(merge->pending);
	*merge = (struct heap_merge){ 0 };
}

static void sift_down(struct heap_merge *merge, size_t i)
{
	struct heap_pending *heap = merge->pending, moved = heap[i];
	size_t child;

	while ((child = 2 * i + 1) < merge->n) {
		if (child + 1 < merge->n && heap[child + 1].time_ns < heap[child].time_ns)
			child++;
		if (heap[child].time_ns >= moved.time_ns)
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = moved;
}

void heap_merge_push(struct heap_merge *merge, const struct heap_pending *pending)
{
	size_t i = merge->n++, parent;

	if (merge->n > merge->room) {
		merge->room = MAX_OF(merge->room * 2, (size_t)16);
		merge->pending = g_renew(struct heap_pending, merge->pending, merge->room);
	}
	while (i > 0 && pending->time_ns < merge->pending[parent = (i - 1) / 2].time_ns) {
		merge->pending[i] = merge->pending[parent];
		i = parent;
	}
	merge->pending[i] = *pending;
}

static void apply_pending(struct heap_merge *merge, uint64_t time_ns)
{
	while (merge->n > 0 && merge->pending[0].time_ns <= time_ns) {
		struct heap_pending pending = merge->pending[0];

		merge->pending[0] = merge->pending[--merge->n];
		if (merge->n > 1)
			sift_down(merge, 0);
		heap_rows_complete(&pending);
	}
}

static void find_pause(struct heap_merge *merge)
{
	merge->pause_ns = merge->pauses->len
				  ? g_array_index(merge->pauses, struct heap_pause, 0).time_ns
				  : UINT64_MAX;
}

void heap_merge_pause(struct heap_merge *merge, bool is_paused, uint64_t time_ns)
{
	const struct heap_pause pause = { time_ns, is_paused };

	g_array_append_val(merge->pauses, pause);
	find_pause(merge);
}

/* All rows up to that time are written, and no more of that time will come. */
static void tell_pause(struct heap_merge *merge, const struct heap_pause *pause)
{
	GHashTableIter iter;
	gpointer value;

	if (merge->is_paused == pause->is_paused)
		return;
	merge->is_paused = pause->is_paused;
	g_hash_table_iter_init(&iter, merge->forks.parents);
	while (g_hash_table_iter_next(&iter, NULL, &value))
		heap_rows_pause(((struct heap_parent *)value)->rows, pause->is_paused,
				pause->time_ns);
}

void heap_merge_apply(struct heap_merge *merge, uint64_t time_ns)
{
	while (time_ns > MAX_OF(merge->pause_ns, merge->last_ns)) {
		const struct heap_pause pause = g_array_index(merge->pauses, struct heap_pause, 0);

		apply_pending(merge, pause.time_ns);
		g_array_remove_index(merge->pauses, 0);
		find_pause(merge);
		tell_pause(merge, &pause);
	}
	apply_pending(merge, time_ns);
}

static void order(struct heap_merge *merge)
{
	for (size_t i = merge->n / 2; i-- > 0;)
		sift_down(merge, i);
}

/* Returns false if none of that process is pending. */
static bool expedite(struct heap_merge *merge, const struct heap_rows *rows, uint64_t time_ns)
{
	bool is_any = false;

	for (size_t i = 0; i < merge->n; i++)
		if (merge->pending[i].rows == rows) {
			merge->pending[i].time_ns = MIN_OF(merge->pending[i].time_ns, time_ns);
			is_any = true;
		}
	order(merge);
	return is_any;
}

/* Completes them in order, as if their times were reached. One of them may wait again, but only
 * once. */
void heap_merge_complete(struct heap_merge *merge, const struct heap_rows *rows, uint64_t time_ns)
{
	while (expedite(merge, rows, time_ns))
		apply_pending(merge, time_ns);
}

void heap_merge_forget(struct heap_merge *merge, const struct heap_rows *rows)
{
	size_t n = 0;

	for (size_t i = 0; i < merge->n; i++)
		if (merge->pending[i].rows != rows)
			merge->pending[n++] = merge->pending[i];
	merge->n = n;
	order(merge);
}
