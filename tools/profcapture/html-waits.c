/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/html-waits.h"

#include "base/order.h"
#include "tools/profcapture/html-sides.h"

#define MOST_WITHIN 1000000u
#define MOST_ACROSS 400000u
#define LEAST_CELLS 1024

void html_waits_init(struct html_waits *waits, int64_t cell_ns, int64_t duration_ns)
{
	*waits = (struct html_waits){ .most = MOST_ACROSS,
				      .cell_ns = cell_ns,
				      .most_cell_ns = duration_ns / LEAST_CELLS,
				      .across =
					      g_array_new(FALSE, FALSE, sizeof(struct html_wait)) };
	html_samples_init(&waits->within, (uint64_t)cell_ns / GRID_UNITS, duration_ns);
	waits->within.most = MOST_WITHIN;
}

void html_waits_done(struct html_waits *waits)
{
	html_samples_done(&waits->within);
	g_clear_pointer(&waits->across, g_array_unref);
}

/* Adds a wait if it is within one cell. Returns false if it is not. */
static bool add_within(struct html_waits *waits, const struct html_wait *wait)
{
	uint64_t begin = (uint64_t)wait->begin_ns, cell = (uint64_t)waits->cell_ns;
	const struct html_sample sample = { .time = (uint32_t)(begin / waits->within.unit_ns),
					    .thread = wait->thread,
					    .stack = wait->stack,
					    .count = 1,
					    .weight = wait->length_ns };

	if (begin % cell + wait->length_ns > cell)
		return false;
	html_samples_add(&waits->within, &sample);
	return true;
}

static void widen_cells(struct html_waits *waits)
{
	guint kept = 0;

	waits->cell_ns *= 2;
	for (guint i = 0; i < waits->across->len; i++) {
		struct html_wait wait = g_array_index(waits->across, struct html_wait, i);

		if (!add_within(waits, &wait))
			g_array_index(waits->across, struct html_wait, kept++) = wait;
	}
	g_array_set_size(waits->across, kept);
}

void html_waits_take(const struct profile_sample *each, size_t n, void *data)
{
	struct html_waits *waits = data;

	for (size_t i = 0; i < n; i++) {
		const struct html_wait wait = { .begin_ns = MAX_OF(each[i].time_ns, INT64_C(0)),
						.length_ns = each[i].weight,
						.thread = each[i].thread,
						.stack = each[i].node };

		if (add_within(waits, &wait))
			continue;
		g_array_append_val(waits->across, wait);
		while (waits->across->len > waits->most && waits->cell_ns < waits->most_cell_ns)
			widen_cells(waits);
	}
}

COMPARE_BY(compare, struct html_wait, ORDER(a->begin_ns, b->begin_ns), ORDER(a->thread, b->thread),
	   ORDER(a->stack, b->stack), ORDER(a->length_ns, b->length_ns))

void html_waits_sort(struct html_waits *waits)
{
	g_array_sort(waits->across, compare);
}
