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
 *
 * In a Python program, the functions that the interpreter executes are frames, too, after the frame
 * of the C function that executes them, as in daemon/engine/interp/interp-merge.h. These frames
 * change without a change of the native stack. So they are read each time, and the node is found by
 * the hashes of the native and of the Python frames.
 * Invariants: (1) an id is sent in its epoch, by the same owner, before the first record that uses
 *                 it
 *                 [test-call-tree: stacks, epochs, bigger]
 *             (2) a node's image was sent in the same epoch  [test-call-tree: stacks]
 *             (3) memory is bounded: the tree, and 4 MiB for the table  [test-call-tree: evicted]
 *             (4) errno does not change  [test-call-tree: stacks]
 *             (5) a code object is sent in its epoch before the first node that refers to it
 *                 [test_python_memory: callers]
 */
#include "libcollector/hooks/call-tree.h"

#include <errno.h>
#include <sys/mman.h>

#define FIRST_SLOTS (1u << 12)
#define MAX_SLOTS (1u << 18)
#define MAX_NODES (MAX_SLOTS / 4 * 3)
#define ROOT_FRAMES (CALL_TREE_MAX_DEPTH - CALL_TREE_INNER)
#define CODE_SALT UINT64_C(0x636f6465) /* so that no code object's hash is that of a stack */
#define ABOVE_ALL UINT32_MAX           /* python_frame.native: further out than all native frames */
#define UNREADABLE UINT64_MAX          /* call_tree_frame.pc: the Python frames are unreadable */
static_assert(MAX_NODES < RING_MAX_CALLS, "ids");

struct node_definition {
	struct producer *producer;
	struct call_tree *tree;
	uint32_t n;      /* number of frames in tree->frames, outermost first */
	uint32_t parent; /* node of the first frame's caller */
	bool has_code;   /* some frames are Python functions */
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

/* Drops all nodes. If siglongjmp() interrupts this, the nodes that the frames still have are
 * valid. */
static void invalidate_nodes(struct call_tree *tree)
{
	unwind_cache_invalidate_nodes(&tree->calls);
	RING_SIGNAL_FENCE();
	tree->generation += tree->generation == UINT32_MAX ? 2 : 1;
	tree->n_nodes = 0;
}

/* Doubles the table. Drops all nodes if no larger table can be mapped. */
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

/* Makes room for n ids; may drop all nodes to do so. */
static inline void make_room(struct call_tree *tree, uint32_t n)
{
	if (tree->n_nodes + n > MAX_NODES)
		invalidate_nodes(tree);
	while (tree->n_nodes + n > tree->n_slots / 4 * 3 && tree->n_slots < MAX_SLOTS)
		grow(tree);
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
 * frames from the cut to the innermost one. */
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

/* *range: the range of an earlier frame, or NULL; this frame often has the same range. */
static struct ring_frame make_frame(const struct self_maps *code,
				    const struct call_tree_frame *from,
				    const struct self_maps_range **range)
{
	const struct self_maps_range *found = *range;
	const uint64_t place = place_of(from);
	struct ring_frame frame = {
		.offset = from->pc,
		.kind = (from->flags & UNWIND_CACHE_EXACT ? 0 : RING_FRAME_RETURN) |
			(from->flags & UNWIND_CACHE_CUT ? RING_FRAME_CUT : 0),
	};

	if (__builtin_expect((from->flags & CALL_TREE_CODE) != 0, 0))
		return (struct ring_frame){
			.offset = (uint32_t)from->pc,
			.image = (uint32_t)(from->pc >> 32),
			.kind = RING_FRAME_CODE | (frame.kind & RING_FRAME_CUT),
		};
	if (code && !(found && place >= found->start && place < found->end))
		*range = found = self_maps_find(code, place);
	/* A reader looks up a frame without an image by its address, at a later time. Set NO_FILE
	 * if the loader had no module there, or if another module may be at the address at that
	 * time, which is possible after any unload. */
	if (found && found->image == 0 && (!found->was_loaded || self_unwind_generation() != 0))
		frame.kind |= RING_FRAME_NO_FILE;
	if (found && found->image != 0) {
		frame.offset = from->pc - found->start + found->file_offset;
		frame.image = found->image;
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
	const struct self_maps_range *range = NULL;
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
		frames[i] = make_frame(code, &tree->frames[from + i], &range);
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
		if (definition->tree->frames[i].flags & CALL_TREE_CODE)
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
	struct self_maps_stack stack = { .pcs = tree->places };
	uint32_t stamp = tree->own_generation + 1;
	enum message_outcome outcome;

	if (are_known(definition, from, stamp))
		return MESSAGE_WRITTEN;
	for (uint32_t i = from; i < definition->n; i++)
		if (!(tree->frames[i].flags & CALL_TREE_CODE))
			tree->places[stack.n++] =
				(const void *)(uintptr_t)place_of(&tree->frames[i]);
	stack.n_exact = stack.n;
	outcome = stack_define_images(definition->producer, definition->producer->calls_epoch,
				      &stack);
	if (outcome == MESSAGE_WRITTEN)
		self_maps_stamp(&definition->producer->code, &stack, stamp);
	return outcome;
}

/* ---- Code objects ---- */

static enum message_outcome define_code(struct producer *producer, const struct python_frame *frame,
					uint32_t *ret_id)
{
	struct call_tree *tree = producer->calls;
	uint64_t hash = hash_words(frame->identity, CODE_SALT);
	struct ring *ring = producer->current;
	struct python_code code;
	struct ring_code *to;
	size_t bytes;

	*ret_id = find(tree, hash);
	if (*ret_id != 0)
		return MESSAGE_WRITTEN;
	python_measure(&tree->python, frame, ring->most_bytes - sizeof(code.head), &code);
	bytes = sizeof(code.head) + code.head.n_bytes;
	to = ring_begin(ring, RING_CODE, bytes);
	if (!to)
		return MESSAGE_LOST;
	if (message_is_other(producer, producer->calls_epoch)) {
		message_waste(ring, to, bytes);
		return MESSAGE_AGAIN;
	}
	code.head.id = *ret_id = ++tree->n_nodes;
	*to = code.head;
	python_copy(&tree->python, &code, (uint8_t *)(to + 1));
	ring_end(ring, to);
	*find_slot(tree, hash) = (struct call_tree_slot){ hash, tree->generation, *ret_id };
	return MESSAGE_WRITTEN;
}

/* Sends the frames' code objects that were not sent yet. */
static enum message_outcome define_codes(const struct node_definition *definition, uint32_t from)
{
	struct call_tree *tree = definition->tree;
	enum message_outcome outcome = MESSAGE_WRITTEN;

	for (uint32_t i = from; i < definition->n && outcome == MESSAGE_WRITTEN; i++) {
		struct call_tree_frame *frame = &tree->frames[i];
		const struct python_frame *python;
		uint32_t id = 0;

		if (!(frame->flags & CALL_TREE_CODE))
			continue;
		if (frame->pc == UNREADABLE) {
			frame->pc = 0;
			continue;
		}
		python = &tree->python.frames[frame->pc];
		outcome = define_code(definition->producer, python, &id);
		frame->pc = (uint64_t)id << 32 | python->position;
	}
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
	if (outcome == MESSAGE_WRITTEN && definition->has_code)
		outcome = define_codes(definition, from);
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

/* Finds the node of a stack, and sends the nodes that were not sent yet. */
static enum message_outcome find_or_define(struct producer *producer, uint32_t *ret_id)
{
	struct node_definition definition = { .producer = producer, .tree = producer->calls };
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
	make_room(tree, CALL_TREE_MAX_DEPTH);
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

/* ---- Stacks with Python functions ---- */

/* Finds the native frame that executes each run (see python-frames.h): the frame whose part of the
 * stack contains the run's address. Returns false if a run has no such frame. */
static bool place_by_address(struct python_chain *chain, const struct unwind_cache_frame *native,
			     uint32_t n)
{
	bool has_root = !(native[0].flags & UNWIND_CACHE_CUT);
	uint32_t at = n - 1, first = 0;

	for (uint32_t i = 0; i < chain->n; i++) {
		const struct python_frame *last = &chain->frames[i];
		uint32_t place = ABOVE_ALL;

		if (!last->ends_run && i + 1 < chain->n)
			continue;
		if (last->ends_run) {
			while (at > 0 && last->at >= native[at - 1].sp)
				at--;
			if (last->at < native[at].sp)
				return false;
			/* The outermost known frame may end below the address. A root evaluates
			 * nothing, so the run then belongs to another stack. */
			if (at == 0 && has_root)
				return false;
			place = at > 0 ? at : ABOVE_ALL;
		}
		while (first <= i)
			chain->frames[first++].native = place;
	}
	return true;
}

/* Like place_by_address(), for versions up to 3.10, where each run is one frame. Matches the runs
 * one by one with the native frames of the evaluating function, from the root on. */
static bool place_by_function(struct python_chain *chain, const struct unwind_cache_frame *native,
			      uint32_t n)
{
	uint32_t left = chain->n;

	if (chain->is_cut || (native[0].flags & UNWIND_CACHE_CUT))
		return false;
	for (uint32_t i = 0; i < n && left > 0; i++) {
		uint64_t pc = native[i].pc - !(native[i].flags & UNWIND_CACHE_EXACT);

		if (pc >= python_interpreter.eval && pc < python_interpreter.eval_end)
			chain->frames[--left].native = i;
	}
	return left == 0;
}

/* Appends the Python functions that this native frame executes, outermost first. *n_left: number of
 * Python frames that are not appended yet. */
static uint32_t add_functions(struct call_tree *tree, uint32_t n, uint32_t native, uint32_t *n_left)
{
	const struct python_chain *chain = &tree->python;

	for (; *n_left > 0 && chain->frames[*n_left - 1].native == native; --*n_left) {
		const struct python_frame *from = &chain->frames[*n_left - 1];
		uint32_t flags = CALL_TREE_CODE;

		if (from->first_line == 0)
			continue;
		if (*n_left == chain->n && chain->is_cut)
			flags |= UNWIND_CACHE_CUT;
		tree->merged[n++] = (struct call_tree_frame){
			.pc = *n_left - 1,
			.flags = flags,
			.hash = hash_words(from->identity, from->position ^ (uint64_t)flags << 48),
		};
	}
	return n;
}

/* Drops the middle of a stack that is too deep. */
static uint32_t cut_merged(struct call_tree *tree, uint32_t n)
{
	uint32_t n_outer = tree->merged[0].flags & UNWIND_CACHE_CUT ? 0 : ROOT_FRAMES;

	if (n <= CALL_TREE_MAX_DEPTH)
		return n;
	memmove(&tree->merged[n_outer], &tree->merged[n - CALL_TREE_INNER],
		CALL_TREE_INNER * sizeof(*tree->merged));
	tree->merged[n_outer].flags |= UNWIND_CACHE_CUT;
	return n_outer + CALL_TREE_INNER;
}

/* Merges the native and the Python frames. If the Python frames cannot be read or placed, the first
 * frame is UNREADABLE. Returns the number of frames. */
static uint32_t merge(struct call_tree *tree)
{
	struct python_chain *chain = &tree->python;
	const struct unwind_cache_frame *native = tree->calls.frames;
	uint32_t n = 0, n_left = chain->n;
	uint64_t hash = 0;

	if (!chain->is_unreadable && python_interpreter.layout->frame_owner != INTERP_ABSENT)
		chain->is_unreadable = !place_by_address(chain, native, tree->calls.n);
	else if (!chain->is_unreadable)
		chain->is_unreadable = !place_by_function(chain, native, tree->calls.n);
	if (chain->is_unreadable) {
		n_left = 0;
		tree->merged[n++] =
			(struct call_tree_frame){ CODE_SALT, UNREADABLE, CALL_TREE_CODE, 0 };
	}
	n = add_functions(tree, n, ABOVE_ALL, &n_left);
	for (uint32_t i = 0; i < tree->calls.n; i++) {
		tree->merged[n++] = (struct call_tree_frame){ 0, native[i].pc, native[i].flags, 0 };
		n = add_functions(tree, n, i, &n_left);
	}
	n = cut_merged(tree, n);
	for (uint32_t i = 0; i < n; i++) {
		struct call_tree_frame *frame = &tree->merged[i];
		uint64_t own = frame->flags & CALL_TREE_CODE ? frame->hash : frame->pc;

		hash = frame->hash = unwind_cache_hash(hash, own, frame->flags & 3) ^
				     (frame->flags & CALL_TREE_CODE);
	}
	return n;
}

static enum message_outcome find_or_define_merged(struct producer *producer, uint32_t *ret_id)
{
	struct node_definition definition = { .producer = producer, .tree = producer->calls };
	struct call_tree *tree = producer->calls;
	uint32_t n = merge(tree), n_known;
	enum message_outcome outcome = MESSAGE_WRITTEN;

	/* Each frame may need an id for its node, and one for its code object. */
	make_room(tree, 2 * CALL_TREE_MAX_DEPTH);
	for (n_known = n; n_known > 0; n_known--) {
		definition.parent = find(tree, tree->merged[n_known - 1].hash);
		if (definition.parent != 0)
			break;
	}
	*ret_id = definition.parent;
	if (n_known == n)
		return MESSAGE_WRITTEN;
	definition.n = n - n_known;
	definition.has_code = true;
	memcpy(tree->frames, &tree->merged[n_known], definition.n * sizeof(*tree->frames));
	outcome = define_nodes(&definition, 0);
	if (outcome == MESSAGE_WRITTEN)
		*ret_id = tree->frames[definition.n - 1].id;
	return outcome;
}

static struct call_tree_known *known_at(struct call_tree *tree)
{
	const struct unwind_cache *calls = &tree->calls;
	uint64_t hash = hash_words(calls->frames[calls->n - 1].hash, tree->python.hash);

	return &tree->known[hash % CALL_TREE_KNOWN];
}

/* Reads the Python functions of the stack that was walked last. Returns false if the thread
 * executes none. */
static bool has_python(const struct producer *producer)
{
	struct call_tree *tree = producer->calls;
	const struct unwind_cache *calls = &tree->calls;

	struct python_stack stack = { 0 };
	bool is_known;

	if (!python_is_known() || calls->n == 0 || producer->n_types <= RING_CODE)
		return false;
	/* A stack without its root may hide that a handler runs. */
	is_known = !(calls->frames[0].flags & UNWIND_CACHE_CUT) &&
		   !unwind_cache_is_interrupted(calls);
	stack.low = calls->frames[calls->n - 1].sp;
	stack.high = calls->frames[0].sp;
	for (uint32_t i = 0; i < calls->n && !stack.evaluates; i++)
		stack.evaluates = calls->frames[i].pc - python_interpreter.eval <
				  python_interpreter.eval_end - python_interpreter.eval;
	python_walk(&tree->python, is_known ? &stack : NULL,
		    call_tree_quiet(producer) == SELF_UNWIND_ANY);
	return tree->python.n > 0 || tree->python.is_unreadable;
}

static uint32_t recall_merged(struct call_tree *tree)
{
	const struct call_tree_known *known = known_at(tree);

	return known->native == tree->calls.frames[tree->calls.n - 1].hash &&
			       known->python == tree->python.hash &&
			       known->generation == tree->generation
		       ? known->node
		       : 0;
}

static enum message_outcome find_merged(struct producer *producer, uint32_t *ret_id)
{
	struct call_tree *tree = producer->calls;
	enum message_outcome outcome = find_or_define_merged(producer, ret_id);

	if (outcome == MESSAGE_WRITTEN)
		*known_at(tree) = (struct call_tree_known){
			tree->calls.frames[tree->calls.n - 1].hash,
			tree->python.hash,
			*ret_id,
			tree->generation,
		};
	return outcome;
}

/* ---- Nodes of stacks ---- */

/* Uses the completed walk if `is_walked`. Walks again if a handler or an unloaded module made that
 * walk invalid. */
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
			outcome = has_python(producer) ? find_merged(producer, &id)
						       : find_or_define(producer, &id);
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
	if (n > 0 && has_python(producer)) {
		node = recall_merged(tree);
		return node != 0 ? node : get_slowly(producer, caller, true);
	}
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
