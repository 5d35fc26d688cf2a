/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Durations - many durations, and their statistics
 *
 * Keeps every duration, because exact percentiles need it: 8 bytes each, up to 16 while it grows.
 */
#pragma once

#include <glib.h>
#include <stdint.h>

struct durations {
	/* of uint64_t; NULL = none; durations_percentile() reorders them */
	GArray *values;
	uint64_t total_ns, min_ns, max_ns; /* the total saturates at UINT64_MAX */
};

void durations_done(struct durations *durations);
void durations_add(struct durations *durations, uint64_t ns);
guint durations_count(const struct durations *durations);
/* durations_mean() and durations_percentile() need at least one duration. The mean is rounded to
 * the nearest; a saturated total is used as it is. */
uint64_t durations_mean(const struct durations *durations);
/* Returns the nearest rank: the smallest value that `percent` (1 to 100) percent of all do not
 * exceed. Takes linear time. */
uint64_t durations_percentile(struct durations *durations, unsigned percent);
