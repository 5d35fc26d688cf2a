/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Tree - writes a calling-context tree as JSON, or prints it as lines of text
 *
 * tree_find_lines() selects the branches that get a line, and sorts them. Both measures of a node
 * are used: the main one (weight, bytes) for sorting and limits, and the count (samples, blocks).
 *                                                                  [test-cct: chain, hidden, rows]
 */
#pragma once

#include "tools/common/cct.h"
#include "tools/present/table.h"

struct tree_options {
	/* used if `folds` */
	enum cct_kind (*kind_of)(uint32_t function, const void *data);
	const char *(*name_of)(uint32_t function, const void *data); /* used to sort equal totals */
	char *(*shown_name)(uint32_t function, const void *data);    /* g_free() the result */
	char *(*place_of)(uint32_t function, const void *data); /* g_free() the result, or NULL */
	const void *data;
	double whole; /* printed shares are relative to it */
	bool is_inverted;
	/* the nodes are folded (cct-fold.h). A frame may share the line of the callee that has
	 * nearly all of the frame's weight; inverted: a function and such a caller share a line */
	bool folds;
	double min_share; /* share of the root's total; smaller branches get no line of their own */
	double sum_share; /* smallest share of a line that sums up hidden branches; 0: min_share */
	uint64_t most;    /* at most this many children of a node get a line; 0 = all */
	uint64_t rows;    /* text: at most this many lines, of the heaviest branches; 0 = all */
	unsigned columns; /* width of the output; indentation stops at two thirds; 0 = no limit */
	double bold_share; /* lines with at least this self share of the whole are bold; 0: none */
};

struct tree_line {
	uint32_t node;   /* 0: the line sums up the hidden children of a node */
	uint32_t folded; /* number of functions that share the line and are not named on it */
	uint32_t caller; /* inverted: node of the caller shown on the same line; 0 = none */
	double hidden, hidden_count; /* if node is 0: totals of the hidden branches */
	/* number of hidden branches; 0 = unknown: the caller of tree_find_lines() left some out */
	uint32_t n_hidden;
	char *prefix; /* line-drawing characters before the name */
};

/* Returns struct tree_line in the order of printing. Free with g_array_unref(). Stores in
 * *ret_hides whether any node is hidden, that is, neither has a line nor shares another node's. */
GArray *tree_find_lines(const GArray *nodes, const struct tree_options *options, bool *ret_hides)
	MUST_CHECK;

/* Fields of a line, for the columns of a table. */
enum tree_field {
	TREE_TOTAL_SHARE,
	TREE_SELF_SHARE,
	TREE_TOTAL,
	TREE_COUNT,
	TREE_CHANGE,
	TREE_NAME,
	TREE_PLACE
};

/* Prints the tree, then which branches are hidden. `table` has the columns before the name. `cut`:
 * the caller left out branches. */
void tree_print(const GArray *nodes, const struct tree_options *options, struct table *table,
		const struct table_style *style, bool cut);

/* Writes a tree with every frame as JSON. */
struct tree_writer {
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
bool tree_is_cut(const struct tree_writer *writer);
/* Writes the member "root". */
void tree_write(const struct tree_writer *writer, struct json *json);
