/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Cct - writes a calling-context tree as JSON, or prints it as lines of text
 *
 * A whole call tree is too large to read: most of its nodes are frames of libraries and of the
 * kernel, or belong to branches without weight. cct_fold() joins uninformative frames with others.
 * cct_lines() selects the branches that get a line, and sorts them. Both use two measures: the main
 * one (weight, bytes), for sorting and limits, and the count (samples, blocks). They identify
 * functions by index.
 *
 * Folding a tree from the roots down:
 *   - a library frame joins the library frame above it, so that only the outermost of consecutive
 *     ones remains. Library functions with much self weight keep their node.
 *   - consecutive kernel frames become their system call or, without one, the outermost frame that
 *     not every system call passes through.
 * Folding a tree from the hit functions up to their callers: each hit function keeps only its
 * nearest callers in the program's own code. The total of a joined node is the sum of the calls
 * into it.
 *                                                                            [test-cct: libraries,
 *                                                                            kernel, chain,
 *                                                                            inverted]
 */
#pragma once

#include "tools/present/table.h"

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

/* Node 0 is the root. Parents come before their children. */
struct cct_node {
	uint32_t parent, function;
	double self, total;             /* main measure */
	double self_count, total_count; /* samples, blocks */
	uint32_t folded;                /* number of functions whose frames joined it */
};

/* The origin of a function. */
enum cct_kind {
	CCT_OWN,     /* the program's own code */
	CCT_LIBRARY, /* libc, the C++ library, a runtime */
	CCT_KERNEL,
	CCT_ENTRY,   /* kernel function that every system call passes through */
	CCT_SYSCALL, /* kernel function of a system call */
	CCT_UNKNOWN, /* represents lost or unread frames */
};

struct cct_options {
	enum cct_kind (*kind_of)(uint32_t function, const void *data);
	const char *(*name_of)(uint32_t function, const void *data); /* used to sort equal totals */
	char *(*shown_name)(uint32_t function, const void *data);    /* g_free() the result */
	char *(*place_of)(uint32_t function, const void *data); /* g_free() the result, or NULL */
	const void *data;
	double whole; /* printed shares are relative to it */
	bool is_inverted;
	bool folds;       /* join a frame with its only callee; inverted: with its only caller */
	double min_share; /* share of the root's total; smaller branches get no line of their own */
	double sum_share; /* smallest share of a line that sums up hidden ones; 0: min_share */
	uint64_t most;    /* at most this many children of a node get a line; 0 = all */
	uint64_t rows;    /* text: at most this many lines, of the heaviest branches; 0 = all */
	unsigned columns; /* width of the output; indentation stops at two thirds; 0 = no limit */
	double bold_share; /* smallest self share of the whole for bold lines; 0: none */
};

struct cct_line {
	uint32_t node;   /* 0: the line sums up the hidden children of a node */
	uint32_t folded; /* like cct_node.folded */
	uint32_t caller; /* inverted: node of the only caller, shown on the same line; 0 = none */
	double hidden, hidden_count; /* if node is 0: totals of the hidden branches */
	/* number of hidden branches; 0 = unknown: the caller of cct_lines() left some out */
	uint32_t n_hidden;
	char *prefix; /* line-drawing characters before the name */
};

/* Nodes deeper than this get no line. */
#define CCT_MAX_DEPTH 256

GArray *cct_fold(const GArray *nodes, const struct cct_options *options) MUST_CHECK;
/* Returns struct cct_line in the order of printing. Free with g_array_unref(). Stores in *ret_hides
 * whether a node has no line, other than those that joined others. */
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

/* Prints the tree, folded if options->folds, then which branches are hidden. `table` has the
 * columns before the name. `cut`: the caller left out branches. */
void cct_print(const GArray *nodes, const struct cct_options *options, struct table *table,
	       const struct table_style *style, bool cut);

/* Writes a tree with every frame as JSON. */
struct cct_writer {
	const GArray *nodes; /* struct cct_node */
	/* indexed by node; negative: leave out the node and its subtree */
	const double *keys;
	double least;             /* branches with a smaller key are left out */
	uint64_t most;            /* at most this many children of a node; 0 = all */
	GCompareDataFunc compare; /* compares two node indexes; gets `data` */
	/* Writes the members of a node, except its children. */
	void (*write)(struct json *json, uint32_t node, unsigned depth, const void *data);
	const void *data;
};

/* Returns whether branches are left out. */
bool cct_is_cut(const struct cct_writer *writer);
/* Writes the member "root". */
void cct_write(const struct cct_writer *writer, struct json *json);
