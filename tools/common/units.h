/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Units - parses numbers as people write them on a command line
 *
 * All parsers read the whole string, are independent of the locale, and exact (no floating point).
 * On failure they return false with a CLI_ERROR of code CLI_USAGE that names the accepted forms,
 * and leave *ret_ unchanged.
 */
#pragma once

#include "arch/base.h"

#include <glib.h>

/* Accepts "10" (seconds), "1.5", "500ms", "2m", "1h", also ns us s min d. */
bool units_parse_duration(const char *text, uint64_t *ret_ns, GError **error);
/* Accepts "4096", "64K", "64KiB", "1.5M", "1G", "2T": powers of 1024. */
bool units_parse_size(const char *text, uint64_t *ret_bytes, GError **error);
/* Accepts a decimal integer in min..max, both included. */
bool units_parse_uint(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value,
		      GError **error);

enum units_time_kind {
	UNITS_TIME_UNSET,
	UNITS_TIME_START, /* ns after the start of the capture */
	UNITS_TIME_END,   /* ns before the end of the capture: "-5s" */
	UNITS_TIME_MARK,  /* at the mark with this name: "@mark:NAME" */
};

struct units_time {
	enum units_time_kind kind;
	uint64_t ns;
	const char *mark; /* interned, never freed */
};

struct units_range {
	struct units_time from, to;
};

bool units_parse_time(const char *text, struct units_time *ret_time, GError **error);
/* Accepts "A..B", "A..", "..B", or a single time, which is the start. A bound that is not given
 * stays unchanged in *ret_range. */
bool units_parse_range(const char *text, struct units_range *ret_range, GError **error);
