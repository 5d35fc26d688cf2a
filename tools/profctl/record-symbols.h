/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "tools/profctl/client.h"
#include "tools/profctl/record-capture.h"

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
