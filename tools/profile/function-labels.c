/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profile/function-labels.h"

#include "tools/profile/function-names.h"

#include <glib/gi18n.h>
#include <string.h>

struct function_labels {
	const struct functions *functions;
	bool full_names;
	/* short text → its full text; NULL if several full texts share the short text */
	GHashTable *names, *paths;
	GHashTable *known; /* full name → index of the function + 1; 0: several have the name */
};

struct function_labels *function_labels_new(const struct functions *functions, bool full_names)
{
	struct function_labels *labels = g_new(struct function_labels, 1);

	*labels = (struct function_labels){
		.functions = functions,
		.full_names = full_names,
		.names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
		.paths = g_hash_table_new(g_str_hash, g_str_equal),
		.known = g_hash_table_new(NULL, NULL),
	};
	return labels;
}

void function_labels_free(struct function_labels *labels)
{
	if (!labels)
		return;
	g_hash_table_unref(labels->names);
	g_hash_table_unref(labels->paths);
	g_hash_table_unref(labels->known);
	g_free(labels);
}

bool function_label_has_file(const struct functions *functions, uint32_t function)
{
	static const char *const prefixes[] = { "_GLOBAL__sub_I_", "_GLOBAL__I_",
						"__static_initialization_and_destruction_0", NULL };

	return skip_any_prefix(functions_at(functions, function)->name, prefixes) &&
	       functions_path(functions, function);
}

char *function_label(const struct functions *functions, uint32_t function)
{
	const struct function *f = functions_at(functions, function);

	if (function_label_has_file(functions, function))
		return g_strdup_printf(_("static initialization of %s"),
				       functions_basename(functions_path(functions, function)));
	return function_name_for_people(f->name, f->raw_name);
}

static char *short_name(const struct function_labels *labels, uint32_t function)
{
	return function_label(labels->functions, function);
}

void function_labels_add(struct function_labels *labels, uint32_t function)
{
	const char *name = functions_at(labels->functions, function)->name;
	const char *path = functions_path(labels->functions, function);
	char *key = short_name(labels, function);
	gpointer known;

	/* Names are interned, so compare pointers. */
	if (!g_hash_table_lookup_extended(labels->names, key, NULL, &known))
		known = (gpointer)name;
	g_hash_table_insert(labels->names, key, known == name ? known : NULL);
	if (!g_hash_table_lookup_extended(labels->known, name, NULL, &known))
		known = GUINT_TO_POINTER(function + 1);
	g_hash_table_insert(labels->known, (gpointer)name,
			    known == GUINT_TO_POINTER(function + 1) ? known : NULL);
	if (!path)
		return;
	if (!g_hash_table_lookup_extended(labels->paths, functions_basename(path), NULL, &known))
		known = (gpointer)path;
	g_hash_table_insert(labels->paths, (gpointer)functions_basename(path),
			    known && strcmp(known, path) == 0 ? known : NULL);
}

char *function_labels_name(const struct function_labels *labels, uint32_t function)
{
	const struct function *f = functions_at(labels->functions, function);
	char *name;

	if (labels->full_names)
		return g_strdup(f->name);
	name = short_name(labels, function);
	if (!g_hash_table_lookup(labels->names, name)) {
		g_free(name);
		name = function_name_simplify(f->name, f->raw_name);
	}
	return name;
}

bool function_labels_is_shared(const struct function_labels *labels, uint32_t function)
{
	const char *name = functions_at(labels->functions, function)->name;
	gpointer known;

	return g_hash_table_lookup_extended(labels->known, name, NULL, &known) && !known;
}

char *function_labels_place(const struct function_labels *labels, uint32_t function)
{
	const char *path = functions_path(labels->functions, function);

	if (!labels->full_names && function_label_has_file(labels->functions, function))
		return NULL;
	return functions_place(labels->functions, function,
			       path && !g_hash_table_lookup(labels->paths,
							    functions_basename(path)));
}
