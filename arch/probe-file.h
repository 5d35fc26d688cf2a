/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Probe file - finds the functions and static probes (USDT) of an untrusted ELF file
 *
 * A function is found by its symbol, in the file itself and in its debug file; a static probe by
 * its notes. The result is an offset in the file, where the kernel can place a probe. Places where
 * a probe would harm the program, or would not count what its name says, are refused.
 */
#pragma once

#include "arch/probe-arguments.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROBE_MAX_PLACES 16 /* maximum for one static probe of a file */
#define PROBE_MAX_NAME 256  /* bytes, with the NUL */
#define PROBE_REASON_BYTES 512
#define PROBE_RETURN "%return"

struct probe_place {
	uint64_t offset;    /* file offset */
	uint64_t semaphore; /* file offset of the probe's counter of users; 0: none */
	uint32_t n_arguments;
	uint32_t pad;
	struct probe_argument arguments[PROBE_MAX_ARGUMENTS];
};

/* A function or a static probe. Borrows its strings from the file. */
struct probe_point {
	const char *provider; /* NULL: a function */
	const char *name;
	const char *arguments; /* static probe: as in its note; function: NULL */
	uint64_t address, size;
	uint64_t semaphore; /* address; 0: none */
	bool indirect;      /* the function returns the address of the real one (IFUNC) */
};

struct probe_file;

/* Reads an ELF file. Does not close `fd`, which must stay open as long as the result is used.
 * Returns NULL and the reason, as constant text, if the file has no code that can be probed
 * here. */
struct probe_file *probe_file_new(int fd, const char **ret_reason);
void probe_file_free(struct probe_file *file);
/* Adds the symbols of a separate debug file, if its build-id is that of `file`. */
void probe_file_add_symbols(struct probe_file *file, int debug_fd);
/* Writes the path of the debug file that has the file's build-id. Returns false if the file has no
 * build-id, or the path does not fit. */
bool probe_file_debug_path(const struct probe_file *file, char *ret_path, size_t size);

/* Calls `visit` for each place of each static probe and, with `functions`, for each function; in no
 * particular order. */
void probe_file_each(const struct probe_file *file, bool functions,
		     void (*visit)(const struct probe_point *point, void *data), void *data);

/* Finds the places of "FUNCTION", "FUNCTION%return" or "PROVIDER:NAME", and returns their number.
 * `optimizes_nops`: the kernel replaces a 5-byte nop under a probe by a call. If there is no such
 * name, or if it cannot be probed safely, returns 0, and a sentence without a period in
 * ret_reason. */
unsigned probe_file_find(const struct probe_file *file, const char *name, bool optimizes_nops,
			 struct probe_place ret_places[PROBE_MAX_PLACES],
			 char ret_reason[PROBE_REASON_BYTES]);
