/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of the page's samples: however they are ordered, they are merged in the same way.
 */
#include "tests/unit/test.h"
#include "tools/profcapture/html-samples.h"

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

int main(void)
{
	RUN(test_units);
	return test_end();
}
