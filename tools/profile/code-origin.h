/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Code-origin - which functions a program's authors wrote, and which of them samples belong to
 *
 * A sample in memcmp() says little; the innermost function of the program itself that led there
 * says which code to open. One thread at a time.
 */
#pragma once

#include "tools/profile/cct.h"
#include "tools/profile/stacks.h"

/* Origin of a function's code. */
enum code_origin {
	CODE_ORIGIN_OWN,
	CODE_ORIGIN_LIBRARY, /* of C++ or Rust; also a template instantiated in the program */
	CODE_ORIGIN_LIBC,    /* including the dynamic linker and the vDSO */
	CODE_ORIGIN_KERNEL,
	CODE_ORIGIN_UNKNOWN, /* the callers that a sample does not have */
};
enum code_origin code_origin_of(const struct functions *functions, uint32_t function);

/* Returns what folding a tree has to know of it. */
enum cct_kind code_origin_cct_kind(const struct functions *functions, uint32_t function);
/* Returns whether a function of this readable name is of the library of C++ or Rust. */
bool code_origin_is_library(const char *name);

struct own_weights {
	GHashTable *weights; /* uint64_t: own function << 32 | innermost function → uint64_t * */
};

/* Counts each sample for the innermost own function of its stack. Call it after stacks_settle(),
 * for each epoch; entities are functions. The first call allocates. */
void own_weights_count(struct own_weights *own, const struct functions *functions,
		       const struct stacks *stacks);
void own_weights_done(struct own_weights *own);

struct own_weight_row {
	uint32_t function, hottest; /* hottest: where most of its samples end */
	uint64_t weight, hottest_weight;
};
/* Returns struct own_weight_row by descending weight; empty if nothing was counted. Unref it. */
GArray *own_weights_rows(const struct own_weights *own) MUST_CHECK;
