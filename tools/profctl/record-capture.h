/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "tools/profctl/client.h"

#include <sys/types.h>

/* What the finished capture says about a recording. `fd` is the capture, readable. */

/* The samples of the recording, which is the last segment. */
struct record_samples {
	uint64_t unresolved; /* whose innermost function has no name */
	unsigned threads, processes;
};

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

/* Adds names to the capture of a finished session. */
struct record_symbols;

/* Starts on another thread. `fd` and `client` are borrowed until record_symbols_free(); the main
 * loop calls `done`. NULL: no thread can be started. */
struct record_symbols *record_symbols_start(int fd, const char *file, struct client *client,
					    void (*done)(void *data), void *data, GError **error);
/* Skips the remaining files. */
void record_symbols_skip(struct record_symbols *symbols);
/* Call it after `done`. Returns whether the names of all files were added; false without an error
 * after a skip. */
bool record_symbols_finish(struct record_symbols *symbols, struct record_samples *ret_samples,
			   GError **error);
/* Call it only after `done`. */
void record_symbols_free(struct record_symbols *symbols);
