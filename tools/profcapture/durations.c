/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Durations - many durations, and their statistics
 *
 * Percentiles are selected without sorting: 0.1 s for ten million durations.
 * [test-spans: percentiles]
 */
#include "config.h"

#include "tools/profcapture/durations.h"

#include "arch/base.h"

#include <glib/gi18n.h>
#include <inttypes.h>

void durations_done(struct durations *durations)
{
	g_clear_pointer(&durations->values, g_array_unref);
	*durations = (struct durations){ 0 };
}

void durations_add(struct durations *durations, uint64_t ns)
{
	if (!durations->values) {
		durations->values = g_array_new(FALSE, FALSE, sizeof(uint64_t));
		durations->min_ns = UINT64_MAX;
	}
	g_array_append_val(durations->values, ns);
	durations->min_ns = MIN_OF(durations->min_ns, ns);
	durations->max_ns = MAX_OF(durations->max_ns, ns);
	if (!add_u64(durations->total_ns, ns, &durations->total_ns))
		durations->total_ns = UINT64_MAX;
}

guint durations_count(const struct durations *durations)
{
	return durations->values ? durations->values->len : 0;
}

uint64_t durations_mean(const struct durations *durations)
{
	uint64_t n = durations->values->len, rest = durations->total_ns % n;

	return durations->total_ns / n + (rest >= n - rest);
}

static void swap(uint64_t *a, uint64_t *b)
{
	uint64_t kept = *a;

	*a = *b;
	*b = kept;
}

/* Returns the value at `rank` in sorted order. The pivot is random, so that a file cannot provoke
 * the worst case. Handles values equal to the pivot together, because all may be equal. */
static uint64_t select_rank(uint64_t *values, size_t n, size_t rank)
{
	for (;;) {
		uint64_t pivot = values[(uint64_t)g_random_int() * n >> 32];
		size_t below = 0, at = 0, above = n;

		while (at < above) {
			if (values[at] < pivot)
				swap(&values[below++], &values[at++]);
			else if (values[at] > pivot)
				swap(&values[--above], &values[at]);
			else
				at++;
		}
		if (rank >= below && rank < above)
			return pivot;
		if (rank < below) {
			n = below;
		} else {
			values += above;
			n -= above;
			rank -= above;
		}
	}
}

uint64_t durations_percentile(struct durations *durations, unsigned percent)
{
	uint64_t n = durations->values->len;

	return select_rank((uint64_t *)(void *)durations->values->data, n,
			   (n * percent + 99) / 100 - 1);
}

struct cell durations_cell(struct durations *durations, enum duration_field field)
{
	const uint64_t numbers[] = { durations->total_ns, durations->min_ns, durations->max_ns };
	static const unsigned percents[] = {
		[DURATION_MEDIAN] = 50, [DURATION_P95] = 95, [DURATION_P99] = 99
	};

	if (field >= DURATION_NO_END)
		return cell_uint(field == DURATION_NO_END ? durations->no_end
							  : durations->no_begin);
	if (durations_count(durations) == 0)
		return cell_none();
	return cell_uint(field < DURATION_MEAN ? numbers[field]
			 : field == DURATION_MEAN
				 ? durations_mean(durations)
				 : durations_percentile(durations, percents[field]));
}

void durations_append_unmatched(const struct durations *durations, GString *text)
{
	if (durations->no_end)
		g_string_append_printf(text, _(" (%" PRIu64 " without an end)"), durations->no_end);
	if (durations->no_begin)
		g_string_append_printf(text, _(" (%" PRIu64 " without a begin)"),
				       durations->no_begin);
}

void durations_add_columns(struct table *table)
{
	table_add_column(table, DURATION_TOTAL, COLUMN_DURATION, _("total"));
	table_add_column(table, DURATION_MEDIAN, COLUMN_DURATION, _("median"));
	table_add_column(table, DURATION_P95, COLUMN_DURATION, _("95 %"));
	table_add_column(table, DURATION_P99, COLUMN_DURATION, _("99 %"));
	table_add_column(table, DURATION_MAX, COLUMN_DURATION, _("max"));
}
