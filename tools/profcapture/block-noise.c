/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Invariants: (1) of 1 000 pairs of equal recordings, at most a few have a row whose change exceeds
 *                 its interval [test-diff: equals]
 *             (2) bursts count as noise, although a binomial test would report them as changes
 *                 [test-diff: bursts]
 *             (3) blocks that resemble their neighbors are weaker evidence  [test-diff: waves]
 */
#include "config.h"

#include "tools/profcapture/block-noise.h"

#include "arch/base.h"

#include <math.h>

/* Lower limit of the noise: a quarter of the noise of random sampling. Sampling at regular times
 * can be less noisy than random sampling, but smaller values are not reliable. */
#define EVENNESS 4.0

/* A recording's ratio, and how its blocks deviate from that ratio. */
struct residuals {
	double ratio, weight;
	double squares;    /* sum of the squared deviations */
	double neighbours; /* sum of the products of consecutive deviations */
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

/* Returns the factor by which the similarity of neighboring blocks increases the variance. Uses
 * both recordings, because more blocks give a more precise estimate. */
static double likeness(const struct residuals *a, const struct residuals *b)
{
	double squares = 0, neighbours = 0, alike;

	for (unsigned i = 0; i < 2; i++) {
		const struct residuals *r = i ? b : a;
		double scale = r->weight > 0 ? 1 / (r->weight * r->weight) : 0;

		squares += r->squares * scale;
		neighbours += r->neighbours * scale;
	}
	/* Subtract the correlation that independent blocks have by chance. */
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
		/* by Welch and Satterthwaite */
		.freedom = (NOISE_BLOCKS - 1) * (both > 0 ? (va + vb) * (va + vb) / both : 1),
	};
}

struct noise_change noise_calls(double squares_a, double squares_b)
{
	return (struct noise_change){ .standard_error = sqrt(squares_a + squares_b),
				      .freedom = INFINITY };
}

static double sum_of_squares(const double *values, unsigned n)
{
	double mean = 0, squares = 0;

	for (unsigned i = 0; i < n; i++)
		mean += values[i] / n;
	for (unsigned i = 0; i < n; i++)
		squares += (values[i] - mean) * (values[i] - mean);
	return squares;
}

struct noise_change noise_runs(const double *a, unsigned n_a, const double *b, unsigned n_b)
{
	unsigned freedom = n_a + n_b - 2;
	double variance = (sum_of_squares(a, n_a) + sum_of_squares(b, n_b)) / freedom;

	return (struct noise_change){
		.standard_error = sqrt(variance * (1.0 / n_a + 1.0 / n_b)),
		.freedom = freedom,
	};
}

/* Returns the z that a standard normal variable exceeds with the given probability. */
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

/* Continued fraction of the incomplete beta function, by Lentz's method: Numerical Recipes, 6.4. */
static double beta_fraction(double a, double b, double x)
{
	double c = 1, d = 1 / (1 - (a + b) * x / (a + 1)), h = d;

	for (unsigned m = 1; m < 1000; m++) {
		double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
		double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
		double factor;

		d = 1 / (1 + even * d);
		c = 1 + even / c;
		h *= d * c;
		d = 1 / (1 + odd * d);
		c = 1 + odd / c;
		factor = d * c;
		h *= factor;
		if (fabs(factor - 1) < 1e-14)
			break;
	}
	return h;
}

/* Returns the probability that a variable with Student's t distribution exceeds t > 0. */
static double student_tail(double t, double freedom)
{
	double x = freedom / (freedom + t * t), a = freedom / 2, b = 0.5;
	double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x));

	/* Use the side of the mean on which the fraction converges fast. */
	return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a / 2
					 : (1 - front * beta_fraction(b, a, 1 - x) / b) / 2;
}

/* Returns the t that a variable with Student's t distribution exceeds with the given
 * probability. */
static double student_quantile(double probability, double freedom)
{
	double low = 1e-3, high = 1e9;

	/* Above a million, the normal quantile differs by less than a thousandth of a percent. */
	if (freedom > 1e6)
		return normal_quantile(probability);
	for (unsigned i = 0; i < 100; i++) {
		double middle = sqrt(low * high);

		if (student_tail(middle, freedom) > probability)
			low = middle;
		else
			high = middle;
	}
	return high;
}

double noise_interval(const struct noise_change *change, unsigned tests)
{
	double probability = NOISE_ALPHA / 2 / MAX_OF(tests, 1u);

	return student_quantile(probability, change->freedom) * change->standard_error;
}
