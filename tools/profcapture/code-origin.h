/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Code-origin - which functions a program's authors wrote, and which of them samples belong to
 *
 * A sample in memcmp() says little; the innermost function of the program itself that led there
 * says which code to open. One thread at a time.
 */
#pragma once

#include "tools/profcapture/stacks.h"

/* Where the code of a function comes from. */
enum code_origin {
	CODE_ORIGIN_OWN,
	CODE_ORIGIN_LIBRARY, /* of C++ or Rust, also where a template of it is in the program */
	CODE_ORIGIN_LIBC,    /* with the dynamic linker and the vDSO */
	CODE_ORIGIN_KERNEL,
	CODE_ORIGIN_UNKNOWN, /* no name, or no image */
};
enum code_origin code_origin_of(const struct functions *functions, uint32_t function);

struct own_weights {
	GHashTable *weights; /* uint64_t: own function << 32 | innermost function → uint64_t * */
};

/* Counts each sample for the innermost own function of its stack. After stacks_settle(), for each
 * epoch; entities are functions. The first call allocates. */
void own_weights_count(struct own_weights *own, const struct functions *functions,
		       const struct stacks *stacks);
void own_weights_done(struct own_weights *own);

struct own_weight_row {
	uint32_t function, hottest; /* where most of its samples end: itself, or what it calls */
	uint64_t weight, hottest_weight;
};
/* Returns struct own_weight_row by falling weight; empty if nothing was counted. Unref it. */
GArray *own_weights_rows(const struct own_weights *own) MUST_CHECK;
