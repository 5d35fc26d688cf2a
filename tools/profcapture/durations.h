/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Durations - the durations of intervals, and their statistics
 *
 * Keeps all durations, because exact percentiles need them: 8 bytes each, 16 during growth.
 */
#pragma once

#include "tools/present/table.h"

#include <glib.h>
#include <stdint.h>

/* Fields of a table. A verb's own fields come after these. */
enum duration_field {
	DURATION_TOTAL,
	DURATION_MIN,
	DURATION_MAX,
	DURATION_MEAN,
	DURATION_MEDIAN,
	DURATION_P95,
	DURATION_P99,
	DURATION_NO_END,
	DURATION_NO_BEGIN,
	DURATION_FIELDS
};
#define DURATION_MEMBERS                                                                          \
	{ "total_ns", DURATION_TOTAL }, { "min_ns", DURATION_MIN }, { "mean_ns", DURATION_MEAN }, \
		{ "median_ns", DURATION_MEDIAN }, { "p95_ns", DURATION_P95 },                     \
		{ "p99_ns", DURATION_P99 }, { "max_ns", DURATION_MAX },                           \
		{ "unmatched_begin", DURATION_NO_END },                                           \
	{                                                                                         \
		"unmatched_end", DURATION_NO_BEGIN                                                \
	}

struct durations {
	/* uint64_t; NULL = none; durations_percentile() reorders them */
	GArray *values;
	uint64_t total_ns, min_ns, max_ns; /* the total saturates at UINT64_MAX */
	uint64_t no_begin, no_end;         /* ends without a begin, and begins without an end */
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
/* Returns CELL_NONE for a statistic of no durations. */
struct cell durations_cell(struct durations *durations, enum duration_field field);
/* Appends text such as " (2 without an end)" if a begin or an end has no counterpart. */
void durations_append_unmatched(const struct durations *durations, GString *text);
/* Adds the columns for these fields that the text format shows. */
void durations_add_columns(struct table *table);
