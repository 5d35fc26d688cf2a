/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Block-noise - by how much two ratios differ, and how much of that is noise
 *
 * Each ratio is one of two sums over the time blocks of a recording: samples of one function to all
 * samples, to seconds, to marks. The variation of the ratio between blocks predicts its variation
 * between recordings. Samples are not assumed to be independent of each other: a program's activity
 * comes in bursts, which a binomial would call a change. Blocks cannot show a difference that lasts
 * for a whole run, such as memory layout; several runs can.
 */
#pragma once

#include <stdbool.h>

#define NOISE_BLOCKS 32

/* One recording, by block. */
struct noise_blocks {
	const double *counts;  /* of the compared thing */
	const double *weights; /* the denominator of the ratio */
	double events;         /* samples or allocations in the counts */
};

struct noise_change {
	double standard_error; /* of b - a */
	double freedom;        /* degrees of freedom of its Student's distribution */
};

struct noise_change noise_compare(const struct noise_blocks *a, const struct noise_blocks *b);
/* Returns the noise of sums over independent calls, from the sums of their squares. */
struct noise_change noise_calls(double squares_a, double squares_b);
/* Returns the noise of the difference between the mean of n_b runs and that of n_a, from how much
 * the runs of each side differ; n_a and n_b must not both be 1. Assumes the same variance on both
 * sides. */
struct noise_change noise_runs(const double *a, unsigned n_a, const double *b, unsigned n_b);
/* Returns the greatest change that is noise: if all `tests` changes are only noise, one is beyond
 * it with a probability of at most NOISE_ALPHA, no matter how they depend on each other
 * (Bonferroni). */
#define NOISE_ALPHA 0.005
double noise_interval(const struct noise_change *change, unsigned tests);
