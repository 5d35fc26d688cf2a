/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Block-noise - by how much two ratios differ, and how much of that is noise
 *
 * What is compared is a ratio of sums over the blocks of time of a recording: samples of one
 * function to all samples, to seconds, to marks. How much the ratio differs from one block to the
 * next says how much it would differ from one recording to the next. Samples are not assumed to be
 * independent of each other: what a program does comes in bursts, and a binomial would call those a
 * change. What no block can tell is what differs between two runs from beginning to end, as where
 * things are in memory: several runs do.
 */
#pragma once

#include <stdbool.h>

#define NOISE_BLOCKS 32

/* Of one recording, by block. */
struct noise_blocks {
	const double *counts;  /* of what is compared */
	const double *weights; /* what it is a ratio to */
	double events;         /* samples, allocations: what the counts are made of */
};

struct noise_change {
	double standard_error; /* of b - a */
	double freedom;        /* degrees of, of Student's distribution that it has */
};

struct noise_change noise_compare(const struct noise_blocks *a, const struct noise_blocks *b);
/* Of sums of what independent calls have, by the sums of the squares of that. */
struct noise_change noise_calls(double squares_a, double squares_b);
/* Of the mean of n_b runs and that of n_a, by how much the runs of each differ; not n_a and n_b
 * both 1. Both vary alike. */
struct noise_change noise_runs(const double *a, unsigned n_a, const double *b, unsigned n_b);
/* The greatest change that is noise: of `tests` that are nothing but noise, one is found beyond
 * it with a probability of NOISE_ALPHA at the most, whichever way they depend on each other
 * (Bonferroni). */
#define NOISE_ALPHA 0.005
double noise_interval(const struct noise_change *change, unsigned tests);
