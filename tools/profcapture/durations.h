/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Durations - many durations, and what they are like
 *
 * Keeps every one, as exact percentiles need: 8 bytes each, up to 16 while it grows.
 */
#pragma once

#include <glib.h>
#include <stdint.h>

struct durations {
	/* of uint64_t; NULL = none; durations_percentile() puts them in another order */
	GArray *values;
	uint64_t total_ns, min_ns, max_ns; /* the total ends at UINT64_MAX */
};

void durations_done(struct durations *durations);
void durations_add(struct durations *durations, uint64_t ns);
guint durations_count(const struct durations *durations);
/* The next two: of at least one. Rounded to the nearest; of the total, should that have ended. */
uint64_t durations_mean(const struct durations *durations);
/* Nearest rank: the smallest that `percent` (1 to 100) per cent of all are not above. Linear. */
uint64_t durations_percentile(struct durations *durations, unsigned percent);
