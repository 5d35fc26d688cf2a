/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Suppressions - patterns of leaks to leave out, in LeakSanitizer's format
 *
 * A line is `leak:PATTERN`, empty, or a comment that begins with #. A leak is left out if the
 * function, image or source file of any frame matches. In a pattern, * matches any text, ^ the
 * beginning, and $ the end. Without ^ and $, the pattern may match anywhere inside.
 */
#pragma once

#include "tools/profcapture/memory-tree.h"

struct suppression {
	char *pattern;
	double bytes, blocks; /* sums of the leaks that it matched */
};

/*
 * Memory that the C, C++ and Python runtimes allocate once and keep until exit. It is recognized by
 * the functions between the allocation and the first function of the program itself.
 */
enum runtime_pool {
	RUNTIME_POOL_EXCEPTIONS,
	RUNTIME_POOL_STDIO,
	RUNTIME_POOL_DTV,
	RUNTIME_POOL_LOCALE,
	RUNTIME_POOL_LOADER,
	RUNTIME_POOL_PYTHON,
	RUNTIME_POOLS
};

struct suppressions {
	GArray *all;                            /* struct suppression; NULL: none */
	struct memory_sum pools[RUNTIME_POOLS]; /* leaks in each pool */
	GByteArray *pool_of_node;               /* by node: pool + 1; 0: not known yet */
	/* uint32_t by function: index + 2 of the match; 1: no match; 0: not known yet */
	GArray *of_function;
	GArray *of_node; /* uint32_t by node: like of_function, for the node's stack */
};

/* Adds the suppressions of a file. Fails on an invalid line; the message has the line number. */
bool suppressions_read(struct suppressions *suppressions, const char *file, GError **error);
void suppressions_done(struct suppressions *suppressions);
/* Returns the suppression that matches a stack, or NULL. */
struct suppression *suppressions_find(struct suppressions *suppressions,
				      const struct memory_tree *tree, uint32_t node);
/* Returns the pool to which a stack belongs, or RUNTIME_POOLS. */
enum runtime_pool suppressions_pool(struct suppressions *suppressions, struct memory_tree *tree,
				    uint32_t node);
const char *runtime_pool_name(enum runtime_pool pool); /* not translated */
/* Sets the sums of all suppressions and pools to 0. */
void suppressions_reset(struct suppressions *suppressions);
bool suppression_matches(const char *pattern, const char *text);
