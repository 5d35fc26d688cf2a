/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Suppressions - leaks to leave out, in LeakSanitizer's format
 *
 * Invariants: (1) each function and each node is compared once   (cached in two arrays)
 *             (2) the work of a comparison is proportional to the product of the lengths of pattern
 *                 and text [test_memory_reader: suppressions]
 *             (3) if a runtime function calls the program, the program's blocks are not part of a
 *                 pool [test-memory: runtime_pools]
 */
#include "config.h"

#include "tools/profcapture/suppressions.h"

#include <glib/gi18n.h>
#include <string.h>

/* ---- patterns -------------------------------------------------------------------------------- */

/* Returns whether the rest of a pattern matches a text. The pattern's part before the next * may
 * match anywhere in the text or, with `is_here`, only at its start. A part before $ must match at
 * the end. */
static bool matches_rest(const char *pattern, const char *text, bool is_here)
{
	for (;;) {
		size_t length = strcspn(pattern, "*$"), left = strlen(text);

		if (pattern[length] == '$')
			return left >= length &&
			       memcmp(text + left - length, pattern, length) == 0 &&
			       (!is_here || left == length);
		while (left >= length && memcmp(text, pattern, length) != 0) {
			if (is_here)
				return false;
			text++;
			left--;
		}
		if (left < length)
			return false;
		if (!pattern[length])
			return true;
		text += length;
		pattern += length + 1;
		is_here = false;
	}
}

bool suppression_matches(const char *pattern, const char *text)
{
	bool is_here = *pattern == '^';

	return text && *pattern && matches_rest(pattern + is_here, text, is_here);
}

/* ---- files ----------------------------------------------------------------------------------- */

static bool add_line(struct suppressions *suppressions, const char *file, unsigned number,
		     char *line, GError **error)
{
	struct suppression suppression = { 0 };

	g_strstrip(line);
	if (!*line || *line == '#')
		return true;
	if (g_str_has_prefix(line, "leak:") && line[strlen("leak:")]) {
		suppression.pattern = g_strdup(line + strlen("leak:"));
		g_array_append_val(suppressions->all, suppression);
		return true;
	}
	return cli_set_error(error, CLI_USAGE,
			     _("cannot read line %u of '%s': a suppression is 'leak:PATTERN'"),
			     number, file);
}

static void free_pattern(gpointer pointer)
{
	g_free(((struct suppression *)pointer)->pattern);
}

bool suppressions_read(struct suppressions *suppressions, const char *file, GError **error)
{
	g_autofree char *text = NULL;
	g_auto(GStrv) lines = NULL;
	g_autoptr(GError) why = NULL;

	if (!g_file_get_contents(file, &text, NULL, &why)) {
		return cli_set_error(error, CLI_FAILURE, _("cannot read suppressions '%s': %s"),
				     file, cli_reason(why));
	}
	if (!suppressions->all) {
		suppressions->all = g_array_new(FALSE, FALSE, sizeof(struct suppression));
		g_array_set_clear_func(suppressions->all, free_pattern);
		suppressions->of_function = g_array_new(FALSE, TRUE, sizeof(uint32_t));
		suppressions->of_node = g_array_new(FALSE, TRUE, sizeof(uint32_t));
	}
	lines = g_strsplit(text, "\n", -1);
	for (unsigned i = 0; lines[i]; i++)
		if (!add_line(suppressions, file, i + 1, lines[i], error))
			return false;
	return true;
}

void suppressions_done(struct suppressions *suppressions)
{
	g_clear_pointer(&suppressions->pool_of_node, g_byte_array_unref);
	g_clear_pointer(&suppressions->all, g_array_unref);
	g_clear_pointer(&suppressions->of_function, g_array_unref);
	g_clear_pointer(&suppressions->of_node, g_array_unref);
}

/* ---- stacks ---------------------------------------------------------------------------------- */

static uint32_t *at(GArray *array, uint32_t index)
{
	if (index >= array->len)
		g_array_set_size(array, index + 64);
	return &((uint32_t *)(void *)array->data)[index];
}

static uint32_t of_function(struct suppressions *suppressions, const struct memory_tree *tree,
			    uint32_t index)
{
	const struct function *function = functions_at(tree->functions, index);
	uint32_t *known = at(suppressions->of_function, index);

	if (*known)
		return *known;
	*known = 1;
	for (uint32_t i = 0; i < suppressions->all->len && *known == 1; i++) {
		const char *pattern =
			g_array_index(suppressions->all, struct suppression, i).pattern;

		if (suppression_matches(pattern, function->name) ||
		    suppression_matches(pattern, functions_image(tree->functions, index)) ||
		    suppression_matches(pattern, function->file))
			*known = i + 2;
	}
	return *known;
}

struct suppression *suppressions_find(struct suppressions *suppressions,
				      const struct memory_tree *tree, uint32_t node)
{
	uint32_t found = 1;

	if (!suppressions->all)
		return NULL;
	/* Go up to a node that matches or whose result is known. Then store the result in all nodes
	 * on the path from `node` to that node. */
	for (uint32_t up = node; up && found == 1; up = memory_node_at(tree, up)->parent) {
		found = *at(suppressions->of_node, up);
		if (found)
			break;
		found = of_function(suppressions, tree, memory_node_at(tree, up)->function);
	}
	for (uint32_t up = node; up && *at(suppressions->of_node, up) == 0;
	     up = memory_node_at(tree, up)->parent) {
		*at(suppressions->of_node, up) = found;
		if (found > 1 &&
		    of_function(suppressions, tree, memory_node_at(tree, up)->function) == found)
			break;
	}
	return found > 1 ? &g_array_index(suppressions->all, struct suppression, found - 2) : NULL;
}

void suppressions_reset(struct suppressions *suppressions)
{
	memset(suppressions->pools, 0, sizeof(suppressions->pools));
	for (guint i = 0; suppressions->all && i < suppressions->all->len; i++) {
		struct suppression *suppression =
			&g_array_index(suppressions->all, struct suppression, i);

		suppression->bytes = suppression->blocks = 0;
	}
}

/* ---- pools of the runtime -------------------------------------------------------------------- */

const char *runtime_pool_name(enum runtime_pool pool)
{
	static const char *const names[RUNTIME_POOLS] = {
		[RUNTIME_POOL_EXCEPTIONS] = N_("libstdc++ pool"),
		[RUNTIME_POOL_STDIO] = N_("stdio buffers"),
		[RUNTIME_POOL_DTV] = N_("thread vectors"),
		[RUNTIME_POOL_LOCALE] = N_("locale"),
		[RUNTIME_POOL_LOADER] = N_("dynamic loader"),
		[RUNTIME_POOL_PYTHON] = N_("Python arenas"),
	};

	return names[pool];
}

/* Returns the name of a node's function without leading underscores, in which aliases differ, and
 * without the compiler's suffixes, as in "name.part.0". */
static char *plain_name(const struct memory_tree *tree, uint32_t node)
{
	const char *name =
		functions_at(tree->functions, memory_node_at(tree, node)->function)->name;
	const char *start = name + strspn(name, "_");

	return g_strndup(start, strcspn(start, "."));
}

static enum runtime_pool pool_by_name(const char *plain)
{
	/* iconv_open() and newlocale() are not listed, because the caller frees their result. */
	static const char *const functions[RUNTIME_POOLS][12] = {
		[RUNTIME_POOL_STDIO] = { "IO_file_doallocate", "IO_wfile_doallocate" },
		[RUNTIME_POOL_DTV] = { "allocate_dtv", "allocate_dtv_entry", "dl_resize_dtv",
				       "dl_allocate_tls", "allocate_and_init", "tls_get_addr",
				       "tls_get_addr_tail" },
		[RUNTIME_POOL_LOCALE] = { "setlocale", "nl_load_locale_from_archive",
					  "nl_intern_locale_data", "nl_find_domain",
					  "nl_load_domain", "bindtextdomain", "textdomain",
					  "gconv_load_conf", "gconv_load_cache", "gconv_find_shlib",
					  "wcsmbs_load_conv" },
		[RUNTIME_POOL_LOADER] = { "dl_init_paths", "dl_new_object", "dl_map_object",
					  "dl_map_object_deps", "dl_important_hwcaps",
					  "add_to_global_resize" },
	};

	for (unsigned pool = 0; pool < RUNTIME_POOLS; pool++)
		if (g_strv_contains(functions[pool], plain))
			return pool;
	return RUNTIME_POOLS;
}

static bool is_in(const struct memory_tree *tree, uint32_t node, const char *const *prefixes)
{
	const char *path = functions_image(tree->functions, memory_node_at(tree, node)->function);

	for (; path && *prefixes; prefixes++)
		if (g_str_has_prefix(functions_basename(path), *prefixes))
			return true;
	return false;
}

/* Returns whether CPython allocated the blocks of a node to manage its arenas. If the capture has
 * no functions of the Python program, CPython's functions count as the program's own. */
static bool is_python_arena(struct memory_tree *tree, uint32_t node)
{
	static const char *const python[] = { "python", "libpython", NULL };
	static const char *const functions[] = { "new_arena", "arena_map_get", NULL };
	bool found = false;

	while (node && memory_tree_is_allocator(tree, memory_node_at(tree, node)->function))
		node = memory_node_at(tree, node)->parent;
	for (; node && !found && is_in(tree, node, python);
	     node = memory_node_at(tree, node)->parent) {
		g_autofree char *plain = plain_name(tree, node);

		found = g_strv_contains(functions, plain);
	}
	return found;
}

/* Returns the pool of a stack from its images, because the loader and libstdc++ may have no
 * symbols. libstdc++ allocates its pool during its own initialization by the loader. */
static enum runtime_pool pool_by_image(struct memory_tree *tree, uint32_t node)
{
	static const char *const loader[] = { "ld-linux", "ld64.so", "ld-2.", NULL };
	static const char *const cplusplus[] = { "libstdc++.so", NULL };

	while (node && memory_tree_is_allocator(tree, memory_node_at(tree, node)->function))
		node = memory_node_at(tree, node)->parent;
	if (is_in(tree, node, loader))
		return RUNTIME_POOL_LOADER;
	if (memory_node_at(tree, node)->own || !is_in(tree, node, cplusplus))
		return RUNTIME_POOLS;
	while (node && is_in(tree, node, cplusplus))
		node = memory_node_at(tree, node)->parent;
	if (!node)
		return RUNTIME_POOLS;
	while (node && is_in(tree, node, loader))
		node = memory_node_at(tree, node)->parent;
	return node ? RUNTIME_POOLS : RUNTIME_POOL_EXCEPTIONS;
}

enum runtime_pool suppressions_pool(struct suppressions *suppressions, struct memory_tree *tree,
				    uint32_t node)
{
	enum runtime_pool pool = RUNTIME_POOLS;
	uint32_t own = memory_node_at(tree, node)->own;
	uint8_t *known;

	if (!suppressions->pool_of_node)
		suppressions->pool_of_node = g_byte_array_new();
	known = memory_byte_at(suppressions->pool_of_node, node);
	if (*known)
		return *known - 1u;
	for (uint32_t up = node; up && up != own && pool == RUNTIME_POOLS;
	     up = memory_node_at(tree, up)->parent) {
		g_autofree char *plain = plain_name(tree, up);

		pool = pool_by_name(plain);
	}
	if (pool == RUNTIME_POOLS && node != own)
		pool = pool_by_image(tree, node);
	if (pool == RUNTIME_POOLS && is_python_arena(tree, node))
		pool = RUNTIME_POOL_PYTHON;
	*known = (uint8_t)(pool + 1);
	return pool;
}
