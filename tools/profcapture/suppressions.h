/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Suppressions - leaks to leave out, in LeakSanitizer's format
 *
 * A line is `leak:PATTERN`, empty, or a comment that begins with #. A leak is left out if a
 * function, image or source file of any frame matches. In a pattern, * matches any text, and ^ and
 * $ match the ends. Without ^ and $, a pattern may match inside.
 */
#pragma once

#include "tools/profcapture/memory-tree.h"

struct suppression {
	char *pattern;
	double bytes, blocks; /* of the leaks that it matched */
};

struct suppressions {
	GArray *all; /* struct suppression; NULL: none */
	/* uint32_t: index + 2 of the match, 1: no match, 0: not known yet */
	GArray *of_function;
	GArray *of_node; /* the same, for the stack of a node */
};

/* Adds the suppressions of a file. An invalid line is an error that contains the line's number. */
bool suppressions_read(struct suppressions *suppressions, const char *file, GError **error);
void suppressions_done(struct suppressions *suppressions);
/* Returns the suppression that matches a stack, or NULL. */
struct suppression *suppressions_find(struct suppressions *suppressions,
				      const struct memory_tree *tree, uint32_t node);
bool suppression_matches(const char *pattern, const char *text);
