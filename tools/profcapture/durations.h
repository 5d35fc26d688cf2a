/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Durations - many durations, and their statistics
 *
 * Keeps all durations, because exact percentiles need them: 8 bytes each, 16 during growth.
 */
#pragma once

#include "tools/present/table.h"

#include <glib.h>
#include <stdint.h>

/* Fields of a table. A verb's own fields of durations have the same order. */
enum duration_field {
	DURATION_TOTAL,
	DURATION_MIN,
	DURATION_MAX,
	DURATION_MEAN,
	DURATION_MEDIAN,
	DURATION_P95,
	DURATION_P99,
};

struct durations {
	/* uint64_t; NULL = none; durations_percentile() reorders them */
	GArray *values;
	uint64_t total_ns, min_ns, max_ns; /* the total saturates at UINT64_MAX */
};

void durations_done(struct durations *durations);
void durations_add(struct durations *durations, uint64_t ns);
guint durations_count(const struct durations *durations);
/* durations_mean() and durations_percentile() need at least one duration. The mean is rounded to
 * the nearest integer; if the total is saturated, the mean is too low. */
uint64_t durations_mean(const struct durations *durations);
/* Returns the percentile by nearest rank: the smallest value that `percent` (1 to 100) percent of
 * all values do not exceed. Takes linear time. */
uint64_t durations_percentile(struct durations *durations, unsigned percent);
/* Returns CELL_NONE if there are no durations. */
struct cell durations_cell(struct durations *durations, enum duration_field field);
/* Adds the columns of text. `first`: the verb's own field for DURATION_TOTAL. */
void durations_add_columns(struct table *table, unsigned first);
