/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "tools/profctl/client.h"

#include <stdatomic.h>
#include <sys/types.h>

/* Facts about a recording from its finished capture. `fd`: the capture, open for reading. */

/* Samples of the recording, which is the last segment. */
struct record_samples {
	uint64_t unresolved; /* samples whose innermost function has no name */
	unsigned threads, processes;
};

struct record_allocations {
	uint64_t n;
	bool knows_live;     /* false: a heap inherited blocks, or allocations were not recorded */
	uint64_t live_bytes; /* bytes that were live when the processes ended */
};

/* Returns the time from the start of the recording to its last row, in ns, as the readers of the
 * capture show it; 0 if the capture cannot be read, for example from a pipe. */
uint64_t record_capture_length(int fd);
/* Returns false if the capture has no allocations or cannot be read. */
bool record_capture_allocations(int fd, struct record_allocations *ret_allocations);

/* Returns the pids (uint32_t) of running processes that `command` started, directly or not. Empty
 * if unknown: the capture is in a pipe, or its pids are from another namespace. */
GArray *record_capture_left(int fd, pid_t command);

/* Adds names to the capture of a finished session on another thread, and runs the loop meanwhile.
 * If *skip becomes true, the remaining files are skipped. Returns whether the names of all files
 * were added; returns false without an error after a skip. If other code quits the loop, the
 * process must exit. */
bool record_capture_symbolize(int fd, const char *file, struct client *client, GMainLoop *loop,
			      const atomic_bool *skip, struct record_samples *ret_samples,
			      GError **error);
