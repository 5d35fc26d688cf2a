/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profile/cct-fold.h"

/* Library functions whose self weight has at least this share of the whole keep their nodes. */
#define HOT_LIBRARY_SHARE 0.03

static struct cct_node *node_at(const GArray *nodes, uint32_t index)
{
	return &g_array_index(nodes, struct cct_node, index);
}

/* The state of an old node. */
struct folding {
	/* from the roots down: new node that counts this node's weight; inverted: new node of the
	 * nearest caller in own code, 0 = none yet */
	uint32_t node;
	/* from the roots down: */
	uint32_t run;    /* new node for the run of library frames that has this frame; 0 = none */
	uint32_t caller; /* kernel frames: the new node that called the kernel */
	uint32_t call;   /* kernel frames: the function that represents the run of kernel frames */
	/* inverted: */
	uint32_t hit;    /* new node of the hit function */
	uint32_t passed; /* number of steps from the hit function to this frame */
};

struct fold {
	const GArray *nodes;
	cct_kind_getter *kind_of;
	const void *data;
	struct folding *state;    /* indexed by old node */
	GArray *folded;           /* the new nodes */
	struct number_map index;  /* parent and function → new node */
	struct number_map joined; /* new node and function: already counted as folded */
	struct number_map hot;    /* library functions that keep their nodes; the value is 1 */
};

static enum cct_kind kind_of(const struct fold *fold, uint32_t function)
{
	return fold->kind_of(function, fold->data);
}

/* Returns whether a kernel frame says more about its run than the frame that represents the run. */
static bool says_more(enum cct_kind kind, enum cct_kind known)
{
	return (kind == CCT_SYSCALL && known != CCT_SYSCALL) ||
	       (kind == CCT_KERNEL && known == CCT_ENTRY);
}

static void add_counts(struct cct_node *to, const struct cct_node *node, bool adds_total)
{
	to->self += node->self;
	to->self_count += node->self_count;
	if (adds_total) {
		to->total += node->total;
		to->total_count += node->total_count;
	}
}

static void find_hot(struct fold *fold)
{
	/* indexed by function */
	g_autoptr(GArray) selfs = g_array_new(FALSE, TRUE, sizeof(double));
	double least = HOT_LIBRARY_SHARE * node_at(fold->nodes, 0)->total;

	for (uint32_t i = 1; i < fold->nodes->len; i++) {
		const struct cct_node *node = node_at(fold->nodes, i);
		double *self;

		if (node->function >= selfs->len)
			g_array_set_size(selfs, node->function + 1);
		self = &g_array_index(selfs, double, node->function);
		*self += node->self;
		if (*self >= least && least > 0)
			*number_map_at(&fold->hot, node->function) = 1;
	}
}

/* Returns the new node that counts the weight of an old node. */
static uint32_t fold_down(struct fold *fold, uint32_t i)
{
	const struct cct_node *node = node_at(fold->nodes, i);
	const struct folding *parent = &fold->state[node->parent];
	enum cct_kind kind = kind_of(fold, node->function);
	struct folding *state = &fold->state[i];

	if (cct_is_kernel(kind)) {
		state->caller = parent->call ? parent->caller : parent->node;
		state->call = parent->call ? parent->call : node->function;
		if (says_more(kind, kind_of(fold, state->call)))
			state->call = node->function;
		return cct_child(fold->folded, &fold->index, state->caller, state->call);
	}
	if (kind == CCT_LIBRARY) {
		bool joins = parent->run && !number_map_get(&fold->hot, node->function);

		state->run =
			joins ? parent->run
			      : cct_child(fold->folded, &fold->index, parent->node, node->function);
		return state->run;
	}
	return cct_child(fold->folded, &fold->index, parent->node, node->function);
}

static void add_down(struct fold *fold, uint32_t i)
{
	const struct cct_node *node = node_at(fold->nodes, i);
	uint32_t from = fold->state[node->parent].node;
	uint32_t to = fold->state[i].node = fold_down(fold, i);
	struct cct_node *target = node_at(fold->folded, to);

	add_counts(target, node, to != from);
	/* A kernel run is named after a function below its first frames, such as a system call.
	 * The new node of that name is a sibling of the first frames' node, which has already
	 * counted this total: subtract it there. */
	if (to != from && target->parent != from) {
		node_at(fold->folded, from)->total -= node->total;
		node_at(fold->folded, from)->total_count -= node->total_count;
	}
	if (target->function != node->function) {
		uint32_t *joined =
			number_map_at(&fold->joined, (uint64_t)to << 32 | node->function);

		target->folded += *joined == 0;
		*joined = 1;
	}
}

static void add_inverted(struct fold *fold, uint32_t i)
{
	const struct cct_node *node = node_at(fold->nodes, i);
	const struct folding *parent = &fold->state[node->parent];
	struct folding *state = &fold->state[i];
	struct cct_node *target;

	*state = (struct folding){ .node = parent->node,
				   .hit = parent->hit,
				   .passed = parent->passed + 1 };
	if (node->parent == 0) {
		state->hit = cct_child(fold->folded, &fold->index, 0, node->function);
		state->passed = 0;
		target = node_at(fold->folded, state->hit);
	} else {
		/* Only the nearest caller in own code gets a node. */
		if (parent->node || kind_of(fold, node->function) != CCT_OWN)
			return;
		state->node = cct_child(fold->folded, &fold->index, state->hit, node->function);
		target = node_at(fold->folded, state->node);
		/* If there are several paths, show the shortest. */
		if (target->total == 0 || parent->passed < target->folded)
			target->folded = parent->passed;
	}
	add_counts(target, node, true);
}

GArray *cct_fold(const GArray *nodes, cct_kind_getter *kind_of_function, const void *data,
		 bool is_inverted)
{
	struct fold fold = { .nodes = nodes,
			     .kind_of = kind_of_function,
			     .data = data,
			     .state = g_new0(struct folding, nodes->len),
			     .folded = g_array_new(FALSE, TRUE, sizeof(struct cct_node)) };

	number_map_init(&fold.index);
	number_map_init(&fold.joined);
	number_map_init(&fold.hot);
	g_array_append_val(fold.folded, *node_at(nodes, 0));
	if (!is_inverted)
		find_hot(&fold);
	for (uint32_t i = 1; i < nodes->len; i++) {
		if (is_inverted)
			add_inverted(&fold, i);
		else
			add_down(&fold, i);
	}
	for (uint32_t i = 1; i < fold.folded->len; i++) {
		struct cct_node *node = node_at(fold.folded, i);

		/* Kernel code calls only kernel code, so a kernel node's whole total is the
		 * kernel's own, including branches that the original tree omits. */
		if (!is_inverted && cct_is_kernel(kind_of(&fold, node->function))) {
			node->self = node->total;
			node->self_count = node->total_count;
		}
	}
	number_map_done(&fold.index);
	number_map_done(&fold.joined);
	number_map_done(&fold.hot);
	g_free(fold.state);
	return fold.folded;
}
