/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Perf map - the names that a program writes of code that it generates: /tmp/perf-PID.map
 *
 * A line "START SIZE NAME" a function, both in hex with or without 0x; the name is the rest of the
 * line (node, OpenJDK, .NET, LuaJIT, Python). Without times: of lines for one address the last one
 * counts. Untrusted text.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct perf_map_entry {
	uint64_t start, size; /* size at least 1; start + size does not overflow */
	const char *name; /* in the text, not terminated; no control characters are promised away */
	size_t name_bytes; /* at least 1 */
};

/* The next line that is one, from *at on; false at the end. Lines that are none are skipped, as
 * is a last one without its end. */
bool perf_map_next(const char *text, size_t bytes, size_t *at, struct perf_map_entry *ret_entry);
