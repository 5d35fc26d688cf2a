/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/html-slices.h"

#include "base/each.h"
#include "base/order.h"
#include "tools/common/grown-array.h"
#include "tools/profcapture/run-times.h"

#include <glib/gi18n.h>

#define MOST_BINS 16384u /* longest bin, in steps of the grid */
#define MOST_SLICES 400000u

enum slice_kind { SLICE_RUN, SLICE_READY, SLICE_WAIT, SLICE_KINDS };

struct page_slice {
	int64_t from_ns, to_ns;
	uint64_t ns[SLICE_KINDS]; /* if slices were merged into bins: the time of each kind */
	uint32_t thread;
	/* in units: time since the thread's previous slice; length of this one */
	uint32_t gap, length;
	uint8_t kind;
};

/* A slice is a state of a thread or, if there are too many states, a bin of the thread's time. */
struct slices {
	struct html_rows *rows;
	GArray *all;    /* struct page_slice; those of a thread are in order */
	GArray *newest; /* uint32_t by thread of the page: index + 1 of the thread's last bin */
	int64_t bin_ns; /* length of a bin; 0: slices are not merged yet */
};

/* Returns the bin in which a time of a thread counts: the thread's newest one or a new one. Earlier
 * times, which only damaged rows have, count in the newest one. */
static struct page_slice *bin_at(struct slices *slices, uint32_t thread, int64_t time_ns)
{
	uint32_t *newest = GROWN_AT(slices->newest, uint32_t, thread);
	const struct page_slice bin = { .from_ns = time_ns / slices->bin_ns * slices->bin_ns,
					.to_ns = (time_ns / slices->bin_ns + 1) * slices->bin_ns,
					.thread = thread };

	if (*newest == 0 ||
	    g_array_index(slices->all, struct page_slice, *newest - 1).from_ns < bin.from_ns) {
		g_array_append_val(slices->all, bin);
		*newest = slices->all->len;
	}
	return &g_array_index(slices->all, struct page_slice, *newest - 1);
}

static void add_to_bins(struct slices *slices, const struct page_slice *slice)
{
	for (int64_t from_ns = slice->from_ns; from_ns < slice->to_ns;) {
		struct page_slice *bin = bin_at(slices, slice->thread, from_ns);
		int64_t until_ns = MIN_OF(slice->to_ns, bin->to_ns);

		bin->ns[slice->kind] += (uint64_t)(until_ns - from_ns);
		from_ns = until_ns;
	}
}

/* Replaces the slices by bins, or the bins by wider ones. */
static void widen_bins(struct slices *slices)
{
	g_autoptr(GArray) before = slices->all;
	bool are_bins = slices->bin_ns > 0;

	slices->all = g_array_new(FALSE, FALSE, sizeof(struct page_slice));
	slices->bin_ns = are_bins ? slices->bin_ns * 2 : slices->rows->grid_ns;
	g_array_set_size(slices->newest, 0);
	ARRAY_EACH(const struct page_slice, at, before) {
		struct page_slice *bin = are_bins ? bin_at(slices, at->thread, at->from_ns) : NULL;

		for (unsigned kind = 0; bin && kind < SLICE_KINDS; kind++)
			bin->ns[kind] += at->ns[kind];
		if (!bin)
			add_to_bins(slices, at);
	}
}

static void add_slice(const struct run_state *state, void *data)
{
	struct slices *slices = data;
	struct html_rows *rows = slices->rows;
	struct page_slice slice = { .from_ns = html_rows_time(rows, state->from_ns),
				    .to_ns = html_rows_time(rows, state->to_ns),
				    .kind = state->state == PROF_SWITCH_RUNNING ? SLICE_RUN
					    : state->state == PROF_SWITCH_WAIT  ? SLICE_WAIT
										: SLICE_READY };

	guint most = export_most(rows->side->export, MOST_SLICES);

	if (slice.from_ns >= slice.to_ns)
		return;
	slice.thread = html_rows_thread(rows, state->thread);
	if (slices->bin_ns)
		add_to_bins(slices, &slice);
	else
		g_array_append_val(slices->all, slice);
	while (slices->all->len > most && slices->bin_ns < rows->grid_ns * MOST_BINS)
		widen_bins(slices);
}

COMPARE_BY(compare_slices, struct page_slice, ORDER(a->thread, b->thread),
	   ORDER(a->from_ns, b->from_ns))

/* Sets the gaps and lengths. A gap begins at the end of the thread's previous slice. */
static void place_slices(GArray *all, int64_t unit_ns)
{
	int64_t end = 0;

	for (guint i = 0; i < all->len; i++) {
		struct page_slice *slice = &g_array_index(all, struct page_slice, i);

		if (i == 0 || slice->thread != slice[-1].thread)
			end = 0;
		slice->gap = (uint32_t)MAX_OF(slice->from_ns / unit_ns - end, INT64_C(0));
		end += slice->gap;
		slice->length = (uint32_t)MAX_OF(slice->to_ns / unit_ns - end, INT64_C(0));
		end += slice->length;
	}
}

static void add_slices(struct html_rows *rows, struct slices *slices)
{
	static const struct report_column places[] = {
		{ "slices.thread", REPORT_MEMBER(struct page_slice, thread), .delta = true },
		{ "slices.gap", REPORT_MEMBER(struct page_slice, gap) },
		{ "slices.length", REPORT_MEMBER(struct page_slice, length) },
	};
	static const struct report_column kind = { "slices.kind",
						   REPORT_MEMBER(struct page_slice, kind) };
	static const struct report_column parts[] = {
		{ "slices.run", REPORT_MEMBER(struct page_slice, ns[SLICE_RUN]) },
		{ "slices.ready", REPORT_MEMBER(struct page_slice, ns[SLICE_READY]) },
		{ "slices.wait", REPORT_MEMBER(struct page_slice, ns[SLICE_WAIT]) },
	};

	g_autofree char *step = text_duration((uint64_t)slices->bin_ns);

	if (slices->all->len == 0)
		return;
	g_array_sort(slices->all, compare_slices);
	place_slices(slices->all, (int64_t)rows->slice_unit);
	report_page_add(rows->page, slices->all, places, ARRAY_SIZE(places));
	if (!slices->bin_ns) {
		report_page_add(rows->page, slices->all, &kind, 1);
		return;
	}
	report_page_add(rows->page, slices->all, parts, ARRAY_SIZE(parts));
	g_ptr_array_add(
		rows->notes,
		g_strdup_printf(
			_("The times at which threads ran and waited are rounded to steps of %s."),
			step));
}

bool html_slices_write(struct html_rows *rows, GError **error)
{
	struct slices slices = { .rows = rows,
				 .all = g_array_new(FALSE, FALSE, sizeof(struct page_slice)),
				 .newest = g_array_new(FALSE, TRUE, sizeof(uint32_t)) };
	bool ok = true;

	for (unsigned i = 0; ok && i < rows->sides.n; i++) {
		rows->side = &rows->sides.each[i];
		g_clear_pointer(&rows->times, g_array_unref);
		rows->times = run_times_each_state(&rows->side->export->reader, add_slice, &slices,
						   error);
		ok = rows->times != NULL;
	}
	if (ok)
		add_slices(rows, &slices);
	g_array_unref(slices.all);
	g_array_unref(slices.newest);
	return ok;
}
