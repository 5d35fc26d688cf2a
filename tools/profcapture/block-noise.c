/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Invariants: (1) of 1 000 pairs of equals at most a few have any row beyond its interval      [test-diff: equals]
 *             (2) bursts are noise, which a binomial would not say                              [test-diff: bursts]
 *             (3) blocks that are like their neighbours count for less                          [test-diff: waves]
 */
#include "config.h"

#include "tools/profcapture/block-noise.h"

#include "arch/base.h"

#include <math.h>

/* Sampling at regular times can be more even than chance is, but what seems to be more than four times as even is not known as well. */
#define EVENNESS 4.0

/* Of one recording: its ratio, and the squares of what each block is off by. */
struct residuals {
	double ratio, weight;
	double squares;    /* sum */
	double neighbours; /* sum of products of two that follow each other */
};

static struct residuals residuals_of(const struct noise_blocks *blocks)
{
	struct residuals r = { 0 };
	double count = 0, least, before = 0;

	for (unsigned i = 0; i < NOISE_BLOCKS; i++) {
		count += blocks->counts[i];
		r.weight += blocks->weights[i];
	}
	if (!(r.weight > 0))
		return (struct residuals){ 0 };
	r.ratio = count / r.weight;
	for (unsigned i = 0; i < NOISE_BLOCKS; i++) {
		double off = blocks->counts[i] - r.ratio * blocks->weights[i];

		r.squares += off * off;
		r.neighbours += i > 0 ? off * before : 0;
		before = off;
	}
	least = blocks->events > 0 ? count * (count / blocks->events) : 0;
	r.squares = MAX_OF(r.squares, least / (EVENNESS * EVENNESS));
	return r;
}

/* By how much blocks that are alike make the variance greater: both recordings together say it better. */
static double likeness(const struct residuals *a, const struct residuals *b)
{
	double squares = 0, neighbours = 0, alike;

	for (unsigned i = 0; i < 2; i++) {
		const struct residuals *r = i ? b : a;
		double scale = r->weight > 0 ? 1 / (r->weight * r->weight) : 0;

		squares += r->squares * scale;
		neighbours += r->neighbours * scale;
	}
	/* Of blocks that are not alike, this is how much it is by chance. */
	alike = squares > 0 ? neighbours / squares - 1 / sqrt(2.0 * NOISE_BLOCKS) : 0;
	alike = MIN_OF(alike, 0.9);
	return alike > 0 ? (1 + alike) / (1 - alike) : 1;
}

static double variance_of(const struct residuals *r)
{
	return r->weight > 0
		       ? r->squares / (r->weight * r->weight) * NOISE_BLOCKS / (NOISE_BLOCKS - 1)
		       : 0;
}

struct noise_change noise_compare(const struct noise_blocks *a, const struct noise_blocks *b)
{
	struct residuals ra = residuals_of(a), rb = residuals_of(b);
	double va = variance_of(&ra), vb = variance_of(&rb);
	double both = va * va + vb * vb;

	return (struct noise_change){
		.standard_error = sqrt((va + vb) * likeness(&ra, &rb)),
		/* Welch and Satterthwaite */
		.freedom = (NOISE_BLOCKS - 1) * (both > 0 ? (va + vb) * (va + vb) / both : 1),
	};
}

struct noise_change noise_calls(double squares_a, double squares_b)
{
	return (struct noise_change){ .standard_error = sqrt(squares_a + squares_b),
				      .freedom = INFINITY };
}

/* z such that a standard normal number is beyond it with that probability. */
static double normal_quantile(double probability)
{
	double low = 0, high = 40;

	for (unsigned i = 0; i < 64; i++) {
		double middle = (low + high) / 2;

		if (erfc(middle / sqrt(2)) / 2 > probability)
			low = middle;
		else
			high = middle;
	}
	return high;
}

/* Of Student's distribution from that of the normal one: Abramowitz and Stegun, 26.7.5. */
static double student_quantile(double z, double n)
{
	double z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z, z9 = z7 * z * z;

	return z + (z3 + z) / (4 * n) + (5 * z5 + 16 * z3 + 3 * z) / (96 * n * n) +
	       (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * n * n * n) +
	       (79 * z9 + 776 * z7 + 1482 * z5 - 1920 * z3 - 945 * z) / (92160 * n * n * n * n);
}

double noise_interval(const struct noise_change *change, unsigned tests)
{
	double z = normal_quantile(NOISE_ALPHA / 2 / MAX_OF(tests, 1u));

	return student_quantile(z, change->freedom) * change->standard_error;
}
