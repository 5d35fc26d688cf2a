/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Cct - the lines of a calling-context tree that people read
 *
 * A whole call tree is too large to read: most of its nodes are frames of libraries and of the
 * kernel, or belong to branches without weight. cct_fold() joins frames that say little with
 * others, and cct_lines() selects the branches that are worth a line and puts them in order.
 * Both work with two measures, the one that counts (weight, bytes) and the number of things
 * (samples, blocks), and know functions only by index.
 *
 * Folding a tree from the roots down:
 *   - a frame of a library below one of a library joins it, so a run of them becomes the outermost.
 *     Functions of a library with much self weight keep their node.
 *   - a run in the kernel becomes its system call or, if it has none, its outermost frame.
 * Folding a tree from the hit functions up to their callers: each hit function keeps only its
 * nearest callers that the program's authors wrote.
 * Totals are kept: that of a joined node is the sum of what entered it.
 *                                                                            [test-cct: libraries,
 *                                                                            kernel, chain,
 *                                                                            inverted]
 */
#pragma once

#include "tools/common/out.h"

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

/* Node 0 is the root and has no parent; parents come before their children. */
struct cct_node {
	uint32_t parent, function;
	double self, total;             /* of the measure that counts */
	double self_count, total_count; /* samples, blocks */
	uint32_t folded;                /* frames that joined it, each function once */
};

/* The origin of a function. */
enum cct_kind {
	CCT_OWN,     /* the program's own code */
	CCT_LIBRARY, /* libc, the C++ library, a runtime */
	CCT_KERNEL,
	CCT_SYSCALL, /* of the kernel: the function of a system call */
	CCT_UNKNOWN, /* a place that stands for lost or unread frames */
};

struct cct_options {
	enum cct_kind (*kind_of)(uint32_t function, const void *data);
	const char *(*name_of)(uint32_t function, const void *data); /* for equal totals */
	char *(*shown_name)(uint32_t function, const void *data);    /* g_free() */
	const void *data;
	double whole; /* that printed shares are of */
	bool is_inverted;
	bool folds;       /* join chains in which each frame has one caller */
	double min_share; /* of the root's total; smaller branches get no line of their own */
	uint64_t most;    /* children of a node that get a line; 0 = all */
	unsigned columns; /* indentation stops at two thirds of them; 0 = never */
};

struct cct_line {
	uint32_t node;   /* 0: the line sums up the hidden branches of a node */
	uint32_t folded; /* frames that joined it */
	uint32_t caller; /* inverted: the node of the caller that has all of it; 0 = none */
	double hidden, hidden_count; /* with node 0: the totals of the hidden branches */
	uint32_t n_hidden; /* and how many; 0 = unknown, because the caller left some out */
	char *prefix;      /* branch lines */
};

/* Nodes deeper than this get no line. */
#define CCT_MAX_DEPTH 256

/* Returns a new array of nodes (g_array_unref). */
GArray *cct_fold(const GArray *nodes, const struct cct_options *options) MUST_CHECK;
/* Returns the lines in the order of printing, for g_array_unref(). Stores in *ret_hides whether
 * nodes of the array have no line, except those that joined others. */
GArray *cct_lines(const GArray *nodes, const struct cct_options *options, bool *ret_hides)
	MUST_CHECK;

/* Returns "shop::worker  +3", "kernel: futex  +20", "memcmp < shop::Stats::add  +8", or how many
 * branches the line hides, with their share of the whole. Free with g_free(). */
char *cct_describe(const GArray *nodes, const struct cct_line *line,
		   const struct cct_options *options) MUST_CHECK;
/* Prints below the lines which branches are not shown, if any. */
void cct_print_end(struct out *out, const struct cct_options *options, bool hides);
