/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Code-origin - which functions a program's authors wrote, and which of them samples belong to
 *
 * The origin follows from the name of the image, the namespace of the function and the folder of
 * its source, because no debug information says who wrote it. A library of the program counts as
 * its own code.
 */
#include "tools/profcapture/code-origin.h"

#include "tools/profcapture/function-names.h"

#include <string.h>

static bool has_prefix(const char *text, const char *const *prefixes)
{
	for (; *prefixes; prefixes++)
		if (g_str_has_prefix(text, *prefixes))
			return true;
	return false;
}

static enum code_origin origin_of_image(const char *path)
{
	static const char *const libc[] = { "libc.so",    "libc-2.",        "libm.so", "libm-2.",
					    "ld-linux",   "ld-musl",        "ld-2.",   "ld64.so",
					    "librt.so",   "libdl.so",       "[vdso]",  "libpthread",
					    "[vsyscall]", "libprofpreload", NULL };
	static const char *const library[] = { "libstdc++.so", "libc++.so",  "libc++abi.so",
					       "libgcc_s.so",  "libgomp.so", "libstd-",
					       "libunwind.so", NULL };
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;

	return has_prefix(name, libc)      ? CODE_ORIGIN_LIBC
	       : has_prefix(name, library) ? CODE_ORIGIN_LIBRARY
					   : CODE_ORIGIN_OWN;
}

bool code_origin_is_library(const char *name)
{
	static const char *const namespaces[] = { "std::",           "__gnu_cxx::", "__cxxabiv1::",
						  "core::",          "alloc::",     "<core::",
						  "<alloc::",        "<std::",      "operator new",
						  "operator delete", "__gthread_",  NULL };
	g_autofree char *plain = function_name_plain(name);

	return has_prefix(plain, namespaces);
}

/* Code that a program includes from an installed header is not its own. */
static bool is_installed(const char *file)
{
	static const char *const folders[] = { "/usr/include/", "/usr/local/include/",
					       "/usr/lib/gcc/", NULL };

	return file && has_prefix(file, folders);
}

enum code_origin code_origin_of(const struct functions *functions, uint32_t function)
{
	const struct function *f = functions_at(functions, function);
	const char *path = functions_image(functions, function);
	enum code_origin origin;

	if (strcmp(f->kind, "kernel") == 0)
		return CODE_ORIGIN_KERNEL;
	if (path && *path == '<') /* "<deeper>" */
		return CODE_ORIGIN_UNKNOWN;
	/* The program generated the code that is in no file. */
	origin = path ? origin_of_image(path) : CODE_ORIGIN_OWN;
	if (origin == CODE_ORIGIN_OWN &&
	    (code_origin_is_library(f->name) || is_installed(f->file ? f->file : f->code_file)))
		origin = CODE_ORIGIN_LIBRARY;
	return origin;
}

enum cct_kind code_origin_cct_kind(const struct functions *functions, uint32_t function)
{
	if (function <= FUNCTION_LOST)
		return CCT_UNKNOWN;
	switch (code_origin_of(functions, function)) {
	case CODE_ORIGIN_OWN:
		return CCT_OWN;
	case CODE_ORIGIN_KERNEL:
		return function_name_is_syscall(functions_at(functions, function)->raw_name)
			       ? CCT_SYSCALL
			       : CCT_KERNEL;
	case CODE_ORIGIN_UNKNOWN:
		return CCT_UNKNOWN;
	default:
		return CCT_LIBRARY;
	}
}

/* Returns the innermost own function at or above each node, or FUNCTION_NO_STACK. */
static uint32_t *owners_of(const struct functions *functions, const struct stacks *stacks)
{
	uint32_t *owners = g_new0(uint32_t, stacks->n);
	g_autofree uint8_t *origins = g_new0(uint8_t, functions->all->len); /* plus 1 */

	for (size_t i = 0; i < stacks->n; i++) {
		uint32_t row = stacks->order[i], function = stacks->entity[row];
		uint32_t parent = stacks->parent[row];

		owners[row] = parent == STACKS_NO_ROW ? FUNCTION_NO_STACK : owners[parent];
		if (stacks->total[row].weight == 0 || function <= FUNCTION_LOST)
			continue;
		function = functions_whole(functions, function);
		if (origins[function] == 0)
			origins[function] = (uint8_t)code_origin_of(functions, function) + 1;
		if (origins[function] == CODE_ORIGIN_OWN + 1)
			owners[row] = function;
	}
	return owners;
}

void own_weights_count(struct own_weights *own, const struct functions *functions,
		       const struct stacks *stacks)
{
	g_autofree uint32_t *owners = owners_of(functions, stacks);

	if (!own->weights)
		own->weights = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
	for (size_t row = 0; row < stacks->n; row++) {
		uint32_t leaf = functions_whole(functions, stacks->entity[row]);
		uint64_t key = (uint64_t)owners[row] << 32 | leaf, *weight;

		if (stacks->self[row].weight == 0 || owners[row] == FUNCTION_NO_STACK)
			continue;
		weight = g_hash_table_lookup(own->weights, &key);
		if (!weight) {
			weight = g_new0(uint64_t, 1);
			g_hash_table_insert(own->weights, g_memdup2(&key, sizeof(key)), weight);
		}
		*weight += stacks->self[row].weight;
	}
}

void own_weights_done(struct own_weights *own)
{
	g_clear_pointer(&own->weights, g_hash_table_unref);
}

static gint compare_rows(gconstpointer left, gconstpointer right)
{
	const struct own_weight_row *a = left, *b = right;

	if (a->weight != b->weight)
		return a->weight > b->weight ? -1 : 1;
	return a->function < b->function ? -1 : a->function > b->function;
}

GArray *own_weights_rows(const struct own_weights *own)
{
	GArray *rows = g_array_new(FALSE, TRUE, sizeof(struct own_weight_row));
	g_autoptr(GHashTable) indexes = g_hash_table_new(NULL, NULL); /* function → index + 1 */
	GHashTableIter iter;
	gpointer key, value;

	if (!own->weights)
		return rows;
	g_hash_table_iter_init(&iter, own->weights);
	while (g_hash_table_iter_next(&iter, &key, &value)) {
		uint32_t function = (uint32_t)(*(uint64_t *)key >> 32), leaf = *(uint64_t *)key;
		uint64_t weight = *(uint64_t *)value;
		gpointer at = GUINT_TO_POINTER(function);
		guint index = GPOINTER_TO_UINT(g_hash_table_lookup(indexes, at));
		struct own_weight_row *row;

		if (index == 0) {
			g_array_append_val(rows, ((struct own_weight_row){ .function = function }));
			g_hash_table_insert(indexes, at, GUINT_TO_POINTER(index = rows->len));
		}
		row = &g_array_index(rows, struct own_weight_row, index - 1);
		row->weight += weight;
		if (weight > row->hottest_weight ||
		    (weight == row->hottest_weight && leaf < row->hottest)) {
			row->hottest = leaf;
			row->hottest_weight = weight;
		}
	}
	g_array_sort(rows, compare_rows);
	return rows;
}
