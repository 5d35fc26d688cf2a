/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The addresses of a unit come from the unit itself, because .debug_aranges is optional and often
 * missing. When one of these addresses is first looked up, the unit is flattened into ranges of
 * functions and of lines. One pass over the tree of DIEs, with an explicit stack instead of
 * recursion, turns each subprogram and inlined subroutine with code into a function with its
 * ranges. A sweep over the ends of all ranges then assigns each range of code to the deepest
 * function that covers it. Lines become ranges in the same way; those of length 0 are dropped.
 * Names are read when they are first needed, because most functions never need one. libdw checks
 * its input; a budget bounds the work.
 * Invariants: (1) a unit is flattened once, in work that is linear in its bytes, except for sorting
 *             (2) a file cannot cost more than its budget
 *             (3) chains of callers are finite: a function's caller has a lower index
 *             (4) every chain of references between DIEs ends after MAX_REFERENCES
 *             (5) the results are the same as addr2line's  [test_debug_places]
 * debug-files.h finds files.
 */
#include "tools/symbols/debug-info.h"

#include "arch/base.h"
#include "base/order.h"
#include "base/pqueue.h"
#include "tools/common/sorted.h"
#include "tools/symbols/debug-split.h"

#include <dwarf.h>
#include <glib.h>
#include <string.h>

#define MAX_UNITS (4u << 20)
#define MAX_UNIT_RANGES (64u << 20)
#define MAX_DIES (UINT64_C(1) << 30)
#define MAX_RANGES (UINT64_C(64) << 20)
#define MAX_LINES (UINT64_C(256) << 20)
#define MAX_NS (UINT64_C(60) * 1000000000)
#define MAX_DEPTH 512
#define MAX_REFERENCES 16
#define DIES_BETWEEN_CLOCKS 1024
#define NO_FUNCTION UINT32_MAX
#define NO_SCOPE UINT32_MAX
/* maximum nesting of functions in a function's name, and of types in a type's name; the rest is
 * left out */
#define MAX_NESTING 8
#define MAX_PARAMETERS 16

/* The remaining budget for one file, for all units together. */
struct debug_budget {
	uint64_t dies;     /* number of DIEs that may be visited */
	uint64_t ranges;   /* number of ranges of functions and calls */
	uint64_t lines;    /* number of rows */
	uint64_t until_ns; /* CLOCK_MONOTONIC */
	bool spent;        /* one of the limits was reached */
};

/* [start, start of the next range) belongs to functions[function], or is a gap in the code. */
struct debug_range {
	uint64_t start;
	uint32_t function; /* NO_FUNCTION: none */
};

/* [start, start of the next element) belongs to a line. */
struct debug_line {
	uint64_t start;
	const char *file; /* NULL = unknown */
	uint32_t line;    /* 0 = unknown */
};

/* A namespace or a class, with all DIEs in [start, end). */
struct debug_scope {
	uint64_t start, end;
	uint64_t function; /* DIE of the function in which a class is local; 0: none */
	uint32_t parent;   /* NO_SCOPE = none */
	uint32_t depth;    /* in the tree of DIEs */
};

struct debug_unit {
	Dwarf_Off offset; /* offset of its DIE */
	/* the other fields are valid; unreadable parts, and parts beyond the budget, are missing */
	bool is_flat;
	struct debug_info_function *functions;
	GArray *ranges;      /* struct debug_range, by start */
	GArray *lines;       /* struct debug_line, by start */
	GArray *scopes;      /* struct debug_scope, by start */
	GStringChunk *names; /* names composed from several DIEs; NULL: none */
	Dwarf_Die die; /* the unit's DIE; of a split unit, the DIE of the half that was split off */
	Dwarf_Die skeleton;      /* the half in the program or its debug file */
	struct debug_half *half; /* the half that was split off; NULL: none, or not found */
};

struct unit_range {
	uint64_t start, end;
	uint32_t unit;
};

struct debug_info {
	Dwarf *dwarf;
	struct debug_split *split; /* NULL: do not search for split units */
	GArray *units;             /* struct debug_unit */
	GArray *ranges;            /* struct unit_range, by start */
	struct debug_budget budget;
};

/* A range of a function. */
struct extent {
	uint64_t start, end;
	uint32_t function, depth;
};

struct walk {
	struct debug_budget *budget;
	/* struct debug_info_function; until all are added, `caller` is the caller's index + 1 */
	GArray *functions;
	GArray *extents; /* struct extent */
	GArray *scopes;  /* struct debug_scope */
	uint32_t scope;  /* innermost open scope; NO_SCOPE: none */
	struct walk_level {
		Dwarf_Die die;
		size_t function;
	} * stack; /* the DIE and the DIEs around it, by depth */
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

/* Adds the ranges of a DIE for `function`, which is appended next. Returns false if the DIE has no
 * ranges. */
static bool add_extents(struct walk *walk, Dwarf_Die *die, struct debug_info_function *function)
{
	Dwarf_Addr base, start, end;
	ptrdiff_t at = 0;
	bool any = false;

	while ((at = dwarf_ranges(die, at, &base, &start, &end)) > 0 &&
	       spend(walk->budget, &walk->budget->ranges)) {
		const struct extent extent = { start, end, walk->functions->len, function->depth };

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

/* Adds the function of a DIE. Returns its index + 1, or 0 if the function has no code. For other
 * DIEs, and for inlined calls without code, returns `outer`, the enclosing function. */
static size_t add_function(struct walk *walk, Dwarf_Die *die, size_t outer, uint32_t depth)
{
	bool inlined = dwarf_tag(die) == DW_TAG_inlined_subroutine;
	struct debug_info_function function = { .die = dwarf_dieoffset(die), .depth = depth };

	if (!inlined && dwarf_tag(die) != DW_TAG_subprogram)
		return outer;
	if (walk->functions->len >= NO_FUNCTION - 1 || !add_extents(walk, die, &function))
		return inlined ? outer : 0;
	if (inlined) {
		function.caller = GSIZE_TO_POINTER(outer);
		function.call_file = get_number(die, DW_AT_call_file);
		function.line = get_number(die, DW_AT_call_line);
	}
	g_array_append_val(walk->functions, function);
	return walk->functions->len;
}

/* Closes the scopes that do not contain the DIE at this depth. If the DIE is a scope, opens it. */
static void add_scope(struct walk *walk, size_t depth)
{
	Dwarf_Die *die = &walk->stack[depth].die;
	struct debug_scope *scopes = (struct debug_scope *)(void *)walk->scopes->data;
	struct debug_scope scope = { .start = dwarf_dieoffset(die),
				     .end = UINT64_MAX,
				     .depth = (uint32_t)depth };
	int tag = dwarf_tag(die);

	for (; walk->scope != NO_SCOPE && scopes[walk->scope].depth >= depth;
	     walk->scope = scopes[walk->scope].parent)
		scopes[walk->scope].end = scope.start;
	if (tag != DW_TAG_namespace && tag != DW_TAG_class_type && tag != DW_TAG_structure_type &&
	    tag != DW_TAG_union_type)
		return;
	for (size_t i = depth; tag != DW_TAG_namespace && scope.function == 0 && i-- > 0;)
		if (dwarf_tag(&walk->stack[i].die) == DW_TAG_subprogram)
			scope.function = dwarf_dieoffset(&walk->stack[i].die);
		else if (walk->scope != NO_SCOPE && scopes[walk->scope].depth == i)
			break;
	scope.parent = walk->scope;
	walk->scope = walk->scopes->len;
	g_array_append_val(walk->scopes, scope);
}

static void walk_dies(struct walk *walk, Dwarf_Die *unit)
{
	struct walk_level *stack = walk->stack = g_new(struct walk_level, MAX_DEPTH);
	size_t depth = 0;
	bool more = dwarf_child(unit, &stack[0].die) == 0;

	while (more && spend(walk->budget, &walk->budget->dies)) {
		Dwarf_Die *die = &stack[depth].die;

		if (walk->budget->dies % DIES_BETWEEN_CLOCKS == 0 &&
		    (uint64_t)g_get_monotonic_time() * 1000 > walk->budget->until_ns)
			walk->budget->spent = true;

		add_scope(walk, depth);
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

COMPARE_BY(compare_extents, struct extent, ORDER(a->start, b->start),
	   ORDER(a->function, b->function))

/* The order of the extents that cover the current address: the deepest is first; among extents of
 * equal depth, the shorter one, which is more exact. */
static bool is_above(const struct extent *left, const struct extent *right)
{
	if (left->depth != right->depth)
		return left->depth > right->depth;
	return left->end - left->start < right->end - right->start;
}

PQUEUE_DEFINE(covering, const struct extent *, is_above)

/* Removes the first extent as long as it ends at or before the address. Returns the first of the
 * rest, or NULL. */
static const struct extent *first_after(const struct extent **covering, size_t *n, uint64_t address)
{
	while (*n > 0 && covering[0]->end <= address)
		covering_pop(covering, n);
	return *n > 0 ? covering[0] : NULL;
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

/* Finds the deepest function of each range. Steps to each start of an extent and each end of the
 * deepest extent. */
static void sweep(struct debug_unit *unit, GArray *extents)
{
	g_autofree const struct extent **covering = g_new(const struct extent *, extents->len);
	GArray *ranges = g_array_new(FALSE, FALSE, sizeof(struct debug_range));
	size_t n_covering = 0;
	uint64_t at = 0;
	guint next = 0;

	g_array_sort(extents, compare_extents);
	while (next < extents->len || n_covering > 0) {
		const struct extent *top = first_after(covering, &n_covering, at);

		if (!top && next == extents->len)
			break;
		if (!top)
			at = g_array_index(extents, struct extent, next).start;
		while (next < extents->len &&
		       g_array_index(extents, struct extent, next).start == at)
			covering_push(covering, &n_covering,
				      &g_array_index(extents, struct extent, next++));
		top = first_after(covering, &n_covering, at);
		add_range(ranges, at, top->function);
		at = top->end;
		if (next < extents->len)
			at = MIN_OF(at, g_array_index(extents, struct extent, next).start);
		if (!first_after(covering, &n_covering, at))
			add_range(ranges, at, NO_FUNCTION);
	}
	unit->ranges = ranges;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void read_lines(struct debug_unit *unit, Dwarf_Die *die, struct debug_budget *budget)
{
	GArray *lines = g_array_new(FALSE, FALSE, sizeof(struct debug_line));
	Dwarf_Lines *rows;
	size_t n = 0;

	if (dwarf_getsrclines(die, &rows, &n) != 0)
		n = 0;
	for (size_t i = 0; i < n && spend(budget, &budget->lines); i++) {
		Dwarf_Line *row = dwarf_onesrcline(rows, i);
		struct debug_line line = { 0 }, *last;
		bool is_end = false;
		int number = 0;

		if (!row || dwarf_lineaddr(row, &line.start) != 0)
			continue;
		(void)dwarf_lineendsequence(row, &is_end);
		if (!is_end && dwarf_lineno(row, &number) == 0 && number > 0) {
			line.line = (uint32_t)number;
			line.file = dwarf_linesrc(row, NULL, NULL);
		}
		last = lines->len ? &g_array_index(lines, struct debug_line, lines->len - 1) : NULL;
		/* If several rows have the same address, use the last one, because the others
		 * cover no code. */
		if (last && last->start == line.start)
			*last = line;
		else if (!last || last->line != line.line || last->file != line.file)
			g_array_append_val(lines, line);
	}
	unit->lines = lines;
}

/* ---- names ----------------------------------------------------------------------------------- */

static const char *get_string(Dwarf_Die *die, unsigned int name)
{
	Dwarf_Attribute attribute;

	return dwarf_attr(die, name, &attribute) ? dwarf_formstring(&attribute) : NULL;
}

/* Returns the path of a file in the table of the DIE's unit, or NULL. If file 0 does not exist, as
 * before DWARF 5, libdw calls it "???". */
static const char *get_file(struct debug_unit *of, Dwarf_Die *die, uint32_t file)
{
	const char *path;
	Dwarf_Files *files;
	Dwarf_Die unit;
	size_t n;

	if (!dwarf_diecu(die, &unit, NULL, NULL))
		return NULL;
	/* A half without its own file table, as clang writes it, uses the table of the skeleton. */
	if (dwarf_getsrcfiles(&unit, &files, &n) != 0 &&
	    (unit.cu != of->die.cu || dwarf_getsrcfiles(&of->skeleton, &files, &n) != 0))
		return NULL;
	if (file >= n)
		return NULL;
	path = dwarf_filesrc(files, file, NULL, NULL);
	return path && strcmp(path, "???") != 0 ? path : NULL;
}

/* Replaces a DIE with its abstract origin or its declaration. Returns false if it has neither. */
static bool follow(Dwarf_Die *die)
{
	Dwarf_Attribute next;

	return (dwarf_attr(die, DW_AT_abstract_origin, &next) ||
		dwarf_attr(die, DW_AT_specification, &next)) &&
	       dwarf_formref_die(&next, die);
}

/* Appends the type of a parameter in the syntax of C++, with "…" for a type without a name. */
static void append_type(GString *text, Dwarf_Die *of)
{
	g_autoptr(GString) suffix = g_string_new(NULL);
	Dwarf_Die die = *of;

	for (int i = 0; i < MAX_NESTING; i++) {
		Dwarf_Attribute type;
		const char *name, *sign;

		if (!dwarf_attr(&die, DW_AT_type, &type)) {
			g_string_append_printf(text, "void%s", suffix->str);
			return;
		}
		if (!dwarf_formref_die(&type, &die))
			break;
		name = get_string(&die, DW_AT_name);
		if (name) {
			g_string_append_printf(text, "%s%s", name, suffix->str);
			return;
		}
		sign = dwarf_tag(&die) == DW_TAG_const_type              ? " const"
		       : dwarf_tag(&die) == DW_TAG_pointer_type          ? "*"
		       : dwarf_tag(&die) == DW_TAG_reference_type        ? "&"
		       : dwarf_tag(&die) == DW_TAG_rvalue_reference_type ? "&&"
									 : NULL;
		if (!sign)
			break;
		g_string_prepend(suffix, sign);
	}
	g_string_append(text, "…");
}

/* Returns "{lambda(int, double)}" for the operator() of a lambda's class. */
static char *lambda_name(Dwarf_Die *function)
{
	GString *text = g_string_new("{lambda(");
	unsigned n = 0;
	Dwarf_Die at;

	for (bool more = dwarf_child(function, &at) == 0; more && n < MAX_PARAMETERS;
	     more = dwarf_siblingof(&at, &at) == 0) {
		if (dwarf_tag(&at) != DW_TAG_formal_parameter ||
		    dwarf_hasattr(&at, DW_AT_artificial))
			continue;
		g_string_append(text, n++ ? ", " : "");
		append_type(text, &at);
	}
	g_string_append(text, ")}");
	return g_string_free(text, FALSE);
}

/* Returns the innermost scope around a DIE; NO_SCOPE: none, or the DIE is in another file. */
static uint32_t scope_of(const struct debug_unit *unit, Dwarf_Die *die)
{
	const struct debug_scope *scopes = (const struct debug_scope *)(void *)unit->scopes->data;
	uint64_t offset = dwarf_dieoffset(die);
	guint n = dwarf_cu_getdwarf(die->cu) == dwarf_cu_getdwarf(unit->die.cu)
			  ? sorted_array_upto(unit->scopes, sizeof(*scopes), offset)
			  : 0;
	uint32_t at = n ? n - 1 : NO_SCOPE;

	while (at != NO_SCOPE && scopes[at].end <= offset)
		at = scopes[at].parent;
	return at;
}

/* Returns whether a function is the operator() of a lambda. Sets *ret_class to its class. */
static bool is_lambda(const struct debug_unit *unit, Dwarf_Die *function, const char *name,
		      Dwarf_Die *ret_class)
{
	uint32_t at = strcmp(name, "operator()") == 0 ? scope_of(unit, function) : NO_SCOPE;

	return at != NO_SCOPE &&
	       dwarf_offdie(dwarf_cu_getdwarf(function->cu),
			    g_array_index(unit->scopes, struct debug_scope, at).start, ret_class) &&
	       dwarf_tag(ret_class) != DW_TAG_namespace && !get_string(ret_class, DW_AT_name);
}

/* Returns a new string: the name of a scope, or a word for a scope without a name. */
static char *scope_name(Dwarf_Die *scope)
{
	const char *name = get_string(scope, DW_AT_name);

	return g_strdup(name                                   ? name
			: dwarf_tag(scope) == DW_TAG_namespace ? "(anonymous namespace)"
							       : "{unnamed}");
}

/* Prepends a function's name, qualified by the namespaces, classes and functions around it. */
static void prepend_scoped(const struct debug_unit *unit, GString *text, const char *name,
			   Dwarf_Die *die, unsigned nesting)
{
	const struct debug_scope *scopes = (const struct debug_scope *)(void *)unit->scopes->data;
	Dwarf *dwarf = dwarf_cu_getdwarf(die->cu);
	uint64_t function = 0;
	Dwarf_Die of;
	bool has_lambda = is_lambda(unit, die, name, &of);

	g_string_prepend(text, name);
	for (uint32_t at = scope_of(unit, die); at != NO_SCOPE && function == 0;
	     at = scopes[at].parent) {
		g_autofree char *outer = NULL;

		if (!dwarf_offdie(dwarf, scopes[at].start, &of))
			break;
		outer = has_lambda ? lambda_name(die) : scope_name(&of);
		has_lambda = false;
		function = scopes[at].function;
		g_string_prepend(text, "::");
		g_string_prepend(text, outer);
	}
	if (function == 0 || nesting == MAX_NESTING || !dwarf_offdie(dwarf, function, &of))
		return;
	name = get_string(&of, DW_AT_name);
	for (int i = 0; i < MAX_REFERENCES && !name && follow(&of); i++)
		name = get_string(&of, DW_AT_name);
	if (!name)
		return;
	g_string_prepend(text, "::");
	prepend_scoped(unit, text, name, &of, nesting + 1);
}

/* Returns the qualified name of a function without a linkage name, such as "shop::kernel". */
static const char *scoped_name(struct debug_unit *unit, const char *name, Dwarf_Die *die)
{
	g_autoptr(GString) text = g_string_new(NULL);

	if (strstr(name, "::") || scope_of(unit, die) == NO_SCOPE)
		return name;
	prepend_scoped(unit, text, name, die, 0);
	if (!unit->names)
		unit->names = g_string_chunk_new(1024);
	return g_string_chunk_insert_const(unit->names, text->str);
}

/* Reads the position of the declaration from a DIE unless it is known. Returns whether it is now
 * known. */
static bool read_declaration(struct debug_unit *unit, struct debug_info_function *function,
			     Dwarf_Die *die)
{
	const bool is_inlined = function->caller != NULL;
	const char **file = is_inlined ? &function->declared_file : &function->file;
	uint32_t *line = is_inlined ? &function->declared_line : &function->line;

	if (*line == 0) {
		*line = get_number(die, DW_AT_decl_line);
		*file = *line ? get_file(unit, die, get_number(die, DW_AT_decl_file)) : NULL;
	}
	return *line != 0;
}

/* Follows the DIE's references even after a name is found, because the linkage name may be only in
 * a declaration to which the DIE with the plain name refers. */
static void read_name(struct debug_unit *unit, struct debug_info_function *function, Dwarf_Die *die)
{
	const char *plain = NULL, *linkage = NULL;
	bool declared = false;
	Dwarf_Die class;

	for (int i = 0; i < MAX_REFERENCES && (!linkage || !plain || !declared); i++) {
		if (!linkage)
			linkage = get_string(die, DW_AT_linkage_name);
		if (!linkage)
			linkage = get_string(die, DW_AT_MIPS_linkage_name);
		if (!plain)
			plain = get_string(die, DW_AT_name);
		declared = read_declaration(unit, function, die);
		if (!follow(die))
			break;
	}
	function->name = linkage ? linkage : plain ? scoped_name(unit, plain, die) : NULL;
	/* gcc writes the position of a lambda to its class only. */
	if (!declared && plain && is_lambda(unit, die, plain, &class))
		read_declaration(unit, function, &class);
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

static void flatten(struct debug_info *info, struct debug_unit *unit, Dwarf_Die *die)
{
	g_autoptr(GArray) extents = g_array_new(FALSE, FALSE, sizeof(struct extent));
	struct walk walk = { .budget = &info->budget, .extents = extents, .scope = NO_SCOPE };
	uint8_t type;
	guint n;

	unit->is_flat = true;
	unit->die = unit->skeleton = *die;
	if (info->split && dwarf_cu_info(die->cu, NULL, &type, NULL, NULL, NULL, NULL, NULL) == 0 &&
	    type == DW_UT_skeleton)
		unit->half = debug_split_open(info->split, &unit->skeleton, &unit->die);
	walk.functions = g_array_new(FALSE, FALSE, sizeof(struct debug_info_function));
	walk.scopes = unit->scopes = g_array_new(FALSE, FALSE, sizeof(struct debug_scope));
	walk_dies(&walk, &unit->die);
	n = walk.functions->len;
	unit->functions = (struct debug_info_function *)(void *)g_array_free(walk.functions, FALSE);
	for (guint i = 0; i < n; i++) {
		size_t caller = GPOINTER_TO_SIZE(unit->functions[i].caller);

		unit->functions[i].caller = caller ? &unit->functions[caller - 1] : NULL;
	}
	sweep(unit, extents);
	read_lines(unit, die, &info->budget);
}

static void clear_unit(gpointer data)
{
	struct debug_unit *unit = data;

	if (!unit->is_flat)
		return;
	g_free(unit->functions);
	g_array_unref(unit->ranges);
	g_array_unref(unit->lines);
	g_array_unref(unit->scopes);
	g_clear_pointer(&unit->names, g_string_chunk_free);
	debug_half_free(unit->half);
}

/* Returns the last element that starts at or before the address, or NULL. Narrows [start, end) to
 * the addresses for which this is the same element. */
static const void *find_element(const GArray *elements, size_t size, uint64_t address,
				uint64_t *start, uint64_t *end)
{
	guint n = sorted_array_upto(elements, size, address);

	if (n < elements->len)
		*end = MIN_OF(*end, *(const uint64_t *)(const void *)(elements->data + n * size));
	if (n == 0)
		return NULL;
	*start = MAX_OF(*start, *(const uint64_t *)(const void *)(elements->data + (n - 1) * size));
	return elements->data + (n - 1) * size;
}

static bool find_in_unit(struct debug_info *info, const struct unit_range *of, uint64_t address,
			 struct debug_info_place *ret_place)
{
	struct debug_unit *unit = &g_array_index(info->units, struct debug_unit, of->unit);
	struct debug_info_place place = { .start = of->start, .end = of->end };
	const struct debug_range *range;
	const struct debug_line *line;
	Dwarf_Die die;

	if (!unit->is_flat && !info->budget.spent && dwarf_offdie(info->dwarf, unit->offset, &die))
		flatten(info, unit, &die);
	if (!unit->is_flat)
		return false;
	range = find_element(unit->ranges, sizeof(*range), address, &place.start, &place.end);
	line = find_element(unit->lines, sizeof(*line), address, &place.start, &place.end);
	if (range && range->function != NO_FUNCTION) {
		place.function = &unit->functions[range->function];
		name_chain(unit, &unit->functions[range->function]);
	}
	if (line && line->line) {
		place.file = line->file;
		place.line = line->line;
	}
	if (!place.function && !place.line)
		return false;
	*ret_place = place;
	return true;
}

/* ---- the file -------------------------------------------------------------------------------- */

COMPARE_BY(compare_ranges, struct unit_range, ORDER(a->start, b->start), ORDER(a->end, b->end))

static void list_units(struct debug_info *info)
{
	Dwarf_CU *unit = NULL;
	Dwarf_Die die;
	uint8_t type;

	while (info->units->len < MAX_UNITS &&
	       dwarf_get_units(info->dwarf, unit, &unit, NULL, &type, &die, NULL) == 0) {
		const struct debug_unit new = { .offset = dwarf_dieoffset(&die) };
		Dwarf_Addr base, start, end;
		ptrdiff_t at = 0;

		if (type != DW_UT_compile && type != DW_UT_skeleton)
			continue;
		while ((at = dwarf_ranges(&die, at, &base, &start, &end)) > 0 &&
		       info->ranges->len < MAX_UNIT_RANGES) {
			const struct unit_range range = { start, end, info->units->len };

			if (start < end)
				g_array_append_val(info->ranges, range);
		}
		g_array_append_val(info->units, new);
	}
	g_array_sort(info->ranges, compare_ranges);
}

struct debug_info *debug_info_new(const struct debug_file *file)
{
	struct debug_info *info = g_new0(struct debug_info, 1);

	info->dwarf = file->dwarf;
	info->split = file->split;
	info->units = g_array_new(FALSE, FALSE, sizeof(struct debug_unit));
	g_array_set_clear_func(info->units, clear_unit);
	info->ranges = g_array_new(FALSE, FALSE, sizeof(struct unit_range));
	info->budget = (struct debug_budget){
		.dies = MAX_DIES,
		.ranges = MAX_RANGES,
		.lines = MAX_LINES,
		.until_ns = (uint64_t)g_get_monotonic_time() * 1000 + MAX_NS,
	};
	list_units(info);
	return info;
}

void debug_info_free(struct debug_info *info)
{
	if (!info)
		return;
	g_array_unref(info->units);
	g_array_unref(info->ranges);
	g_free(info);
}

/* Tries the nearest few units and uses the first result, because units may overlap if the linker
 * folded equal functions, or if the file is wrong. */
bool debug_info_find(struct debug_info *info, uint64_t address, struct debug_info_place *ret_place)
{
	guint n = sorted_array_upto(info->ranges, sizeof(struct unit_range), address);

	for (guint i = n; i > 0 && n - i < 4; i--) {
		const struct unit_range *range =
			&g_array_index(info->ranges, struct unit_range, i - 1);

		if (address < range->end && find_in_unit(info, range, address, ret_place))
			return true;
	}
	return false;
}
