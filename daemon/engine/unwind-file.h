/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "arch/table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UNWIND_FILE_MAX_SEGMENTS 16

/* Code of the file: `size` bytes at `offset`, with the ELF address `address`. */
struct unwind_segment {
	uint64_t offset, size, address;
};

/* The parts of an ELF file that are needed to walk its frames. Immutable once created. */
struct unwind_file {
	struct unwind_segment segments[UNWIND_FILE_MAX_SEGMENTS];
	size_t n_segments;
	uint64_t entry; /* the entry point of the program or the loader; 0: none */
	struct unwind_table table;
	void *bytes; /* of the table */
	size_t size;
};

/* The source that an ELF file is read from. */
struct unwind_source {
	int fd;               /* -1: from memory */
	const uint8_t *bytes; /* that memory */
	size_t size;
};

/* Reads the file and compiles its CFI with at most max_bytes of memory. NULL: *ret_error is ENOEXEC
 * (not an ELF file of this machine), ENODATA (no usable CFI), E2BIG (needs more memory), ENOMEM, or
 * the errno of a failed read. */
struct unwind_file *unwind_file_new(const struct unwind_source *source, uint64_t max_bytes,
				    int *ret_error);
void unwind_file_free(struct unwind_file *file); /* takes NULL */

/* Converts an offset in the file to its ELF address. Returns false if there is no code. */
bool unwind_file_address(const struct unwind_file *file, uint64_t offset, uint64_t *ret_address);
