/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Probe filter - compares the arguments of a static probe with numbers
 *
 *     arg1 == 3 && (arg2 > 4096 || !(arg3 & 0x10))
 *
 * The operators are ==, !=, <, <=, >, >= and & (any of these bits is set). Numbers are integers.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct probe_number {
	uint64_t value; /* is_float: the bits of a double; else an integer */
	bool is_signed, is_float;
	bool is_known;
};

enum probe_verdict {
	PROBE_FILTER_NO,
	PROBE_FILTER_YES,
	PROBE_FILTER_UNKNOWN, /* the verdict depends on an argument that is not known */
	PROBE_FILTER_INVALID,
};

/* Evaluates a filter for arguments arg1, arg2, …; *ret_at: position of the error in an invalid
 * filter. Apart from the text, only n and is_float determine whether a filter is invalid. */
enum probe_verdict probe_filter_test(const char *filter, const struct probe_number *numbers,
				     unsigned n, const char **ret_at);
