/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/stack-places.h"

#include "tools/profile/function-labels.h"

#include <glib/gi18n.h>

bool stack_places_init(struct stack_places *places, struct names *names, GError **error)
{
	number_map_init(&places->known);
	places->path = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	places->found = g_array_new(FALSE, FALSE, sizeof(struct stack_place));
	places->functions = functions_new(names, error);
	if (!places->functions)
		return false;
	places->functions->detail = FUNCTIONS_PLACES;
	places->functions->inlined = true;
	return true;
}

void stack_places_done(struct stack_places *places)
{
	if (!places->path)
		return;
	stacks_free(places->stacks);
	functions_free(places->functions);
	number_map_done(&places->known);
	g_array_unref(places->path);
	g_array_unref(places->found);
}

bool stack_places_begin(struct stack_places *places, struct names_epoch *epoch, GError **error)
{
	if (places->stacks && places->epoch == epoch->epoch)
		return true;
	stacks_free(places->stacks);
	number_map_clear(&places->known);
	g_array_set_size(places->found, 0);
	places->epoch = epoch->epoch;
	places->stacks = stacks_load(epoch, error);
	if (places->stacks)
		stacks_time(places->stacks, places->functions);
	return places->stacks;
}

uint32_t stack_places_node(struct stack_places *places, uint64_t stack, uint32_t segment,
			   uint64_t time_ns)
{
	ssize_t row = names_row(places->stacks->epoch, NAMES_STACK, stack);

	if (row < 0 || (size_t)row >= places->stacks->n_rows)
		return STACKS_NO_ROW;
	return stacks_row_at(places->stacks, places->functions, (uint32_t)row, segment, time_ns);
}

size_t stack_places_of_frame(struct stack_places *places, uint32_t node, uint32_t *ret_places)
{
	const struct stacks *stacks = places->stacks;
	uint64_t frame = 0;
	ssize_t row;

	/* A node that stacks_row_at() added for generated code has no row, but an entity. */
	ret_places[0] = node < stacks->n_rows ? FUNCTION_LOST : stacks->entity[node];
	if (node >= stacks->n_rows)
		return 1;
	(void)names_number(stacks->epoch, NAMES_STACK, PROF_STACK_FRAME, node, &frame);
	row = names_row(stacks->epoch, NAMES_FRAME, frame);
	return row < 0 ? 1
		       : functions_at_row(places->functions, stacks->epoch, (size_t)row, 0, 0,
					  ret_places, NULL);
}

/* Returns the place of a node. `found`: the place of its caller, which inner frames override. */
static struct stack_place find_place(struct stack_places *places, uint32_t node,
				     struct stack_place found)
{
	uint32_t each[FUNCTIONS_MAX_AT_ROW];
	size_t n = stack_places_of_frame(places, node, each);

	for (size_t i = 0; i < n; i++) {
		uint32_t whole = functions_whole(places->functions, each[i]);
		const struct function *f = functions_at(places->functions, whole);
		enum code_origin origin = whole > FUNCTION_LOST
						  ? code_origin_of(places->functions, whole)
						  : CODE_ORIGIN_UNKNOWN;
		enum wait_cause cause = WAIT_UNKNOWN;
		const char *call = NULL;

		if (origin == CODE_ORIGIN_KERNEL || origin == CODE_ORIGIN_LIBC)
			cause = wait_cause_of(f->raw_name ? f->raw_name : f->name, &call);
		/* Own code resets the cause, because it may call more than one function that
		 * waits. */
		if (cause != WAIT_UNKNOWN || origin == CODE_ORIGIN_OWN) {
			found.cause = cause;
			found.call = cause == WAIT_UNKNOWN ? NULL : call;
		}
		if (origin == CODE_ORIGIN_OWN || (!found.is_own && origin != CODE_ORIGIN_KERNEL)) {
			found.place = each[i];
			found.is_own = origin == CODE_ORIGIN_OWN;
		}
	}
	return found;
}

struct stack_place stack_places_find(struct stack_places *places, uint32_t node)
{
	struct stack_place found = { .place = FUNCTION_NO_STACK, .cause = WAIT_UNKNOWN };

	g_array_set_size(places->path, 0);
	for (; node != STACKS_NO_ROW; node = places->stacks->parent[node]) {
		uint32_t known = number_map_get(&places->known, node);

		if (known) {
			found = g_array_index(places->found, struct stack_place, known - 1);
			break;
		}
		g_array_append_val(places->path, node);
	}
	for (guint i = places->path->len; i > 0; i--) {
		node = g_array_index(places->path, uint32_t, i - 1);
		found = find_place(places, node, found);
		g_array_append_val(places->found, found);
		*number_map_at(&places->known, node) = places->found->len;
	}
	return found;
}

char *stack_places_describe(const struct functions *functions, uint32_t place, bool full_names)
{
	g_autofree char *where = NULL, *name = NULL;

	if (place == FUNCTION_NO_STACK)
		return g_strdup(_("[no stack]"));
	where = functions_place(functions, place, false);
	name = full_names ? g_strdup(functions_at(functions, place)->name)
			  : function_label(functions, place);
	return where ? g_strdup_printf("%s (%s)", name, where) : g_steal_pointer(&name);
}
