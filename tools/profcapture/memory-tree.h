/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-tree - the allocation stacks, as one call tree over all epochs
 *
 * A stack id is valid only within an epoch, but a block may outlive many epochs. So each requested
 * stack becomes a node here, identified by its parent and its function (or source line, if
 * `functions` distinguishes lines). Node 0 is the parent of the roots. Node 1 means no stack, node
 * 2 a stack that the capture lost.
 */
#pragma once

#include "tools/common/cct.h"
#include "tools/profcapture/reader.h"
#include "tools/profile/stacks.h"

#include <string.h>

#define MEMORY_NODE_NONE 1u
#define MEMORY_NODE_LOST 2u

struct memory_node {
	uint32_t parent, function; /* function: an entity of `functions` */
	/* function that blocks of this stack are charged to: the leaf, or the caller of C++ new;
	 * with by_caller, an index in `sites` */
	uint32_t site;
	uint32_t own; /* the innermost node at or above this one in the program's own code, or 0 */
	uint32_t callee; /* the node directly below `own` on this path; 0: none, or this is `own` */
};

/* A function of the program and the library function through which it allocates. */
struct memory_site {
	uint32_t callee; /* FUNCTION_NO_STACK: the program's function itself allocates */
	uint32_t own;    /* FUNCTION_NO_STACK: no function of the program is on the stack */
	uint32_t place;  /* entity (function or line) that calls or allocates; 0: several */
};

struct memory_sum {
	double bytes, blocks;
};

/* Nodes by row of one epoch's table of stacks; 0 = not requested yet. */
struct memory_epoch {
	uint32_t number;
	struct names_epoch *names;
	struct stacks *stacks;
	uint32_t *nodes;
	size_t n;
};

struct memory_tree {
	struct reader *reader;
	/* patterns (suppressions.h) of functions that allocate for their callers, or NULL */
	const GPtrArray *through;
	struct functions *functions;
	GArray *nodes; /* struct memory_node, a parent before its children */
	struct number_map index;
	struct memory_epoch epochs[2];
	unsigned next;
	bool is_borrowed; /* the caller owns `functions` */
	bool by_caller;   /* charge blocks to sites; must be set before the first node */
	GArray *sites;    /* struct memory_site */
	struct number_map site_index; /* callee and own → index + 1 */
	GArray *path; /* uint32_t: rows of a stack that need nodes; scratch, empty between calls */
	GByteArray *kinds; /* by function: KIND_* bits: allocator, own code; 0: unknown yet */
};

bool memory_tree_init(struct memory_tree *tree, struct reader *reader, const GPtrArray *through,
		      GError **error);
/* Borrows `functions`, which the caller frees. Leaves `through` NULL. */
void memory_tree_init_with(struct memory_tree *tree, struct reader *reader,
			   struct functions *functions);
void memory_tree_done(struct memory_tree *tree);

static inline const struct memory_node *memory_node_at(const struct memory_tree *tree,
						       uint32_t index)
{
	return &((const struct memory_node *)(void *)tree->nodes->data)[index];
}

static inline const struct memory_site *memory_site_at(const struct memory_tree *tree,
						       uint32_t index)
{
	return &((const struct memory_site *)(void *)tree->sites->data)[index];
}

/* Returns whether the function only allocates for its callers, as C++'s new does. */
bool memory_tree_is_allocator(struct memory_tree *tree, uint32_t function);
/* Returns the node to which blocks of a node are charged: the nearest node at or above it whose
 * function does not only allocate for its callers. */
uint32_t memory_tree_caller(struct memory_tree *tree, uint32_t node);

/* Loads the epoch if needed. `names` must be the epoch whose rows are being read. Returns NULL on
 * error. */
struct memory_epoch *memory_tree_epoch(struct memory_tree *tree, struct names_epoch *names,
				       GError **error);
/* Returns the node of a stack id. Generated code gets the names that were valid at that time. */
uint32_t memory_tree_node(struct memory_tree *tree, struct memory_epoch *epoch, uint64_t stack,
			  uint32_t segment, uint64_t time);

/*
 * Adds up the sums of nodes by site or function. Elements missing from `sums` count as 0. `self`:
 * blocks charged to the site or function. `total`: blocks with the function anywhere on their
 * stack, each once. Resizes `self` to the number of sites or functions, and `total` to that of
 * functions.
 */
void memory_tree_by_function(const struct memory_tree *tree, const GArray *sums, GArray *self,
			     GArray *total);
/* Returns a copy in which each node's sum includes those of its callees. */
GArray *memory_tree_totals(const struct memory_tree *tree, const GArray *sums);

/* Returns the byte at an index. Grows the array with zeros if needed. */
static inline uint8_t *memory_byte_at(GByteArray *bytes, uint32_t index)
{
	guint before = bytes->len;

	if (index >= before) {
		g_byte_array_set_size(bytes, index * 2 + 64);
		memset(bytes->data + before, 0, bytes->len - before);
	}
	return &bytes->data[index];
}

static inline struct memory_sum memory_sum_at(const GArray *sums, uint32_t index)
{
	return index < sums->len ? g_array_index(sums, struct memory_sum, index)
				 : (struct memory_sum){ 0 };
}

static inline void memory_sum_add(struct memory_sum *to, double bytes, double blocks)
{
	to->bytes += bytes;
	to->blocks += blocks;
}

static inline struct memory_sum *memory_sum_of(GArray *sums, uint32_t index)
{
	if (index >= sums->len)
		g_array_set_size(sums, index + 1);
	return &((struct memory_sum *)(void *)sums->data)[index];
}
