/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "base/order.h"
#include "tools/profcapture/html-samples.h"

#define MOST_SAMPLES 4000000u
#define LEAST_STEPS 1024u  /* the unit stops growing when it reaches the duration divided by this */
#define LEAST_NEW 0x10000u /* at least this many new rows are sorted at once */

void html_samples_init(struct html_samples *samples, uint64_t unit_ns, int64_t duration_ns)
{
	*samples = (struct html_samples){ .most = MOST_SAMPLES,
					  .unit_ns = unit_ns,
					  .most_unit_ns = (uint64_t)duration_ns / LEAST_STEPS,
					  .all = g_array_new(FALSE, FALSE,
							     sizeof(struct html_sample)) };
}

void html_samples_done(struct html_samples *samples)
{
	g_clear_pointer(&samples->all, g_array_unref);
}

COMPARE_WITH(compare, struct html_sample, ORDER(a->time, b->time), ORDER(a->thread, b->thread),
	     ORDER(a->stack, b->stack))

static void sort(struct html_sample *all, size_t n)
{
	g_qsort_with_data(all, (gint)n, sizeof(*all), compare, NULL);
}

/* Sorts the new rows into the others, and merges rows with equal keys. */
static void merge_new(struct html_samples *samples)
{
	struct html_sample *all = (struct html_sample *)(void *)samples->all->data;
	guint n = samples->all->len, new = samples->n_merged, from = new, to;

	if (new == n)
		return;
	sort(all + new, n - new);
	/* A capture is in order except near the ends of its chunks, so few of the sorted rows come
	 * after a new one. */
	while (from > 0 && compare(&all[from - 1], &all[new], NULL) >= 0)
		from--;
	if (from < new)
		sort(all + from, n - from);
	to = from;
	for (guint i = from; i < n; i++) {
		if (to > from && compare(&all[to - 1], &all[i], NULL) == 0) {
			all[to - 1].count += all[i].count;
			all[to - 1].weight += all[i].weight;
		} else {
			all[to++] = all[i];
		}
	}
	g_array_set_size(samples->all, to);
	samples->n_merged = to;
}

void html_samples_set_unit(struct html_samples *samples, uint64_t unit_ns)
{
	uint64_t part = unit_ns / samples->unit_ns;

	for (guint i = 0; part > 1 && i < samples->all->len; i++)
		g_array_index(samples->all, struct html_sample, i).time /= (uint32_t)part;
	if (part > 1)
		samples->n_merged = 0; /* rows with equal times are no longer in order */
	samples->unit_ns = unit_ns;
}

void html_samples_merge(struct html_samples *samples)
{
	merge_new(samples);
	while (samples->all->len > samples->most && samples->unit_ns < samples->most_unit_ns) {
		html_samples_set_unit(samples, samples->unit_ns * 4);
		merge_new(samples);
	}
}

void html_samples_add(struct html_samples *samples, const struct html_sample *sample)
{
	g_array_append_vals(samples->all, sample, 1);
	if (samples->all->len - samples->n_merged >= MAX_OF(LEAST_NEW, samples->n_merged / 4))
		html_samples_merge(samples);
}

void html_samples_take(const struct profile_sample *each, size_t n, void *data)
{
	struct html_samples *samples = data;

	for (size_t i = 0; i < n; i++) {
		const struct html_sample sample = {
			.time = (uint32_t)((uint64_t)MAX_OF(each[i].time_ns, INT64_C(0)) /
					   samples->unit_ns),
			.thread = each[i].thread,
			.stack = each[i].node,
			.count = 1,
			.weight = each[i].weight,
		};

		html_samples_add(samples, &sample);
	}
}
