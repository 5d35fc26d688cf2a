/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Call tree - sends the stack of a record as a node of a call tree
 *
 * A node is identified by a hash of all its frames. A table of at most 4 MiB holds the nodes that
 * were sent. When the table is full, all nodes are dropped, and sent again under ids from 1 on.
 * They are also dropped in a new epoch, when the ring gets another owner, and after a module was
 * unloaded, because the same address may belong to another function then.
 * Frames that unwind_cache_walk() reports as unchanged already have nodes, so an unchanged stack
 * needs no lookup. Otherwise only the innermost frame is looked up: if its node was sent, the nodes
 * of all callers were sent too.
 * Invariants: (1) an id is sent in its epoch, by the same owner, before the first record that uses
 *                 it
 *                 [test-call-tree: stacks, epochs, bigger]
 *             (2) a node's image was sent in the same epoch  [test-call-tree: stacks]
 *             (3) memory is bounded: the tree, and 4 MiB for the table  [test-call-tree: evicted]
 *             (4) errno does not change  [test-call-tree: stacks]
 */
#include "libcollector/hooks/call-tree.h"

#include <errno.h>
#include <sys/mman.h>

#define FIRST_SLOTS (1u << 12)
#define MAX_SLOTS (1u << 18)
#define MAX_NODES (MAX_SLOTS / 4 * 3)
#define ROOT_FRAMES (CALL_TREE_MAX_DEPTH - CALL_TREE_INNER)
static_assert(MAX_NODES < RING_MAX_CALLS, "ids");

struct node_definition {
	struct producer *producer;
	struct call_tree *tree;
	uint32_t n;      /* frames, outermost first */
	uint32_t parent; /* node of the first frame's caller */
};

/* ---- Memory ---- */

static void *map(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		return NULL;
	madvise(at, bytes, MADV_NOHUGEPAGE);
	return at;
}

static bool make_tree(struct producer *producer)
{
	struct call_tree *tree = register_self.no_syscall ? NULL : map(sizeof(*tree));

	if (!tree)
		return false;
	tree->slots = map(FIRST_SLOTS * sizeof(*tree->slots));
	if (!tree->slots) {
		munmap(tree, sizeof(*tree));
		return false;
	}
	tree->n_slots = FIRST_SLOTS;
	producer->calls = tree;
	return true;
}

/* ---- Nodes ---- */

static struct call_tree_slot *find_slot(const struct call_tree *tree, uint64_t hash)
{
	for (uint64_t i = hash;; i++) {
		struct call_tree_slot *slot = &tree->slots[i & (tree->n_slots - 1)];

		if (slot->hash == hash || slot->generation != tree->generation)
			return slot;
	}
}

static inline uint32_t find(const struct call_tree *tree, uint64_t hash)
{
	const struct call_tree_slot *slot = find_slot(tree, hash);

	return slot->generation == tree->generation ? slot->id : 0;
}

/* Drops all nodes. If siglongjmp() interrupts this, remaining nodes are still of one generation. */
static void invalidate_nodes(struct call_tree *tree)
{
	unwind_cache_invalidate_nodes(&tree->calls);
	RING_SIGNAL_FENCE();
	tree->generation += tree->generation == UINT32_MAX ? 2 : 1;
	tree->n_nodes = 0;
}

/* Doubles the table. Drops all nodes if there is no memory for a larger one. */
static void grow(struct call_tree *tree)
{
	struct call_tree_slot *before = tree->slots, *slots;
	uint32_t n = tree->n_slots;

	slots = register_self.no_syscall ? NULL : map(2 * n * sizeof(*slots));
	if (!slots) {
		invalidate_nodes(tree);
		return;
	}
	tree->slots = slots;
	tree->n_slots = 2 * n;
	for (uint32_t i = 0; i < n; i++)
		if (before[i].generation == tree->generation)
			*find_slot(tree, before[i].hash) = before[i];
	munmap(before, n * sizeof(*before));
}

/* ---- Frames ---- */

/* Returns 0 if the frame has no node. */
static inline uint32_t node_of(const struct call_tree *tree, struct unwind_cache_frame *frame)
{
	if (frame->node == 0)
		frame->node = find(tree, frame->hash);
	return frame->node;
}

/* Collects the frames that have no node in the tree. If the stack was too deep, also collects all
 * frames between the cut and the innermost one. */
static void get_frames(struct call_tree *tree, uint32_t n_known, uint32_t n_outer,
		       struct node_definition *ret_definition)
{
	const struct unwind_cache_frame *from = tree->calls.frames;
	uint32_t i = n_known, n = 0;
	uint64_t hash = n_outer > 0 ? from[n_outer - 1].hash : 0;

	ret_definition->parent = i > 0 ? from[i - 1].node : 0;
	for (; i < n_outer; i++)
		tree->frames[n++] =
			(struct call_tree_frame){ from[i].hash, from[i].pc, from[i].flags, 0 };
	i = n_outer < tree->calls.n ? tree->calls.n - CALL_TREE_INNER : n_outer;
	for (bool is_first = true; i < tree->calls.n; i++, is_first = false) {
		uint32_t flags = from[i].flags | (is_first ? UNWIND_CACHE_CUT : 0);

		hash = unwind_cache_hash(hash, from[i].pc, flags);
		tree->frames[n++] = (struct call_tree_frame){ hash, from[i].pc, flags, 0 };
	}
	ret_definition->n = n;
}

static uint64_t place_of(const struct call_tree_frame *frame)
{
	return frame->pc - (frame->flags & UNWIND_CACHE_EXACT || frame->pc == 0 ? 0 : 1);
}

static struct ring_frame make_frame(const struct self_maps *code,
				    const struct call_tree_frame *from)
{
	const struct self_maps_range *range = code ? self_maps_find(code, place_of(from)) : NULL;
	struct ring_frame frame = {
		.offset = from->pc,
		.kind = (from->flags & UNWIND_CACHE_EXACT ? 0 : RING_FRAME_RETURN) |
			(from->flags & UNWIND_CACHE_CUT ? RING_FRAME_CUT : 0),
	};

	/* A reader looks up a frame without an image by its address alone. Set NO_FILE if another
	 * module may be there by then: if any was ever unloaded. */
	if (range && range->image == 0 && (!range->was_loaded || self_unwind_generation() != 0))
		frame.kind |= RING_FRAME_NO_FILE;
	if (range && range->image != 0) {
		frame.offset = from->pc - range->start + range->file_offset;
		frame.image = range->image;
	}
	return frame;
}

/* ---- Sending ---- */

/* Writes as many frames as fit into one record. */
static enum message_outcome write_some(const struct node_definition *definition,
				       const struct self_maps *code, uint32_t from,
				       uint32_t *ret_to)
{
	struct producer *producer = definition->producer;
	struct call_tree *tree = definition->tree;
	struct ring *ring = producer->current;
	uint64_t room = (ring->most_bytes - sizeof(struct ring_calls)) / sizeof(struct ring_frame);
	uint32_t n = (uint32_t)MIN_OF((uint64_t)(definition->n - from), room);
	uint32_t version = code ? code->version : 0;
	size_t bytes = sizeof(struct ring_calls) + n * sizeof(struct ring_frame);
	struct ring_calls *calls = ring_begin(ring, RING_CALLS, bytes);
	struct ring_frame *frames;

	if (!calls)
		return MESSAGE_LOST;
	if (message_is_other(producer, producer->calls_epoch) ||
	    (code && code->version != version)) {
		message_waste(ring, calls, bytes);
		return MESSAGE_AGAIN;
	}
	*calls = (struct ring_calls){
		.first = tree->n_nodes + 1,
		.parent = from > 0 ? tree->frames[from - 1].id : definition->parent,
		.n_frames = n,
	};
	frames = (struct ring_frame *)(calls + 1);
	for (uint32_t i = 0; i < n; i++) {
		tree->frames[from + i].id = ++tree->n_nodes;
		frames[i] = make_frame(code, &tree->frames[from + i]);
	}
	ring_end(ring, calls);
	*ret_to = from + n;
	return MESSAGE_WRITTEN;
}

/* Returns whether every frame is in a module that was sent or that cannot be identified, and that
 * was checked after the last unload of a module. */
static bool are_known(const struct node_definition *definition, uint32_t from, uint32_t stamp)
{
	const struct self_maps *code = &definition->producer->code;
	const struct self_maps_range *range = NULL;

	if (code->epoch != definition->producer->calls_epoch)
		return false;
	for (uint32_t i = from; i < definition->n; i++) {
		uint64_t place = place_of(&definition->tree->frames[i]);

		if (range && place >= range->start && place < range->end)
			continue;
		range = self_maps_find(code, place);
		if (!range || range->stamp != stamp || (range->image == 0 && !range->was_loaded))
			return false;
	}
	return true;
}

static enum message_outcome define_images(const struct node_definition *definition, uint32_t from)
{
	struct call_tree *tree = definition->tree;
	const struct self_maps_stack stack = { tree->places, definition->n - from,
					       definition->n - from };
	uint32_t stamp = tree->own_generation + 1;
	enum message_outcome outcome;

	if (are_known(definition, from, stamp))
		return MESSAGE_WRITTEN;
	for (uint32_t i = from; i < definition->n; i++)
		tree->places[i - from] = (const void *)(uintptr_t)place_of(&tree->frames[i]);
	outcome = stack_define_images(definition->producer, definition->producer->calls_epoch,
				      &stack);
	if (outcome == MESSAGE_WRITTEN)
		self_maps_stamp(&definition->producer->code, &stack, stamp);
	return outcome;
}

static enum message_outcome define_nodes(const struct node_definition *definition, uint32_t from)
{
	struct producer *producer = definition->producer;
	struct self_maps *code = producer->current->flags & RING_NO_SYSCALL ? NULL
									    : &producer->code;
	enum message_outcome outcome = code ? define_images(definition, from) : MESSAGE_WRITTEN;

	/* A module was replaced, so the walk used the wrong rules. */
	if (code && code->n_replaced != definition->tree->n_replaced) {
		definition->tree->n_replaced = code->n_replaced;
		self_unwind_invalidate();
		return MESSAGE_AGAIN;
	}
	for (uint32_t to; outcome == MESSAGE_WRITTEN && from < definition->n; from = to) {
		outcome = write_some(definition, code, from, &to);
		if (outcome != MESSAGE_WRITTEN)
			break;
		for (uint32_t i = from; i < to; i++) /* the sent frames are now nodes */
			*find_slot(definition->tree, definition->tree->frames[i].hash) =
				(struct call_tree_slot){ definition->tree->frames[i].hash,
							 definition->tree->generation,
							 definition->tree->frames[i].id };
	}
	return outcome;
}

/* Makes ids valid for this producer, this epoch, and the loaded code. */
static void prepare(struct producer *producer)
{
	struct call_tree *tree = producer->calls;
	uint32_t epoch = message_get_epoch(producer), own = self_unwind_generation();

	if (producer->calls_epoch != epoch) {
		invalidate_nodes(tree);
		/* The ring's new owner may be another thread, whose stack is not in the cache. */
		tree->calls.own = (struct self_unwind){ .quiet = call_tree_quiet(producer) };
		unwind_cache_clear(&tree->calls);
		RING_SIGNAL_FENCE();
		producer->calls_epoch = epoch;
	}
	if (tree->own_generation != own) {
		invalidate_nodes(tree);
		RING_SIGNAL_FENCE();
		tree->own_generation = own;
	}
}

/* Finds the node of a stack that is too deep or has an unsent frame; sends the missing nodes. */
static enum message_outcome find_or_define(struct producer *producer, uint32_t *ret_id)
{
	struct node_definition definition = { producer, producer->calls, 0, 0 };
	struct call_tree *tree = producer->calls;
	enum message_outcome outcome = MESSAGE_WRITTEN;
	uint32_t n_outer = tree->calls.n, generation = tree->generation, n_known, n = 0;

	/* A deep stack without its root keeps only its innermost frames. */
	if (n_outer > CALL_TREE_MAX_DEPTH)
		n_outer = tree->calls.frames[0].flags & UNWIND_CACHE_CUT ? 0 : ROOT_FRAMES;
	for (n_known = n_outer; n_known > 0; n_known--)
		if (node_of(tree, &tree->calls.frames[n_known - 1]) != 0)
			break;

	if (n_known == tree->calls.n) {
		*ret_id = tree->calls.frames[n_known - 1].node;
		return MESSAGE_WRITTEN;
	}
	if (tree->n_nodes + CALL_TREE_MAX_DEPTH > MAX_NODES)
		invalidate_nodes(tree);
	while (tree->n_nodes + CALL_TREE_MAX_DEPTH > tree->n_slots / 4 * 3 &&
	       tree->n_slots < MAX_SLOTS)
		grow(tree);
	if (tree->generation != generation)
		n_known = 0;
	get_frames(tree, n_known, n_outer, &definition);
	while (n < definition.n && (tree->frames[n].id = find(tree, tree->frames[n].hash)) != 0)
		n++;
	if (n < definition.n)
		outcome = define_nodes(&definition, n);
	if (outcome != MESSAGE_WRITTEN)
		return outcome;
	for (uint32_t i = n_known; i < n_outer; i++)
		tree->calls.frames[i].node = tree->frames[i - n_known].id;
	*ret_id = tree->frames[definition.n - 1].id;
	return MESSAGE_WRITTEN;
}

/* Uses the completed walk if `is_walked`. Walks again if a handler or an unloaded module made it
 * invalid. */
static __attribute__((noinline)) uint32_t get_slowly(struct producer *producer,
						     const struct walk_registers *caller,
						     bool is_walked)
{
	enum message_outcome outcome = MESSAGE_AGAIN;
	int error = errno;
	uint32_t id = 0;

	if (producer->n_types <= RING_CALLS || (!producer->calls && !make_tree(producer)))
		return 0;
	for (int i = 0; i < MESSAGE_TRIES && outcome == MESSAGE_AGAIN; i++) {
		if (!is_walked) {
			prepare(producer);
			unwind_cache_walk(&producer->calls->calls, caller);
		}
		if (call_tree_is_ready(producer))
			outcome = find_or_define(producer, &id);
		is_walked = false;
	}
	errno = error;
	return outcome == MESSAGE_WRITTEN ? id : 0;
}

uint32_t call_tree_get(struct producer *producer, const struct walk_registers *caller)
{
	struct call_tree *tree = producer->calls;
	uint32_t n, node = call_tree_recall(producer, caller->pc, caller->sp, caller->fp);

	if (__builtin_expect(node != 0, 1))
		return node;
	if (__builtin_expect(!call_tree_is_ready(producer), 0))
		return get_slowly(producer, caller, false);
	n = unwind_cache_walk(&tree->calls, caller);
	/* n is 0 if modules kept being unloaded during the walk. */
	if (__builtin_expect(n > 0 && n <= CALL_TREE_MAX_DEPTH, 1)) {
		node = node_of(tree, &tree->calls.frames[n - 1]);
		if (__builtin_expect(node != 0, 1)) {
			unwind_cache_remember(&tree->calls, node);
			return node;
		}
	}
	return get_slowly(producer, caller, true);
}
