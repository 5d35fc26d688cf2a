/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * JIT lines - the source lines of generated code from a jitdump
 */
#pragma once

#include <glib.h>
#include <stdint.h>

struct jit_line {
	uint64_t address; /* one of the requested addresses */
	uint32_t line;    /* from 1 */
	const char *file; /* in the texts */
};

/*
 * Returns rows by address for the addresses (sorted, each once) that held code of only one load
 * between from_ns and to_ns of the dump's clock, so that the line is right at any time between.
 * Moved code gets no rows. The bytes are untrusted.
 */
GArray *jit_lines_of_dump(const void *bytes, size_t size, const uint64_t *addresses, size_t n,
			  uint64_t from_ns, uint64_t to_ns, GStringChunk *texts);

/* Returns the index of the first of n sorted addresses that is not below; n if all are. */
size_t jit_first_at(const uint64_t *addresses, size_t n, uint64_t address);
