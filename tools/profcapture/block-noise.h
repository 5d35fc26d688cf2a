/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Block-noise - how much of the difference between two ratios is noise
 *
 * Each ratio divides one sum over the time blocks of a recording by another: a function's samples
 * by all samples, by seconds or by marks. The variation of the ratio between blocks predicts its
 * variation between recordings. Samples are not assumed to be independent: a program works in
 * bursts, which a binomial test would report as changes. Blocks cannot show noise that affects a
 * whole run, such as memory layout; several runs can.
 */
#pragma once

#include <stdbool.h>

#define NOISE_BLOCKS 32

/* One recording, by block. */
struct noise_blocks {
	const double *counts;  /* numerators: what is compared */
	const double *weights; /* denominators */
	double events;         /* number of samples or allocations in the counts */
};

struct noise_change {
	double standard_error; /* standard error of the difference b - a */
	double freedom;        /* degrees of freedom of Student's t distribution */
};

struct noise_change noise_compare(const struct noise_blocks *a, const struct noise_blocks *b);
/* Returns the noise of the difference between two sums over independent calls. Each argument is the
 * sum of the squared values of one side. */
struct noise_change noise_calls(double squares_a, double squares_b);
/* Returns the noise of the difference between the means of n_b and n_a runs, from the variation
 * within each side; n_a and n_b must not both be 1. Assumes the same variance on both sides. */
struct noise_change noise_runs(const double *a, unsigned n_a, const double *b, unsigned n_b);
/* Returns the size up to which a change may be noise. If all tested changes are only noise, the
 * probability that any of them exceeds its interval is at most NOISE_ALPHA, even if the changes
 * depend on each other (Bonferroni). `tests`: number of tested changes. */
#define NOISE_ALPHA 0.005
double noise_interval(const struct noise_change *change, unsigned tests);
