/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/alloc/heap-budget.h"
#include "daemon/engine/model/interpreted-code.h"

/* A node of the call tree, for the stack from its frame to the root. */
struct call_node {
	uint64_t offset;
	uint32_t parent; /* number of the caller's node; 0: a root */
	uint32_t image : 18, kind : 1, depth : 12;
	/* an interpreter's functions could not be read in this frame or in one of its callers */
	uint32_t is_unread : 1;
	uint32_t epoch, stack; /* last epoch that wrote the node, and its stack id in that epoch */
};

struct call_slot {
	uint32_t hash, number; /* number 0: empty slot */
};

/* The stacks of a process as one tree. Nodes are numbered 1, 2, …; a number never changes. */
struct call_nodes {
	struct call_node *nodes; /* number i is at i - 1 */
	struct call_slot *slots;
	uint32_t n, room, mask;
	uint64_t seed;
	struct heap_budget *budget;
	GPtrArray *images;   /* struct row */
	GHashTable *numbers; /* number of an image, by struct row */
	/* names interpreted functions; NULL: interpreted functions get no names */
	struct interpreted_code *code;
	struct row *last_image;
	uint32_t last_number;
};

/* `seed` must be random. `budget` is borrowed. */
void call_nodes_init(struct call_nodes *nodes, uint64_t seed, struct heap_budget *budget);
void call_nodes_done(struct call_nodes *nodes);

/* Returns the node for a frame at `place` that `parent` called (0: the frame is a root), and adds
 * the node if it is new. Returns 0 if there is no room, or if the stack is too deep. */
uint32_t call_nodes_add(struct call_nodes *nodes, uint32_t parent,
			const struct output_place *place);
/* Writes the node's stack if the epoch lacks it. Returns the stack's id in the epoch; 0 for node
 * 0. */
uint32_t call_nodes_write(struct call_nodes *nodes, struct output *output, uint32_t node);
static inline uint32_t call_nodes_stack(struct call_nodes *nodes, struct output *output,
					uint32_t node)
{
	if (node && nodes->nodes[node - 1].epoch == output->epoch)
		return nodes->nodes[node - 1].stack;
	return call_nodes_write(nodes, output, node);
}

/* The ids by which a producer names nodes. */
struct call_ids {
	uint32_t *nodes; /* number of the node by id; 0: the id was not announced */
	uint32_t n;
};

void call_ids_done(struct call_ids *ids, struct heap_budget *budget);
/* Makes `id` refer to `node`. Returns false if there is no room. */
bool call_ids_set(struct call_ids *ids, struct heap_budget *budget, uint32_t id, uint32_t node);
static inline uint32_t call_ids_get(const struct call_ids *ids, uint32_t id)
{
	return id < ids->n ? ids->nodes[id] : 0;
}
