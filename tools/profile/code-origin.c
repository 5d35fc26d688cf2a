/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Code-origin - distinguishes a program's own functions from libraries, and charges samples to own
 * functions
 *
 * Debug information does not record who wrote a function, so the origin is derived from the name of
 * the image, the namespace and the directory of the source. A program's own libraries count as its
 * own code. For programs of the system, the system's libraries also count as own code, because they
 * may contain much of such a program. If a capture has functions of an interpreted language, the
 * interpreter and the installed modules of that language, compiled or not, count as a library.
 */
#include "tools/profile/code-origin.h"

#include "base/order.h"
#include "tools/profile/function-names.h"

#include <string.h>

bool code_origin_is_library(const char *name)
{
	static const char *const namespaces[] = { "std::",           "__gnu_cxx::", "__cxxabiv1::",
						  "core::",          "alloc::",     "<core::",
						  "<alloc::",        "<std::",      "operator new",
						  "operator delete", "__gthread_",  NULL };
	g_autofree char *plain = function_name_plain(name);

	return skip_any_prefix(plain, namespaces);
}

/* Returns whether an image is kernel code. A function's kind does not show this, because kernel
 * code without a name is not of the kind "kernel". */
static bool is_kernel_image(const struct functions *functions, uint32_t image)
{
	if (image <= NAMES_LOST)
		return false;
	switch (names_image_at(functions->names, image)->kind) {
	case PROF_IMAGE_KERNEL:
	case PROF_IMAGE_MODULE:
	case PROF_IMAGE_BPF:
		return true;
	default:
		return false;
	}
}

/* The file name of an interpreter is one of `hosts`, then a version or "-NAME". Patterns of
 * `modules` match anywhere in a path if they start with '/', else at its start. */
static const struct language {
	const char *name, *hosts[4], *modules[12];
} languages[] = {
	{ "python",
	  { "python", "libpython" },
	  { "<frozen ", "/lib/python2", "/lib/python3", "/lib64/python2", "/lib64/python3",
	    "/site-packages/", "/dist-packages/" } },
	{ "ruby",
	  { "ruby", "libruby" },
	  { "<internal:", "/ruby/2.", "/ruby/3.", "/ruby/4.", "/ruby/vendor_ruby/",
	    "/ruby/site_ruby/", "/ruby/gems/", "/gems/2.", "/gems/3.", "/gems/4.",
	    "/gems/ruby-" } },
	{ "php",
	  { "php", "libphp" },
	  { "/share/php/", "/lib/php/2", "/lib/php/extensions/", "/vendor/" } },
	{ "perl",
	  { "perl", "libperl" },
	  { "/share/perl/", "/share/perl5/", "/lib/perl5/", "/lib64/perl5/", "/perl-base/",
	    "/perl/5.", "/lib/5." } },
	{ "javascript",
	  { "node", "nodejs", "libnode" },
	  { "node:", "internal/", "/node_modules/" } },
};

static bool is_host(const struct language *language, const char *image)
{
	for (size_t i = 0; language->hosts[i]; i++) {
		const size_t length = strlen(language->hosts[i]);

		if (strncmp(image, language->hosts[i], length) == 0 &&
		    !g_ascii_isalpha(image[length]) && image[length] != '_')
			return true;
	}
	return false;
}

static bool is_module(const struct language *language, const char *path)
{
	for (size_t i = 0; language->modules[i]; i++)
		if (*language->modules[i] == '/' ? strstr(path, language->modules[i]) != NULL
						 : g_str_has_prefix(path, language->modules[i]))
			return true;
	return false;
}

static bool is_part_of(const struct language *language, const struct function *f, const char *image,
		       const char *file)
{
	/* Interpreted functions without a file are built into the interpreter. The first function
	 * of Ruby has the file "ruby". */
	if (strcmp(f->kind, language->name) == 0)
		return !file || is_module(language, file) || strcmp(file, language->name) == 0;
	if (strcmp(f->kind, "jit") == 0)
		return file && is_module(language, file);
	return image &&
	       (is_host(language, functions_basename(image)) || is_module(language, image));
}

/* Returns whether a function belongs to an interpreter, or to installed modules of its language. */
static bool is_of_language(const struct functions *functions, const struct function *f,
			   const char *image, const char *file)
{
	for (size_t i = 0; i < ARRAY_SIZE(languages); i++)
		if (g_hash_table_contains(functions->languages, languages[i].name) &&
		    is_part_of(&languages[i], f, image, file))
			return true;
	return false;
}

static bool is_system_library(const char *path)
{
	static const char *const folders[] = { "/usr/lib", "/lib", NULL };

	return path && skip_any_prefix(path, folders) && strstr(functions_basename(path), ".so");
}

enum code_origin code_origin_of(const struct functions *functions, uint32_t function)
{
	static const char *const libc[] = { "libc.so",    "libc-2.",        "libm.so", "libm-2.",
					    "ld-linux",   "ld-musl",        "ld-2.",   "ld64.so",
					    "librt.so",   "libdl.so",       "[vdso]",  "libpthread",
					    "[vsyscall]", "libprofpreload", NULL };
	static const char *const library[] = { "libstdc++.so", "libc++.so",  "libc++abi.so",
					       "libgcc_s.so",  "libgomp.so", "libstd-",
					       "libunwind.so", NULL };
	static const char *const installed[] = { "/usr/include/", "/usr/local/include/",
						 "/usr/lib/gcc/", NULL };
	const struct function *f = functions_at(functions, function);
	const char *path = functions_image(functions, function);
	const char *image = functions_basename(path), *file = f->file ? f->file : f->code_file;

	if (strcmp(f->kind, "kernel") == 0 || is_kernel_image(functions, f->image))
		return CODE_ORIGIN_KERNEL;
	if (path && *path == '<') /* "<deeper>" */
		return CODE_ORIGIN_UNKNOWN;
	if (skip_any_prefix(image, libc) || strcmp(f->name, "_start") == 0)
		return CODE_ORIGIN_LIBC;
	/* Code that a program includes from an installed header is a library's. Code without an
	 * image file was generated by the program. */
	return skip_any_prefix(image, library) || code_origin_is_library(f->name) ||
			       (file && skip_any_prefix(file, installed)) ||
			       is_of_language(functions, f, path, file) ||
			       (functions->is_foreign && is_system_library(path))
		       ? CODE_ORIGIN_LIBRARY
		       : CODE_ORIGIN_OWN;
}

enum cct_kind code_origin_cct_kind(const struct functions *functions, uint32_t function)
{
	/* functions through which every system call enters the kernel */
	static const char *const entries[] = { "entry_SYSCALL", "entry_SYSENTER", "do_syscall_64",
					       "x64_sys_call",  "el0t_64_sync",   "el0_svc",
					       "do_el0_svc",    "invoke_syscall", NULL };
	const char *name;

	if (function <= FUNCTION_LOST)
		return CCT_UNKNOWN;
	switch (code_origin_of(functions, function)) {
	case CODE_ORIGIN_OWN:
		return CCT_OWN;
	case CODE_ORIGIN_KERNEL:
		name = functions_at(functions, function)->raw_name;
		return function_name_is_syscall(name)   ? CCT_SYSCALL
		       : skip_any_prefix(name, entries) ? CCT_ENTRY
							: CCT_KERNEL;
	case CODE_ORIGIN_UNKNOWN:
		return CCT_UNKNOWN;
	default:
		return CCT_LIBRARY;
	}
}

void own_weights_count(struct own_weights *own, const struct functions *functions,
		       const struct stacks *stacks)
{
	/* by node: the innermost own function at or above it, and the innermost interpreted one.
	 * Nodes without such a function have FUNCTION_NO_STACK. */
	g_autofree uint32_t *owners = g_new0(uint32_t, stacks->n);
	g_autofree uint32_t *interpreted = g_new0(uint32_t, stacks->n);
	g_autofree uint8_t *origins = g_new0(uint8_t, functions->all->len); /* origin + 1 */

	if (!own->weights)
		own->weights = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
	for (size_t i = 0; i < stacks->n; i++) {
		uint32_t row = stacks->order[i], parent = stacks->parent[row];
		uint32_t function = functions_whole(functions, stacks->entity[row]);
		uint32_t owner;
		uint64_t key, *weight;

		interpreted[row] = parent == STACKS_NO_ROW ? FUNCTION_NO_STACK
							   : interpreted[parent];
		owners[row] = parent == STACKS_NO_ROW ? FUNCTION_NO_STACK : owners[parent];
		if (stacks->total[row].weight == 0)
			continue;
		if (origins[function] == 0)
			origins[function] = (uint8_t)code_origin_of(functions, function) + 1;
		if (function > FUNCTION_LOST && origins[function] == CODE_ORIGIN_OWN + 1)
			owners[row] = function;
		if (g_hash_table_contains(functions->languages,
					  functions_at(functions, function)->kind))
			interpreted[row] = function;
		owner = owners[row] != FUNCTION_NO_STACK ? owners[row] : interpreted[row];
		if (stacks->self[row].weight == 0 || owner == FUNCTION_NO_STACK)
			continue;
		key = (uint64_t)owner << 32 | function;
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

COMPARE_BY(compare_rows, struct own_weight_row, ORDER(b->weight, a->weight),
	   ORDER(a->function, b->function))

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
