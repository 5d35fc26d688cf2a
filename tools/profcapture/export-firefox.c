/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-firefox - samples, marks and counters for the Firefox Profiler, in its processed format
 *
 * The format is that of docs-developer/CHANGELOG-formats.md in the profiler's repository, version 66, which every later one
 * reads. All threads share one table of stacks, which is our tree without its root; a function is a frame. Times are
 * milliseconds since the capture began.
 */
#include "config.h"

#include "tools/profcapture/export.h"
#include "tools/profcapture/spans.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

enum { FORMAT_VERSION = 66 };
enum { CATEGORY_OTHER, CATEGORY_USER, CATEGORY_KERNEL, CATEGORY_JIT, CATEGORIES };

struct mark {
	const char *name, *group;
	int64_t start_ns, end_ns;
	enum span_kind kind;
};

struct firefox {
	struct export *export;
	struct json json;
	GHashTable *index;   /* text → index + 1 */
	GPtrArray *strings;  /* as the capture has them */
	GArray *resources;   /* uint32_t: image of names, by resource */
	GArray *resource_of; /* uint32_t: resource + 1, by image; 0 = none */
	GPtrArray *marks;    /* GArray of struct mark, by thread of names; NULL = none */
};

static uint64_t string_index(struct firefox *firefox, const char *text)
{
	gpointer known = g_hash_table_lookup(firefox->index, text ? text : "");

	if (!known) {
		g_ptr_array_add(firefox->strings, g_strdup(text ? text : ""));
		known = GUINT_TO_POINTER(firefox->strings->len);
		g_hash_table_insert(firefox->index,
				    firefox->strings->pdata[firefox->strings->len - 1], known);
	}
	return GPOINTER_TO_UINT(known) - 1;
}

static void write_ms(struct json *json, const char *key, int64_t ns)
{
	json_double(json, key, (double)ns / 1e6);
}

/* ---- what the profile is of --------------------------------------------------------------------- */

static void write_category(struct json *json, const char *name, const char *color)
{
	json_begin_object(json, NULL);
	json_string(json, "name", name);
	json_string(json, "color", color);
	json_strings(json, "subcategories", (const char *const[]){ "Other", NULL });
	json_end(json);
}

static void write_marker_schema(struct json *json)
{
	json_begin_array(json, "markerSchema");
	json_begin_object(json, NULL);
	json_string(json, "name", "Mark");
	json_strings(json, "display",
		     (const char *const[]){ "marker-chart", "marker-table", "timeline-overview",
					    NULL });
	json_string(json, "tooltipLabel", "{marker.name}");
	json_string(json, "tableLabel", "{marker.data.group}");
	json_string(json, "chartLabel", "{marker.name}");
	json_begin_array(json, "fields");
	json_begin_object(json, NULL);
	json_string(json, "key", "group");
	json_string(json, "label", "Group");
	json_string(json, "format", "string");
	json_end(json);
	json_end(json);
	json_end(json);
	json_end(json);
}

static void write_meta(struct firefox *firefox)
{
	const struct capture *capture = firefox->export->reader.capture;
	struct json *json = &firefox->json;
	uint64_t period = export_period(firefox->export);
	g_autofree char *title = export_title(firefox->export);

	json_begin_object(json, "meta");
	json_uint(json, "version", 27);
	json_uint(json, "preprocessedProfileVersion", FORMAT_VERSION);
	json_string(json, "product", title);
	json_string(json, "importedFrom", "profcapture " PROF_VERSION);
	write_ms(json, "interval", period ? (int64_t)period : 1000000);
	write_ms(json, "startTime", capture->n_segments ? capture->segments[0].wall_ns : 0);
	json_uint(json, "processType", 0);
	json_uint(json, "stackwalk", 1);
	json_uint(json, "debug", 0);
	/* else names are looked for on somebody's server */
	json_bool(json, "symbolicated", true);
	json_string(json, "oscpu", capture_metadata(capture, "arch"));
	json_begin_array(json, "categories");
	write_category(json, "Other", "grey");
	write_category(json, "User", "yellow");
	write_category(json, "Kernel", "orange");
	write_category(json, "JIT", "blue");
	json_end(json);
	write_marker_schema(json);
	json_begin_object(json, "sampleUnits");
	json_string(json, "time", "ms");
	json_string(json, "eventDelay", "ms");
	json_string(json, "threadCPUDelta", "ns");
	json_end(json);
	json_begin_array(json, "extensions");
	json_end(json);
	json_end(json);
}

/* ---- the tables that all threads share ---------------------------------------------------------- */

static unsigned category_of(const struct function *function)
{
	if (strcmp(function->kind, "kernel") == 0)
		return CATEGORY_KERNEL;
	if (strcmp(function->kind, "jit") == 0)
		return CATEGORY_JIT;
	return function->image > NAMES_LOST ? CATEGORY_USER : CATEGORY_OTHER;
}

static const struct function *function_at(const struct firefox *firefox, guint i)
{
	return functions_at(firefox->export->tally.functions, i);
}

/* A column that has the same value in every row, or where it says null. */
static void write_constant(struct json *json, const char *key, size_t n, int64_t value)
{
	json_begin_array(json, key);
	for (size_t i = 0; i < n; i++)
		json_int(json, NULL, value);
	json_end(json);
}

static void write_nulls(struct json *json, const char *key, size_t n)
{
	json_begin_array(json, key);
	for (size_t i = 0; i < n; i++)
		json_null(json, NULL);
	json_end(json);
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

static void write_lines(struct firefox *firefox, const char *key)
{
	guint n = firefox->export->tally.functions->all->len;
	struct json *json = &firefox->json;

	json_begin_array(json, key);
	for (guint i = 0; i < n; i++) {
		uint32_t line = function_at(firefox, i)->line;

		if (line)
			json_uint(json, NULL, line);
		else
			json_null(json, NULL);
	}
	json_end(json);
}

static void write_frames(struct firefox *firefox)
{
	guint n = firefox->export->tally.functions->all->len;
	struct json *json = &firefox->json;

	json_begin_object(json, "frameTable");
	json_begin_array(json, "func");
	for (guint i = 0; i < n; i++)
		json_uint(json, NULL, i);
	json_end(json);
	json_begin_array(json, "category");
	for (guint i = 0; i < n; i++)
		json_uint(json, NULL, category_of(function_at(firefox, i)));
	json_end(json);
	write_constant(json, "subcategory", n, 0);
	json_begin_array(json, "address");
	for (guint i = 0; i < n; i++) {
		const struct function *function = function_at(firefox, i);

		/* what is no offset of a file is too large for the profiler's numbers */
		if (function->image > NAMES_LOST && function->offset < UINT64_C(1) << 53)
			json_uint(json, NULL, function->offset);
		else
			json_int(json, NULL, -1);
	}
	json_end(json);
	write_lines(firefox, "line");
	write_nulls(json, "column", n);
	write_nulls(json, "nativeSymbol", n);
	write_constant(json, "inlineDepth", n, 0);
	write_constant(json, "innerWindowID", n, 0);
	write_nulls(json, "originalLocation", n);
	json_uint(json, "length", n);
	json_end(json);
}

static GArray *list_sources(struct firefox *firefox, GArray *source_of)
{
	GArray *sources = g_array_new(FALSE, FALSE, sizeof(uint64_t));
	g_autoptr(GHashTable) known = g_hash_table_new(g_str_hash, g_str_equal);

	for (guint i = 0; i < source_of->len; i++) {
		const char *file = function_at(firefox, i)->file;
		uint64_t name;
		gpointer at;

		if (!file)
			continue;
		at = g_hash_table_lookup(known, file);
		if (!at) {
			name = string_index(firefox, file);
			g_array_append_val(sources, name);
			at = GUINT_TO_POINTER(sources->len);
			g_hash_table_insert(known, (gpointer)file, at);
		}
		g_array_index(source_of, uint32_t, i) = GPOINTER_TO_UINT(at);
	}
	return sources;
}

static void write_functions(struct firefox *firefox)
{
	guint n = firefox->export->tally.functions->all->len;
	struct json *json = &firefox->json;
	g_autoptr(GArray) source_of = g_array_new(FALSE, TRUE, sizeof(uint32_t));
	g_autoptr(GArray) sources = NULL;

	g_array_set_size(source_of, n);
	sources = list_sources(firefox, source_of);
	json_begin_object(json, "funcTable");
	json_begin_array(json, "name");
	for (guint i = 0; i < n; i++)
		json_uint(json, NULL, string_index(firefox, function_at(firefox, i)->name));
	json_end(json);
	json_begin_array(json, "resource");
	for (guint i = 0; i < n; i++)
		json_int(json, NULL,
			 (int64_t)g_array_index(firefox->resource_of, uint32_t,
						function_at(firefox, i)->image) -
				 1);
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
	write_lines(firefox, "lineNumber");
	write_nulls(json, "columnNumber", n);
	json_begin_array(json, "isJS");
	for (guint i = 0; i < n; i++)
		json_bool(json, NULL, false);
	json_end(json);
	json_begin_array(json, "relevantForJS");
	for (guint i = 0; i < n; i++)
		json_bool(json, NULL, false);
	json_end(json);
	write_nulls(json, "originalLocation", n);
	json_uint(json, "length", n);
	json_end(json);

	json_begin_object(json, "sources");
	write_nulls(json, "id", sources->len);
	json_begin_array(json, "filename");
	for (guint i = 0; i < sources->len; i++)
		json_uint(json, NULL, g_array_index(sources, uint64_t, i));
	json_end(json);
	write_constant(json, "startLine", sources->len, 1);
	write_constant(json, "startColumn", sources->len, 1);
	write_nulls(json, "sourceMapURL", sources->len);
	write_nulls(json, "content", sources->len);
	json_uint(json, "length", sources->len);
	json_end(json);
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

static const char *base_name(const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL;

	return slash && slash[1] ? slash + 1 : path ? path : "-";
}

static const struct names_image *resource_image(const struct firefox *firefox, guint i)
{
	return names_image_at(firefox->export->reader.capture->names,
			      g_array_index(firefox->resources, uint32_t, i));
}

static void write_libraries(struct firefox *firefox)
{
	struct json *json = &firefox->json;

	json_begin_array(json, "libs");
	for (guint i = 0; i < firefox->resources->len; i++) {
		const struct names_image *image = resource_image(firefox, i);

		json_begin_object(json, NULL);
		json_string(json, "arch",
			    capture_metadata(firefox->export->reader.capture, "arch"));
		json_string(json, "name", base_name(image->path));
		json_string(json, "path", image->path ? image->path : "");
		json_string(json, "debugName", base_name(image->path));
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
			  string_index(firefox, base_name(resource_image(firefox, i)->path)));
	json_end(json);
	write_nulls(json, "host", n);
	write_constant(json, "type", n, 1); /* a library */
	json_uint(json, "length", n);
	json_end(json);
}

static void write_empty_table(struct json *json, const char *key, const char *const *columns)
{
	json_begin_object(json, key);
	for (; *columns; columns++)
		write_nulls(json, *columns, 0);
	json_uint(json, "length", 0);
	json_end(json);
}

/* After everything else: what was written before may have asked for strings. */
static void write_shared(struct firefox *firefox)
{
	struct json *json = &firefox->json;

	json_begin_object(json, "shared");
	write_stacks(firefox);
	write_frames(firefox);
	write_functions(firefox);
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

/* ---- marks -------------------------------------------------------------------------------------- */

static void keep_mark(const struct span *span, void *data)
{
	struct firefox *firefox = data;
	struct reader *reader = &firefox->export->reader;
	struct mark mark = { span->name, span->group, span->start_ns, span->end_ns, span->kind };
	GArray **marks;

	if (span->end_ns < reader->from_ns || span->start_ns > reader->to_ns ||
	    !reader_wants_thread(reader, span->thread))
		return;
	if (firefox->marks->len <= span->thread)
		g_ptr_array_set_size(firefox->marks, (gint)span->thread + 1);
	marks = (GArray **)&firefox->marks->pdata[span->thread];
	if (!*marks)
		*marks = g_array_new(FALSE, FALSE, sizeof(struct mark));
	g_array_append_val(*marks, mark);
}

/* The profiler's phases: an instant, a span, its begin, its end. */
static unsigned phase_of(const struct mark *mark)
{
	static const unsigned phases[] = {
		[SPAN_INSTANT] = 0, [SPAN_WHOLE] = 1, [SPAN_NO_END] = 2, [SPAN_NO_BEGIN] = 3
	};

	return phases[mark->kind];
}

static void write_mark_data(struct json *json, const struct mark *mark)
{
	json_begin_object(json, NULL);
	json_string(json, "type", "Mark");
	json_string(json, "group", mark->group ? mark->group : "");
	json_end(json);
}

static void write_marks(struct firefox *firefox, const GArray *marks)
{
	struct json *json = &firefox->json;
	const struct mark *all = marks ? (const struct mark *)(void *)marks->data : NULL;
	guint n = marks ? marks->len : 0;

	json_begin_object(json, "markers");
	json_begin_array(json, "name");
	for (guint i = 0; i < n; i++)
		json_uint(json, NULL, string_index(firefox, all[i].name));
	json_end(json);
	json_begin_array(json, "startTime");
	for (guint i = 0; i < n; i++) {
		if (all[i].kind == SPAN_NO_BEGIN)
			json_null(json, NULL);
		else
			write_ms(json, NULL, all[i].start_ns);
	}
	json_end(json);
	json_begin_array(json, "endTime");
	for (guint i = 0; i < n; i++) {
		if (all[i].kind == SPAN_WHOLE || all[i].kind == SPAN_NO_BEGIN)
			write_ms(json, NULL, all[i].end_ns);
		else
			json_null(json, NULL);
	}
	json_end(json);
	json_begin_array(json, "phase");
	for (guint i = 0; i < n; i++)
		json_uint(json, NULL, phase_of(&all[i]));
	json_end(json);
	write_constant(json, "category", n, CATEGORY_OTHER);
	json_begin_array(json, "data");
	for (guint i = 0; i < n; i++)
		write_mark_data(json, &all[i]);
	json_end(json);
	json_uint(json, "length", n);
	json_end(json);
}

/* ---- threads ------------------------------------------------------------------------------------ */

static void write_samples(struct firefox *firefox, const GArray *samples)
{
	const struct tally_sample *all = (const struct tally_sample *)(void *)samples->data;
	struct json *json = &firefox->json;
	int64_t before = 0;

	json_begin_object(json, "samples");
	json_begin_array(json, "stack");
	for (guint i = 0; i < samples->len; i++)
		json_uint(json, NULL, all[i].node - 1);
	json_end(json);
	json_begin_array(json, "timeDeltas");
	for (guint i = 0; i < samples->len; i++) {
		write_ms(json, NULL, all[i].time_ns - before);
		before = all[i].time_ns;
	}
	json_end(json);
	/* a sample of a clock of CPU time is what was used since the last one */
	if (export_period(firefox->export))
		write_constant(json, "threadCPUDelta", samples->len,
			       (int64_t)export_period(firefox->export));
	json_null(json, "weight");
	json_string(json, "weightType", "samples");
	json_uint(json, "length", samples->len);
	json_end(json);
}

static void write_thread(struct firefox *firefox, uint32_t thread, const GArray *samples,
			 const GArray *marks)
{
	const struct names *names = firefox->export->reader.capture->names;
	const struct names_thread *at = names_thread_at(names, thread);
	const struct names_process *process = names_process_at(names, at->process);
	g_autofree char *pid = g_strdup_printf("%" PRIu64, process->pid);
	struct json *json = &firefox->json;

	json_begin_object(json, NULL);
	json_string(json, "name", export_thread_name(firefox->export, thread));
	json_bool(json, "isMainThread", at->tid == process->pid);
	json_string(json, "processType", "default");
	json_string(json, "processName",
		    process->exe ? base_name(process->exe)
				 : export_thread_name(firefox->export, thread));
	json_string(json, "pid", pid);
	json_uint(json, "tid", at->tid);
	write_ms(json, "processStartupTime", 0);
	json_null(json, "processShutdownTime");
	write_ms(json, "registerTime", 0);
	json_null(json, "unregisterTime");
	json_begin_array(json, "pausedRanges");
	json_end(json);
	json_bool(json, "showMarkersInTimeline", marks != NULL);
	write_samples(firefox, samples);
	write_marks(firefox, marks);
	json_end(json);
}

static gint compare_times(gconstpointer left, gconstpointer right)
{
	const struct tally_sample *a = left, *b = right;

	return a->time_ns < b->time_ns ? -1 : a->time_ns > b->time_ns;
}

/* Samples by thread of names, each in time order. */
static GPtrArray *samples_by_thread(const struct export *export)
{
	GPtrArray *threads = g_ptr_array_new();
	const GArray *each = export->tally.each;

	g_ptr_array_set_size(threads, (gint) export->reader.capture->names->threads->len);
	for (guint i = 0; i < each->len; i++) {
		const struct tally_sample *sample = &g_array_index(each, struct tally_sample, i);
		GArray **mine = (GArray **)&threads->pdata[sample->thread];

		if (!*mine)
			*mine = g_array_new(FALSE, FALSE, sizeof(struct tally_sample));
		g_array_append_vals(*mine, sample, 1);
	}
	for (guint i = 0; i < threads->len; i++)
		if (threads->pdata[i])
			g_array_sort(threads->pdata[i], compare_times);
	return threads;
}

/* Those with marks only come last. */
static void write_threads(struct firefox *firefox)
{
	g_autoptr(GPtrArray) of_thread = samples_by_thread(firefox->export);
	g_autoptr(GArray) threads = export_threads(firefox->export);
	g_autoptr(GArray) none = g_array_new(FALSE, FALSE, sizeof(struct tally_sample));

	for (uint32_t i = 0; i < firefox->marks->len; i++)
		if (firefox->marks->pdata[i] && (i >= of_thread->len || !of_thread->pdata[i]))
			g_array_append_val(threads, i);
	json_begin_array(&firefox->json, "threads");
	for (guint i = 0; i < threads->len; i++) {
		uint32_t thread = g_array_index(threads, uint32_t, i);
		GArray *samples = thread < of_thread->len ? of_thread->pdata[thread] : NULL;

		write_thread(firefox, thread, samples ? samples : none,
			     thread < firefox->marks->len ? firefox->marks->pdata[thread] : NULL);
	}
	json_end(&firefox->json);
	for (guint i = 0; i < of_thread->len; i++)
		if (of_thread->pdata[i])
			g_array_unref(of_thread->pdata[i]);
}

/* ---- the whole ---------------------------------------------------------------------------------- */

static void write_profile(struct firefox *firefox)
{
	struct json *json = &firefox->json;

	list_resources(firefox);
	json_begin_object(json, NULL);
	write_meta(firefox);
	write_libraries(firefox);
	json_begin_array(json, "pages");
	json_end(json);
	write_threads(firefox);
	write_shared(firefox);
	json_end(json);
}

bool export_firefox(struct export *export, struct out *out, GError **error)
{
	struct firefox firefox = {
		.export = export,
		.index = g_hash_table_new(g_str_hash, g_str_equal),
		.strings = g_ptr_array_new_with_free_func(g_free),
		.resources = g_array_new(FALSE, FALSE, sizeof(uint32_t)),
		.resource_of = g_array_new(FALSE, TRUE, sizeof(uint32_t)),
		.marks = g_ptr_array_new(),
	};
	bool ok = spans_read(export->reader.capture, keep_mark, &firefox, error);

	json_init(&firefox.json, out);
	if (ok)
		write_profile(&firefox);
	json_done(&firefox.json);
	for (guint i = 0; i < firefox.marks->len; i++)
		if (firefox.marks->pdata[i])
			g_array_unref(firefox.marks->pdata[i]);
	g_ptr_array_unref(firefox.marks);
	g_hash_table_unref(firefox.index);
	g_ptr_array_unref(firefox.strings);
	g_array_unref(firefox.resources);
	g_array_unref(firefox.resource_of);
	return ok;
}
