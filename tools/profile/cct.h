/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Cct - a calling-context tree as JSON, and as the lines that people read
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

#include "tools/present/table.h"

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
	char *(*place_of)(uint32_t function, const void *data);      /* g_free(), or NULL */
	const void *data;
	double whole; /* that printed shares are of */
	bool is_inverted;
	bool folds;        /* join chains in which each frame has one caller */
	double min_share;  /* of the root's total; smaller branches get no line of their own */
	uint64_t most;     /* children of a node that get a line; 0 = all */
	unsigned columns;  /* indentation stops at two thirds of them; 0 = never */
	double bold_share; /* a line with this share of the whole as self weight is bold; 0: none */
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

/* Fields of a line, for the columns of a table. */
enum cct_field {
	CCT_TOTAL_SHARE,
	CCT_SELF_SHARE,
	CCT_TOTAL,
	CCT_COUNT,
	CCT_CHANGE,
	CCT_NAME,
	CCT_PLACE
};

/* Prints the tree, folded if options->folds, and below it which branches are not shown. `table` has
 * the columns before the name. `cut`: the caller left out branches. */
void cct_print(const GArray *nodes, const struct cct_options *options, struct table *table,
	       const struct table_style *style, bool cut);

/* A tree in JSON, with each frame. */
struct cct_writer {
	const GArray *nodes;      /* struct cct_node */
	const double *keys;       /* by node; below 0: the node and those below it do not count */
	double least;             /* branches with a smaller key are left out */
	uint64_t most;            /* children of a node; 0 = all */
	GCompareDataFunc compare; /* of two indexes of nodes; passed `data` */
	/* Writes the members of a node, except its children. */
	void (*write)(struct json *json, uint32_t node, unsigned depth, const void *data);
	const void *data;
};

/* Returns whether branches are left out. */
bool cct_is_cut(const struct cct_writer *writer);
/* Writes the member "root". */
void cct_write(const struct cct_writer *writer, struct json *json);
