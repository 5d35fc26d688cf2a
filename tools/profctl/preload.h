/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

/* The options of `profctl record --memory`. */
struct preload_memory {
	bool wanted;
	uint64_t sample_bytes; /* record one allocation in about so many bytes; 0: record each */
	uint64_t min_bytes;    /* ignore smaller ones */
	bool mmap;             /* record mappings too */
};

/* The environment of the command. */
struct preload {
	char *library;  /* NULL: none; goes first in LD_PRELOAD */
	char *settings; /* PROF_MEMORY */
};

/* Finds the library and checks that it can be preloaded, or CLI_ERROR. Call preload_done() in every
 * case. */
bool preload_init(struct preload *preload, const struct preload_memory *memory, GError **error);
void preload_done(struct preload *preload);
/* Call it in the child, before exec. */
void preload_set(const struct preload *preload);
