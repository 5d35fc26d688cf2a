/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Firefox-allocations - single allocations and frees, for the profiler's views of allocated and
 * live memory
 *
 * The profiler finds the block of a free by its address, for which it gets the block's number, and
 * only in the table of one thread. So a free is written to the thread that allocated the block, and
 * `threadId` is the caller.
 */
#include "config.h"

#include "tools/profcapture/export-allocations.h"
#include "tools/profcapture/firefox.h"

#include <math.h>

static gint compare_events(gconstpointer left, gconstpointer right)
{
	const struct allocation_event *a = left, *b = right;

	if (a->thread != b->thread)
		return a->thread < b->thread ? -1 : 1;
	return a->time_ns < b->time_ns ? -1 : a->time_ns > b->time_ns;
}

void firefox_sort_allocations(struct firefox *firefox)
{
	GArray *events = firefox->export->allocations ? firefox->export->allocations->events : NULL;

	if (!events)
		return;
	g_array_sort(events, compare_events);
	for (guint i = 0; i < events->len; i++) {
		uint32_t thread = g_array_index(events, struct allocation_event, i).thread;

		if (firefox->first_event->len <= thread)
			g_array_set_size(firefox->first_event, thread + 1);
		if (g_array_index(firefox->first_event, uint32_t, thread) == 0)
			g_array_index(firefox->first_event, uint32_t, thread) = i + 1;
	}
}

bool firefox_has_allocations(const struct firefox *firefox, uint32_t thread)
{
	return thread < firefox->first_event->len &&
	       g_array_index(firefox->first_event, uint32_t, thread) > 0;
}

enum column { TIME, WEIGHT, STACK, ADDRESS, THREAD };

static void write_cell(struct firefox *firefox, const struct allocation_event *event,
		       enum column column)
{
	struct json *json = &firefox->json;

	switch (column) {
	case TIME:
		firefox_ms(json, NULL, event->time_ns);
		break;
	case WEIGHT:
		json_int(json, NULL, llround(event->bytes));
		break;
	case STACK:
		if (event->node)
			json_uint(json, NULL, event->node - 1);
		else
			json_null(json, NULL);
		break;
	case ADDRESS:
		json_uint(json, NULL, event->block);
		break;
	case THREAD:
		json_uint(json, NULL,
			  names_thread_at(firefox->export->reader.capture->names, event->by)->tid);
		break;
	}
}

void firefox_write_allocations(struct firefox *firefox, uint32_t thread)
{
	static const char *const names[] = { "time", "weight", "stack", "memoryAddress",
					     "threadId" };
	struct json *json = &firefox->json;
	const struct allocation_event *events;
	guint first, n = 0, all;

	if (!firefox_has_allocations(firefox, thread))
		return;
	all = firefox->export->allocations->events->len;
	first = g_array_index(firefox->first_event, uint32_t, thread) - 1;
	events = &g_array_index(firefox->export->allocations->events, struct allocation_event,
				first);
	while (first + n < all && events[n].thread == thread)
		n++;
	json_begin_object(json, "nativeAllocations");
	for (enum column column = TIME; column <= THREAD; column++) {
		json_begin_array(json, names[column]);
		for (guint i = 0; i < n; i++)
			write_cell(firefox, &events[i], column);
		json_end(json);
	}
	json_string(json, "weightType", "bytes");
	json_uint(json, "length", n);
	json_end(json);
}
