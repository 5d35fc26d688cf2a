/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What the finished capture says about a recording. `fd` is the capture, readable. */

/* The samples of the recording, which is the last segment. */
struct record_samples {
	uint64_t unresolved; /* whose innermost function has no name */
	unsigned threads, processes;
};
/* Reads all samples. CLI_ERROR. */
bool record_capture_samples(int fd, struct record_samples *ret_samples, GError **error);

struct record_allocations {
	uint64_t n;
	bool knows_live;     /* every process has its own heap, and its end was recorded */
	uint64_t live_bytes; /* at the ends of the processes */
};
/* False: the capture has no allocations, or cannot be read. */
bool record_capture_allocations(int fd, struct record_allocations *ret_allocations);

/* Returns the pids (uint32_t) of processes that `command` started, directly or not, and that still
 * run. Empty if they cannot be determined: the capture is in a pipe, or its pids are of another
 * namespace. */
GArray *record_capture_left(int fd, pid_t command);
