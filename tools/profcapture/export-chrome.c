/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-chrome - a timeline in Chrome's trace event format, for Perfetto and Chrome's DevTools
 *
 * The samples of a thread are a CPU profile of V8 (events of phase P), which is the only form of
 * samples that these two read; speedscope and the Firefox Profiler read it, too. In this form, a
 * stack lasts until the next sample. If the next sample of a thread comes too late, a sample of the
 * node "(idle)" ends the stack, as in files of V8. Waits are slices, and marks are slices or
 * instants; counters are events of phase C. Times are microseconds since the capture's start; those
 * of samples are integers.
 */
#include "config.h"

#include "tools/profcapture/export-marks.h"

#include "base/each.h"
#include "base/order.h"
#include "tools/profcapture/counter-values.h"

#include <inttypes.h>
#include <string.h>

/* Maximum number of samples in an event, so that no event is much larger than others. */
#define CHUNK_SAMPLES 10000
/* The id of the root. A node's id is ROOT_ID + its index in the tree; "(idle)" has the index after
 * the last one. */
#define ROOT_ID 1u

struct chrome {
	struct export *export;
	struct json json;
	struct export_marks marks;
	struct export_samples *samples;
	/* State of the thread that is being written. */
	uint32_t *seen;  /* by node, then "(idle)": 1 + the last thread for which it was written */
	GArray *nodes;   /* uint32_t: nodes that are new in this event */
	GArray *ids;     /* uint32_t: the node ids of the samples in this event */
	GArray *deltas;  /* int64_t: microseconds since the previous sample */
	int64_t last_us; /* time of the last sample */
};

/* ---- events ---------------------------------------------------------------------------------- */

static void begin_event(struct chrome *chrome, const char *name, const char *category,
			const char *phase, uint64_t pid, uint64_t tid, int64_t time_ns)
{
	struct json *json = &chrome->json;

	json_begin_object(json, NULL);
	json_string(json, "name", name ? name : "");
	json_string(json, "cat", category);
	json_string(json, "ph", phase);
	json_uint(json, "pid", pid);
	json_uint(json, "tid", tid);
	json_double(json, "ts", (double)time_ns / 1e3);
}

static void begin_thread_event(struct chrome *chrome, const char *name, const char *category,
			       const char *phase, uint32_t thread, int64_t time_ns)
{
	const struct names *names = chrome->export->reader.capture->names;
	const struct names_thread *at = names_thread_at(names, thread);

	begin_event(chrome, name, category, phase, names_process_at(names, at->process)->pid,
		    at->tid, time_ns);
}

static void name_thread(struct chrome *chrome, uint32_t thread)
{
	const struct names *names = chrome->export->reader.capture->names;
	const char *exe = names_process_at(names, names_thread_at(names, thread)->process)->exe;
	const char *name = export_thread_name(chrome->export, thread);
	const char *const named[][2] = { { "process_name", exe ? exe : name },
					 { "thread_name", name } };

	for (size_t i = 0; i < ARRAY_SIZE(named); i++) {
		begin_thread_event(chrome, named[i][0], "__metadata", "M", thread, 0);
		json_begin_object(&chrome->json, "args");
		json_string(&chrome->json, "name", named[i][1]);
		json_end(&chrome->json);
		json_end(&chrome->json);
	}
}

/* ---- samples --------------------------------------------------------------------------------- */

static uint32_t idle_node(const struct chrome *chrome)
{
	return chrome->export->profile.tree.nodes->len;
}

static void write_node(struct chrome *chrome, uint32_t node)
{
	const struct export *export = chrome->export;
	const struct profile_node *at =
		node && node < idle_node(chrome)
			? &g_array_index(export->profile.tree.nodes, struct profile_node, node)
			: NULL;
	const struct function *function = at ? functions_at(export->profile.functions, at->entity)
					     : NULL;
	const char *file = !function ? NULL
			   : function->file
				   ? function->file
				   : functions_image(export->profile.functions, at->entity);
	struct json *json = &chrome->json;

	json_begin_object(json, NULL);
	json_uint(json, "id", ROOT_ID + node);
	if (node)
		json_uint(json, "parent", ROOT_ID + (at ? at->parent : 0));
	json_begin_object(json, "callFrame");
	json_string(json, "functionName", function ? function->name : node ? "(idle)" : "(root)");
	json_string(json, "scriptId", "0");
	json_string(json, "url", file ? file : "");
	if (function && function->file && function->line)
		/* the format counts lines from 0 */
		json_uint(json, "lineNumber", function->line - 1);
	json_end(json);
	json_end(json);
}

static void begin_profile(struct chrome *chrome, const char *name, uint32_t thread, int64_t time_us)
{
	g_autofree char *id = g_strdup_printf("0x%" PRIx32, thread + 1);

	begin_thread_event(chrome, name, "disabled-by-default-v8.cpu_profiler", "P", thread,
			   time_us * 1000);
	json_string(&chrome->json, "id", id);
	json_begin_object(&chrome->json, "args");
	json_begin_object(&chrome->json, "data");
}

static void end_profile(struct chrome *chrome)
{
	for (int i = 0; i < 3; i++)
		json_end(&chrome->json);
}

static void write_chunk(struct chrome *chrome, uint32_t thread)
{
	struct json *json = &chrome->json;

	if (chrome->ids->len == 0)
		return;
	begin_profile(chrome, "ProfileChunk", thread, chrome->last_us);
	json_begin_object(json, "cpuProfile");
	if (chrome->nodes->len > 0) {
		json_begin_array(json, "nodes");
		ARRAY_EACH(const uint32_t, node, chrome->nodes)
			write_node(chrome, *node);
		json_end(json);
	}
	json_begin_array(json, "samples");
	ARRAY_EACH(const uint32_t, id, chrome->ids)
		json_uint(json, NULL, *id);
	json_end(json);
	json_end(json);
	json_begin_array(json, "timeDeltas");
	ARRAY_EACH(const int64_t, delta, chrome->deltas)
		json_int(json, NULL, *delta);
	json_end(json);
	end_profile(chrome);
	g_array_set_size(chrome->nodes, 0);
	g_array_set_size(chrome->ids, 0);
	g_array_set_size(chrome->deltas, 0);
}

/* Adds the nodes that were not written for the thread yet, callers first. */
static void add_nodes(struct chrome *chrome, uint32_t thread, uint32_t node)
{
	const struct profile_node *nodes = (void *)chrome->export->profile.tree.nodes->data;
	const guint before = chrome->nodes->len;
	uint32_t *data;

	for (uint32_t at = node; chrome->seen[at] != thread + 1;
	     at = at < idle_node(chrome) ? nodes[at].parent : 0) {
		chrome->seen[at] = thread + 1;
		g_array_append_val(chrome->nodes, at);
	}
	data = (uint32_t *)(void *)chrome->nodes->data;
	for (guint i = before, k = chrome->nodes->len; i + 1 < k; i++) {
		uint32_t swapped = data[--k];

		data[k] = data[i];
		data[i] = swapped;
	}
}

static void add_sample(struct chrome *chrome, uint32_t thread, uint32_t node, int64_t time_ns)
{
	const uint32_t id = ROOT_ID + node;
	const int64_t us = time_ns / 1000, delta = us - chrome->last_us;

	add_nodes(chrome, thread, node);
	g_array_append_val(chrome->ids, id);
	g_array_append_val(chrome->deltas, delta);
	chrome->last_us = us;
	if (chrome->ids->len == CHUNK_SAMPLES)
		write_chunk(chrome, thread);
}

/* Returns the time that a sample represents, in ns; 0: unknown. */
static int64_t length_of(const struct chrome *chrome, const struct profile_sample *sample)
{
	const struct export *export = chrome->export;
	const uint64_t frequency = export->profile.event ? export->profile.event->frequency : 0;

	if (export_is_time(export) || export_counts_waits(export))
		return (int64_t)MIN_OF(sample->weight, (uint64_t)INT64_MAX / 4);
	return frequency ? (int64_t)(1000000000 / frequency) : 0;
}

static void write_samples(struct chrome *chrome, uint32_t thread)
{
	/* While a thread runs, its next sample may be up to two periods later. The length of a wait
	 * is exact. */
	const int64_t periods = export_counts_waits(chrome->export) ? 1 : 2;
	size_t n;
	const struct export_thread_samples *of =
		export_of_thread(chrome->samples->threads, thread, &n);
	struct profile_sample sample, after = { 0 };

	if (!of)
		return;
	begin_profile(chrome, "Profile", thread, 0);
	json_uint(&chrome->json, "startTime", 0);
	end_profile(chrome);
	chrome->last_us = 0;
	sample = export_samples_at(chrome->samples, of->first);
	for (uint64_t i = 1; i <= of->n; i++, sample = after) {
		const int64_t length = length_of(chrome, &sample), at = sample.time_ns;
		int64_t next = INT64_MAX, end, most;

		if (i < of->n) {
			after = export_samples_at(chrome->samples, of->first + i);
			next = after.time_ns;
		}
		add_sample(chrome, thread, sample.node, at);
		/* a damaged file may have times at the limits */
		if (__builtin_add_overflow(at, length, &end) ||
		    __builtin_add_overflow(at, periods * length, &most))
			end = most = at;
		if (next == INT64_MAX || (length && next > most))
			add_sample(chrome, thread, idle_node(chrome), end);
	}
	write_chunk(chrome, thread);
}

/* ---- marks and counters ---------------------------------------------------------------------- */

/* Sorts a slice before the slices within it. */
COMPARE_BY(compare_starts, struct export_mark, ORDER(a->thread, b->thread),
	   ORDER(a->span.start_ns, b->span.start_ns), ORDER(b->time_ns, a->time_ns))

/* A mark that began before the recording is written as an instant at the mark's end. */
static void write_mark(struct chrome *chrome, const struct export_mark *mark)
{
	static const char *const phases[] = {
		[SPAN_INSTANT] = "i", [SPAN_WHOLE] = "X", [SPAN_NO_END] = "B", [SPAN_NO_BEGIN] = "i"
	};
	const struct span *span = &mark->span;
	struct json *json = &chrome->json;

	begin_thread_event(chrome, span->name,
			   mark->is_wait ? "wait"
			   : span->group ? span->group
					 : "mark",
			   phases[span->kind], span->thread,
			   span->kind == SPAN_NO_BEGIN ? span->end_ns : span->start_ns);
	if (span->kind == SPAN_WHOLE)
		json_double(json, "dur", ((double)span->end_ns - (double)span->start_ns) / 1e3);
	else if (span->kind != SPAN_NO_END)
		json_string(json, "s", "t");
	json_begin_object(json, "args");
	if (span->kind == SPAN_NO_BEGIN)
		json_string(json, "kind", "end");
	export_marks_write_cause(&chrome->marks, mark, json);
	json_end(json);
	json_end(json);
}

/* With --tid or --comm, a process's counters are written only if one of its threads is shown. */
static void write_counter(struct chrome *chrome, const struct counter *counter,
			  const GArray *points, GHashTable *shown)
{
	const struct reader *reader = &chrome->export->reader;
	const struct names *names = reader->capture->names;
	g_autofree char *name = g_strdup_printf("%s%s%s", counter->group ? counter->group : "",
						counter->group ? " " : "",
						counter->name ? counter->name : "");

	if (!counter_is_wanted(counter, reader) ||
	    ((reader->tids || reader->comms) &&
	     !g_hash_table_contains(shown, GUINT_TO_POINTER(counter->process))))
		return;
	ARRAY_EACH(const struct ranged_value, point, points) {
		begin_event(chrome, name, "counter", "C",
			    names_process_at(names, counter->process)->pid, 0, point->time_ns);
		json_begin_object(&chrome->json, "args");
		json_double(&chrome->json, counter->unit ? counter->unit : "value", point->value);
		json_end(&chrome->json);
		json_end(&chrome->json);
	}
}

/* ---- the trace ------------------------------------------------------------------------------- */

static void write_other_data(struct chrome *chrome)
{
	const struct export *export = chrome->export;
	g_autofree char *title = export_title(export);
	g_autofree char *left_out = export_marks_left_out(&chrome->marks);
	struct json *json = &chrome->json;

	json_begin_object(json, "otherData");
	json_string(json, "recorder", "profcapture " PROF_VERSION);
	json_string(json, "command", title);
	json_string(json, "samples", export_weight_name(export));
	if (left_out)
		json_string(json, "waits left out", left_out);
	if (export->reader.capture->lost)
		json_uint(json, "lost events", export->reader.capture->lost);
	json_end(json);
}

static void write_threads(struct chrome *chrome, GHashTable *shown)
{
	const struct names *names = chrome->export->reader.capture->names;

	for (uint32_t thread = 0; thread < names->threads->len; thread++) {
		size_t samples, marks;
		const struct export_mark *mark =
			export_of_thread(chrome->marks.all, thread, &marks);

		(void)export_of_thread(chrome->samples->threads, thread, &samples);
		if (samples + marks == 0)
			continue;
		g_hash_table_add(shown, GUINT_TO_POINTER(names_thread_at(names, thread)->process));
		name_thread(chrome, thread);
		write_samples(chrome, thread);
		for (size_t i = 0; i < marks; i++)
			write_mark(chrome, &mark[i]);
	}
}

static void write_trace(struct chrome *chrome, const GPtrArray *points,
			const struct counter_values *counters)
{
	g_autoptr(GHashTable) shown = g_hash_table_new(NULL, NULL);
	struct json *json = &chrome->json;

	json_begin_object(json, NULL);
	json_string(json, "displayTimeUnit", "ns");
	write_other_data(chrome);
	json_begin_array(json, "traceEvents");
	write_threads(chrome, shown);
	for (guint i = 0; i < points->len; i++)
		write_counter(chrome, counter_at(counters, i), points->pdata[i], shown);
	json_end(json);
	json_end(json);
}

bool export_chrome(struct export *export, struct out *out, GError **error)
{
	g_autoptr(GPtrArray) points = NULL;
	struct counter_values counters = { .capture = export->reader.capture };
	struct chrome chrome = {
		.export = export,
		.samples = &export->ordered,
		.seen = g_new0(uint32_t, export->profile.tree.nodes->len + 1),
		.nodes = g_array_new(FALSE, FALSE, sizeof(uint32_t)),
		.ids = g_array_new(FALSE, FALSE, sizeof(uint32_t)),
		.deltas = g_array_new(FALSE, FALSE, sizeof(int64_t)),
	};
	bool ok = export_marks_read(&chrome.marks, export, error) &&
		  (points = counter_values_of_range(&counters, &export->reader, error));

	json_init(&chrome.json, out);
	g_array_sort(chrome.marks.all, compare_starts);
	if (ok)
		write_trace(&chrome, points, &counters);
	json_done(&chrome.json);
	counter_values_done(&counters);
	export_marks_done(&chrome.marks);
	g_array_unref(chrome.deltas);
	g_array_unref(chrome.ids);
	g_array_unref(chrome.nodes);
	g_free(chrome.seen);
	if (ok && chrome.samples->error) {
		g_propagate_error(error, g_steal_pointer(&chrome.samples->error));
		ok = false;
	}
	return ok;
}
