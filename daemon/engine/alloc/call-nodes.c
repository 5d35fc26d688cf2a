/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Call nodes - the stacks of a process's allocations, as a tree
 *
 * Each producer announces nodes of its own tree. This file merges these trees into one for the
 * process, so that equal stacks of all producers share a node. Nodes are immutable: if a producer
 * announces an id again, the id refers to another node. Each epoch of the capture numbers stacks
 * anew; a node stores its stack's id in the last epoch that wrote it.
 * Invariants: (1) stacks of equal frames share a node  [test-engine-heap-stacks: nodes]
 *             (2) an epoch contains every stack that it refers to, with all frames
 *                 [test-engine-heap-stacks: epochs]
 *             (3) the tree takes no memory beyond its budget  [test-engine-heap: limits]
 * Runs on the drain thread only.
 */
#include "daemon/engine/alloc/call-nodes.h"

#include "arch/base.h"
#include "base/hash.h"

#include <assert.h>
#include <string.h>

#define FIRST_NODES 256u
#define FIRST_IDS 256u
#define MAX_IMAGES (1u << 18)
#define MAX_DEPTH (OUTPUT_MAX_PATH - 1u)
#define PART 64u /* frames per output call */

static_assert(sizeof(struct call_node) == 24, "bytes of a node");
static_assert(MAX_DEPTH < 1u << 12, "call_node.depth");

void call_nodes_init(struct call_nodes *nodes, uint64_t seed, struct heap_budget *budget)
{
	*nodes = (struct call_nodes){
		.seed = seed,
		.budget = budget,
		.images = g_ptr_array_new_with_free_func((GDestroyNotify)row_unref),
		.numbers = g_hash_table_new(g_direct_hash, g_direct_equal),
	};
}

/* Returns the bytes of n_nodes nodes and of twice as many slots. */
static uint64_t bytes_of(uint32_t n_nodes)
{
	return (uint64_t)n_nodes * (sizeof(struct call_node) + 2 * sizeof(struct call_slot));
}

void call_nodes_done(struct call_nodes *nodes)
{
	heap_budget_release(nodes->budget, bytes_of(nodes->room));
	free(nodes->nodes);
	free(nodes->slots);
	g_ptr_array_free(nodes->images, TRUE);
	g_hash_table_destroy(nodes->numbers);
	*nodes = (struct call_nodes){ 0 };
}

/* Returns the image's number; UINT32_MAX if there are too many images. */
static uint32_t number_of(struct call_nodes *nodes, struct row *image)
{
	gpointer number;

	if (image == nodes->last_image)
		return nodes->last_number;
	if (!g_hash_table_lookup_extended(nodes->numbers, image, NULL, &number)) {
		if (nodes->images->len == MAX_IMAGES)
			return UINT32_MAX;
		number = GUINT_TO_POINTER(nodes->images->len);
		g_ptr_array_add(nodes->images, row_ref(image));
		g_hash_table_insert(nodes->numbers, image, number);
	}
	nodes->last_image = image;
	nodes->last_number = GPOINTER_TO_UINT(number);
	return nodes->last_number;
}

static uint32_t hash_node(const struct call_nodes *nodes, const struct call_node *node)
{
	uint64_t a = node->offset ^ nodes->seed,
		 b = ((uint64_t)node->parent << 32 | node->image << 1 | node->kind) + nodes->seed;

	return hash_fold(hash_words(a, b));
}

static bool grow(struct call_nodes *nodes)
{
	uint32_t room = MAX_OF(nodes->room * 2, FIRST_NODES), mask = 2 * room - 1;
	struct call_node *grown;
	struct call_slot *slots;

	if (room > UINT32_MAX / 4 || !heap_budget_reserve(nodes->budget, bytes_of(room)))
		return false;
	slots = calloc(2 * (size_t)room, sizeof(*slots));
	grown = slots ? realloc(nodes->nodes, room * sizeof(*grown)) : NULL;
	if (!grown) {
		free(slots);
		heap_budget_release(nodes->budget, bytes_of(room));
		return false;
	}
	for (uint32_t i = 0; i < 2 * nodes->room; i++) {
		uint32_t at = nodes->slots[i].hash & mask;

		if (!nodes->slots[i].number)
			continue;
		while (slots[at].number)
			at = (at + 1) & mask;
		slots[at] = nodes->slots[i];
	}
	free(nodes->slots);
	heap_budget_release(nodes->budget, bytes_of(nodes->room));
	nodes->nodes = grown;
	nodes->slots = slots;
	nodes->room = room;
	nodes->mask = mask;
	return true;
}

uint32_t call_nodes_add(struct call_nodes *nodes, uint32_t parent, const struct output_place *place)
{
	uint32_t image = number_of(nodes, place->image);
	uint32_t depth = parent ? nodes->nodes[parent - 1].depth + 1 : 0, hash, i;
	struct call_node node = {
		.offset = place->offset,
		.parent = parent,
		.image = image,
		.kind = place->kind,
		.depth = depth,
		.is_unread = parent ? nodes->nodes[parent - 1].is_unread : 0,
	};
	const struct call_node *known;

	if (image == UINT32_MAX || depth > MAX_DEPTH || (nodes->n == nodes->room && !grow(nodes)))
		return 0;
	hash = hash_node(nodes, &node);
	/* Compare only nodes of equal hash, because reading a node is likely to miss the cache. */
	for (i = hash & nodes->mask; nodes->slots[i].number; i = (i + 1) & nodes->mask) {
		known = &nodes->nodes[nodes->slots[i].number - 1];
		if (nodes->slots[i].hash == hash && known->offset == node.offset &&
		    known->parent == parent && known->image == image && known->kind == node.kind)
			return nodes->slots[i].number;
	}
	nodes->nodes[nodes->n] = node;
	nodes->slots[i] = (struct call_slot){ hash, ++nodes->n };
	return nodes->n;
}

/* Writes the nodes of a path, outermost first. The epoch must already have the parent's stack. */
static void write_part(struct call_nodes *nodes, struct output *output, uint32_t parent,
		       const uint32_t *path, uint32_t n)
{
	struct output_place places[PART];
	uint32_t frames[PART], stacks[PART];
	bool added[PART];

	for (uint32_t i = 0; i < n; i++) {
		const struct call_node *node = &nodes->nodes[path[i] - 1];

		places[i] = (struct output_place){
			.image = g_ptr_array_index(nodes->images, node->image),
			.offset = node->offset,
			.kind = node->kind,
		};
	}
	output_frames(output, places, n, frames, added);
	for (uint32_t i = 0; i < n && nodes->code; i++)
		if (added[i] &&
		    ((const struct image *)places[i].image)->kind == PROF_IMAGE_INTERPRETER)
			interpreted_code_write(nodes->code, places[i].image, places[i].offset);
	output_stacks(output, parent ? nodes->nodes[parent - 1].stack : 0, frames, n, stacks);
	for (uint32_t i = 0; i < n; i++) {
		nodes->nodes[path[i] - 1].stack = stacks[i];
		nodes->nodes[path[i] - 1].epoch = output->epoch;
	}
}

uint32_t call_nodes_write(struct call_nodes *nodes, struct output *output, uint32_t node)
{
	uint32_t path[OUTPUT_MAX_PATH], from = OUTPUT_MAX_PATH, above = node;

	while (above && nodes->nodes[above - 1].epoch != output->epoch) {
		path[--from] = above;
		above = nodes->nodes[above - 1].parent;
	}
	while (from < OUTPUT_MAX_PATH) {
		uint32_t n = MIN_OF(OUTPUT_MAX_PATH - from, PART);

		write_part(nodes, output, above, path + from, n);
		above = path[from + n - 1];
		from += n;
	}
	return node ? nodes->nodes[node - 1].stack : 0;
}

/* ---- Ids ------------------------------------------------------------------------------------- */

void call_ids_done(struct call_ids *ids, struct heap_budget *budget)
{
	heap_budget_release(budget, (uint64_t)ids->n * sizeof(*ids->nodes));
	free(ids->nodes);
	*ids = (struct call_ids){ 0 };
}

bool call_ids_set(struct call_ids *ids, struct heap_budget *budget, uint32_t id, uint32_t node)
{
	uint32_t n = MAX_OF(ids->n, FIRST_IDS), *grown;

	if (id < ids->n) {
		ids->nodes[id] = node;
		return true;
	}
	while (n <= id)
		n *= 2;
	if (!heap_budget_reserve(budget, (uint64_t)(n - ids->n) * sizeof(*grown)))
		return false;
	grown = realloc(ids->nodes, n * sizeof(*grown));
	if (!grown) {
		heap_budget_release(budget, (uint64_t)(n - ids->n) * sizeof(*grown));
		return false;
	}
	memset(grown + ids->n, 0, (n - ids->n) * sizeof(*grown));
	ids->nodes = grown;
	ids->n = n;
	ids->nodes[id] = node;
	return true;
}
