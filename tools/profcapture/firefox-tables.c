/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Firefox-tables - stacks, frames, functions, libraries and strings, which all threads share
 *
 * The table of stacks is our tree without its root. Each entity of the tree is a frame, which has a
 * line; `inlineDepth` is the number of calls that it is inlined into. A function is what frames
 * count as; a line is one of the function's file.
 */
#include "config.h"

#include "tools/profcapture/firefox.h"

#include <string.h>

static unsigned category_of(const struct function *function)
{
	if (strcmp(function->kind, "kernel") == 0)
		return FIREFOX_KERNEL;
	if (strcmp(function->kind, "jit") == 0)
		return FIREFOX_JIT;
	return function->image > NAMES_LOST ? FIREFOX_USER : FIREFOX_OTHER;
}

static const struct function *function_at(const struct firefox *firefox, guint i)
{
	return functions_at(firefox->export->tally.functions, i);
}

/* Row i is node i + 1. A parent comes before its children. */
static void write_stacks(struct firefox *firefox)
{
	const GArray *nodes = firefox->export->tally.tree.nodes;
	struct json *json = &firefox->json;

	json_begin_object(json, "stackTable");
	json_begin_array(json, "frame");
	for (guint i = 1; i < nodes->len; i++)
		json_uint(json, NULL, g_array_index(nodes, struct tally_node, i).entity);
	json_end(json);
	json_begin_array(json, "prefixOffset");
	for (guint i = 1; i < nodes->len; i++) {
		uint32_t parent = g_array_index(nodes, struct tally_node, i).parent;

		json_uint(json, NULL, parent ? i - parent : 0);
	}
	json_end(json);
	json_uint(json, "length", nodes->len - 1);
	json_end(json);
}

static guint frame_count(const struct firefox *firefox)
{
	return firefox->export->tally.functions->all->len;
}

static void write_known(struct json *json, uint64_t number)
{
	if (number)
		json_uint(json, NULL, number);
	else
		json_null(json, NULL);
}

static void write_addresses(struct firefox *firefox)
{
	struct json *json = &firefox->json;

	json_begin_array(json, "address");
	for (guint i = 0; i < frame_count(firefox); i++) {
		const struct function *frame = function_at(firefox, i);

		/* an address that is not an offset of a file is too large for the profiler's
		 * numbers */
		if (frame->image > NAMES_LOST && frame->offset < UINT64_C(1) << 53)
			json_uint(json, NULL, frame->offset);
		else
			json_int(json, NULL, -1);
	}
	json_end(json);
}

static void write_frames(struct firefox *firefox)
{
	guint n = frame_count(firefox);
	struct json *json = &firefox->json;

	json_begin_object(json, "frameTable");
	json_begin_array(json, "func");
	for (guint i = 0; i < n; i++)
		json_uint(json, NULL,
			  g_array_index(firefox->function_of, uint32_t,
					export_function(firefox->export, i)));
	json_end(json);
	json_begin_array(json, "category");
	for (guint i = 0; i < n; i++)
		json_uint(json, NULL, category_of(function_at(firefox, i)));
	json_end(json);
	firefox_constant(json, "subcategory", n, 0);
	write_addresses(firefox);
	json_begin_array(json, "line");
	for (guint i = 0; i < n; i++)
		write_known(json, export_line(firefox->export, i));
	json_end(json);
	firefox_nulls(json, "column", n);
	firefox_nulls(json, "nativeSymbol", n);
	json_begin_array(json, "inlineDepth");
	for (guint i = 0; i < n; i++)
		json_uint(json, NULL, function_at(firefox, i)->depth);
	json_end(json);
	firefox_constant(json, "innerWindowID", n, 0);
	firefox_nulls(json, "originalLocation", n);
	json_uint(json, "length", n);
	json_end(json);
}

static uint32_t function_in_row(const struct firefox *firefox, guint row)
{
	return g_array_index(firefox->functions, uint32_t, row);
}

/* Returns the rows of `sources`. Sets source_of, by row of functions, to the row + 1; 0: none. */
static GArray *list_sources(struct firefox *firefox, GArray *source_of)
{
	GArray *sources = g_array_new(FALSE, FALSE, sizeof(uint64_t));
	g_autoptr(GHashTable) known = g_hash_table_new(g_str_hash, g_str_equal);

	for (guint i = 0; i < source_of->len; i++) {
		const char *file = firefox->export->files[function_in_row(firefox, i)];
		uint64_t name;
		gpointer at;

		if (!file)
			continue;
		at = g_hash_table_lookup(known, file);
		if (!at) {
			name = firefox_string(firefox, file);
			g_array_append_val(sources, name);
			at = GUINT_TO_POINTER(sources->len);
			g_hash_table_insert(known, (gpointer)file, at);
		}
		g_array_index(source_of, uint32_t, i) = GPOINTER_TO_UINT(at);
	}
	return sources;
}

static void write_sources(struct firefox *firefox, const GArray *sources)
{
	struct json *json = &firefox->json;

	json_begin_object(json, "sources");
	firefox_nulls(json, "id", sources->len);
	json_begin_array(json, "filename");
	for (guint i = 0; i < sources->len; i++)
		json_uint(json, NULL, g_array_index(sources, uint64_t, i));
	json_end(json);
	firefox_constant(json, "startLine", sources->len, 1);
	firefox_constant(json, "startColumn", sources->len, 1);
	firefox_nulls(json, "sourceMapURL", sources->len);
	firefox_nulls(json, "content", sources->len);
	json_uint(json, "length", sources->len);
	json_end(json);
}

static void write_false(struct json *json, const char *key, size_t n)
{
	json_begin_array(json, key);
	for (size_t i = 0; i < n; i++)
		json_bool(json, NULL, false);
	json_end(json);
}

static void write_functions(struct firefox *firefox, const GArray *source_of)
{
	guint n = firefox->functions->len;
	struct json *json = &firefox->json;

	json_begin_object(json, "funcTable");
	json_begin_array(json, "name");
	for (guint i = 0; i < n; i++)
		json_uint(json, NULL,
			  firefox_string(firefox,
					 function_at(firefox, function_in_row(firefox, i))->name));
	json_end(json);
	json_begin_array(json, "resource");
	for (guint i = 0; i < n; i++) {
		uint32_t image = function_at(firefox, function_in_row(firefox, i))->image;

		json_int(json, NULL,
			 (int64_t)g_array_index(firefox->resource_of, uint32_t, image) - 1);
	}
	json_end(json);
	json_begin_array(json, "source");
	for (guint i = 0; i < n; i++) {
		uint32_t source = g_array_index(source_of, uint32_t, i);

		if (source)
			json_uint(json, NULL, source - 1);
		else
			json_null(json, NULL);
	}
	json_end(json);
	json_begin_array(json, "lineNumber");
	for (guint i = 0; i < n; i++)
		write_known(json, function_at(firefox, function_in_row(firefox, i))->line);
	json_end(json);
	firefox_nulls(json, "columnNumber", n);
	write_false(json, "isJS", n);
	write_false(json, "relevantForJS", n);
	firefox_nulls(json, "originalLocation", n);
	json_uint(json, "length", n);
	json_end(json);
}

static void list_functions(struct firefox *firefox)
{
	guint n = frame_count(firefox);

	g_array_set_size(firefox->function_of, n);
	for (uint32_t i = 0; i < n; i++) {
		if (export_function(firefox->export, i) != i)
			continue;
		g_array_index(firefox->function_of, uint32_t, i) = firefox->functions->len;
		g_array_append_val(firefox->functions, i);
	}
}

static void list_resources(struct firefox *firefox)
{
	guint n = firefox->export->tally.functions->all->len;

	g_array_set_size(firefox->resource_of, firefox->export->reader.capture->names->images->len);
	for (guint i = 0; i < n; i++) {
		uint32_t image = function_at(firefox, i)->image;
		uint32_t *resource = &g_array_index(firefox->resource_of, uint32_t, image);

		if (image <= NAMES_LOST || *resource)
			continue;
		g_array_append_val(firefox->resources, image);
		*resource = firefox->resources->len;
	}
}

void firefox_list_rows(struct firefox *firefox)
{
	list_functions(firefox);
	list_resources(firefox);
}

static const struct names_image *resource_image(const struct firefox *firefox, guint i)
{
	return names_image_at(firefox->export->reader.capture->names,
			      g_array_index(firefox->resources, uint32_t, i));
}

void firefox_write_libraries(struct firefox *firefox)
{
	struct json *json = &firefox->json;

	json_begin_array(json, "libs");
	for (guint i = 0; i < firefox->resources->len; i++) {
		const struct names_image *image = resource_image(firefox, i);

		json_begin_object(json, NULL);
		json_string(json, "arch",
			    capture_metadata(firefox->export->reader.capture, "arch"));
		json_string(json, "name", firefox_base_name(image->path));
		json_string(json, "path", image->path ? image->path : "");
		json_string(json, "debugName", firefox_base_name(image->path));
		json_string(json, "debugPath", image->path ? image->path : "");
		json_string(json, "breakpadId", "");
		json_string(json, "codeId", image->build_id);
		json_end(json);
	}
	json_end(json);
}

static void write_resources(struct firefox *firefox)
{
	struct json *json = &firefox->json;
	guint n = firefox->resources->len;

	json_begin_object(json, "resourceTable");
	json_begin_array(json, "lib");
	for (guint i = 0; i < n; i++)
		json_uint(json, NULL, i);
	json_end(json);
	json_begin_array(json, "name");
	for (guint i = 0; i < n; i++)
		json_uint(json, NULL,
			  firefox_string(firefox,
					 firefox_base_name(resource_image(firefox, i)->path)));
	json_end(json);
	firefox_nulls(json, "host", n);
	firefox_constant(json, "type", n, 1); /* type 1: a library */
	json_uint(json, "length", n);
	json_end(json);
}

static void write_empty_table(struct json *json, const char *key, const char *const *columns)
{
	json_begin_object(json, key);
	for (; *columns; columns++)
		firefox_nulls(json, *columns, 0);
	json_uint(json, "length", 0);
	json_end(json);
}

void firefox_write_shared(struct firefox *firefox)
{
	struct json *json = &firefox->json;
	g_autoptr(GArray) source_of = g_array_new(FALSE, TRUE, sizeof(uint32_t));
	g_autoptr(GArray) sources = NULL;

	g_array_set_size(source_of, firefox->functions->len);
	sources = list_sources(firefox, source_of);
	json_begin_object(json, "shared");
	write_stacks(firefox);
	write_frames(firefox);
	write_functions(firefox, source_of);
	write_sources(firefox, sources);
	write_resources(firefox);
	write_empty_table(json, "nativeSymbols",
			  (const char *const[]){ "libIndex", "address", "name", "functionSize",
						 NULL });
	write_empty_table(json, "sourceLocationTable",
			  (const char *const[]){ "source", "line", "column", NULL });
	json_begin_array(json, "stringArray");
	for (guint i = 0; i < firefox->strings->len; i++)
		json_string(json, NULL, firefox->strings->pdata[i]);
	json_end(json);
	json_end(json);
}
