/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Debuginfod - debug files from the servers that DEBUGINFOD_URLS names
 *
 * libdebuginfod caches the files that it fetched and the misses, so nothing is requested twice.
 */
#pragma once

#include "arch/base.h"
#include "tools/symbols/elf-image.h"

#include <glib.h>

/* Loaded with dlopen(3); no program is linked with it. */
#define DEBUGINFOD_LIBRARY "libdebuginfod.so.1"

struct debuginfod;

/* Why requests ended. */
enum debuginfod_end {
	DEBUGINFOD_GOES_ON,
	DEBUGINFOD_TIME_OVER,
	DEBUGINFOD_INTERRUPTED, /* by Ctrl-C */
	DEBUGINFOD_DIED,        /* the child process ended */
};

/* The results; each build-id counts once. */
struct debuginfod_counts {
	uint64_t found, found_bytes;
	uint64_t missing; /* no server has it */
	uint64_t refused; /* the file that came is not the requested one */
	uint64_t failed;  /* server unreachable, file too large, or transfer cut off */
	uint64_t left;    /* not waited for, or never requested */
	int error;        /* the last of `failed`: -errno, 0 = none */
	enum debuginfod_end end;
};

/*
 * Starts the child process; call it while the caller has one thread. `budget_ns` is for all
 * requests together and starts with the first. From now on the first Ctrl-C ends the requests; the
 * second has its usual effect. Fails if the user named no server or the library cannot be loaded.
 */
struct debuginfod *debuginfod_new(uint64_t budget_ns, GError **error);
void debuginfod_free(struct debuginfod *servers);

/* A debug_files_fetch: returns the debug file after checking that it has that build-id. Threads
 * wait for each other. */
struct elf_image *debuginfod_fetch(const uint8_t *id, size_t size, char **ret_path, void *servers);

/* Call it after the last fetch. */
struct debuginfod_counts debuginfod_get_counts(const struct debuginfod *servers);
