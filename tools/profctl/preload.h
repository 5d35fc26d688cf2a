/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

/* The options of `profctl record --memory`. */
struct preload_memory {
	bool wanted;
	uint64_t sample_bytes; /* mean bytes between recorded allocations; 0: record all */
	uint64_t min_bytes;    /* ignore smaller allocations */
	bool mmap;             /* record mappings too */
};

/* Environment of the command. */
struct preload {
	char *library;  /* NULL: none; becomes first in LD_PRELOAD */
	char *settings; /* value of PROF_MEMORY */
};

/* Finds the library and checks that it can be preloaded, if allocations are wanted. Fails with
 * CLI_ERROR. preload_done() must be called in every case. */
bool preload_init(struct preload *preload, const struct preload_memory *memory, GError **error);
void preload_done(struct preload *preload);
/* Sets the environment variables. Must be called in the child, before exec. */
void preload_set(const struct preload *preload);
