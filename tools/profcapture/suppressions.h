/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Suppressions - leaks that nobody wants to hear of, in LeakSanitizer's format
 *
 * A line is `leak:PATTERN`, empty, or a comment that begins with #. A leak is left out if a
 * function, image or source file of any frame matches. In a pattern * stands for anything, ^ and $
 * for the ends; without these it may match inside.
 */
#pragma once

#include "tools/profcapture/memory-tree.h"

struct suppression {
	char *pattern;
	double bytes, blocks; /* that it left out */
};

struct suppressions {
	GArray *all; /* struct suppression; NULL: none */
	/* uint32_t: index + 2 of what matches, 1: nothing does, 0: not asked yet */
	GArray *of_function;
	GArray *of_node; /* the same, of the stack */
};

/* Adds those of a file. What is no such line is an error that names it. */
bool suppressions_read(struct suppressions *suppressions, const char *file, GError **error);
void suppressions_done(struct suppressions *suppressions);
/* The one that matches a stack, or NULL. */
struct suppression *suppressions_find(struct suppressions *suppressions,
				      const struct memory_tree *tree, uint32_t node);
bool suppression_matches(const char *pattern, const char *text);
