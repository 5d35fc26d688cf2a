/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of block-noise on numbers with known noise, and of which image names diff considers equal.
 */
#include "tests/unit/test.h"
#include "tools/profcapture/diff.h"

#include <math.h>

#define ROWS 20

static uint64_t state = 1;

static double next_random(void)
{
	state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (double)(state >> 11) * 0x1p-53;
}

struct recording {
	double counts[ROWS][NOISE_BLOCKS], weights[NOISE_BLOCKS];
};

/* Records `a_block` samples in each block, distributed over rows according to `share`. */
static void record(struct recording *recording, unsigned a_block,
		   double (*share)(unsigned row, unsigned block))
{
	*recording = (struct recording){ 0 };
	for (unsigned block = 0; block < NOISE_BLOCKS; block++) {
		double up_to[ROWS], sum = 0;

		for (unsigned row = 0; row < ROWS; row++)
			up_to[row] = sum += share(row, block);
		for (unsigned i = 0; i < a_block; i++) {
			double at = next_random() * sum;
			unsigned row = 0;

			while (row + 1 < ROWS && up_to[row] < at)
				row++;
			recording->counts[row][block]++;
		}
		recording->weights[block] = a_block;
	}
}

static double sum_of(const double *numbers)
{
	double sum = 0;

	for (unsigned i = 0; i < NOISE_BLOCKS; i++)
		sum += numbers[i];
	return sum;
}

/* Returns the rows that differ by more than the noise, as bits. */
static unsigned changed(const struct recording *a, const struct recording *b)
{
	unsigned rows = 0;

	for (unsigned row = 0; row < ROWS; row++) {
		double in_a = sum_of(a->counts[row]), in_b = sum_of(b->counts[row]);
		const struct noise_blocks blocks[] = { { a->counts[row], a->weights, in_a },
						       { b->counts[row], b->weights, in_b } };
		struct noise_change change = noise_compare(&blocks[0], &blocks[1]);
		double delta = in_b / sum_of(b->weights) - in_a / sum_of(a->weights);

		if (fabs(delta) > noise_interval(&change, ROWS))
			rows |= 1u << row;
	}
	return rows;
}

/* Returns the number of pairs of recordings, with equal shares, in which a row seems to have
 * changed. */
static unsigned changed_pairs(unsigned pairs, unsigned a_block,
			      double (*share)(unsigned row, unsigned block))
{
	struct recording a, b;
	unsigned n = 0;

	for (unsigned i = 0; i < pairs; i++) {
		record(&a, a_block, share);
		record(&b, a_block, share);
		n += changed(&a, &b) != 0;
	}
	return n;
}

static double equal_share(unsigned row, unsigned block)
{
	return 1;
}

/* Shares from 30 % to 0.03 %. */
static double steep_share(unsigned row, unsigned block)
{
	return pow(0.7, row);
}

static void test_equals(void)
{
	/* expected: at most 5; the probability of 14 or more is then one in 1 500 */
	CHECK(changed_pairs(1000, 300, equal_share) < 14);
	CHECK(changed_pairs(1000, 300, steep_share) < 14);
}

/* In one of four blocks, one row has half of the samples, so the samples are not independent. */
static double burst_share(unsigned row, unsigned block)
{
	return row == 3 ? (next_random() < 0.25 ? 20 : 0.1) : 1;
}

static void test_bursts(void)
{
	CHECK(changed_pairs(500, 300, burst_share) < 10);
}

static double wave;

static double wave_share(unsigned row, unsigned block)
{
	if (row == 0)
		wave = 0.8 * wave + (next_random() - 0.5);
	return row == 3 ? exp(wave) : 1;
}

static void test_waves(void)
{
	unsigned pairs = changed_pairs(500, 300, wave_share);

	/* If the similarity of neighboring blocks were ignored, 67 pairs would differ. */
	printf("# waves: %u of 500\n", pairs);
	CHECK(pairs < 20);
}

static double slower_share(unsigned row, unsigned block)
{
	return row == 7 ? 1.1 : 1;
}

static void test_slower(void)
{
	struct recording a, b;
	unsigned found = 0;

	for (unsigned i = 0; i < 20; i++) {
		record(&a, 200000 / NOISE_BLOCKS, equal_share);
		record(&b, 200000 / NOISE_BLOCKS, slower_share);
		found += (changed(&a, &b) & 1u << 7) != 0;
	}
	printf("# slower: found %u of 20\n", found);
	CHECK(found >= 18);
}

/* Values from tables of Student's t distribution: two-sided, at 0.005, and at a tenth and a
 * hundredth of that. */
static void test_interval(void)
{
	const struct noise_change exact = { 1, INFINITY }, sixty = { 1, 60 }, thirty = { 1, 30 },
				  one = { 1, 1 }, two = { 1, 2 }, four = { 1, 4 };

	CHECK(fabs(noise_interval(&exact, 1) - 2.8070) < 0.0005);
	CHECK(fabs(noise_interval(&sixty, 1) - 2.9146) < 0.0005);
	CHECK(fabs(noise_interval(&thirty, 1) - 3.0298) < 0.0005);
	CHECK(fabs(noise_interval(&exact, 100) - 4.0556) < 0.0005);
	CHECK(fabs(noise_interval(&thirty, 100) - 4.7292) < 0.002);
	CHECK(fabs(noise_interval(&one, 1) - 127.3213) < 0.001);
	CHECK(fabs(noise_interval(&two, 1) - 14.0890) < 0.0005);
	CHECK(fabs(noise_interval(&four, 1) - 5.5976) < 0.0005);
	CHECK(fabs(noise_interval(&four, 10) - 10.3063) < 0.0005);
}

/* Runs with normal noise: without a change, and with a change of ten times the noise. */
static void test_runs(void)
{
	static const double same[] = { 5, 5, 5 };
	unsigned wrong = 0, found = 0;
	struct noise_change change = noise_runs(same, 3, same, 3);

	CHECK(noise_interval(&change, 1) == 0);
	for (unsigned i = 0; i < 2000; i++) {
		double a[3], b[4], mean_a = 0, mean_b = 0, interval;

		for (unsigned k = 0; k < 7; k++) {
			double *value = k < 3 ? &a[k] : &b[k - 3];

			*value = 0;
			for (unsigned n = 0; n < 12; n++)
				*value += next_random() - 0.5;
		}
		for (unsigned k = 0; k < 3; k++)
			mean_a += a[k] / 3;
		for (unsigned k = 0; k < 4; k++)
			mean_b += b[k] / 4;
		change = noise_runs(a, 3, b, 4);
		interval = noise_interval(&change, 1);
		wrong += fabs(mean_b - mean_a) > interval;
		found += fabs(mean_b + 10 - mean_a) > interval;
	}
	/* expected: 10; the probability of 24 or more is one in 9 000 */
	printf("# runs: %u wrong, %u found of 2000\n", wrong, found);
	CHECK(wrong < 24);
	CHECK(found > 1900);
}

/* The interval is finite even if a row has no samples or all samples, or a capture has none. */
static void test_nothing(void)
{
	static const double zeros[NOISE_BLOCKS], ones[NOISE_BLOCKS] = { 1, 1, 1, 1 };
	const struct noise_blocks nothing = { zeros, zeros, 0 }, never = { zeros, ones, 0 },
				  always = { ones, ones, 4 };
	struct noise_change change = noise_compare(&nothing, &nothing);

	CHECK(noise_interval(&change, 1) == 0);
	change = noise_compare(&nothing, &always);
	CHECK(isfinite(noise_interval(&change, 1)));
	change = noise_compare(&never, &always);
	CHECK(isfinite(noise_interval(&change, 0)));
}

static void test_images(void)
{
	static const struct {
		const char *path, *name;
		bool is_jit;
	} images[] = {
		{ "/usr/lib/libc-2.36.so", "libc.so", false },
		{ "/lib/libc.so.6", "libc.so", false },
		{ "/lib/libz.so.1.2.13 (deleted)", "libz.so", false },
		{ "/lib64/ld-linux-x86-64.so.2", "ld-linux-x86-64.so", false },
		{ "/usr/lib/libpython3.11.so.1.0", "libpython3.11.so", false },
		{ "/usr/bin/python3.11", "python3.11", false },
		{ "/usr/bin/a-1.2 (deleted)", "a-1.2", false },
		{ "/opt/lib.source", "lib.source", false },
		{ "/opt/.so.1", ".so.1", false },
		{ "/opt/-1.2.so", "-1.2.so", false },
		{ "[kernel]", "[kernel]", false },
		{ "/tmp/perf-12.map", "[jit]", true },
		{ " (deleted)", "-", false },
		{ "/", "/", false },
		{ "", "-", false },
		{ NULL, "-", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(images); i++) {
		char *name = diff_image_name(images[i].path, images[i].is_jit);

		CHECK_STR(name, images[i].name);
		g_free(name);
	}
}

int main(void)
{
	RUN(test_equals);
	RUN(test_bursts);
	RUN(test_waves);
	RUN(test_slower);
	RUN(test_interval);
	RUN(test_runs);
	RUN(test_nothing);
	RUN(test_images);
	return test_end();
}
