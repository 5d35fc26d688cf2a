/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-stacks - groups leaked blocks by the source lines that allocated them
 *
 * Blocks belong to the same stack if the same lines of the program led to them, and the last line
 * called the same library function. Other library functions do not matter.
 */
#include "config.h"

#include "base/order.h"
#include "tools/profcapture/memory.h"
#include "tools/profile/function-labels.h"
#include "tools/profile/function-names.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

#define MOST_FRAMES 16u /* maximum number of frames of a stack in text */

struct memory_stack {
	uint32_t start;  /* node: innermost frame of the program, else innermost non-allocator */
	uint32_t callee; /* node: function that `start` calls; 0: none */
	uint32_t sites;  /* number of the capture's stacks that it merges */
	enum runtime_pool pool;
	struct memory_sum sum;
};

static uint32_t whole_at(const struct memory_tree *tree, uint32_t node)
{
	return functions_whole(tree->functions, memory_node_at(tree, node)->function);
}

COMPARE_WITH(compare_stacks, struct memory_stack,
	     ORDER(memory_key_of(data, &b->sum), memory_key_of(data, &a->sum)),
	     ORDER(a->start, b->start), ORDER(a->callee, b->callee))

/* Numbers that are equal for functions that look equal: text does not distinguish the copies of
 * an inlined function, or overloads. */
struct looks {
	const struct memory *memory;
	GHashTable *numbers;      /* name and place → number */
	struct number_map number; /* function → number */
};

static uint32_t look_of(struct looks *looks, uint32_t function)
{
	const struct memory *memory = looks->memory;
	g_autofree char *name = NULL, *place = NULL, *text = NULL;
	gpointer known;
	uint32_t *number;

	if (memory->reader.format != READER_TEXT || memory->full_names)
		return function;
	number = number_map_at(&looks->number, function);
	if (*number)
		return *number;
	name = memory_name(memory, function);
	place = functions_place(memory->tree.functions, function, false);
	text = g_strdup_printf("%s  %s", name, place ? place : "");
	known = g_hash_table_lookup(looks->numbers, text);
	if (!known) {
		known = GUINT_TO_POINTER(g_hash_table_size(looks->numbers) + 1);
		g_hash_table_insert(looks->numbers, g_steal_pointer(&text), known);
	}
	return *number = GPOINTER_TO_UINT(known);
}

/* Returns a number for each node. Nodes with the same frames of the program from the root have
 * equal numbers, whatever library functions are between those frames. The caller frees the
 * result. */
static uint32_t *trails_of(const struct memory_tree *tree, struct looks *looks)
{
	uint32_t *trails = g_new0(uint32_t, tree->nodes->len), n = 0;
	struct number_map known;

	number_map_init(&known);
	for (uint32_t i = 1; i < tree->nodes->len; i++) {
		const struct memory_node *node = memory_node_at(tree, i);
		uint32_t *trail;

		trails[i] = trails[node->parent];
		if (node->own != i)
			continue;
		trail = number_map_at(&known,
				      (uint64_t)trails[i] << 32 | look_of(looks, node->function));
		if (*trail == 0)
			*trail = ++n;
		trails[i] = *trail;
	}
	number_map_done(&known);
	return trails;
}

void memory_list_stacks(struct memory *memory)
{
	struct memory_tree *tree = &memory->tree;
	g_autofree uint32_t *trails = NULL;
	struct number_map known;
	struct looks looks = {
		.memory = memory,
		.numbers = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
	};

	number_map_init(&looks.number);
	trails = trails_of(tree, &looks);
	number_map_init(&known);
	for (uint32_t i = 1; i < tree->nodes->len; i++) {
		struct memory_sum sum = memory_sum_at(memory->sums, i);
		struct memory_stack stack = { .start = i, .pool = RUNTIME_POOLS }, *same;
		const struct memory_node *node = memory_node_at(tree, i);
		uint32_t *index;

		if (sum.blocks == 0)
			continue;
		if (!memory->no_suppressions)
			stack.pool = suppressions_pool(&memory->suppressions, tree, i);
		for (; node->parent && memory_tree_is_allocator(tree, node->function);
		     node = memory_node_at(tree, stack.start))
			stack.start = node->parent;
		if (node->own) {
			stack.callee = node->callee;
			stack.start = node->own;
		}
		/* A stack without a frame of the program has no trail, so stack.start identifies
		 * it. */
		index = number_map_at(
			&known,
			(trails[i] ? (uint64_t)trails[i] << 32
				   : UINT64_MAX << 32 ^ (uint64_t)stack.start << 32) |
				(stack.callee ? look_of(&looks, whole_at(tree, stack.callee))
					      : FUNCTION_NO_STACK));
		if (*index == 0) {
			g_array_append_val(memory->stacks, stack);
			*index = memory->stacks->len;
		}
		same = &g_array_index(memory->stacks, struct memory_stack, *index - 1);
		memory_sum_add(&same->sum, sum.bytes, sum.blocks);
		same->sites++;
	}
	number_map_done(&known);
	g_hash_table_unref(looks.numbers);
	number_map_done(&looks.number);
	g_array_sort_with_data(memory->stacks, compare_stacks, memory);
}

GArray *memory_stacks_new(void)
{
	return g_array_new(FALSE, FALSE, sizeof(struct memory_stack));
}

static const struct memory_stack *stack_at(const struct memory *memory, guint index)
{
	return &g_array_index(memory->stacks, struct memory_stack, index);
}

static guint shown_of(const struct memory *memory)
{
	uint64_t n = memory->stacks->len;

	return (guint)(memory->most_stacks ? MIN_OF(memory->most_stacks, n) : n);
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Prints a function, `note`, and the function's source location. `used`: columns already taken on
 * the line. If the line is too short, omits template arguments first, then the location. */
static void print_frame(const struct memory *memory, struct out *out, unsigned used,
			uint32_t function, const char *note, bool has_place)
{
	g_autofree char *plain = memory_name(memory, function), *name = text_escape(plain);
	g_autofree char *place =
		has_place && (memory->full_names ||
			      !function_label_has_file(memory->tree.functions, function))
			? functions_place(memory->tree.functions, function, false)
			: NULL;
	g_autofree char *safe = text_escape(place ? place : "");
	unsigned columns = memory->reader.columns, of_place = *safe ? text_width(safe) + 2 : 0;

	used += text_width(note);
	if (columns && used + text_width(name) + of_place > columns) {
		unsigned room = columns > used ? columns - used : 1;
		char *shorter = function_name_fits.arguments(name, room - MIN_OF(room, of_place));

		if (text_width(shorter) + of_place > room) {
			of_place = 0;
			g_free(shorter);
			shorter = function_name_fit(name, room);
		}
		g_free(name);
		name = text_cut(shorter, room);
		g_free(shorter);
	}
	out_printf(out, "%s%s", name, note);
	if (of_place)
		out_printf(out, "  %s", safe);
	out_char(out, '\n');
}

static bool is_inlined(const struct memory_tree *tree, uint32_t node)
{
	const struct function *function =
		functions_at(tree->functions, memory_node_at(tree, node)->function);

	return function->depth > 0 || function->is_inlined;
}

/* Returns the outermost node in the program's code; without one, the outermost node below libc's
 * start functions. The nodes above the program's code only start threads and processes. */
static uint32_t outermost(const struct memory_tree *tree, uint32_t node)
{
	uint32_t last = node, top = node;

	for (uint32_t up = node; up; up = memory_node_at(tree, up)->parent) {
		const struct function *function =
			functions_at(tree->functions, memory_node_at(tree, up)->function);

		if (g_str_has_prefix(function->name, "__libc_start_"))
			break;
		top = up;
		if (memory_node_at(tree, up)->own == up && strcmp(function->name, "_start") != 0)
			last = up;
	}
	return memory_node_at(tree, node)->own ? last : top;
}

/* Prints the callers of a node; of consecutive library functions, only the outermost. */
static void print_callers(const struct memory *memory, struct out *out, uint32_t node)
{
	const struct memory_tree *tree = &memory->tree;
	bool has_own = memory_node_at(tree, node)->own;
	uint32_t last = outermost(tree, node);
	unsigned n = 0, run = 0;

	for (uint32_t at = node; at != last; at = memory_node_at(tree, at)->parent) {
		uint32_t up = memory_node_at(tree, at)->parent;
		uint32_t parent = memory_node_at(tree, up)->parent;
		uint32_t function = memory_node_at(tree, up)->function;
		bool is_own = memory_node_at(tree, up)->own == up;
		g_autofree char *note = NULL;

		/* The compiler inlines one function of static initialization into another, so the
		 * outer one is skipped. */
		if (!memory->full_names && function_label_has_file(tree->functions, function) &&
		    function_label_has_file(tree->functions, memory_node_at(tree, at)->function))
			continue;
		if (has_own && !is_own && memory_node_at(tree, parent)->own != parent) {
			run++;
			continue;
		}
		if (++n == MOST_FRAMES) {
			out_printf(out, "    %s\n", text_sign(TEXT_ELLIPSIS));
			break;
		}
		note = run ? g_strdup_printf("  +%u", run)
			   : g_strdup(is_inlined(tree, up) ? _(" (inlined)") : "");
		run = 0;
		out_text(out, "    ");
		print_frame(memory, out, 4, function, note, is_own || !has_own);
	}
}

void memory_print_stacks(struct memory *memory, struct out *out)
{
	const struct memory_tree *tree = &memory->tree;
	guint shown = shown_of(memory), n = memory->stacks->len;
	g_autoptr(GPtrArray) cells = g_ptr_array_new_with_free_func(g_free);
	unsigned widths[3] = { 0 };
	double rest = 0;

	for (guint i = 0; i < n; i++) {
		const struct memory_stack *stack = stack_at(memory, i);
		uint64_t blocks = memory_integer(stack->sum.blocks);
		g_autofree char *count = text_count(blocks), *share = NULL;

		rest += i < shown ? 0 : stack->sum.bytes;
		if (i >= shown)
			continue;
		share = text_percent(memory->all.leaked_bytes > 0
					     ? 100 * stack->sum.bytes / memory->all.leaked_bytes
					     : 0,
				     true);
		g_ptr_array_add(cells, text_bytes(memory_integer(stack->sum.bytes)));
		g_ptr_array_add(cells, g_strdup_printf(ngettext("%s block", "%s blocks",
								(unsigned long)blocks),
						       count));
		g_ptr_array_add(cells, g_strdup_printf("%s %%", share));
		for (unsigned c = 0; c < 3 && memory->reader.is_padded; c++)
			widths[c] = MAX_OF(widths[c], text_width(cells->pdata[i * 3 + c]));
	}
	for (guint i = 0; i < shown; i++) {
		const struct memory_stack *stack = stack_at(memory, i);
		g_autofree char *sites = NULL, *note = NULL;

		for (unsigned c = 0; c < 3; c++) {
			const char *text = cells->pdata[i * 3 + c];

			g_autofree char *padded =
				text_fit(text, MAX_OF(widths[c], text_width(text)), TEXT_RIGHT);

			out_printf(out, "%s  ", padded);
		}
		sites = stack->sites > 1 ? g_strdup_printf(ngettext("  (%u site)", "  (%u sites)",
								    stack->sites),
							   stack->sites)
					 : g_strdup("");
		note = g_strconcat(is_inlined(tree, stack->start) ? _(" (inlined)") : "",
				   stack->callee ? "" : sites, NULL);
		print_frame(memory, out, widths[0] + widths[1] + widths[2] + 6,
			    memory_node_at(tree, stack->start)->function, note, true);
		if (stack->callee) {
			out_text(out, "    ");
			print_frame(memory, out, 4, whole_at(tree, stack->callee), sites, false);
		}
		print_callers(memory, out, stack->start);
	}
	if (shown < n) {
		g_autofree char *amount = text_bytes(memory_integer(rest));

		out_printf(out,
			   ngettext("%u more place, %s (--limit 0)\n",
				    "%u more places, %s (--limit 0)\n", n - shown),
			   n - shown, amount);
	}
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void write_frame(const struct memory_tree *tree, struct json *json, uint32_t function,
			uint32_t node)
{
	json_begin_object(json, NULL);
	functions_write(tree->functions, function, json);
	json_bool(json, "inline", is_inlined(tree, node));
	json_end(json);
}

void memory_write_stacks(struct memory *memory, struct json *json)
{
	const struct memory_tree *tree = &memory->tree;

	json_begin_array(json, "stacks");
	for (guint i = 0; i < shown_of(memory); i++) {
		const struct memory_stack *stack = stack_at(memory, i);

		json_begin_object(json, NULL);
		json_uint(json, "leaked_bytes", memory_integer(stack->sum.bytes));
		json_uint(json, "leaked_blocks", memory_integer(stack->sum.blocks));
		json_uint(json, "sites", stack->sites);
		json_string(json, "runtime",
			    stack->pool < RUNTIME_POOLS ? runtime_pool_name(stack->pool) : NULL);
		json_begin_array(json, "frames");
		if (stack->callee)
			write_frame(tree, json, whole_at(tree, stack->callee), stack->callee);
		for (uint32_t up = stack->start; up; up = memory_node_at(tree, up)->parent)
			write_frame(tree, json, memory_node_at(tree, up)->function, up);
		json_end(json);
		json_end(json);
	}
	json_end(json);
	json_uint(json, "stacks_total", memory->stacks->len);
}
