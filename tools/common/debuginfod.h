/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Debuginfod - debug files from the servers that DEBUGINFOD_URLS names
 *
 * libdebuginfod keeps what it fetched, and what no server has, in its cache: what was asked for
 * once is not asked for again.
 */
#pragma once

#include "arch/base.h"
#include "tools/common/elf-image.h"

#include <glib.h>

/* dlopen(3) finds it or not; no program is linked with it. */
#define DEBUGINFOD_LIBRARY "libdebuginfod.so.1"

struct debuginfod;

/* Why nothing is asked any more. */
enum debuginfod_end {
	DEBUGINFOD_GOES_ON,
	DEBUGINFOD_TIME_OVER,
	DEBUGINFOD_INTERRUPTED, /* by Ctrl-C */
	DEBUGINFOD_DIED,        /* the process that asks ended */
};

/* How it went, each build-id once. */
struct debuginfod_counts {
	uint64_t found, found_bytes;
	uint64_t missing; /* no server has it */
	uint64_t refused; /* something came that is not that file */
	uint64_t failed;  /* not reached, too large, cut off */
	uint64_t left;    /* not waited for, or not asked for any more */
	int error;        /* the last of `failed`: -errno, 0 = none */
	enum debuginfod_end end;
};

/*
 * A process that asks; to be called while the caller has one thread. All requests together have the
 * time, which begins with the first of them. The first Ctrl-C from now on ends the asking, a second
 * one means what it meant. An error where the user named no server, or the library cannot be
 * loaded.
 */
struct debuginfod *debuginfod_new(uint64_t budget_ns, GError **error);
void debuginfod_free(struct debuginfod *servers);

/* A debug_files_fetch: the debug file of that build-id, checked to have it. Threads wait for
 * each other. */
struct elf_image *debuginfod_fetch(const uint8_t *id, size_t size, char **ret_path, void *servers);

/* After the last fetch. */
struct debuginfod_counts debuginfod_get_counts(const struct debuginfod *servers);
