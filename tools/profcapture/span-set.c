/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Span-set - when the spans of one name were open, for each thread or process
 *
 * Invariant: a thread's or process's stretches (times in spans) are disjoint [test-spans: sets]
 */
#include "config.h"

#include "tools/profcapture/span-set.h"

#include "base/order.h"
#include "tools/profcapture/spans.h"

#include <string.h>

const char *const span_scope_names[] = { "process", "thread", NULL };

struct stretch {
	int64_t from_ns, to_ns;
};

static uint32_t owner_of(const struct span_set *set, uint32_t thread)
{
	return set->scope == SPAN_OF_THREAD
		       ? thread
		       : names_thread_at(set->reader->capture->names, thread)->process;
}

static void add_stretch(struct span_set *set, const struct span *span)
{
	const struct stretch stretch = { span->start_ns, span->end_ns };
	uint32_t owner = owner_of(set, span->thread);
	GArray **stretches;

	if (owner <= NAMES_LOST)
		return;
	if (set->stretches->len <= owner)
		g_ptr_array_set_size(set->stretches, (gint)owner + 1);
	stretches = (GArray **)&set->stretches->pdata[owner];
	if (!*stretches)
		*stretches = g_array_new(FALSE, FALSE, sizeof(struct stretch));
	g_array_append_val(*stretches, stretch);
}

static void add_span(const struct span *span, void *data)
{
	struct span_set *set = data;

	if (!span->name || strcmp(span->name, set->name) != 0)
		return;
	set->marks++;
	if (span->start_ns > set->reader->to_ns || span->end_ns < set->reader->from_ns)
		return;
	switch (span->kind) {
	case SPAN_WHOLE:
		set->spans++;
		if (!add_u64(set->total_ns, (uint64_t)span->end_ns - (uint64_t)span->start_ns,
			     &set->total_ns))
			set->total_ns = UINT64_MAX;
		add_stretch(set, span);
		break;
	case SPAN_NO_END:
		set->no_end++;
		break;
	case SPAN_NO_BEGIN:
		set->no_begin++;
		break;
	default:
		break;
	}
}

COMPARE_BY(compare_stretches, struct stretch, ORDER(a->from_ns, b->from_ns))

/* Merges stretches that overlap. */
static void merge_stretches(GArray *stretches)
{
	struct stretch *at = (struct stretch *)(void *)stretches->data;
	guint n = 0;

	g_array_sort(stretches, compare_stretches);
	for (guint i = 1; i < stretches->len; i++)
		if (at[i].from_ns <= at[n].to_ns)
			at[n].to_ns = MAX_OF(at[n].to_ns, at[i].to_ns);
		else
			at[++n] = at[i];
	g_array_set_size(stretches, n + 1);
}

static void free_stretches(gpointer pointer)
{
	g_clear_pointer(&pointer, g_array_unref);
}

bool span_set_read(struct span_set *set, const struct reader *reader, GError **error)
{
	set->reader = reader;
	set->stretches = g_ptr_array_new_with_free_func(free_stretches);
	if (!spans_read(reader->capture, add_span, set, error))
		return false;
	for (guint i = 0; i < set->stretches->len; i++)
		if (set->stretches->pdata[i])
			merge_stretches(set->stretches->pdata[i]);
	return true;
}

void span_set_done(struct span_set *set)
{
	g_clear_pointer(&set->stretches, g_ptr_array_unref);
	*set = (struct span_set){ 0 };
}

bool span_set_has(const struct span_set *set, uint32_t thread, int64_t time_ns)
{
	uint32_t owner = owner_of(set, thread);
	const GArray *stretches = owner < set->stretches->len ? set->stretches->pdata[owner] : NULL;
	guint low = 0, high = stretches ? stretches->len : 0;

	while (low < high) {
		guint middle = low + (high - low) / 2;

		if (g_array_index(stretches, struct stretch, middle).to_ns < time_ns)
			low = middle + 1;
		else
			high = middle;
	}
	return stretches && low < stretches->len &&
	       g_array_index(stretches, struct stretch, low).from_ns <= time_ns;
}
