/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/html-sides.h"

#include "base/order.h"
#include "tools/profcapture/diff.h"
#include "tools/profcapture/export-allocations.h"

#include <string.h>

#define GRID_STEPS 16384u
/* No unit of time is longer than the axis divided by this, however many samples there are. */
#define BOUNDARY_STEPS 256u
/* Maximum number of stacks after the page was too large once. */
#define MOST_STACKS 400000u

static int64_t grid_of(int64_t duration_ns, uint32_t steps)
{
	int64_t grid_ns = GRID_UNITS;

	while (grid_ns < duration_ns / steps)
		grid_ns *= 2;
	return grid_ns;
}

int64_t export_html_grid(const struct capture *capture)
{
	return grid_of(capture->duration_ns, GRID_STEPS);
}

static int64_t duration_of(const struct export *export)
{
	return MAX_OF(export->reader.capture->duration_ns, INT64_C(1));
}

/* Numbers a side's functions. `known`: the numbers given so far, by the text of diff_identify(). */
static void match_functions(struct html_sides *sides, struct html_side *side,
			    const struct html_side *other, GHashTable *known)
{
	const struct functions *functions = side->export->profile.functions;
	g_autoptr(GHashTable) builds = diff_builds(other->export->reader.capture->names);

	side->functions = g_new(uint32_t, functions->all->len);
	for (uint32_t i = 0; i < functions->all->len; i++) {
		const char *build_id =
			names_image_at(functions->names, functions_at(functions, i)->image)
				->build_id;
		struct diff_identity id;
		g_autofree char *key = diff_identify(
			functions, i, build_id && g_hash_table_contains(builds, build_id), &id);
		gpointer at;

		if (!g_hash_table_lookup_extended(known, key, NULL, &at)) {
			at = GUINT_TO_POINTER(side->first_function + i);
			if (!id.has_name)
				g_hash_table_add(sides->unnamed, at);
			g_hash_table_insert(known, g_steal_pointer(&key), at);
		}
		side->functions[i] = GPOINTER_TO_UINT(at);
	}
}

/* Adds the stacks of a side's profile. Returns, for each node of the profile, the merged node. */
static uint32_t *merge_stacks(struct html_sides *sides, const struct html_side *side,
			      const struct profile *profile, struct number_map *known,
			      uint64_t *ret_compared)
{
	const GArray *nodes = profile->tree.nodes;
	bool keeps_interrupts = profile->mode == PROFILE_KERNEL || sides->n == 1;
	uint32_t *stacks = g_new0(uint32_t, nodes->len);

	*ret_compared = 0;
	for (uint32_t i = 1; i < nodes->len; i++) {
		const struct profile_node *node = &g_array_index(nodes, struct profile_node, i);
		uint32_t parent = stacks[node->parent];
		bool is_interrupt =
			!keeps_interrupts &&
			((parent &&
			  g_array_index(sides->nodes, struct profile_node, parent).entity ==
				  sides->interrupts) ||
			 diff_is_interrupt(functions_at(profile->functions, node->entity)));

		stacks[i] = is_interrupt ? cct_child(sides->nodes, known, 0, sides->interrupts)
					 : cct_child(sides->nodes, known, parent,
						     side->functions ? side->functions[node->entity]
								     : node->entity);
		if (!is_interrupt)
			*ret_compared += node->count.self.weight;
	}
	return stacks;
}

static void merge_waits(struct html_sides *sides, struct html_side *side, struct number_map *known)
{
	if (export_has_waits(side->export))
		side->wait_stacks = merge_stacks(sides, side, &side->export->waits, known,
						 &side->compared_waits);
}

/* Adds the stacks of waits to the stacks of samples, for a page with one side. */
static void add_waits(struct html_sides *sides)
{
	const GArray *all = sides->nodes;
	struct number_map known;

	sides->nodes = g_array_copy(sides->nodes);
	number_map_init(&known);
	for (uint32_t i = 1; i < all->len; i++) {
		const struct profile_node *node = &g_array_index(all, struct profile_node, i);

		*number_map_at(&known, (uint64_t)node->parent << 32 | node->entity) = i;
	}
	merge_waits(sides, &sides->each[HTML_FIRST], &known);
	number_map_done(&known);
	g_array_unref((GArray *)all);
}

static void compare(struct html_sides *sides)
{
	static const struct profile_node root;
	struct html_side *first = &sides->each[HTML_FIRST], *later = &sides->each[HTML_LATER];
	g_autoptr(GHashTable) known = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
	struct number_map nodes;
	int64_t step_ns;

	first->first_function = later->export->profile.functions->all->len;
	sides->interrupts = first->first_function + first->export->profile.functions->all->len;
	later->first_thread = first->export->reader.capture->names->threads->len;
	/* as in diff, a function of both captures is described as in the later one */
	match_functions(sides, later, first, known);
	match_functions(sides, first, later, known);
	sides->nodes = g_array_new(FALSE, TRUE, sizeof(struct profile_node));
	g_array_append_val(sides->nodes, root);
	number_map_init(&nodes);
	for (unsigned i = 0; i < sides->n; i++) {
		struct html_side *side = &sides->each[i];

		side->stacks =
			merge_stacks(sides, side, &side->export->profile, &nodes, &side->compared);
	}
	for (unsigned i = 0; i < sides->n; i++)
		merge_waits(sides, &sides->each[i], &nodes);
	number_map_done(&nodes);
	/* this step is a multiple of every unit that samples may have */
	step_ns = grid_of(first->to_ns + duration_of(later->export), BOUNDARY_STEPS);
	later->from_ns = (first->to_ns + step_ns - 1) / step_ns * step_ns;
	later->to_ns = later->from_ns + duration_of(later->export);
}

/* ---- folding --------------------------------------------------------------------------------- */

/* Adds each node's weight to its callers. Raises each node's share to at least its share of these
 * weights. */
static void raise_shares(const GArray *nodes, double *weights, double *shares)
{
	for (guint i = nodes->len - 1; i > 0; i--)
		weights[g_array_index(nodes, struct profile_node, i).parent] += weights[i];
	for (guint i = 0; i < nodes->len && weights[0] > 0; i++)
		shares[i] = MAX_OF(shares[i], weights[i] / weights[0]);
}

/* Returns each node's largest share of samples, waits or allocated bytes. No node has a larger
 * share than its caller. */
static double *shares_of(const struct html_sides *sides)
{
	double *shares = g_new0(double, sides->nodes->len);
	g_autofree double *samples = g_new0(double, sides->nodes->len);
	g_autofree double *waits = g_new0(double, sides->nodes->len);
	g_autofree double *bytes = g_new0(double, sides->nodes->len);

	for (unsigned k = 0; k < sides->n; k++) {
		const struct html_side *side = &sides->each[k];
		const GArray *nodes = side->export->profile.tree.nodes;
		const GArray *waited = side->wait_stacks ? side->export->waits.tree.nodes : NULL;
		const GArray *lives = side->export->allocations ? side->export->allocations->lives
								: NULL;

		for (guint i = 0; i < nodes->len; i++)
			samples[html_stack(side, i)] +=
				(double)g_array_index(nodes, struct profile_node, i)
					.count.self.weight;
		for (guint i = 0; waited && i < waited->len; i++)
			waits[side->wait_stacks[i]] +=
				(double)g_array_index(waited, struct profile_node, i)
					.count.self.weight;
		for (guint i = 0; lives && i < lives->len; i++) {
			const struct allocation_life *life =
				&g_array_index(lives, struct allocation_life, i);

			bytes[html_stack(side, life->node)] += life->bytes;
		}
	}
	raise_shares(sides->nodes, samples, shares);
	raise_shares(sides->nodes, waits, shares);
	raise_shares(sides->nodes, bytes, shares);
	return shares;
}

COMPARE_BY(compare_shares, double, ORDER(*b, *a))

static void map_stacks(uint32_t **stacks, guint n, const uint32_t *map)
{
	if (!*stacks) {
		*stacks = g_new(uint32_t, n);
		for (guint i = 0; i < n; i++)
			(*stacks)[i] = i;
	}
	for (guint i = 0; i < n; i++)
		(*stacks)[i] = map[(*stacks)[i]];
}

/* Folds the stacks with the smallest shares into their callers, until at most `most` are left. */
static void fold_stacks(struct html_sides *sides, guint most)
{
	g_autoptr(GArray) all = sides->nodes;
	g_autofree double *shares = shares_of(sides);
	g_autofree double *sorted = g_memdup2(shares, all->len * sizeof(*shares));
	g_autofree uint32_t *map = g_new0(uint32_t, all->len);
	struct profile_node root = { 0 };

	qsort(sorted, all->len, sizeof(*sorted), compare_shares);
	sides->nodes = g_array_new(FALSE, FALSE, sizeof(struct profile_node));
	g_array_append_val(sides->nodes, root);
	for (guint i = 1; i < all->len; i++) {
		struct profile_node node = g_array_index(all, struct profile_node, i);

		node.parent = map[node.parent];
		map[i] = node.parent;
		if (shares[i] <= sorted[most])
			continue;
		map[i] = sides->nodes->len;
		g_array_append_val(sides->nodes, node);
	}
	sides->folded = all->len - sides->nodes->len;
	for (unsigned k = 0; k < sides->n; k++) {
		struct html_side *side = &sides->each[k];

		map_stacks(&side->stacks, side->export->profile.tree.nodes->len, map);
		if (side->wait_stacks)
			map_stacks(&side->wait_stacks, side->export->waits.tree.nodes->len, map);
	}
}

void html_sides_init(struct html_sides *sides, struct export *export)
{
	struct html_side *last;

	*sides = (struct html_sides){ .n = export->compared ? 2 : 1, .interrupts = UINT32_MAX };
	sides->unnamed = g_hash_table_new(NULL, NULL);
	sides->each[HTML_FIRST] =
		(struct html_side){ .export = export, .to_ns = duration_of(export) };
	sides->each[HTML_LATER].export = export->compared;
	if (export->compared)
		compare(sides);
	else
		sides->nodes = g_array_ref(export->profile.tree.nodes);
	if (sides->n == 1 && export_has_waits(export))
		add_waits(sides);
	last = &sides->each[sides->n - 1];
	sides->grid_ns = grid_of(last->to_ns, GRID_STEPS);
	if (export->merges && sides->nodes->len > export_most(export, MOST_STACKS * 4))
		fold_stacks(sides, export_most(export, MOST_STACKS * 4));
}

void html_sides_done(struct html_sides *sides)
{
	for (unsigned i = 0; i < sides->n; i++) {
		g_free(sides->each[i].functions);
		g_free(sides->each[i].stacks);
		g_free(sides->each[i].wait_stacks);
	}
	g_array_unref(sides->nodes);
	g_hash_table_unref(sides->unnamed);
}

const struct html_side *html_function_side(const struct html_sides *sides, uint32_t number,
					   uint32_t *ret_index)
{
	const struct html_side *side =
		&sides->each[sides->n > 1 && number < sides->each[HTML_FIRST].first_function];

	if (number == sides->interrupts)
		return NULL;
	*ret_index = number - side->first_function;
	return side;
}

const struct html_side *html_thread_side(const struct html_sides *sides, uint32_t number,
					 uint32_t *ret_index)
{
	const struct html_side *side =
		&sides->each[sides->n > 1 && number >= sides->each[HTML_LATER].first_thread];

	*ret_index = number - side->first_thread;
	return side;
}

bool html_sides_are_runs(const struct html_sides *sides)
{
	const struct export *first = sides->each[HTML_FIRST].export;
	const struct export *later = sides->each[HTML_LATER].export;

	return capture_metadata(first->reader.capture, "command") &&
	       capture_metadata(later->reader.capture, "command") &&
	       strcmp(profile_event_name(&first->profile), profile_event_name(&later->profile)) ==
		       0;
}

static double scale_of(const struct html_sides *sides, uint64_t first, uint64_t later)
{
	return html_sides_are_runs(sides) || first == 0 || later == 0
		       ? 1
		       : (double)later / (double)first;
}

double html_sides_scale(const struct html_sides *sides)
{
	return scale_of(sides, sides->each[HTML_FIRST].compared, sides->each[HTML_LATER].compared);
}

double html_sides_wait_scale(const struct html_sides *sides)
{
	return scale_of(sides, sides->each[HTML_FIRST].compared_waits,
			sides->each[HTML_LATER].compared_waits);
}

bool html_sides_have_waits(const struct html_sides *sides)
{
	for (unsigned i = 0; i < sides->n; i++)
		if (!sides->each[i].wait_stacks)
			return false;
	return true;
}
