/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-firefox - samples, marks and counters for the Firefox Profiler, in its processed format
 *
 * The format is that of docs-developer/CHANGELOG-formats.md in the profiler's repository, version
 * 66, which all later versions read. Times are milliseconds since the capture began.
 */
#include "config.h"

#include "tools/profcapture/firefox.h"

#include <inttypes.h>
#include <string.h>

enum { FORMAT_VERSION = 66 };

uint64_t firefox_string(struct firefox *firefox, const char *text)
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

void firefox_ms(struct json *json, const char *key, int64_t ns)
{
	json_double(json, key, (double)ns / 1e6);
}

void firefox_ms_between(struct json *json, int64_t before_ns, int64_t ns)
{
	json_double(json, NULL, ((double)ns - (double)before_ns) / 1e6);
}

void firefox_constant(struct json *json, const char *key, size_t n, int64_t value)
{
	json_begin_array(json, key);
	for (size_t i = 0; i < n; i++)
		json_int(json, NULL, value);
	json_end(json);
}

void firefox_nulls(struct json *json, const char *key, size_t n)
{
	json_begin_array(json, key);
	for (size_t i = 0; i < n; i++)
		json_null(json, NULL);
	json_end(json);
}

const char *firefox_base_name(const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL;

	return slash && slash[1] ? slash + 1 : path ? path : "-";
}

/* ---- metadata -------------------------------------------------------------------------------- */

static void write_category(struct json *json, const char *name, const char *color)
{
	json_begin_object(json, NULL);
	json_string(json, "name", name);
	json_string(json, "color", color);
	json_strings(json, "subcategories", (const char *const[]){ "Other", NULL });
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
	if (tally_is_weighted(&firefox->export->tally) && !export_is_time(firefox->export)) {
		/* The format has no unit for events. */
		g_autofree char *counted =
			g_strdup_printf("%s, %s", tally_event_name(&firefox->export->tally), title);

		json_string(json, "product", counted);
	} else {
		json_string(json, "product", title);
	}
	json_string(json, "importedFrom", "profcapture " PROF_VERSION);
	firefox_ms(json, "interval", period ? (int64_t)period : 1000000);
	firefox_ms(json, "startTime", capture->n_segments ? capture->segments[0].wall_ns : 0);
	json_uint(json, "processType", 0);
	json_uint(json, "stackwalk", 1);
	json_uint(json, "debug", 0);
	/* otherwise the profiler requests names from a server */
	json_bool(json, "symbolicated", true);
	json_string(json, "oscpu", capture_metadata(capture, "arch"));
	json_begin_array(json, "categories");
	write_category(json, "Other", "grey");
	write_category(json, "User", "yellow");
	write_category(json, "Kernel", "orange");
	write_category(json, "JIT", "blue");
	json_end(json);
	firefox_write_mark_schema(json);
	json_begin_object(json, "sampleUnits");
	json_string(json, "time", "ms");
	json_string(json, "eventDelay", "ms");
	json_string(json, "threadCPUDelta", "ns");
	json_end(json);
	json_begin_array(json, "extensions");
	json_end(json);
	json_end(json);
}

/* ---- threads --------------------------------------------------------------------------------- */

static void write_weights(struct json *json, const char *key, const GArray *samples)
{
	json_begin_array(json, key);
	for (guint i = 0; i < samples->len; i++)
		json_uint(json, NULL, g_array_index(samples, struct tally_sample, i).weight);
	json_end(json);
}

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
		firefox_ms_between(json, before, all[i].time_ns);
		before = all[i].time_ns;
	}
	json_end(json);
	/* a sample of a CPU clock stands for the CPU time since the previous one */
	if (export_is_time(firefox->export))
		write_weights(json, "threadCPUDelta", samples);
	if (tally_is_weighted(&firefox->export->tally))
		write_weights(json, "weight", samples);
	else
		json_null(json, "weight");
	json_string(json, "weightType", "samples");
	json_uint(json, "length", samples->len);
	json_end(json);
}

static void write_thread(struct firefox *firefox, uint32_t thread, const GArray *samples)
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
		    process->exe ? firefox_base_name(process->exe)
				 : export_thread_name(firefox->export, thread));
	json_string(json, "pid", pid);
	json_uint(json, "tid", at->tid);
	firefox_ms(json, "processStartupTime", 0);
	json_null(json, "processShutdownTime");
	firefox_ms(json, "registerTime", 0);
	json_null(json, "unregisterTime");
	json_begin_array(json, "pausedRanges");
	json_end(json);
	json_bool(json, "showMarkersInTimeline", firefox_has_marks(firefox, thread));
	write_samples(firefox, samples);
	firefox_write_marks(firefox, thread);
	firefox_write_allocations(firefox, thread);
	json_end(json);
}

static gint compare_times(gconstpointer left, gconstpointer right)
{
	const struct tally_sample *a = left, *b = right;

	return a->time_ns < b->time_ns ? -1 : a->time_ns > b->time_ns;
}

/* Returns the samples by thread of names, each in time order. */
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

/* Threads with only marks or allocations come last. The profiler needs at least one thread. */
static void list_threads(struct firefox *firefox)
{
	static const uint32_t none = NAMES_NONE;
	g_autofree bool *known = g_new0(bool, firefox->export->reader.capture->names->threads->len);

	firefox->threads = export_threads(firefox->export);
	for (guint i = 0; i < firefox->threads->len; i++)
		known[g_array_index(firefox->threads, uint32_t, i)] = true;
	for (uint32_t i = 0; i < firefox->export->reader.capture->names->threads->len; i++)
		if ((firefox_has_marks(firefox, i) || firefox_has_allocations(firefox, i)) &&
		    !known[i])
			g_array_append_val(firefox->threads, i);
	if (firefox->threads->len == 0)
		g_array_append_val(firefox->threads, none);
}

static void write_threads(struct firefox *firefox)
{
	g_autoptr(GPtrArray) of_thread = samples_by_thread(firefox->export);
	g_autoptr(GArray) none = g_array_new(FALSE, FALSE, sizeof(struct tally_sample));

	json_begin_array(&firefox->json, "threads");
	for (guint i = 0; i < firefox->threads->len; i++) {
		uint32_t thread = g_array_index(firefox->threads, uint32_t, i);
		GArray *samples = thread < of_thread->len ? of_thread->pdata[thread] : NULL;

		write_thread(firefox, thread, samples ? samples : none);
	}
	json_end(&firefox->json);
	for (guint i = 0; i < of_thread->len; i++)
		if (of_thread->pdata[i])
			g_array_unref(of_thread->pdata[i]);
}

/* ---- the profile ----------------------------------------------------------------------------- */

static void write_profile(struct firefox *firefox)
{
	struct json *json = &firefox->json;

	firefox_sort_allocations(firefox);
	list_threads(firefox);
	firefox_list_rows(firefox);
	json_begin_object(json, NULL);
	write_meta(firefox);
	firefox_write_libraries(firefox);
	json_begin_array(json, "pages");
	json_end(json);
	write_threads(firefox);
	firefox_write_counters(firefox);
	firefox_write_shared(firefox);
	json_end(json);
}

bool export_firefox(struct export *export, struct out *out, GError **error)
{
	struct firefox firefox = {
		.export = export,
		.index = g_hash_table_new(g_str_hash, g_str_equal),
		.strings = g_ptr_array_new_with_free_func(g_free),
		.first_event = g_array_new(FALSE, TRUE, sizeof(uint32_t)),
		.functions = g_array_new(FALSE, FALSE, sizeof(uint32_t)),
		.function_of = g_array_new(FALSE, TRUE, sizeof(uint32_t)),
		.resources = g_array_new(FALSE, FALSE, sizeof(uint32_t)),
		.resource_of = g_array_new(FALSE, TRUE, sizeof(uint32_t)),
	};
	bool ok = firefox_read_marks(&firefox, error) && firefox_read_counters(&firefox, error);

	json_init(&firefox.json, out);
	if (ok)
		write_profile(&firefox);
	json_done(&firefox.json);
	firefox_free_marks(&firefox);
	firefox_free_counters(&firefox);
	if (firefox.threads)
		g_array_unref(firefox.threads);
	g_hash_table_unref(firefox.index);
	g_ptr_array_unref(firefox.strings);
	g_array_unref(firefox.first_event);
	g_array_unref(firefox.functions);
	g_array_unref(firefox.function_of);
	g_array_unref(firefox.resources);
	g_array_unref(firefox.resource_of);
	return ok;
}
