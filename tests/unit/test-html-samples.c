/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of the page's samples and waits: the order of samples does not change how they are merged,
 * and a range that begins and ends on the grid has the exact part of each wait.
 */
#include "tests/unit/test.h"
#include "tools/profcapture/html-waits.h"

#define N_SAMPLES 300000u
#define UNIT_NS 256u
#define DURATION_NS (INT64_C(1) << 40)

static void add_all(struct html_samples *samples, uint32_t factor, guint most)
{
	html_samples_init(samples, UNIT_NS, DURATION_NS);
	samples->most = most;
	/* an odd factor visits each of the first 2^20 numbers once */
	for (uint32_t i = 0; i < 1u << 20; i++) {
		uint32_t k = (i * factor) % (1u << 20);
		const struct profile_sample sample = {
			.time_ns = DURATION_NS / N_SAMPLES * k,
			.thread = 2 + k % 3,
			.node = k % 7,
			.weight = 5 + k % 11,
		};

		if (k < N_SAMPLES)
			html_samples_take(&sample, 1, samples);
	}
	html_samples_merge(samples);
}

/* The rows, their unit and their sums do not depend on the order of the samples. */
static void test_units(void)
{
	static const guint most[] = { N_SAMPLES, 100000, 5000, 0 };
	uint64_t unit_ns = 0, expected = 0;

	for (uint32_t k = 0; k < N_SAMPLES; k++)
		expected += 5 + k % 11;
	for (size_t m = 0; m < G_N_ELEMENTS(most); m++) {
		struct html_samples in_order, mixed;
		uint64_t count = 0, weight = 0;

		add_all(&in_order, 1, most[m]);
		add_all(&mixed, 0x9e3779b1u, most[m]);
		CHECK_INT(in_order.unit_ns, mixed.unit_ns);
		REQUIRE(in_order.all->len == mixed.all->len);
		CHECK(memcmp(in_order.all->data, mixed.all->data,
			     in_order.all->len * sizeof(struct html_sample)) == 0);
		CHECK(in_order.all->len <= most[m] || in_order.unit_ns >= in_order.most_unit_ns);
		CHECK(in_order.unit_ns >= unit_ns);
		unit_ns = in_order.unit_ns;
		for (guint i = 0; i < in_order.all->len; i++) {
			count += g_array_index(in_order.all, struct html_sample, i).count;
			weight += g_array_index(in_order.all, struct html_sample, i).weight;
		}
		CHECK_INT(count, N_SAMPLES);
		CHECK_INT(weight, expected);
		html_samples_done(&in_order);
		html_samples_done(&mixed);
	}
	CHECK(unit_ns > UNIT_NS);
}

/* Returns the waiting time in [from, to), as the page counts it. */
static uint64_t waited(const struct html_waits *waits, uint64_t from, uint64_t to)
{
	uint64_t sum = 0;

	for (guint i = 0; i < waits->within.all->len; i++) {
		const struct html_sample *at =
			&g_array_index(waits->within.all, struct html_sample, i);
		uint64_t time = at->time * waits->within.unit_ns;

		sum += time >= from && time < to ? at->weight : 0;
	}
	for (guint i = 0; i < waits->across->len; i++) {
		const struct html_wait *at = &g_array_index(waits->across, struct html_wait, i);
		uint64_t begin = MAX_OF((uint64_t)at->begin_ns, from);
		uint64_t end = MIN_OF((uint64_t)at->begin_ns + at->length_ns, to);

		sum += end > begin ? end - begin : 0;
	}
	return sum;
}

/* Each range on the grid has exactly the parts of the waits that are in it. */
static void test_waits(void)
{
	static const guint most[] = { 100000, 4000, 300 };
	enum { N_WAITS = 20000, CELL_NS = 1 << 16 };
	const uint64_t duration = UINT64_C(1) << 32, step = duration / N_WAITS;

	for (size_t m = 0; m < G_N_ELEMENTS(most); m++) {
		struct html_waits waits;
		uint64_t cell;

		html_waits_init(&waits, CELL_NS, (int64_t)duration);
		waits.most = most[m];
		for (uint64_t i = 0; i < N_WAITS; i++) {
			const struct profile_sample sample = {
				.time_ns = (int64_t)(i * step + i % 977),
				.thread = 2 + i % 3,
				.node = i % 7,
				.weight = 1 + i * 7919 % (2 * step)
			};

			html_waits_take(&sample, 1, &waits);
		}
		html_samples_merge(&waits.within);
		html_waits_sort(&waits);
		CHECK(waits.across->len <= most[m] || waits.cell_ns >= waits.most_cell_ns);
		CHECK((most[m] == most[0]) == (waits.cell_ns == CELL_NS));
		cell = (uint64_t)waits.cell_ns;
		for (uint64_t k = 0; k < 20; k++) {
			uint64_t from = duration / cell * k / 40 * cell;
			uint64_t to = from + (1 + k * k) * cell, expected = 0;

			for (uint64_t i = 0; i < N_WAITS; i++) {
				uint64_t begin = i * step + i % 977;
				uint64_t end = MIN_OF(begin + 1 + i * 7919 % (2 * step), to);

				begin = MAX_OF(begin, from);
				expected += end > begin ? end - begin : 0;
			}
			CHECK_INT(waited(&waits, from, to), expected);
		}
		html_waits_done(&waits);
	}
}

int main(void)
{
	RUN(test_units);
	RUN(test_waits);
	return test_end();
}
