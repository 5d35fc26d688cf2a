/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Perf map - the names that a program writes for its generated code: /tmp/perf-PID.map
 *
 * Each function has a line "START SIZE NAME", both numbers in hex with or without 0x; the name is
 * the rest of the line (node, OpenJDK, .NET, LuaJIT, Python). There are no times: the last line for
 * an address counts. Untrusted text.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct perf_map_entry {
	uint64_t start, size; /* size at least 1; start + size does not overflow */
	const char *name;     /* in the text, not terminated; may contain control characters */
	size_t name_bytes;    /* at least 1 */
};

/* Returns the next valid line from *at; false at the end. Invalid lines are skipped, and so is a
 * last line without a newline. */
bool perf_map_next(const char *text, size_t bytes, size_t *at, struct perf_map_entry *ret_entry);
