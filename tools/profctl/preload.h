/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

/* What `profctl record --memory` asks for. */
struct preload_memory {
	bool wanted;
	uint64_t sample_bytes; /* one allocation for about so many bytes is recorded; 0: each is */
	uint64_t min_bytes;    /* smaller ones are not */
	bool mmap;             /* mappings too */
};

/* What a command's environment is to say. */
struct preload {
	char *library;  /* NULL: none; stands first in LD_PRELOAD */
	char *settings; /* PROF_MEMORY */
};

/* Looks for the library, which is there and can be preloaded, or CLI_ERROR. preload_done() in
 * every case. */
bool preload_init(struct preload *preload, const struct preload_memory *memory, GError **error);
void preload_done(struct preload *preload);
/* In the child, before exec. */
void preload_set(const struct preload *preload);
