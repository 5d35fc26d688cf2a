/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "arch/table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UNWIND_FILE_MAX_SEGMENTS 16

/* Code of the file: `size` bytes at `offset`, which its addresses call `address`. */
struct unwind_segment {
	uint64_t offset, size, address;
};

/* What is needed of an ELF file to walk through its frames. Does not change once it is made. */
struct unwind_file {
	struct unwind_segment segments[UNWIND_FILE_MAX_SEGMENTS];
	size_t n_segments;
	uint64_t entry; /* where the program, or the loader, begins; 0: nowhere */
	struct table table;
	void *bytes; /* of the table */
	size_t size;
};

/* Where an ELF file is read from. */
struct unwind_source {
	int fd;               /* -1: from memory */
	const uint8_t *bytes; /* that memory */
	size_t size;
};

/* Reads the file and compiles its CFI with at most max_bytes of memory. NULL: it is no ELF file
 * of this machine, has no usable CFI, needs more memory, or cannot be read; *ret_error says
 * which: ENOEXEC, ENODATA, E2BIG, ENOMEM, an errno. */
struct unwind_file *unwind_file_new(const struct unwind_source *source, uint64_t max_bytes,
				    int *ret_error);
void unwind_file_free(struct unwind_file *file); /* takes NULL */

/* What the file calls the place that is `offset` bytes into it; false where no code is. */
bool unwind_file_address(const struct unwind_file *file, uint64_t offset, uint64_t *ret_address);
