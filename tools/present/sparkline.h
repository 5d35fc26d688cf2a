/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Sparkline - values over time as a line of bars, one column each
 *
 * Zero is a space, and any value above zero is at least the lowest bar, so that small values remain
 * visible. Use the same `max` for all rows of a table, so that their bars can be compared.
 *                                                                [test-present-table: sparkline]
 */
#pragma once

#include "arch/base.h"

#include <stddef.h>
#include <stdint.h>

#define SPARKLINE_COLUMNS 24

/* Returns a string of n columns (g_free), in ASCII if the locale has no block characters. Values
 * that are negative or not finite are shown as 0. */
char *sparkline(const double *values, size_t n, double max) MUST_CHECK;

/* Returns the title of a column of sparklines, such as "0-4.01 s"; a new string. */
char *sparkline_range(int64_t from_ns, int64_t to_ns) MUST_CHECK;
