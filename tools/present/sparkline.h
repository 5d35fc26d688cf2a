/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Sparkline - values over time as a line of bars, one column each
 *
 * Zero is a space, and anything above it at least the lowest bar, so that little is not taken for
 * nothing. The same `max` for all rows of a table makes their bars comparable.
 *                                                                [test-present-table: sparkline]
 */
#pragma once

#include "arch/base.h"

#include <stddef.h>
#include <stdint.h>

#define SPARKLINE_COLUMNS 24

/* Returns a string of n columns (g_free), in ASCII if the locale has nothing else. Values that are
 * negative or not finite are shown as 0. */
char *sparkline(const double *values, size_t n, double max) MUST_CHECK;

/* "0-4.01 s": the title of a column of sparklines; a new string. */
char *sparkline_range(int64_t from_ns, int64_t to_ns) MUST_CHECK;
