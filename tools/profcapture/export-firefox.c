/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-firefox - samples, marks, counters and allocations for the Firefox Profiler, in its
 * processed format
 *
 * The format is version 66 of docs-developer/CHANGELOG-formats.md in the profiler's repository,
 * which all later versions can read. Times are milliseconds since the capture's start. A table is
 * an object with an array for each column. Texts are indexes in shared.stringArray, which is
 * written last, because everything written before may add strings.
 *
 * Tables shared by all threads: the stack table is our tree without its root. Each entity of the
 * tree is a frame with a line; its `inlineDepth` is the number of calls that it is inlined into.
 * Each frame belongs to a function; the frame's line is in that function's file.
 *
 * Waiting: each period in which a thread was on no CPU is a mark, whose name is the reason: the
 * thread waited, was preempted, or was ready while no CPU was free. Only the longest periods are
 * kept (EXPORT_MOST_WAITS), because viewers cannot open millions of marks; the profile says how
 * many are left out.
 *
 * Marks: a mark without an end, or without a start, is written as such; the profiler decides how to
 * show it. Allocations: the profiler finds the block of a free by its address, and only in the
 * table of one thread. So the address is the block's number, a free is written to the thread that
 * allocated the block, and `threadId` is the thread that called free(). Counters: the profiler adds
 * up the changes of a counter, from its first row on, and shows the total for a gauge and the
 * change for a sum. So a gauge gets a row with 0 before its first value, which makes the totals
 * equal to its values. A counter without a process, or whose process has no thread in the profile,
 * is shown with the first process.
 */
#include "config.h"

#include "base/order.h"
#include "tools/common/json-copy.h"
#include "tools/profcapture/counter-values.h"
#include "tools/profcapture/export-allocations.h"
#include "tools/profcapture/export-marks.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { FORMAT_VERSION = 66 };
enum { CATEGORY_OTHER, CATEGORY_USER, CATEGORY_KERNEL, CATEGORY_JIT };

/* A set of numbers, and the row of each. */
struct row_list {
	GArray *all; /* uint32_t */
	GHashTable *row_of;
};

struct firefox {
	struct export *export;
	struct json json;
	struct export_strings strings;
	struct row_list functions; /* whole functions, not places in them */
	struct row_list resources; /* images */
	struct row_list sources;   /* indexes of strings: the files of functions */
	struct row_list threads;   /* at least one */
	struct export_samples *samples;
	uint64_t first_sample; /* first sample of the thread that is being written */
	struct export_marks marks;
	GArray *events; /* struct allocation_event; NULL: none */
	struct counter_values counters;
	GPtrArray *points; /* GArray of struct ranged_value, by counter */
	const void *rows;  /* rows of the table that is being written, if it has an array */
};

/* Returns the number's row. Adds the number if it is new. */
static uint32_t list(struct row_list *rows, uint32_t number)
{
	gpointer key = GUINT_TO_POINTER(number), row;

	if (!g_hash_table_lookup_extended(rows->row_of, key, NULL, &row)) {
		row = GUINT_TO_POINTER(rows->all->len);
		g_hash_table_insert(rows->row_of, key, row);
		g_array_append_val(rows->all, number);
	}
	return GPOINTER_TO_UINT(row);
}

static uint32_t listed(const struct row_list *rows, size_t row)
{
	return g_array_index(rows->all, uint32_t, row);
}

static struct cell cell_string(struct firefox *firefox, const char *text)
{
	return cell_uint(export_string(&firefox->strings, text));
}

static struct cell cell_known(uint64_t number)
{
	return number ? cell_uint(number) : cell_unknown();
}

static struct cell cell_ms(int64_t ns)
{
	return cell_double((double)ns / 1e6);
}

/* A damaged file may place two times further apart than an int64_t holds. */
static struct cell cell_ms_between(int64_t before_ns, int64_t ns)
{
	return cell_double(((double)ns - (double)before_ns) / 1e6);
}

static void write_ms(struct json *json, const char *key, int64_t ns)
{
	json_double(json, key, (double)ns / 1e6);
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* The fields before CONSTANTS have the same value in every row. */
enum field {
	NOTHING,
	ZERO,
	ONE,
	NO,
	CONSTANTS,
	ADDRESS = CONSTANTS,
	CATEGORY,
	COUNT,
	DEPTH,
	END,
	FILE_NAME,
	FRAME,
	LASTS,
	FUNCTION,
	LINE,
	NAME,
	PHASE,
	PREFIX,
	RESOURCE,
	ROW,
	SOURCE,
	STACK,
	START,
	THREAD,
	TIME,
	WEIGHT,
};

/* A table: an array for each of its members. */
struct columns {
	size_t rows;
	struct cell (*get)(struct firefox *firefox, size_t row, enum field field);
	const struct table_member *members;
};

static void write_columns(struct firefox *firefox, const struct columns *columns)
{
	static const struct cell constants[CONSTANTS] = { [ZERO] = { .kind = CELL_UINT },
							  [ONE] = { .kind = CELL_UINT,
								    .number = 1 },
							  [NO] = { .kind = CELL_BOOL } };

	for (const struct table_member *member = columns->members; member->key; member++) {
		json_begin_array(&firefox->json, member->key);
		for (size_t i = 0; i < columns->rows; i++) {
			struct cell cell =
				member->field < CONSTANTS
					? constants[member->field]
					: columns->get(firefox, i, (enum field)member->field);

			cell_write(&firefox->json, NULL, &cell);
		}
		json_end(&firefox->json);
	}
}

static void write_table(struct firefox *firefox, const char *key, const struct columns *columns)
{
	json_begin_object(&firefox->json, key);
	write_columns(firefox, columns);
	json_uint(&firefox->json, "length", columns->rows);
	json_end(&firefox->json);
}

/* ---- metadata -------------------------------------------------------------------------------- */

#define TEXT(...) #__VA_ARGS__
/* clang-format off */
static const char categories[] = TEXT([
	{ "name": "Other", "color": "grey", "subcategories": ["Other"] },
	{ "name": "User", "color": "yellow", "subcategories": ["Other"] },
	{ "name": "Kernel", "color": "orange", "subcategories": ["Other"] },
	{ "name": "JIT", "color": "blue", "subcategories": ["Other"] }
]);
static const char mark_schema[] = TEXT([{
	"name": "Mark",
	"display": ["marker-chart", "marker-table", "timeline-overview"],
	"tooltipLabel": "{marker.name}",
	"tableLabel": "{marker.data.group}",
	"chartLabel": "{marker.name}",
	"fields": [{ "key": "group", "label": "Group", "format": "string" }]
}, {
	"name": "Wait",
	"display": ["marker-chart", "marker-table", "timeline-overview"],
	"tooltipLabel": "{marker.name}",
	"tableLabel": "{marker.data.call} {marker.data.function}",
	"chartLabel": "{marker.name}",
	"description": "The thread was on no CPU: it waited, was preempted, or was ready to run.",
	"fields": [
		{ "key": "cause", "label": "For", "format": "string" },
		{ "key": "call", "label": "Call", "format": "string" },
		{ "key": "function", "label": "In", "format": "string" }
	]
}]);
static const char units[] = TEXT({ "time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns" });
static const char no_symbols[] = TEXT({
	"libIndex": [], "address": [], "name": [], "functionSize": [], "length": 0
});
static const char no_locations[] = TEXT({ "source": [], "line": [], "column": [], "length": 0 });
/* clang-format on */

static void write_meta(struct firefox *firefox)
{
	const struct capture *capture = firefox->export->reader.capture;
	const struct profile *profile = &firefox->export->profile;
	struct json *json = &firefox->json;
	g_autofree char *title = export_title(firefox->export);
	g_autofree char *left_out = export_marks_left_out(&firefox->marks);
	/* The format has no unit for events and no kinds of time, so the product's name says what
	 * is counted. */
	bool is_named = export_counts_waits(firefox->export) ||
			(profile_is_weighted(profile) && !export_is_time(firefox->export));
	g_autofree char *counted =
		g_strdup_printf("%s, %s", export_weight_name(firefox->export), title);

	json_begin_object(json, "meta");
	json_uint(json, "version", 27);
	json_uint(json, "preprocessedProfileVersion", FORMAT_VERSION);
	json_string(json, "product", is_named ? counted : title);
	json_string(json, "importedFrom", "profcapture " PROF_VERSION);
	write_ms(json, "interval", profile->period_ns ? (int64_t)profile->period_ns : 1000000);
	write_ms(json, "startTime", capture->n_segments ? capture->segments[0].wall_ns : 0);
	json_uint(json, "processType", 0);
	json_uint(json, "stackwalk", 1);
	json_uint(json, "debug", 0);
	/* otherwise, the profiler would request names from a server */
	json_bool(json, "symbolicated", true);
	json_string(json, "oscpu", capture_metadata(capture, "arch"));
	json_copy(json, "categories", categories);
	json_copy(json, "markerSchema", mark_schema);
	json_copy(json, "sampleUnits", units);
	json_copy(json, "extensions", "[]");
	if (left_out) {
		json_begin_array(json, "extra");
		json_begin_object(json, NULL);
		json_string(json, "label", "Waiting");
		json_begin_array(json, "entries");
		json_begin_object(json, NULL);
		json_string(json, "label", "Waits left out");
		json_string(json, "format", "string");
		json_string(json, "value", left_out);
		json_end(json);
		json_end(json);
		json_end(json);
		json_end(json);
	}
	json_end(json);
}

/* ---- samples --------------------------------------------------------------------------------- */

static struct cell get_sample(struct firefox *firefox, size_t row, enum field field)
{
	const uint64_t index = firefox->first_sample + row;
	/* read the previous sample first, because the file is read forwards */
	const int64_t before_ns =
		field == TIME && row ? export_samples_at(firefox->samples, index - 1).time_ns : 0;
	const struct profile_sample sample = export_samples_at(firefox->samples, index);

	return field == STACK   ? cell_uint(sample.node - 1)
	       : field == LASTS ? cell_ms((int64_t)sample.weight)
	       : field == TIME  ? cell_ms_between(before_ns, sample.time_ns)
				: cell_uint(sample.weight);
}

static void write_samples(struct firefox *firefox, uint32_t thread)
{
	static const struct table_member members[] = { { "stack", STACK },
						       { "timeDeltas", TIME },
						       { NULL } };
	static const struct table_member cpu[] = { { "threadCPUDelta", WEIGHT }, { NULL } };
	static const struct table_member weight[] = { { "weight", WEIGHT }, { NULL } };
	static const struct table_member lasts[] = { { "weight", LASTS }, { NULL } };
	bool is_time = export_is_time(firefox->export);
	bool is_weighted = export_counts_waits(firefox->export) ||
			   profile_is_weighted(&firefox->export->profile);
	struct json *json = &firefox->json;
	size_t n;
	const struct export_thread_samples *of =
		export_of_thread(firefox->samples->threads, thread, &n);
	struct columns columns = { of ? of->n : 0, get_sample, members };

	firefox->first_sample = of ? of->first : 0;
	json_begin_object(json, "samples");
	write_columns(firefox, &columns);
	/* a sample of a CPU clock represents the CPU time since the previous one */
	columns.members = cpu;
	if (is_time && !export_counts_waits(firefox->export))
		write_columns(firefox, &columns);
	columns.members = is_time ? lasts : weight;
	if (is_weighted)
		write_columns(firefox, &columns);
	else
		json_null(json, "weight");
	json_string(json, "weightType", is_weighted && is_time ? "tracing-ms" : "samples");
	json_uint(json, "length", columns.rows);
	json_end(json);
}

/* ---- marks ----------------------------------------------------------------------------------- */

/* PHASE has the profiler's values: 0 instant, 1 span, 2 start of a span, 3 end of a span. */
static struct cell get_mark(struct firefox *firefox, size_t row, enum field field)
{
	static const unsigned phases[] = {
		[SPAN_INSTANT] = 0, [SPAN_WHOLE] = 1, [SPAN_NO_END] = 2, [SPAN_NO_BEGIN] = 3
	};
	const struct span *span = &((const struct export_mark *)firefox->rows)[row].span;

	if (field == NAME)
		return cell_string(firefox, span->name);
	if (field == PHASE)
		return cell_uint(phases[span->kind]);
	if (field == START)
		return span->kind == SPAN_NO_BEGIN ? cell_unknown() : cell_ms(span->start_ns);
	return span->kind == SPAN_WHOLE || span->kind == SPAN_NO_BEGIN ? cell_ms(span->end_ns)
								       : cell_unknown();
}

static void write_marks(struct firefox *firefox, uint32_t thread)
{
	static const struct table_member members[] = {
		{ "name", NAME },   { "startTime", START }, { "endTime", END },
		{ "phase", PHASE }, { "category", ZERO },   { NULL },
	};
	struct columns columns = { .get = get_mark, .members = members };
	const struct export_mark *marks =
		export_of_thread(firefox->marks.all, thread, &columns.rows);
	struct json *json = &firefox->json;

	firefox->rows = marks;
	json_begin_object(json, "markers");
	write_columns(firefox, &columns);
	json_begin_array(json, "data");
	for (size_t i = 0; i < columns.rows; i++) {
		json_begin_object(json, NULL);
		json_string(json, "type", marks[i].is_wait ? "Wait" : "Mark");
		if (!marks[i].is_wait)
			json_string(json, "group", marks[i].span.group ? marks[i].span.group : "");
		export_marks_write_cause(&firefox->marks, &marks[i], json);
		json_end(json);
	}
	json_end(json);
	json_uint(json, "length", columns.rows);
	json_end(json);
}

/* ---- allocations ----------------------------------------------------------------------------- */

static struct cell get_event(struct firefox *firefox, size_t row, enum field field)
{
	const struct allocation_event *event = (const struct allocation_event *)firefox->rows + row;
	const struct names *names = firefox->export->reader.capture->names;

	return field == TIME      ? cell_ms(event->time_ns)
	       : field == WEIGHT  ? cell_int(llround(event->bytes))
	       : field == ADDRESS ? cell_uint(event->block)
	       : field == THREAD  ? cell_uint(names_thread_at(names, event->by)->tid)
	       : event->node      ? cell_uint(event->node - 1)
				  : cell_unknown();
}

static void write_allocations(struct firefox *firefox, uint32_t thread)
{
	static const struct table_member members[] = {
		{ "time", TIME },       { "weight", WEIGHT },
		{ "stack", STACK },     { "memoryAddress", ADDRESS },
		{ "threadId", THREAD }, { NULL },
	};
	struct columns columns = { .get = get_event, .members = members };

	firefox->rows = export_of_thread(firefox->events, thread, &columns.rows);
	if (columns.rows == 0)
		return;
	json_begin_object(&firefox->json, "nativeAllocations");
	write_columns(firefox, &columns);
	json_string(&firefox->json, "weightType", "bytes");
	json_uint(&firefox->json, "length", columns.rows);
	json_end(&firefox->json);
}

/* ---- threads --------------------------------------------------------------------------------- */

static void write_thread(struct firefox *firefox, uint32_t thread)
{
	const struct names *names = firefox->export->reader.capture->names;
	const struct names_thread *at = names_thread_at(names, thread);
	const struct names_process *process = names_process_at(names, at->process);
	const char *name = export_thread_name(firefox->export, thread);
	g_autofree char *pid = g_strdup_printf("%" PRIu64, process->pid);
	struct json *json = &firefox->json;
	size_t marks;

	json_begin_object(json, NULL);
	json_string(json, "name", name);
	json_bool(json, "isMainThread", at->tid == process->pid);
	json_string(json, "processType", "default");
	json_string(json, "processName", process->exe ? functions_basename(process->exe) : name);
	json_string(json, "pid", pid);
	json_uint(json, "tid", at->tid);
	json_uint(json, "processStartupTime", 0);
	json_null(json, "processShutdownTime");
	json_uint(json, "registerTime", 0);
	json_null(json, "unregisterTime");
	json_copy(json, "pausedRanges", "[]");
	(void)export_of_thread(firefox->marks.all, thread, &marks);
	json_bool(json, "showMarkersInTimeline", marks > 0);
	write_samples(firefox, thread);
	write_marks(firefox, thread);
	write_allocations(firefox, thread);
	json_end(json);
}

/* Threads with only marks or allocations come last. The profiler needs at least one thread. */
static void list_threads(struct firefox *firefox)
{
	g_autoptr(GArray) threads = export_threads(firefox->export, firefox->samples->threads);
	size_t marks, events;

	for (guint i = 0; i < threads->len; i++)
		(void)list(&firefox->threads, g_array_index(threads, uint32_t, i));
	for (uint32_t i = 0; i < firefox->export->reader.capture->names->threads->len; i++) {
		(void)export_of_thread(firefox->marks.all, i, &marks);
		(void)export_of_thread(firefox->events, i, &events);
		if (marks + events > 0)
			(void)list(&firefox->threads, i);
	}
	if (firefox->threads.all->len == 0)
		(void)list(&firefox->threads, NAMES_NONE);
}

/* ---- counters -------------------------------------------------------------------------------- */

static struct cell get_point(struct firefox *firefox, size_t row, enum field field)
{
	const struct ranged_value *point = (const struct ranged_value *)firefox->rows + row;

	return field == TIME ? cell_ms_between(row ? point[-1].time_ns : 0, point->time_ns)
	       : row         ? cell_double(point->value - point[-1].value)
			     : cell_uint(0);
}

static void write_display(struct json *json, const struct counter *counter)
{
	bool is_sum = counter->kind == PROF_COUNTER_SUM;
	bool is_bytes = g_strcmp0(counter->unit, "bytes") == 0 ||
			g_strcmp0(counter->unit, "B") == 0;
	const char *name = counter->name ? counter->name : "";
	g_autofree char *label = counter->unit && !is_bytes
					 ? g_strdup_printf("%s [%s]", name, counter->unit)
					 : g_strdup(name);

	json_begin_object(json, "display");
	json_string(json, "graphType", is_sum ? "line-rate" : "line-accumulated");
	json_string(json, "unit", is_bytes ? "bytes" : "");
	json_string(json, "color", is_sum ? "blue" : "orange");
	json_null(json, "markerSchemaLocation");
	json_uint(json, "sortWeight", 50);
	json_string(json, "label", label);
	json_begin_array(json, "tooltipRows");
	json_begin_object(json, NULL);
	json_string(json, "type", "value");
	json_string(json, "source", is_sum ? "count" : "accumulated");
	json_copy(json, "format",
		  is_bytes ? TEXT({ "unit" : "bytes" }) : TEXT({ "unit" : "number" }));
	json_string(json, "label", label);
	json_end(json);
	json_end(json);
	json_end(json);
}

/* Writes a counter, for the first thread of its process: the main thread, if it has samples. */
static void write_counter(struct firefox *firefox, const struct counter *counter, GArray *points)
{
	static const struct table_member members[] = { { "timeDeltas", TIME },
						       { "count", COUNT },
						       { NULL } };
	const struct reader *reader = &firefox->export->reader;
	const struct names *names = reader->capture->names;
	struct columns columns = { .get = get_point, .members = members };
	struct json *json = &firefox->json;
	guint at = 0, n = firefox->threads.all->len;
	g_autofree char *pid = NULL;

	while (at < n &&
	       names_thread_at(names, listed(&firefox->threads, at))->process != counter->process)
		at++;
	if (points->len == 0 || !counter_is_wanted(counter, reader) ||
	    (at == n && (reader->tids || reader->comms)))
		return;
	at = at < n ? at : 0;
	pid = g_strdup_printf(
		"%" PRIu64,
		names_process_at(names,
				 names_thread_at(names, listed(&firefox->threads, at))->process)
			->pid);
	json_begin_object(json, NULL);
	json_string(json, "name", counter->name ? counter->name : "");
	json_string(json, "category", counter->group ? counter->group : "");
	json_string(json, "description", counter->unit ? counter->unit : "");
	json_string(json, "pid", pid);
	json_uint(json, "mainThreadIndex", at);
	write_display(json, counter);
	if (counter->kind != PROF_COUNTER_SUM) {
		const struct ranged_value zero = {
			g_array_index(points, struct ranged_value, 0).time_ns, 0
		};

		g_array_prepend_val(points, zero);
	}
	firefox->rows = points->data;
	columns.rows = points->len;
	write_table(firefox, "samples", &columns);
	json_end(json);
}

/* ---- what all threads share ------------------------------------------------------------------ */

static const struct names_image *image_at(const struct firefox *firefox, size_t row)
{
	return names_image_at(firefox->export->reader.capture->names,
			      listed(&firefox->resources, row));
}

/* Row i is node i + 1. A parent comes before its children. */
static struct cell get_stack(struct firefox *firefox, size_t row, enum field field)
{
	const struct profile_node *node =
		&g_array_index(firefox->export->profile.tree.nodes, struct profile_node, row + 1);

	return cell_uint(field == FRAME ? node->entity : node->parent ? row + 1 - node->parent : 0);
}

static struct cell get_frame(struct firefox *firefox, size_t row, enum field field)
{
	const struct export *export = firefox->export;
	const struct function *frame = functions_at(export->profile.functions, (uint32_t)row);
	bool has_image = frame->image > NAMES_LOST;

	switch (field) {
	case FUNCTION:
		return cell_uint(list(&firefox->functions, export_function(export, (uint32_t)row)));
	case CATEGORY:
		return cell_uint(strcmp(frame->kind, "kernel") == 0 ? CATEGORY_KERNEL
				 : strcmp(frame->kind, "jit") == 0  ? CATEGORY_JIT
				 : has_image                        ? CATEGORY_USER
								    : CATEGORY_OTHER);
	case ADDRESS:
		/* only file offsets are written: other addresses are too large for the profiler's
		 * numbers */
		return has_image && frame->offset < UINT64_C(1) << 53 ? cell_uint(frame->offset)
								      : cell_int(-1);
	case LINE:
		return cell_known(export_line(export, (uint32_t)row));
	default:
		return cell_uint(frame->depth);
	}
}

static struct cell get_function(struct firefox *firefox, size_t row, enum field field)
{
	uint32_t index = listed(&firefox->functions, row);
	const struct function *function = functions_at(firefox->export->profile.functions, index);
	const char *file = firefox->export->files[index];

	switch (field) {
	case NAME:
		return cell_string(firefox, function->name);
	case RESOURCE:
		return cell_int(function->image > NAMES_LOST
					? (int64_t)list(&firefox->resources, function->image)
					: -1);
	case SOURCE:
		return file ? cell_uint(list(&firefox->sources,
					     export_string(&firefox->strings, file)))
			    : cell_unknown();
	default:
		return cell_known(function->line);
	}
}

static struct cell get_source(struct firefox *firefox, size_t row, enum field field)
{
	return cell_uint(listed(&firefox->sources, row));
}

static struct cell get_resource(struct firefox *firefox, size_t row, enum field field)
{
	return field == ROW
		       ? cell_uint(row)
		       : cell_string(firefox, functions_basename(image_at(firefox, row)->path));
}

static void write_libraries(struct firefox *firefox)
{
	struct json *json = &firefox->json;

	json_begin_array(json, "libs");
	for (guint i = 0; i < firefox->resources.all->len; i++) {
		const struct names_image *image = image_at(firefox, i);

		json_begin_object(json, NULL);
		json_string(json, "arch",
			    capture_metadata(firefox->export->reader.capture, "arch"));
		json_string(json, "name", functions_basename(image->path));
		json_string(json, "path", image->path ? image->path : "");
		json_string(json, "debugName", functions_basename(image->path));
		json_string(json, "debugPath", image->path ? image->path : "");
		json_string(json, "breakpadId", "");
		json_string(json, "codeId", image->build_id);
		json_end(json);
	}
	json_end(json);
}

static void write_shared(struct firefox *firefox)
{
	static const struct table_member stacks[] = { { "frame", FRAME },
						      { "prefixOffset", PREFIX },
						      { NULL } };
	static const struct table_member frames[] = {
		{ "func", FUNCTION },
		{ "category", CATEGORY },
		{ "subcategory", ZERO },
		{ "address", ADDRESS },
		{ "line", LINE },
		{ "column", NOTHING },
		{ "nativeSymbol", NOTHING },
		{ "inlineDepth", DEPTH },
		{ "innerWindowID", ZERO },
		{ "originalLocation", NOTHING },
		{ NULL },
	};
	static const struct table_member functions[] = {
		{ "name", NAME },        { "resource", RESOURCE },        { "source", SOURCE },
		{ "lineNumber", LINE },  { "columnNumber", NOTHING },     { "isJS", NO },
		{ "relevantForJS", NO }, { "originalLocation", NOTHING }, { NULL },
	};
	static const struct table_member sources[] = {
		{ "id", NOTHING },
		{ "filename", FILE_NAME },
		{ "startLine", ONE },
		{ "startColumn", ONE },
		{ "sourceMapURL", NOTHING },
		{ "content", NOTHING },
		{ NULL },
	};
	/* type 1: a library */
	static const struct table_member resources[] = {
		{ "lib", ROW }, { "name", NAME }, { "host", NOTHING }, { "type", ONE }, { NULL }
	};
	const struct profile *profile = &firefox->export->profile;
	struct json *json = &firefox->json;

	/* List the sources, and add their strings, before writing the tables that refer to them. */
	for (guint i = 0; i < firefox->functions.all->len; i++) {
		const char *file = firefox->export->files[listed(&firefox->functions, i)];

		if (file)
			(void)list(&firefox->sources, export_string(&firefox->strings, file));
	}
	json_begin_object(json, "shared");
	write_table(firefox, "stackTable",
		    &(struct columns){ profile->tree.nodes->len - 1, get_stack,
				       .members = stacks });
	write_table(firefox, "frameTable",
		    &(struct columns){ profile->functions->all->len, get_frame,
				       .members = frames });
	write_table(firefox, "funcTable",
		    &(struct columns){ firefox->functions.all->len, get_function,
				       .members = functions });
	write_table(firefox, "sources",
		    &(struct columns){ firefox->sources.all->len, get_source, .members = sources });
	write_table(firefox, "resourceTable",
		    &(struct columns){ firefox->resources.all->len, get_resource,
				       .members = resources });
	json_copy(json, "nativeSymbols", no_symbols);
	json_copy(json, "sourceLocationTable", no_locations);
	json_begin_array(json, "stringArray");
	for (guint i = 0; i < firefox->strings.all->len; i++)
		json_string(json, NULL, firefox->strings.all->pdata[i]);
	json_end(json);
	json_end(json);
}

/* ---- the profile ----------------------------------------------------------------------------- */

static void write_profile(struct firefox *firefox)
{
	const struct functions *functions = firefox->export->profile.functions;
	struct json *json = &firefox->json;

	list_threads(firefox);
	for (uint32_t i = 0; i < functions->all->len; i++) {
		if (functions_at(functions, i)->image > NAMES_LOST)
			(void)list(&firefox->resources, functions_at(functions, i)->image);
		if (export_function(firefox->export, i) == i)
			(void)list(&firefox->functions, i);
	}
	json_begin_object(json, NULL);
	write_meta(firefox);
	write_libraries(firefox);
	json_copy(json, "pages", "[]");
	json_begin_array(json, "threads");
	for (guint i = 0; i < firefox->threads.all->len; i++)
		write_thread(firefox, listed(&firefox->threads, i));
	json_end(json);
	json_begin_array(json, "counters");
	for (guint i = 0; i < firefox->points->len; i++)
		write_counter(firefox, counter_at(&firefox->counters, i),
			      firefox->points->pdata[i]);
	json_end(json);
	write_shared(firefox);
	json_end(json);
}

bool export_firefox(struct export *export, struct out *out, GError **error)
{
	struct firefox firefox = {
		.export = export,
		.samples = &export->ordered,
		.events = export->allocations ? export->allocations->events : NULL,
		.counters.capture = export->reader.capture,
	};
	struct row_list *const lists[] = { &firefox.functions, &firefox.resources, &firefox.sources,
					   &firefox.threads };
	bool ok = export_marks_read(&firefox.marks, export, error) &&
		  (firefox.points =
			   counter_values_of_range(&firefox.counters, &export->reader, error));

	json_init(&firefox.json, out);
	export_strings_init(&firefox.strings);
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		lists[i]->all = g_array_new(FALSE, FALSE, sizeof(uint32_t));
		lists[i]->row_of = g_hash_table_new(NULL, NULL);
	}
	if (firefox.events)
		g_array_sort(firefox.events, export_compare);
	if (ok)
		write_profile(&firefox);
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		g_array_unref(lists[i]->all);
		g_hash_table_unref(lists[i]->row_of);
	}
	export_strings_done(&firefox.strings);
	json_done(&firefox.json);
	counter_values_done(&firefox.counters);
	g_clear_pointer(&firefox.points, g_ptr_array_unref);
	export_marks_done(&firefox.marks);
	if (ok && firefox.samples->error) {
		g_propagate_error(error, g_steal_pointer(&firefox.samples->error));
		ok = false;
	}
	return ok;
}
