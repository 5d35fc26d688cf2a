/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "base/each.h"
#include "base/order.h"
#include "tools/profcapture/export-tree.h"

#include <string.h>

static void free_frame(gpointer data)
{
	struct export_frame *frame = data;

	g_free(frame->text);
	g_free(frame);
}

static uint32_t new_frame(struct export_tree *tree, char *text, const struct export *export,
			  uint32_t function)
{
	struct export_frame *frame = g_new(struct export_frame, 1);

	*frame = (struct export_frame){ text, export, function };
	g_ptr_array_add(tree->frames, frame);
	return tree->frames->len - 1;
}

/* Returns the frame for the name of a function or, if `export` is NULL, of a thread. */
static uint32_t frame_of_text(struct export_tree *tree, const char *name,
			      const struct export *export, uint32_t function)
{
	g_autofree char *text = text_escape_utf8(name, strlen(name));
	/* Escaped text has no line break, so this key is different from those of functions. */
	g_autofree char *key = g_strconcat(export ? "" : "\n", text, NULL);
	gpointer known = g_hash_table_lookup(tree->texts, key);
	uint32_t frame;

	if (known)
		return GPOINTER_TO_UINT(known) - 1;
	frame = new_frame(tree, g_steal_pointer(&text), export, function);
	g_hash_table_insert(tree->texts, g_steal_pointer(&key), GUINT_TO_POINTER(frame + 1));
	return frame;
}

static uint32_t frame_of_entity(struct export_tree *tree, const struct export *export,
				uint32_t entity)
{
	const char *name = functions_at(export->profile.functions, entity)->name;

	if (tree->known[entity] == 0)
		tree->known[entity] =
			1 + (tree->merges_texts
				     ? frame_of_text(tree, name, export, entity)
				     : new_frame(tree, text_escape_utf8(name, strlen(name)), export,
						 entity));
	return tree->known[entity] - 1;
}

/* Returns the thread names that both sides have. */
static GHashTable *common_names(GArray *const *stacks)
{
	g_autoptr(GHashTable) names = g_hash_table_new(g_str_hash, g_str_equal);
	GHashTable *common = g_hash_table_new(g_str_hash, g_str_equal);

	for (unsigned side = 0; side < EXPORT_SIDES; side++)
		for (guint i = 0; i < stacks[side]->len; i++) {
			const char *name = g_array_index(stacks[side], struct export_stack, i).name;

			if (side == 0)
				g_hash_table_add(names, (gpointer)name);
			else if (g_hash_table_contains(names, name))
				g_hash_table_add(common, (gpointer)name);
		}
	return common;
}

/* Adds stacks, which are ordered by thread and name, so the nodes of one name can be cached. If
 * `common` is not NULL, threads whose names are not in it share a frame. */
static void add_stacks(struct export_tree *tree, const GArray *stacks, unsigned side,
		       GHashTable *common)
{
	const struct export *export = tree->sides[side];
	const struct profile_node *nodes = (void *)export->profile.tree.nodes->data;
	uint32_t n = export->profile.tree.nodes->len;
	g_autoptr(GArray) path = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	g_autofree uint32_t *of = g_new(uint32_t, n); /* node of the profile → node of the tree */
	g_autofree uint32_t *round = g_new0(uint32_t, n); /* value of `now` at which of[] was set */
	uint32_t now = 0;
	const char *name = NULL;

	tree->known = g_new0(uint32_t, export->profile.functions->all->len);
	ARRAY_EACH(const struct export_stack, stack, stacks) {
		uint32_t at = stack->node, here;

		if (stack->name != name) {
			name = stack->name;
			round[0] = ++now;
			of[0] = cct_child(
				tree->nodes, &tree->of, 0,
				frame_of_text(tree,
					      common && !g_hash_table_contains(common, name)
						      ? EXPORT_RENAMED
						      : name,
					      NULL, 0));
		}
		g_array_set_size(path, 0);
		for (; round[at] != now; at = nodes[at].parent)
			g_array_append_val(path, at);
		here = of[at];
		for (guint k = path->len; k > 0; k--) {
			at = g_array_index(path, uint32_t, k - 1);
			here = cct_child(tree->nodes, &tree->of, here,
					 frame_of_entity(tree, export, nodes[at].entity));
			of[at] = here;
			round[at] = now;
		}
		amount_add(&g_array_index(tree->nodes, struct export_node, here).self[side],
			   stack->amount);
	}
	g_clear_pointer(&tree->known, g_free);
}

double export_tree_value(const struct export_tree *tree, const struct amount *amounts,
			 unsigned side)
{
	if (!tree->sides[side])
		return 0;
	return (double)export_value_of(tree->sides[side], amounts[side]) *
	       (side == EXPORT_BEFORE ? tree->scale : 1);
}

static gint compare_siblings(gconstpointer left, gconstpointer right, gpointer data)
{
	const struct export_tree *tree = data;
	uint32_t one = *(const uint32_t *)left, two = *(const uint32_t *)right;
	const struct export_node *a = export_node_at(tree, one), *b = export_node_at(tree, two);
	double first = 0, second = 0;

	for (unsigned side = 0; a->parent == b->parent && side < EXPORT_SIDES; side++) {
		first += export_tree_value(tree, a->total, side);
		second += export_tree_value(tree, b->total, side);
	}
	return ORDER_BY(ORDER(a->parent, b->parent), ORDER(second, first), ORDER(one, two));
}

/* Computes the totals and orders the children. */
static void settle_tree(struct export_tree *tree)
{
	struct export_node *nodes = (void *)tree->nodes->data;
	uint32_t n = tree->nodes->len;
	double now, before;

	for (uint32_t i = n; i > 0; i--)
		for (unsigned side = 0; side < EXPORT_SIDES; side++) {
			amount_add(&nodes[i - 1].total[side], nodes[i - 1].self[side]);
			if (i > 1)
				amount_add(&nodes[nodes[i - 1].parent].total[side],
					   nodes[i - 1].total[side]);
		}
	now = export_tree_value(tree, nodes[0].total, EXPORT_NOW);
	before = export_tree_value(tree, nodes[0].total, EXPORT_BEFORE);
	if (tree->sides[EXPORT_NOW]->value == EXPORT_SAMPLES && now > 0 && before > 0)
		tree->scale = now / before;
	tree->order = g_new(uint32_t, n);
	tree->children = g_new0(uint32_t, n + 1);
	for (uint32_t i = 1; i < n; i++) {
		tree->order[i - 1] = i;
		tree->children[nodes[i].parent + 1]++;
	}
	for (uint32_t i = 0; i < n; i++)
		tree->children[i + 1] += tree->children[i];
	g_qsort_with_data(tree->order, (gint)n - 1, sizeof(*tree->order), compare_siblings, tree);
}

void export_tree_init(struct export_tree *tree, const struct export *export, bool merges_texts)
{
	static const struct export_node root;
	g_autoptr(GHashTable) common = NULL;
	GArray *stacks[EXPORT_SIDES] = { 0 };

	*tree = (struct export_tree){
		.sides = { export },
		.scale = 1,
		.merges_texts = merges_texts,
		.frames = g_ptr_array_new_with_free_func(free_frame),
		.nodes = g_array_new(FALSE, TRUE, sizeof(struct export_node)),
		.texts = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
	};
	number_map_init(&tree->of);
	g_array_append_val(tree->nodes, root);
	if (export->compared) {
		tree->sides[EXPORT_NOW] = export->compared;
		tree->sides[EXPORT_BEFORE] = export;
	}
	for (unsigned side = 0; side < EXPORT_SIDES; side++)
		if (tree->sides[side])
			stacks[side] = export_stacks(tree->sides[side]);
	if (export->compared)
		common = common_names(stacks);
	for (unsigned side = 0; side < EXPORT_SIDES; side++)
		if (stacks[side]) {
			add_stacks(tree, stacks[side], side, common);
			g_array_unref(stacks[side]);
		}
	settle_tree(tree);
}

void export_tree_done(struct export_tree *tree)
{
	g_ptr_array_unref(tree->frames);
	g_array_unref(tree->nodes);
	g_hash_table_unref(tree->texts);
	number_map_done(&tree->of);
	g_free(tree->order);
	g_free(tree->children);
}
