/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Interp-runtime - the interpreter in an ELF file
 *
 * Interpreters export the symbols that are needed to find their state, even from stripped programs
 * and from programs that embed them. The file's bytes are not trusted.
 */
#pragma once

#include "daemon/interp-protocol.h"

#include <stdint.h>

enum interp_found {
	INTERP_FOUND_NONE, /* no interpreter was found in the file */
	INTERP_FOUND,
	INTERP_OTHER_VERSION,
	INTERP_OTHER_BUILD, /* the interpreter's state is not where the known builds have it */
};

/* Code of a function. */
struct interp_range {
	uint64_t start, size;
};

#define INTERP_PERL_CALLERS 2u

/* Addresses are those of the file. */
struct interp_runtime {
	enum interp_family family;
	unsigned minor;                       /* as in interp_major(); 0: unknown */
	uint64_t addresses[INTERP_ADDRESSES]; /* as in struct interp_process */
	uint64_t eval, eval_size;             /* the function that executes frames */
	/* Perl: `again` executes the frames of `eval` again, because an exception may return to it;
	 * `main` executes the main program; `callers` call a sub from C */
	struct interp_range again, main, callers[INTERP_PERL_CALLERS];
	uint64_t code_bias; /* address of code, less its offset in the file */
	enum interp_found found;
};

/* Fills in `family` and `minor` even if the version is not supported. Returns
 * ret_runtime->found. */
enum interp_found interp_runtime_find(int fd, struct interp_runtime *ret_runtime);
/* Fills in the addresses in a process. `bias`: difference from the addresses in the file. */
void interp_runtime_locate(const struct interp_runtime *runtime, uint64_t bias,
			   uint64_t ret_addresses[INTERP_ADDRESSES]);
