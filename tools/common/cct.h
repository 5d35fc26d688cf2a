/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Cct - the nodes of a calling-context tree, which has one node for each path of functions
 *
 * The nodes are an array of structs whose first two members are uint32_t: the index of the parent,
 * and a function. What a function is depends on the tree: an inlined call, a line, a thread's name.
 * Node 0 is the root. A parent comes before its children.
 */
#pragma once

#include "tools/common/number-map.h"

#include <glib.h>

/* Renderers do not show nodes deeper than this. Few JSON readers accept more nesting. */
#define CCT_MAX_DEPTH 256

/* A node for printing a tree. */
struct cct_node {
	uint32_t parent, function;
	double self, total;             /* main measure: weight, bytes */
	double self_count, total_count; /* samples, blocks */
	uint32_t folded;                /* merged functions; in an inverted tree, omitted frames */
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

static inline bool cct_is_kernel(enum cct_kind kind)
{
	return kind == CCT_KERNEL || kind == CCT_ENTRY || kind == CCT_SYSCALL;
}

/* Returns the child of a node for a function. If the node has none, appends one; `nodes` must clear
 * new elements. `index` (parent and function → node) has only nodes that cct_child() added. */
uint32_t cct_child(GArray *nodes, struct number_map *index, uint32_t parent, uint32_t function);

/* The children of each node, in lists in the order of the nodes. */
struct cct_children {
	uint32_t *first, *next; /* by node; 0 = none */
};

struct cct_children cct_children_new(const GArray *nodes);
void cct_children_done(struct cct_children *children);
