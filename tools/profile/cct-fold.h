/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Cct-fold - joins uninformative frames of a calling-context tree with others
 *
 * A whole call tree is too large to read: most of its nodes are frames of libraries and of the
 * kernel.
 *
 * Folding a tree from the roots down:
 *   - a library frame joins the library frame that called it, so that only the outermost of
 *     consecutive library frames remains. Library functions with much self weight keep their nodes.
 *   - consecutive kernel frames become their system call or, without one, the outermost frame that
 *     is not common entry code. The total of a joined node is the sum of the calls into it.
 * Folding a tree from the hit functions up to their callers: each hit function keeps only its
 * nearest callers in the program's own code.
 *                                                                 [test-cct: libraries, kernel,
 *                                                                 inverted]
 */
#pragma once

#include "arch/base.h"

#include "tools/common/cct.h"

typedef enum cct_kind cct_kind_getter(uint32_t function, const void *data);

/* Returns the folded nodes. */
GArray *cct_fold(const GArray *nodes, cct_kind_getter *kind_of, const void *data, bool is_inverted)
	MUST_CHECK;
