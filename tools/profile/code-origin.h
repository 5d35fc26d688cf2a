/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Code-origin - distinguishes a program's own functions from libraries, and charges samples to own
 * functions
 *
 * A sample in memcmp() does not show which code to improve; the innermost own function on its stack
 * does. Not thread-safe.
 */
#pragma once

#include "tools/common/cct.h"
#include "tools/profile/stacks.h"

/* Origin of a function's code. */
enum code_origin {
	CODE_ORIGIN_OWN,
	/* standard or runtime library of C++ or Rust, including templates instantiated in the
	 * program; code of installed headers; if the capture has functions of an interpreted
	 * language, the interpreter and the installed modules; a library of the system, unless the
	 * program is part of the system */
	CODE_ORIGIN_LIBRARY,
	CODE_ORIGIN_LIBC, /* including the dynamic linker and the vDSO */
	CODE_ORIGIN_KERNEL,
	CODE_ORIGIN_UNKNOWN, /* callers that are missing in a sample */
};
enum code_origin code_origin_of(const struct functions *functions, uint32_t function);

/* Returns the kind of a function for folding a tree. */
enum cct_kind code_origin_cct_kind(const struct functions *functions, uint32_t function);
/* Returns whether a readable name belongs to the standard library of C++ or Rust. */
bool code_origin_is_library(const char *name);

struct own_weights {
	/* counted function << 32 | innermost function → weight; both uint64_t */
	GHashTable *weights;
};

/* Counts each sample for the innermost own function on its stack. Without one, counts it for the
 * innermost function of an interpreted language, because a whole program may consist of installed
 * modules. Must be called for each epoch, after stacks_settle() with functions as entities. The
 * first call allocates. */
void own_weights_count(struct own_weights *own, const struct functions *functions,
		       const struct stacks *stacks);
void own_weights_done(struct own_weights *own);

struct own_weight_row {
	uint32_t function, hottest; /* hottest: innermost function with the most weight */
	uint64_t weight, hottest_weight;
};
/* Returns struct own_weight_row, greatest weight first; empty if nothing was counted. Unref it. */
GArray *own_weights_rows(const struct own_weights *own) MUST_CHECK;
