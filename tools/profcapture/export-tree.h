/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-tree - the stacks of an export, or of two exports, below the names of their threads
 *
 * A frame is a text or, without `merges_texts`, an entity of the profile. Texts are escaped: they
 * are valid UTF-8 without control characters.
 */
#pragma once

#include "tools/profcapture/export.h"

/* EXPORT_NOW: the values of the only or later capture. EXPORT_BEFORE: those of the earlier one. */
enum { EXPORT_NOW, EXPORT_BEFORE, EXPORT_SIDES };

/* In a comparison, this frame represents all threads whose name only one of the captures has,
 * because a program may have been renamed. */
#define EXPORT_RENAMED "<renamed>"

struct export_frame {
	char *text;
	const struct export *export; /* first export with this frame; NULL: a thread's name */
	uint32_t function;           /* index, in `export`, of the first function with this text */
};

struct export_node {
	uint32_t parent, frame;
	struct amount self[EXPORT_SIDES], total[EXPORT_SIDES];
};

struct export_tree {
	const struct export *sides[EXPORT_SIDES]; /* the second is NULL without a comparison */
	/* factor for the earlier values that makes the totals of both captures equal; 1 for
	 * allocations */
	double scale;
	GPtrArray *frames; /* struct export_frame */
	GArray *nodes; /* struct export_node; 0 is the root, a parent comes before its children */
	/* The children of a node, largest first: order[children[node]] to
	 * order[children[node + 1] - 1]. */
	uint32_t *order, *children;
	/* the rest is private */
	struct number_map of; /* parent and frame → node */
	GHashTable *texts; /* function's text, or '\n' and thread's text → index of a frame + 1 */
	uint32_t *known;   /* by entity of the export being added: index of a frame + 1 */
	bool merges_texts;
};

/* Builds the tree from the export and the one that it is compared with. */
void export_tree_init(struct export_tree *tree, const struct export *export, bool merges_texts);
void export_tree_done(struct export_tree *tree);

static inline const struct export_node *export_node_at(const struct export_tree *tree,
						       uint32_t index)
{
	return &((const struct export_node *)(void *)tree->nodes->data)[index];
}

/* Returns a side's value (export_value_of()), scaled. */
double export_tree_value(const struct export_tree *tree, const struct amount *amounts,
			 unsigned side);
