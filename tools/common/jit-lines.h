/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * JIT lines - the source lines of generated code, as a jitdump says them
 */
#pragma once

#include <glib.h>
#include <stdint.h>

struct jit_line {
	uint64_t address; /* one that was asked for */
	uint32_t line;    /* from 1 on */
	const char *file; /* of the texts */
};

/*
 * Rows by address, for those of the addresses (sorted, each once) that code of one load only was
 * at, between from_ns and to_ns of the clock of the dump, so that the line holds whenever that was.
 * Where code moves there are none. The bytes are untrusted.
 */
GArray *jit_lines_of_dump(const void *bytes, size_t size, const uint64_t *addresses, size_t n,
			  uint64_t from_ns, uint64_t to_ns, GStringChunk *texts);

/* The first of n sorted addresses that is not below; n: all are. */
size_t jit_first_at(const uint64_t *addresses, size_t n, uint64_t address);
