/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-tree - the allocation stacks, as one call tree over all epochs
 *
 * Invariants: (1) a parent has a smaller index than its children      [test-memory: tree]
 *             (2) only requested stacks have nodes        (a capture may have many more)
 *             (3) a block counts at most once in a function's total   [test-memory: tree]
 */
#include "config.h"

#include "tools/profcapture/memory-tree.h"

#include "tools/profcapture/suppressions.h"
#include "tools/profile/code-origin.h"

#include <string.h>

void memory_tree_init_with(struct memory_tree *tree, struct reader *reader,
			   struct functions *functions)
{
	/* FUNCTION_NO_STACK and FUNCTION_LOST are also the indexes of the sites of these nodes. */
	const struct memory_node first[] = {
		{ 0 },
		{ .function = FUNCTION_NO_STACK, .site = FUNCTION_NO_STACK },
		{ .function = FUNCTION_LOST, .site = FUNCTION_LOST },
	};
	const struct memory_site sites[] = { { .callee = FUNCTION_NO_STACK },
					     { .callee = FUNCTION_LOST } };

	*tree = (struct memory_tree){ .reader = reader,
				      .functions = functions,
				      .is_borrowed = true };
	number_map_init(&tree->index);
	number_map_init(&tree->site_index);
	tree->nodes = g_array_new(FALSE, TRUE, sizeof(struct memory_node));
	tree->sites = g_array_new(FALSE, FALSE, sizeof(struct memory_site));
	tree->kinds = g_byte_array_new();
	tree->path = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	g_array_append_vals(tree->nodes, first, ARRAY_SIZE(first));
	g_array_append_vals(tree->sites, sites, ARRAY_SIZE(sites));
}

bool memory_tree_init(struct memory_tree *tree, struct reader *reader, const GPtrArray *through,
		      GError **error)
{
	memory_tree_init_with(tree, reader, NULL);
	tree->is_borrowed = false;
	tree->through = through;
	tree->functions = functions_new(reader->capture->names, error);
	return tree->functions;
}

static void epoch_done(struct memory_epoch *epoch)
{
	stacks_free(epoch->stacks);
	g_free(epoch->nodes);
	*epoch = (struct memory_epoch){ 0 };
}

void memory_tree_done(struct memory_tree *tree)
{
	if (!tree->nodes)
		return;
	for (unsigned i = 0; i < ARRAY_SIZE(tree->epochs); i++)
		epoch_done(&tree->epochs[i]);
	if (!tree->is_borrowed)
		functions_free(tree->functions);
	g_array_unref(tree->nodes);
	g_array_unref(tree->sites);
	g_byte_array_unref(tree->kinds);
	g_array_unref(tree->path);
	number_map_done(&tree->index);
	number_map_done(&tree->site_index);
	*tree = (struct memory_tree){ 0 };
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* Returns whether a function only allocates for its callers, so its name alone explains little. */
static bool is_allocator(const struct memory_tree *tree, const char *name)
{
	static const char *const begins[] = {
		"operator new",        "std::__new_allocator<",  "__gnu_cxx::new_allocator<",
		"std::allocator<",     "std::allocator_traits<", "__gnu_cxx::__alloc_traits<",
		"__libc_alloc_buffer",
	};

	for (size_t i = 0; i < ARRAY_SIZE(begins); i++)
		if (g_str_has_prefix(name, begins[i]))
			return true;
	for (guint i = 0; tree->through && i < tree->through->len; i++)
		if (suppression_matches(tree->through->pdata[i], name))
			return true;
	return false;
}

#define SITE_UNKNOWN UINT32_MAX

enum { KIND_KNOWN = 1, KIND_ALLOCATOR = 2, KIND_OWN = 4 };

/* Returns the KIND_* bits of a function. An inlined function may have no namespace, but its file
 * shows that it belongs to the C++ library. */
static unsigned kind_of(struct memory_tree *tree, uint32_t function)
{
	const struct function *f = functions_at(tree->functions, function);
	uint8_t *kind = memory_byte_at(tree->kinds, function);

	if (*kind == 0) {
		*kind = KIND_KNOWN;
		if (is_allocator(tree, f->name))
			*kind |= KIND_ALLOCATOR;
		if (function > FUNCTION_LOST && !(f->file && strstr(f->file, "/include/c++/")) &&
		    code_origin_of(tree->functions, functions_whole(tree->functions, function)) ==
			    CODE_ORIGIN_OWN)
			*kind |= KIND_OWN;
	}
	return *kind;
}

bool memory_tree_is_allocator(struct memory_tree *tree, uint32_t function)
{
	return kind_of(tree, function) & KIND_ALLOCATOR;
}

uint32_t memory_tree_caller(struct memory_tree *tree, uint32_t node)
{
	const struct memory_node *at = memory_node_at(tree, node);

	while (at->parent && memory_tree_is_allocator(tree, at->function)) {
		node = at->parent;
		at = memory_node_at(tree, node);
	}
	return node;
}

static uint32_t whole_at(const struct memory_tree *tree, uint32_t node)
{
	return functions_whole(tree->functions, memory_node_at(tree, node)->function);
}

/* Sets the site that blocks of a node are charged to. */
static void set_site(struct memory_tree *tree, uint32_t index)
{
	const struct memory_node *at = memory_node_at(tree, memory_tree_caller(tree, index));
	struct memory_site site;
	uint32_t *known;

	if (at->own == 0) {
		/* Without a frame of the program, the function that allocates is the site. */
		site = (struct memory_site){ .callee =
						     functions_whole(tree->functions, at->function),
					     .place = at->function };
	} else {
		site = (struct memory_site){ .callee = at->callee ? whole_at(tree, at->callee)
								  : FUNCTION_NO_STACK,
					     .own = whole_at(tree, at->own),
					     .place = memory_node_at(tree, at->own)->function };
	}
	known = number_map_at(&tree->site_index, (uint64_t)site.callee << 32 | site.own);
	if (*known == 0) {
		g_array_append_val(tree->sites, site);
		*known = tree->sites->len;
	} else if (memory_site_at(tree, *known - 1)->place != site.place) {
		g_array_index(tree->sites, struct memory_site, *known - 1).place = 0;
	}
	g_array_index(tree->nodes, struct memory_node, index).site = *known - 1;
}

static uint32_t get_node(struct memory_tree *tree, uint32_t parent, uint32_t function)
{
	guint known = tree->nodes->len;
	uint32_t index = cct_child(tree->nodes, &tree->index, parent, function);
	struct memory_node *node = &g_array_index(tree->nodes, struct memory_node, index);
	const struct memory_node *above = memory_node_at(tree, parent);
	unsigned kind;

	if (index < known)
		return index;
	kind = kind_of(tree, function);
	if (kind & KIND_OWN) {
		node->own = index;
	} else {
		node->own = above->own;
		node->callee = above->own && !above->callee ? index : above->callee;
	}
	node->site = parent && (kind & KIND_ALLOCATOR) ? above->site
						       : functions_whole(tree->functions, function);
	if (tree->by_caller)
		node->site = SITE_UNKNOWN;
	return index;
}

struct memory_epoch *memory_tree_epoch(struct memory_tree *tree, struct names_epoch *names,
				       GError **error)
{
	struct memory_epoch *epoch;

	for (unsigned i = 0; i < ARRAY_SIZE(tree->epochs); i++)
		if (tree->epochs[i].stacks && tree->epochs[i].names == names &&
		    tree->epochs[i].number == names->epoch)
			return &tree->epochs[i];
	epoch = &tree->epochs[tree->next];
	tree->next = (tree->next + 1) % ARRAY_SIZE(tree->epochs);
	epoch_done(epoch);
	epoch->stacks = stacks_load(names, error);
	if (!epoch->stacks)
		return NULL;
	stacks_time(epoch->stacks, tree->functions);
	epoch->number = names->epoch;
	epoch->names = names;
	epoch->n = epoch->stacks->n;
	epoch->nodes = g_new0(uint32_t, epoch->n + 1);
	return epoch;
}

/* Adds a node for a row's frame, and for its inlined calls if `functions` includes those. */
static uint32_t add_row(struct memory_tree *tree, struct memory_epoch *epoch, uint32_t node,
			uint32_t row)
{
	uint32_t entities[FUNCTIONS_MAX_AT_ROW] = { FUNCTION_LOST };
	uint64_t frame = 0;
	ssize_t found;
	size_t n = 1;

	/* Rows that stacks_row_at() added for generated code follow the rows of the table. They
	 * already include inlined calls. */
	if (row >= epoch->stacks->n_rows)
		return get_node(tree, node, epoch->stacks->entity[row]);
	(void)names_number(epoch->names, NAMES_STACK, PROF_STACK_FRAME, row, &frame);
	found = names_row(epoch->names, NAMES_FRAME, frame);
	if (found >= 0)
		n = functions_at_row(tree->functions, epoch->names, (size_t)found, 0, 0, entities,
				     NULL);
	for (size_t i = 0; i < n; i++)
		node = get_node(tree, node, entities[i]);
	return node;
}

uint32_t memory_tree_node(struct memory_tree *tree, struct memory_epoch *epoch, uint64_t stack,
			  uint32_t segment, uint64_t time)
{
	uint32_t row, node = 0;
	ssize_t found = names_row(epoch->names, NAMES_STACK, stack);

	if (found < 0 || (size_t)found >= epoch->stacks->n_rows)
		return stack ? MEMORY_NODE_LOST : MEMORY_NODE_NONE;
	row = stacks_row_at(epoch->stacks, tree->functions, (uint32_t)found, segment, time);
	if (epoch->n < epoch->stacks->n) {
		epoch->nodes = g_renew(uint32_t, epoch->nodes, epoch->stacks->room + 1);
		memset(epoch->nodes + epoch->n, 0,
		       (epoch->stacks->room + 1 - epoch->n) * sizeof(*epoch->nodes));
		epoch->n = epoch->stacks->room;
	}
	for (; row != STACKS_NO_ROW && !epoch->nodes[row]; row = epoch->stacks->parent[row])
		g_array_append_val(tree->path, row);
	if (row != STACKS_NO_ROW)
		node = epoch->nodes[row];
	for (guint i = tree->path->len; i > 0; i--) {
		row = g_array_index(tree->path, uint32_t, i - 1);
		node = add_row(tree, epoch, node, row);
		epoch->nodes[row] = node;
	}
	g_array_set_size(tree->path, 0);
	if (memory_node_at(tree, node)->site == SITE_UNKNOWN)
		set_site(tree, node);
	return node;
}

/* ---- sums ------------------------------------------------------------------------------------ */

GArray *memory_tree_totals(const struct memory_tree *tree, const GArray *sums)
{
	GArray *totals = g_array_new(FALSE, TRUE, sizeof(struct memory_sum));

	g_array_set_size(totals, tree->nodes->len);
	for (uint32_t i = 0; i < sums->len && i < totals->len; i++)
		g_array_index(totals, struct memory_sum, i) = memory_sum_at(sums, i);
	for (uint32_t i = tree->nodes->len; i-- > 1;) {
		struct memory_sum sum = memory_sum_at(totals, i);

		memory_sum_add(memory_sum_of(totals, memory_node_at(tree, i)->parent), sum.bytes,
			       sum.blocks);
	}
	return totals;
}

/*
 * A node is added to its function's total unless that function is already above it. A
 * depth-first walk counts how often each function is above the current node.
 */
void memory_tree_by_function(const struct memory_tree *tree, const GArray *sums, GArray *self,
			     GArray *total)
{
	g_autoptr(GArray) totals = memory_tree_totals(tree, sums);
	struct cct_children children = cct_children_new(tree->nodes);
	g_autofree uint32_t *above = g_new0(uint32_t, tree->functions->all->len + 1);

	g_array_set_size(self, tree->by_caller ? tree->sites->len : tree->functions->all->len);
	g_array_set_size(total, tree->functions->all->len);
	for (uint32_t i = tree->nodes->len; i-- > 1;) {
		uint32_t site = memory_node_at(tree, i)->site;

		if (site != SITE_UNKNOWN) {
			struct memory_sum sum = memory_sum_at(sums, i);

			memory_sum_add(memory_sum_of(self, site), sum.bytes, sum.blocks);
		}
	}
	for (uint32_t node = children.first[0]; node;) {
		uint32_t function = whole_at(tree, node);

		if (above[function]++ == 0) {
			struct memory_sum sum = memory_sum_at(totals, node);

			memory_sum_add(memory_sum_of(total, function), sum.bytes, sum.blocks);
		}
		if (children.first[node]) {
			node = children.first[node];
			continue;
		}
		while (node) {
			above[whole_at(tree, node)]--;
			if (children.next[node]) {
				node = children.next[node];
				break;
			}
			node = memory_node_at(tree, node)->parent;
		}
	}
	cct_children_done(&children);
}
