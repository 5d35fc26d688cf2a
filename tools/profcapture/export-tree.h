/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-tree - the stacks of an export below the names of their threads; of two exports, merged
 *
 * A frame is a text or, if the tree keeps entities, one of the profile's. Texts are escaped: they
 * are valid UTF-8 without control characters.
 */
#pragma once

#include "tools/profcapture/export.h"

/* With one capture, its values are EXPORT_NOW; with two, those of the earlier are EXPORT_BEFORE. */
enum { EXPORT_NOW, EXPORT_BEFORE, EXPORT_SIDES };

/* In a comparison, the frame of all threads with a name that only one of the captures has, because
 * a program may have been renamed. */
#define EXPORT_RENAMED "<renamed>"

struct export_frame {
	char *text;
	const struct export *export; /* the first that had it; NULL: a thread's name */
	uint32_t function;           /* of that export: the first of this text */
};

struct export_node {
	uint32_t parent, frame;
	struct amount self[EXPORT_SIDES], total[EXPORT_SIDES];
};

struct export_tree {
	const struct export *sides[EXPORT_SIDES]; /* the second is NULL without a comparison */
	/* by which the earlier values are multiplied, so that both captures have the same total;
	 * allocations are compared as they are */
	double scale;
	GPtrArray *frames; /* struct export_frame */
	GArray *nodes; /* struct export_node; 0 is the root, a parent comes before its children */
	/* The children of a node, largest first: order[children[node]] to
	 * order[children[node + 1] - 1]. */
	uint32_t *order, *children;
	/* the rest is private */
	struct number_map of; /* parent and frame → node */
	GHashTable *texts; /* text → index of a frame + 1; a thread's begins with a line break */
	uint32_t *known;   /* index of a frame + 1 by entity of the export that is added */
	bool merges_texts;
};

/* Adds the export and what it is compared with. */
void export_tree_init(struct export_tree *tree, const struct export *export, bool merges_texts);
void export_tree_done(struct export_tree *tree);

static inline const struct export_node *export_node_at(const struct export_tree *tree,
						       uint32_t index)
{
	return &((const struct export_node *)(void *)tree->nodes->data)[index];
}

/* Returns the value of an amount of a side (export_value_of()), scaled. */
double export_tree_value(const struct export_tree *tree, const struct amount *amounts,
			 unsigned side);
