/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "arch/table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UNWIND_FILE_MAX_SEGMENTS 16

/* A code segment: `size` bytes at `offset` in the file, with the ELF address `address`. */
struct unwind_segment {
	uint64_t offset, size, address;
};

/* The parts of an ELF file that are needed to walk its frames. Immutable. */
struct unwind_file {
	struct unwind_segment segments[UNWIND_FILE_MAX_SEGMENTS];
	size_t n_segments;
	uint64_t entry; /* entry point of the program or loader; 0: none */
	struct unwind_table table;
	void *bytes; /* memory of `table` */
	size_t size; /* of both tables, in bytes */
	/* In the rules of base_table, the place of fp is replaced by that of the register `base`
	 * (struct regs). Made only if rules of `table` need this register; otherwise base_bytes is
	 * NULL. */
	struct unwind_table base_table;
	void *base_bytes;
};

/* The bytes of an ELF file. */
struct unwind_source {
	int fd; /* -1: use `bytes` */
	const uint8_t *bytes;
	size_t size; /* of `bytes` */
};

/* Reads the file and compiles its CFI, with at most max_bytes of memory. On failure returns NULL,
 * and *ret_error is ENOEXEC (not an ELF file of this machine), ENODATA (no usable CFI), E2BIG
 * (needs more memory), ENOMEM, or the errno of a failed read. */
struct unwind_file *unwind_file_new(const struct unwind_source *source, uint64_t max_bytes,
				    int *ret_error);
void unwind_file_free(struct unwind_file *file); /* NULL is allowed */

/* Converts a file offset to an ELF address. Returns false if there is no code at the offset. */
bool unwind_file_address(const struct unwind_file *file, uint64_t offset, uint64_t *ret_address);

/* Reads the distance from sp to fp in a function whose CFI computes the CFA from fp. `source`: the
 * file. `address`: in the function's body. During a call with arguments on the stack, the distance
 * is greater. Returns false if it is unknown. */
bool unwind_file_frame_bytes(const struct unwind_file *file, const struct unwind_source *source,
			     uint64_t address, uint32_t *ret_bytes);
