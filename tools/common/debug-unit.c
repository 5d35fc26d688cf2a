/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Debug unit - one unit of DWARF, flattened into ranges of functions and of lines
 *
 * One pass over the tree of DIEs, with an explicit stack instead of recursion, turns each
 * subprogram and inlined subroutine with code into a function with its ranges. A sweep over the
 * ends of all ranges then gives each stretch of code to the deepest function that covers it. Lines
 * become ranges likewise, without those of length 0. Names are read when they are first needed,
 * because most functions never need one.
 * Invariants: (1) work is linear in the bytes of the unit, except for sorting, and bounded by the
 *                 budget
 *             (2) chains of callers are finite: a function's caller comes before it
 *             (3) every chain of references between DIEs ends after MAX_REFERENCES
 *             (4) the answers are those of addr2line  [test_debug_places]
 */
#include "tools/common/debug-unit.h"

#include "arch/base.h"

#include <dwarf.h>
#include <glib.h>
#include <string.h>

#define MAX_DEPTH 512
#define MAX_REFERENCES 16
#define DIES_BETWEEN_CLOCKS 1024

/* A range of a function. */
struct extent {
	uint64_t start;
	uint64_t end;
	uint32_t function;
};

struct walk {
	struct debug_budget *budget;
	/* struct debug_info_function; caller is the index + 1 until all are added */
	GArray *functions;
	GArray *extents; /* struct extent */
	GArray *scopes;  /* struct debug_scope */
	uint32_t scope;  /* the innermost that is open; DEBUG_UNIT_NONE = none */
};

/* ---- the tree of DIEs ------------------------------------------------------------------------ */

static bool spend(struct debug_budget *budget, uint64_t *left)
{
	if (*left == 0)
		budget->spent = true;
	else
		--*left;
	return !budget->spent;
}

static bool spend_die(struct debug_budget *budget)
{
	if (budget->dies % DIES_BETWEEN_CLOCKS == 0 &&
	    (uint64_t)g_get_monotonic_time() * 1000 > budget->until_ns)
		budget->spent = true;
	return spend(budget, &budget->dies);
}

static bool may_hold_code(int tag)
{
	switch (tag) {
	case DW_TAG_subprogram:
	case DW_TAG_inlined_subroutine:
	case DW_TAG_lexical_block:
	case DW_TAG_try_block:
	case DW_TAG_catch_block:
	case DW_TAG_with_stmt:
	case DW_TAG_namespace:
	case DW_TAG_module:
	case DW_TAG_common_block:
	case DW_TAG_class_type:
	case DW_TAG_structure_type:
	case DW_TAG_union_type:
	case DW_TAG_enumeration_type:
	case DW_TAG_compile_unit:
	case DW_TAG_partial_unit:
		return true;
	default:
		return false;
	}
}

static uint32_t get_number(Dwarf_Die *die, unsigned int name)
{
	Dwarf_Attribute attribute;
	Dwarf_Word value;

	return dwarf_attr(die, name, &attribute) && dwarf_formudata(&attribute, &value) == 0 &&
			       value < UINT32_MAX
		       ? (uint32_t)value
		       : 0;
}

/* Adds the ranges of a DIE to the next function; returns false if it has none. */
static bool add_extents(struct walk *walk, Dwarf_Die *die, struct debug_info_function *function)
{
	Dwarf_Addr base, start, end;
	ptrdiff_t at = 0;
	bool any = false;

	while ((at = dwarf_ranges(die, at, &base, &start, &end)) > 0 &&
	       spend(walk->budget, &walk->budget->ranges)) {
		const struct extent extent = { start, end, walk->functions->len };

		if (start >= end)
			continue;
		g_array_append_val(walk->extents, extent);
		function->start = any ? MIN_OF(function->start, start) : start;
		function->end = any ? MAX_OF(function->end, end) : end;
		function->scattered = any;
		any = true;
	}
	return any;
}

/* Returns the number + 1 of the DIE's function, or `outer`, the number of the enclosing one. */
static size_t add_function(struct walk *walk, Dwarf_Die *die, size_t outer, uint32_t depth)
{
	bool inlined = dwarf_tag(die) == DW_TAG_inlined_subroutine;
	struct debug_info_function function = { .die = dwarf_dieoffset(die), .depth = depth };

	if (!inlined && dwarf_tag(die) != DW_TAG_subprogram)
		return outer;
	if (walk->functions->len >= DEBUG_UNIT_NONE - 1 || !add_extents(walk, die, &function))
		return inlined ? outer : 0;
	if (inlined) {
		function.caller = GSIZE_TO_POINTER(outer);
		function.call_file = get_number(die, DW_AT_call_file);
		function.line = get_number(die, DW_AT_call_line);
	}
	g_array_append_val(walk->functions, function);
	return walk->functions->len;
}

static bool is_scope(int tag)
{
	return tag == DW_TAG_namespace || tag == DW_TAG_class_type ||
	       tag == DW_TAG_structure_type || tag == DW_TAG_union_type;
}

/* Ends the scopes that the DIE is not in, and begins one if it is a scope. */
static void add_scope(struct walk *walk, Dwarf_Die *die, size_t depth)
{
	struct debug_scope *scopes = (struct debug_scope *)(void *)walk->scopes->data;
	struct debug_scope scope = { .start = dwarf_dieoffset(die),
				     .end = UINT64_MAX,
				     .depth = (uint32_t)depth };

	for (; walk->scope != DEBUG_UNIT_NONE && scopes[walk->scope].depth >= depth;
	     walk->scope = scopes[walk->scope].parent)
		scopes[walk->scope].end = scope.start;
	if (!is_scope(dwarf_tag(die)))
		return;
	scope.parent = walk->scope;
	walk->scope = walk->scopes->len;
	g_array_append_val(walk->scopes, scope);
}

static void walk_dies(struct walk *walk, Dwarf_Die *unit)
{
	struct {
		Dwarf_Die die;
		size_t function;
	} *stack = g_malloc(MAX_DEPTH * sizeof(*stack));
	size_t depth = 0;
	bool more = dwarf_child(unit, &stack[0].die) == 0;

	while (more && spend_die(walk->budget)) {
		Dwarf_Die *die = &stack[depth].die;

		add_scope(walk, die, depth);
		if (may_hold_code(dwarf_tag(die))) {
			stack[depth].function = add_function(
				walk, die, depth ? stack[depth - 1].function : 0, (uint32_t)depth);
			if (depth + 1 == MAX_DEPTH)
				walk->budget->spent = true;
			else if (dwarf_child(die, &stack[depth + 1].die) == 0) {
				depth++;
				continue;
			}
		}
		while ((more = dwarf_siblingof(die, die) == 0) == false && depth > 0)
			die = &stack[--depth].die;
	}
	g_free(stack);
}

/* ---- the deepest function -------------------------------------------------------------------- */

static gint compare_extents(gconstpointer left, gconstpointer right)
{
	const struct extent *a = left, *b = right;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	return (a->function > b->function) - (a->function < b->function);
}

/* A heap of the extents that cover the current address: the deepest on top; of equal depth the
 * shorter one, which is more exact. */
struct heap {
	const struct debug_info_function *functions;
	GPtrArray *extents;
};

static bool is_above(const struct heap *heap, guint a, guint b)
{
	const struct extent *left = heap->extents->pdata[a], *right = heap->extents->pdata[b];
	uint32_t left_depth = heap->functions[left->function].depth;
	uint32_t right_depth = heap->functions[right->function].depth;

	if (left_depth != right_depth)
		return left_depth > right_depth;
	return left->end - left->start < right->end - right->start;
}

static void swap(struct heap *heap, guint a, guint b)
{
	gpointer held = heap->extents->pdata[a];

	heap->extents->pdata[a] = heap->extents->pdata[b];
	heap->extents->pdata[b] = held;
}

static void heap_add(struct heap *heap, struct extent *extent)
{
	guint at = heap->extents->len;

	g_ptr_array_add(heap->extents, extent);
	for (; at > 0 && is_above(heap, at, (at - 1) / 2); at = (at - 1) / 2)
		swap(heap, at, (at - 1) / 2);
}

static void heap_take(struct heap *heap)
{
	guint at = 0;

	(void)g_ptr_array_remove_index_fast(heap->extents, 0);
	while (2 * at + 1 < heap->extents->len) {
		guint child = 2 * at + 1;

		if (child + 1 < heap->extents->len && is_above(heap, child + 1, child))
			child++;
		if (!is_above(heap, child, at))
			break;
		swap(heap, at, child);
		at = child;
	}
}

static const struct extent *heap_top(struct heap *heap, uint64_t at)
{
	while (heap->extents->len > 0) {
		const struct extent *top = heap->extents->pdata[0];

		if (top->end > at)
			return top;
		heap_take(heap);
	}
	return NULL;
}

static void add_range(GArray *ranges, uint64_t start, uint32_t function)
{
	const struct debug_range range = { start, function };
	struct debug_range *last =
		ranges->len ? &g_array_index(ranges, struct debug_range, ranges->len - 1) : NULL;

	if (last && last->start == start)
		last->function = function;
	else if (!last || last->function != function)
		g_array_append_val(ranges, range);
}

/* Steps from change to change: the start of an extent or the end of the deepest. */
static void sweep(struct debug_unit *unit, GArray *extents)
{
	g_autoptr(GPtrArray) open = g_ptr_array_new();
	struct heap heap = { unit->functions, open };
	GArray *ranges = g_array_new(FALSE, FALSE, sizeof(struct debug_range));
	uint64_t at = 0;
	guint next = 0;

	g_array_sort(extents, compare_extents);
	while (next < extents->len || open->len > 0) {
		const struct extent *top = heap_top(&heap, at);

		if (!top && next == extents->len)
			break;
		if (!top)
			at = g_array_index(extents, struct extent, next).start;
		while (next < extents->len &&
		       g_array_index(extents, struct extent, next).start == at)
			heap_add(&heap, &g_array_index(extents, struct extent, next++));
		top = heap_top(&heap, at);
		add_range(ranges, at, top->function);
		at = top->end;
		if (next < extents->len)
			at = MIN_OF(at, g_array_index(extents, struct extent, next).start);
		if (!heap_top(&heap, at))
			add_range(ranges, at, DEBUG_UNIT_NONE);
	}
	unit->n_ranges = ranges->len;
	unit->ranges = (struct debug_range *)(void *)g_array_free(ranges, FALSE);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void add_line(GArray *lines, const struct debug_line *line)
{
	struct debug_line *last =
		lines->len ? &g_array_index(lines, struct debug_line, lines->len - 1) : NULL;

	/* The last of several rows with one address counts: the others cover no code. */
	if (last && last->start == line->start)
		*last = *line;
	else if (!last || last->line != line->line || last->file != line->file)
		g_array_append_vals(lines, line, 1);
}

static void read_lines(struct debug_unit *unit, Dwarf_Die *die, struct debug_budget *budget)
{
	GArray *lines = g_array_new(FALSE, FALSE, sizeof(struct debug_line));
	Dwarf_Lines *rows;
	size_t n = 0;

	if (dwarf_getsrclines(die, &rows, &n) != 0)
		n = 0;
	for (size_t i = 0; i < n && spend(budget, &budget->lines); i++) {
		Dwarf_Line *row = dwarf_onesrcline(rows, i);
		struct debug_line line = { 0 };
		bool is_end = false;
		int number = 0;

		if (!row || dwarf_lineaddr(row, &line.start) != 0)
			continue;
		(void)dwarf_lineendsequence(row, &is_end);
		if (!is_end && dwarf_lineno(row, &number) == 0 && number > 0) {
			line.line = (uint32_t)number;
			line.file = dwarf_linesrc(row, NULL, NULL);
		}
		add_line(lines, &line);
	}
	unit->n_lines = lines->len;
	unit->lines = (struct debug_line *)(void *)g_array_free(lines, FALSE);
}

/* ---- names ----------------------------------------------------------------------------------- */

static const char *get_string(Dwarf_Die *die, unsigned int name)
{
	Dwarf_Attribute attribute;

	return dwarf_attr(die, name, &attribute) ? dwarf_formstring(&attribute) : NULL;
}

/* libdw calls file 0 "???" if it does not exist, as before DWARF 5. */
static const char *get_file(struct debug_unit *of, Dwarf_Die *die, uint32_t file)
{
	const char *path;
	Dwarf_Files *files;
	Dwarf_Die unit;
	size_t n;

	if (!dwarf_diecu(die, &unit, NULL, NULL))
		return NULL;
	/* A half without its own file table, as clang writes it, uses the skeleton's. */
	if (dwarf_getsrcfiles(&unit, &files, &n) != 0 &&
	    (unit.cu != of->die.cu || dwarf_getsrcfiles(&of->skeleton, &files, &n) != 0))
		return NULL;
	if (file >= n)
		return NULL;
	path = dwarf_filesrc(files, file, NULL, NULL);
	return path && strcmp(path, "???") != 0 ? path : NULL;
}

static bool follow(Dwarf_Die *die)
{
	static const unsigned int references[] = { DW_AT_abstract_origin, DW_AT_specification };
	Dwarf_Attribute attribute;

	for (size_t i = 0; i < ARRAY_SIZE(references); i++)
		if (dwarf_attr(die, references[i], &attribute))
			return dwarf_formref_die(&attribute, die) != NULL;
	return false;
}

/* Returns the innermost scope that holds a DIE of this unit, or DEBUG_UNIT_NONE. */
static uint32_t scope_at(const struct debug_unit *unit, uint64_t die)
{
	const struct debug_scope *scopes = (const struct debug_scope *)(void *)unit->scopes->data;
	uint32_t low = 0, high = unit->scopes->len, at;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (scopes[middle].start < die)
			low = middle + 1;
		else
			high = middle;
	}
	for (at = low ? low - 1 : DEBUG_UNIT_NONE; at != DEBUG_UNIT_NONE && scopes[at].end <= die;)
		at = scopes[at].parent;
	return at;
}

/* Returns "shop::kernel" for the name of a function without linkage name in a namespace. */
static const char *scoped_name(struct debug_unit *unit, const char *name, Dwarf_Die *die)
{
	Dwarf *dwarf = dwarf_cu_getdwarf(die->cu);
	g_autoptr(GString) text = NULL;
	uint32_t at = dwarf == dwarf_cu_getdwarf(unit->die.cu)
			      ? scope_at(unit, dwarf_dieoffset(die))
			      : DEBUG_UNIT_NONE;

	if (at == DEBUG_UNIT_NONE || strstr(name, "::"))
		return name;
	text = g_string_new(name);
	for (; at != DEBUG_UNIT_NONE;
	     at = g_array_index(unit->scopes, struct debug_scope, at).parent) {
		uint64_t offset = g_array_index(unit->scopes, struct debug_scope, at).start;
		const char *outer = NULL;
		Dwarf_Die scope;

		if (dwarf_offdie(dwarf, offset, &scope))
			outer = get_string(&scope, DW_AT_name);
		g_string_prepend(text, "::");
		g_string_prepend(text, outer ? outer : "(anonymous namespace)");
	}
	if (!unit->names)
		unit->names = g_string_chunk_new(1024);
	return g_string_chunk_insert_const(unit->names, text->str);
}

/* The linkage name may be in a declaration that the DIE with the plain name refers to. */
static void read_name(struct debug_unit *unit, struct debug_info_function *function, Dwarf_Die *die)
{
	const char *plain = NULL, *linkage = NULL;
	bool declared = function->caller != NULL;

	for (int i = 0; i < MAX_REFERENCES && !linkage; i++) {
		linkage = get_string(die, DW_AT_linkage_name);
		if (!linkage)
			linkage = get_string(die, DW_AT_MIPS_linkage_name);
		if (!plain)
			plain = get_string(die, DW_AT_name);
		if (!declared && get_number(die, DW_AT_decl_line) != 0) {
			declared = true;
			function->line = get_number(die, DW_AT_decl_line);
			function->file = get_file(unit, die, get_number(die, DW_AT_decl_file));
		}
		if (!follow(die))
			break;
	}
	function->name = linkage ? linkage : plain ? scoped_name(unit, plain, die) : NULL;
}

static void name_chain(struct debug_unit *unit, struct debug_info_function *function)
{
	Dwarf *dwarf = dwarf_cu_getdwarf(unit->die.cu);

	for (; function && !function->named;
	     function = (struct debug_info_function *)function->caller) {
		Dwarf_Die die;

		function->named = true;
		if (!dwarf_offdie(dwarf, function->die, &die))
			continue;
		if (function->caller && function->line)
			function->file = get_file(unit, &die, function->call_file);
		read_name(unit, function, &die);
	}
}

/* ---- the unit -------------------------------------------------------------------------------- */

static void find_split(struct debug_unit *unit, struct debug_split *split)
{
	uint8_t type;

	unit->die = unit->skeleton;
	if (!split || dwarf_cu_info(unit->die.cu, NULL, &type, NULL, NULL, NULL, NULL, NULL) != 0 ||
	    type != DW_UT_skeleton)
		return;
	unit->half = debug_split_open(split, &unit->skeleton);
	if (unit->half)
		unit->die = debug_half_unit(unit->half);
}

void debug_unit_init(struct debug_unit *unit, Dwarf_Die *die, struct debug_split *split,
		     struct debug_budget *budget)
{
	g_autoptr(GArray) extents = g_array_new(FALSE, FALSE, sizeof(struct extent));
	struct walk walk = { .budget = budget, .extents = extents, .scope = DEBUG_UNIT_NONE };

	*unit = (struct debug_unit){ .skeleton = *die };
	find_split(unit, split);
	walk.functions = g_array_new(FALSE, FALSE, sizeof(struct debug_info_function));
	walk.scopes = unit->scopes = g_array_new(FALSE, FALSE, sizeof(struct debug_scope));
	walk_dies(&walk, &unit->die);
	unit->n_functions = walk.functions->len;
	unit->functions = (struct debug_info_function *)(void *)g_array_free(walk.functions, FALSE);
	for (size_t i = 0; i < unit->n_functions; i++) {
		size_t caller = GPOINTER_TO_SIZE(unit->functions[i].caller);

		unit->functions[i].caller = caller ? &unit->functions[caller - 1] : NULL;
	}
	sweep(unit, extents);
	read_lines(unit, die, budget);
}

void debug_unit_done(struct debug_unit *unit)
{
	g_free(unit->functions);
	g_free(unit->ranges);
	g_free(unit->lines);
	g_array_unref(unit->scopes);
	if (unit->names)
		g_string_chunk_free(unit->names);
	debug_half_free(unit->half);
	*unit = (struct debug_unit){ 0 };
}

struct debug_info_function *debug_unit_find_function(struct debug_unit *unit, uint64_t address,
						     uint64_t *start, uint64_t *end)
{
	struct debug_info_function *function;
	size_t low = 0, high = unit->n_ranges;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (unit->ranges[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	if (low < unit->n_ranges)
		*end = MIN_OF(*end, unit->ranges[low].start);
	if (low == 0)
		return NULL;
	*start = MAX_OF(*start, unit->ranges[low - 1].start);
	if (unit->ranges[low - 1].function == DEBUG_UNIT_NONE)
		return NULL;
	function = &unit->functions[unit->ranges[low - 1].function];
	name_chain(unit, function);
	return function;
}

const struct debug_line *debug_unit_find_line(const struct debug_unit *unit, uint64_t address,
					      uint64_t *start, uint64_t *end)
{
	size_t low = 0, high = unit->n_lines;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (unit->lines[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	if (low < unit->n_lines)
		*end = MIN_OF(*end, unit->lines[low].start);
	if (low == 0)
		return NULL;
	*start = MAX_OF(*start, unit->lines[low - 1].start);
	return unit->lines[low - 1].line ? &unit->lines[low - 1] : NULL;
}
