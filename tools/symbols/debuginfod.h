/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Debuginfod - fetches debug files from the servers in DEBUGINFOD_URLS
 *
 * libdebuginfod caches the files that it fetched, and the misses, so nothing is requested twice.
 */
#pragma once

#include "arch/base.h"
#include "tools/symbols/elf-image.h"

#include <glib.h>

/* Loaded with dlopen(3); no program is linked with it. */
#define DEBUGINFOD_LIBRARY "libdebuginfod.so.1"

struct debuginfod;

/* Why requests ended early. */
enum debuginfod_end {
	DEBUGINFOD_GOES_ON,
	DEBUGINFOD_TIME_OVER,
	DEBUGINFOD_INTERRUPTED, /* by Ctrl-C */
	DEBUGINFOD_DIED,        /* the child process ended */
};

/* Results; each build-id is counted once. */
struct debuginfod_counts {
	uint64_t found, found_bytes;
	uint64_t missing; /* no server has it */
	uint64_t refused; /* the file that arrived is not the requested one */
	uint64_t failed;  /* server unreachable, file too large, or transfer interrupted */
	uint64_t left;    /* abandoned while waiting, or never requested */
	int error;        /* last error of those in `failed`: -errno; 0: none */
	enum debuginfod_end end;
};

/*
 * Starts the child process; call it while the caller has one thread. `budget_ns`: limit for all
 * requests together, from the first one on. After this call, the first Ctrl-C ends the requests;
 * the second has its usual effect. Fails if the user named no server or the library cannot be
 * loaded.
 */
struct debuginfod *debuginfod_new(uint64_t budget_ns, GError **error);
void debuginfod_free(struct debuginfod *servers);

/* A debug_files_fetch: returns the file after checking its build-id. Fetches one file at a time;
 * other threads wait. */
struct elf_image *debuginfod_fetch(const uint8_t *id, size_t size, char **ret_path, void *servers);

/* Call this after the last fetch. */
struct debuginfod_counts debuginfod_get_counts(const struct debuginfod *servers);
