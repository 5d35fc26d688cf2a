/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "tools/profctl/client.h"

/* Adding names to the capture of a session that has finished. */
struct record_symbols;

/* Starts on another thread. `fd` and `client` are borrowed until record_symbols_free(); `done`
 * comes from the main loop. NULL: no thread can be started. */
struct record_symbols *record_symbols_start(int fd, const char *file, struct client *client,
					    void (*done)(void *data), void *data, GError **error);
/* Leaves out the files that are still to come. */
void record_symbols_skip(struct record_symbols *symbols);
/* After `done`: whether the names of all files were added. False without error: it was told to
 * skip. *ret_unresolved: the samples of this recording whose innermost function has no name. */
bool record_symbols_finish(struct record_symbols *symbols, uint64_t *ret_unresolved,
			   GError **error);
/* After `done`, or never. */
void record_symbols_free(struct record_symbols *symbols);
