/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-firefox - samples, marks, counters and allocations for the Firefox Profiler, in its
 * processed format
 *
 * The format is that of docs-developer/CHANGELOG-formats.md in the profiler's repository, version
 * 66, which all later versions read. Times are milliseconds since the capture began. A table is an
 * object of arrays, one for each column. Texts are indexes in shared.stringArray, which is written
 * last, because everything written before may add strings.
 *
 * What all threads share: the table of stacks is our tree without its root. Each entity of the tree
 * is a frame, which has a line; `inlineDepth` is the number of calls that it is inlined into. A
 * function is what frames count as; a line is one of the function's file.
 *
 * Marks: a mark without an end, or without a begin, is written so; the profiler decides how to show
 * it. Allocations: the profiler finds the block of a free by its address, for which it gets the
 * block's number, and only in the table of one thread. So a free is written to the thread that
 * allocated the block, and `threadId` is the caller. Counters: the profiler adds up the changes of
 * a counter, starts with its first row, and shows the sum (a gauge), or the change (a sum). So a
 * gauge gets a row of zero before its first value, which makes the sums its values. A counter
 * without a process, or of a process without a thread in the profile, is shown with the first
 * process.
 */
#include "config.h"

#include "tools/profcapture/counter-values.h"
#include "tools/profcapture/export-allocations.h"
#include "tools/profcapture/spans.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { FORMAT_VERSION = 66 };
enum { CATEGORY_OTHER, CATEGORY_USER, CATEGORY_KERNEL, CATEGORY_JIT };

struct mark {
	const char *name, *group;
	int64_t start_ns, end_ns;
	enum span_kind kind;
};

struct point {
	int64_t time_ns;
	double value;
};

struct firefox {
	struct export *export;
	struct json json;
	GHashTable *index;   /* text → index + 1 */
	GPtrArray *strings;  /* as in the capture */
	GArray *functions;   /* uint32_t: functions that have a row in the table of functions */
	GArray *function_of; /* uint32_t: that row, by function */
	GArray *resources;   /* uint32_t: image of names, by resource */
	GArray *resource_of; /* uint32_t: resource + 1, by image; 0 = none */
	GArray *sources;     /* uint64_t: string of a file, by source */
	GArray *source_of;   /* uint32_t: source + 1, by row of functions; 0 = none */
	GArray *threads;     /* uint32_t: index of names, by thread of the profile; at least one */
	GArray *samples;     /* struct export_stack, by thread and time */
	GPtrArray *marks;    /* GArray of struct mark, by thread of names; NULL = none */
	/* uint32_t: index of its first allocation + 1, by thread of names; 0 = none */
	GArray *first_event;
	struct counter_values counters;
	GPtrArray *points; /* GArray of struct point, by counter */
};

/* What the columns of a table are written from. */
struct source_rows {
	struct firefox *firefox;
	const void *all;
	bool is_sum; /* of counters */
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

/* Returns the last part of a path, or "-". */
static const char *base_name(const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL;

	return slash && slash[1] ? slash + 1 : path ? path : "-";
}

static uint32_t number_at(const GArray *numbers, guint i)
{
	return i < numbers->len ? g_array_index(numbers, uint32_t, i) : 0;
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* The first are the same in every row. */
enum field {
	NOTHING,
	ZERO,
	ONE,
	NO,
	CONSTANTS,
	ADDRESS = CONSTANTS,
	CATEGORY,
	COUNT,
	DATA,
	DEPTH,
	END,
	FILE_NAME,
	FRAME,
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

static void write_columns(struct json *json, const struct table *table)
{
	static const struct cell constants[CONSTANTS] = { [ZERO] = { .kind = CELL_UINT },
							  [ONE] = { .kind = CELL_UINT,
								    .number = 1 },
							  [NO] = { .kind = CELL_BOOL } };

	for (const struct table_member *member = table->members; member->key; member++) {
		json_begin_array(json, member->key);
		for (size_t i = 0; i < table->rows; i++) {
			struct cell cell = { .kind = CELL_NONE };

			if (member->field < CONSTANTS)
				cell = constants[member->field];
			else
				table->get(table->data, i, member->field, &cell);
			cell_write(json, NULL, &cell);
		}
		json_end(json);
	}
}

static void write_table(struct firefox *firefox, const char *key, const struct table *table)
{
	json_begin_object(&firefox->json, key);
	write_columns(&firefox->json, table);
	json_uint(&firefox->json, "length", table->rows);
	json_end(&firefox->json);
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

static void write_mark_schema(struct json *json)
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
	uint64_t period = firefox->export->tally.period_ns;
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
	write_ms(json, "interval", period ? (int64_t)period : 1000000);
	write_ms(json, "startTime", capture->n_segments ? capture->segments[0].wall_ns : 0);
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
	write_mark_schema(json);
	json_begin_object(json, "sampleUnits");
	json_string(json, "time", "ms");
	json_string(json, "eventDelay", "ms");
	json_string(json, "threadCPUDelta", "ns");
	json_end(json);
	json_begin_array(json, "extensions");
	json_end(json);
	json_end(json);
}

/* ---- samples --------------------------------------------------------------------------------- */

static void get_sample(const void *data, size_t row, unsigned field, struct cell *ret_cell)
{
	const struct export_stack *all = ((const struct source_rows *)data)->all;

	*ret_cell = field == STACK ? cell_uint(all[row].node - 1)
		    : field == TIME
			    ? cell_ms_between(row ? all[row - 1].time_ns : 0, all[row].time_ns)
			    : cell_uint(all[row].amount.weight);
}

static void write_samples(struct firefox *firefox, uint32_t thread)
{
	static const struct table_member members[] = { { "stack", STACK },
						       { "timeDeltas", TIME },
						       { NULL } };
	static const struct table_member cpu[] = { { "threadCPUDelta", WEIGHT }, { NULL } };
	static const struct table_member weight[] = { { "weight", WEIGHT }, { NULL } };
	struct source_rows rows = { .firefox = firefox };
	struct table table = { .get = get_sample, .data = &rows, .members = members };
	struct json *json = &firefox->json;

	rows.all = export_of_thread(firefox->samples, thread, &table.rows);
	json_begin_object(json, "samples");
	write_columns(json, &table);
	/* a sample of a CPU clock stands for the CPU time since the previous one */
	table.members = cpu;
	if (export_is_time(firefox->export))
		write_columns(json, &table);
	table.members = weight;
	if (tally_is_weighted(&firefox->export->tally))
		write_columns(json, &table);
	else
		json_null(json, "weight");
	json_string(json, "weightType", "samples");
	json_uint(json, "length", table.rows);
	json_end(json);
}

static gint compare_times(gconstpointer left, gconstpointer right)
{
	const struct export_stack *a = left, *b = right;

	if (a->thread != b->thread)
		return a->thread < b->thread ? -1 : 1;
	return a->time_ns < b->time_ns ? -1 : a->time_ns > b->time_ns;
}

/* ---- marks ----------------------------------------------------------------------------------- */

static void keep_mark(const struct span *span, void *data)
{
	struct firefox *firefox = data;
	struct reader *reader = &firefox->export->reader;
	struct mark mark = { span->name, span->group, span->start_ns, span->end_ns, span->kind };
	GArray **marks;

	if (span->end_ns < reader->from_ns || span->start_ns > reader->to_ns ||
	    !reader_wants_thread_at(reader, span->thread, span->start_ns))
		return;
	if (firefox->marks->len <= span->thread)
		g_ptr_array_set_size(firefox->marks, (gint)span->thread + 1);
	marks = (GArray **)&firefox->marks->pdata[span->thread];
	if (!*marks)
		*marks = g_array_new(FALSE, FALSE, sizeof(struct mark));
	g_array_append_val(*marks, mark);
}

static bool has_marks(const struct firefox *firefox, uint32_t thread)
{
	return thread < firefox->marks->len && firefox->marks->pdata[thread];
}

/* The phases are the profiler's: an instant, a span, its begin, its end. */
static void get_mark(const void *data, size_t row, unsigned field, struct cell *ret_cell)
{
	static const unsigned phases[] = {
		[SPAN_INSTANT] = 0, [SPAN_WHOLE] = 1, [SPAN_NO_END] = 2, [SPAN_NO_BEGIN] = 3
	};
	const struct source_rows *rows = data;
	const struct mark *mark = &((const struct mark *)rows->all)[row];

	switch ((enum field)field) {
	case NAME:
		*ret_cell = cell_uint(string_index(rows->firefox, mark->name));
		break;
	case START:
		if (mark->kind != SPAN_NO_BEGIN)
			*ret_cell = cell_ms(mark->start_ns);
		break;
	case END:
		if (mark->kind == SPAN_WHOLE || mark->kind == SPAN_NO_BEGIN)
			*ret_cell = cell_ms(mark->end_ns);
		break;
	default:
		*ret_cell = cell_uint(phases[mark->kind]);
	}
}

static void write_marks(struct firefox *firefox, uint32_t thread)
{
	static const struct table_member members[] = {
		{ "name", NAME },   { "startTime", START }, { "endTime", END },
		{ "phase", PHASE }, { "category", ZERO },   { NULL },
	};
	const GArray *marks = has_marks(firefox, thread) ? firefox->marks->pdata[thread] : NULL;
	struct source_rows rows = { .firefox = firefox, .all = marks ? marks->data : NULL };
	const struct table table = {
		.rows = marks ? marks->len : 0, .get = get_mark, .data = &rows, .members = members
	};
	struct json *json = &firefox->json;

	json_begin_object(json, "markers");
	write_columns(json, &table);
	json_begin_array(json, "data");
	for (guint i = 0; i < table.rows; i++) {
		const char *group = g_array_index(marks, struct mark, i).group;

		json_begin_object(json, NULL);
		json_string(json, "type", "Mark");
		json_string(json, "group", group ? group : "");
		json_end(json);
	}
	json_end(json);
	json_uint(json, "length", table.rows);
	json_end(json);
}

/* ---- allocations ----------------------------------------------------------------------------- */

static gint compare_events(gconstpointer left, gconstpointer right)
{
	const struct allocation_event *a = left, *b = right;

	if (a->thread != b->thread)
		return a->thread < b->thread ? -1 : 1;
	return a->time_ns < b->time_ns ? -1 : a->time_ns > b->time_ns;
}

static void sort_allocations(struct firefox *firefox)
{
	GArray *events = firefox->export->allocations ? firefox->export->allocations->events : NULL;

	if (!events)
		return;
	g_array_sort(events, compare_events);
	for (guint i = 0; i < events->len; i++) {
		uint32_t thread = g_array_index(events, struct allocation_event, i).thread;

		if (firefox->first_event->len <= thread)
			g_array_set_size(firefox->first_event, thread + 1);
		if (g_array_index(firefox->first_event, uint32_t, thread) == 0)
			g_array_index(firefox->first_event, uint32_t, thread) = i + 1;
	}
}

static void get_event(const void *data, size_t row, unsigned field, struct cell *ret_cell)
{
	const struct source_rows *rows = data;
	const struct allocation_event *event = &((const struct allocation_event *)rows->all)[row];
	const struct names *names = rows->firefox->export->reader.capture->names;

	switch ((enum field)field) {
	case TIME:
		*ret_cell = cell_ms(event->time_ns);
		break;
	case WEIGHT:
		*ret_cell = cell_int(llround(event->bytes));
		break;
	case STACK:
		if (event->node)
			*ret_cell = cell_uint(event->node - 1);
		break;
	case ADDRESS:
		*ret_cell = cell_uint(event->block);
		break;
	default:
		*ret_cell = cell_uint(names_thread_at(names, event->by)->tid);
	}
}

static void write_allocations(struct firefox *firefox, uint32_t thread)
{
	static const struct table_member members[] = {
		{ "time", TIME },       { "weight", WEIGHT },
		{ "stack", STACK },     { "memoryAddress", ADDRESS },
		{ "threadId", THREAD }, { NULL },
	};
	struct source_rows rows = { .firefox = firefox };
	struct table table = { .get = get_event, .data = &rows, .members = members };
	guint first = number_at(firefox->first_event, thread);
	const GArray *events;

	if (first == 0)
		return;
	events = firefox->export->allocations->events;
	rows.all = &g_array_index(events, struct allocation_event, first - 1);
	for (guint i = first - 1; i < events->len; i++)
		table.rows += g_array_index(events, struct allocation_event, i).thread == thread;
	json_begin_object(&firefox->json, "nativeAllocations");
	write_columns(&firefox->json, &table);
	json_string(&firefox->json, "weightType", "bytes");
	json_uint(&firefox->json, "length", table.rows);
	json_end(&firefox->json);
}

/* ---- threads --------------------------------------------------------------------------------- */

static void write_thread(struct firefox *firefox, uint32_t thread)
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
	json_bool(json, "showMarkersInTimeline", has_marks(firefox, thread));
	write_samples(firefox, thread);
	write_marks(firefox, thread);
	write_allocations(firefox, thread);
	json_end(json);
}

/* Threads with only marks or allocations come last. The profiler needs at least one thread. */
static void list_threads(struct firefox *firefox)
{
	static const uint32_t none = NAMES_NONE;
	g_autofree bool *known = g_new0(bool, firefox->export->reader.capture->names->threads->len);

	firefox->threads = export_threads(firefox->export, firefox->samples);
	for (guint i = 0; i < firefox->threads->len; i++)
		known[g_array_index(firefox->threads, uint32_t, i)] = true;
	for (uint32_t i = 0; i < firefox->export->reader.capture->names->threads->len; i++)
		if ((has_marks(firefox, i) || number_at(firefox->first_event, i)) && !known[i])
			g_array_append_val(firefox->threads, i);
	if (firefox->threads->len == 0)
		g_array_append_val(firefox->threads, none);
}

/* ---- counters -------------------------------------------------------------------------------- */

/* Its value at the start of the time range is its first value. */
static void add_point(const struct counter_value *value, void *data)
{
	struct firefox *firefox = data;
	const struct reader *reader = &firefox->export->reader;
	struct point point = { MAX_OF(value->time_ns, reader->from_ns), value->value };
	GArray *points;

	while (firefox->points->len <= value->counter)
		g_ptr_array_add(firefox->points, g_array_new(FALSE, FALSE, sizeof(struct point)));
	points = firefox->points->pdata[value->counter];
	if (value->time_ns > reader->to_ns || !isfinite(value->value))
		return;
	if (value->time_ns < reader->from_ns)
		g_array_set_size(points, 0);
	g_array_append_val(points, point);
}

static gint compare_points(gconstpointer left, gconstpointer right)
{
	const struct point *a = left, *b = right;

	return a->time_ns < b->time_ns ? -1 : a->time_ns > b->time_ns;
}

/* Row 0 of a gauge is its zero, and of a sum its first value. */
static void get_point(const void *data, size_t row, unsigned field, struct cell *ret_cell)
{
	const struct source_rows *rows = data;
	const struct point *all = rows->all;
	size_t i = row - !rows->is_sum, before = i ? i - 1 : 0;

	if (field == TIME)
		*ret_cell = row ? cell_ms_between(all[before].time_ns, all[i].time_ns)
				: cell_ms(all[0].time_ns);
	else
		*ret_cell = row ? cell_double(all[i].value - (i ? all[before].value : 0))
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
	json_begin_object(json, "format");
	json_string(json, "unit", is_bytes ? "bytes" : "number");
	json_end(json);
	json_string(json, "label", label);
	json_end(json);
	json_end(json);
	json_end(json);
}

/* Returns the first thread of a process in the profile, the main one if it is there; -1: none. */
static gint64 thread_of(const struct firefox *firefox, uint32_t process)
{
	const struct names *names = firefox->export->reader.capture->names;

	for (guint i = 0; i < firefox->threads->len; i++)
		if (names_thread_at(names, g_array_index(firefox->threads, uint32_t, i))->process ==
		    process)
			return i;
	return -1;
}

static bool is_wanted(const struct firefox *firefox, uint32_t index)
{
	const struct reader *reader = &firefox->export->reader;
	const struct counter *counter = counter_at(&firefox->counters, index);
	const GArray *points = firefox->points->pdata[index];

	return points->len > 0 && counter_is_wanted(counter, reader) &&
	       (!(reader->tids || reader->comms) || thread_of(firefox, counter->process) >= 0);
}

static void write_counters(struct firefox *firefox)
{
	const struct names *names = firefox->export->reader.capture->names;
	static const struct table_member members[] = { { "timeDeltas", TIME },
						       { "count", COUNT },
						       { NULL } };
	struct source_rows rows = { .firefox = firefox };
	struct table table = { .get = get_point, .data = &rows, .members = members };
	struct json *json = &firefox->json;

	json_begin_array(json, "counters");
	for (guint i = 0; i < firefox->points->len; i++) {
		const struct counter *counter = counter_at(&firefox->counters, i);
		GArray *points = firefox->points->pdata[i];
		gint64 at = thread_of(firefox, counter->process);
		uint32_t thread =
			g_array_index(firefox->threads, uint32_t, (guint)MAX_OF(at, (gint64)0));
		g_autofree char *pid = NULL;

		if (!is_wanted(firefox, i))
			continue;
		pid = g_strdup_printf(
			"%" PRIu64,
			names_process_at(names, names_thread_at(names, thread)->process)->pid);
		json_begin_object(json, NULL);
		json_string(json, "name", counter->name ? counter->name : "");
		json_string(json, "category", counter->group ? counter->group : "");
		json_string(json, "description", counter->unit ? counter->unit : "");
		json_string(json, "pid", pid);
		json_uint(json, "mainThreadIndex", (uint64_t)MAX_OF(at, (gint64)0));
		write_display(json, counter);
		rows.is_sum = counter->kind == PROF_COUNTER_SUM;
		g_array_sort(points, compare_points);
		rows.all = points->data;
		table.rows = points->len + !rows.is_sum;
		write_table(firefox, "samples", &table);
		json_end(json);
	}
	json_end(json);
}

/* ---- what all threads share ------------------------------------------------------------------ */

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

static uint32_t function_in_row(const struct firefox *firefox, guint row)
{
	return g_array_index(firefox->functions, uint32_t, row);
}

static const struct names_image *resource_image(const struct firefox *firefox, guint i)
{
	return names_image_at(firefox->export->reader.capture->names,
			      g_array_index(firefox->resources, uint32_t, i));
}

/* Row i is node i + 1. A parent comes before its children. */
static void get_stack(const void *data, size_t row, unsigned field, struct cell *ret_cell)
{
	const struct firefox *firefox = data;
	const struct tally_node *node =
		&g_array_index(firefox->export->tally.tree.nodes, struct tally_node, row + 1);

	*ret_cell = cell_uint(field == FRAME ? node->entity
			      : node->parent ? row + 1 - node->parent
					     : 0);
}

static struct cell cell_known(uint64_t number)
{
	return number ? cell_uint(number) : cell_unknown();
}

static void get_frame(const void *data, size_t row, unsigned field, struct cell *ret_cell)
{
	const struct firefox *firefox = data;
	const struct function *frame = function_at(firefox, (guint)row);

	switch ((enum field)field) {
	case FUNCTION:
		*ret_cell = cell_uint(number_at(firefox->function_of,
						export_function(firefox->export, (guint)row)));
		break;
	case CATEGORY:
		*ret_cell = cell_uint(category_of(frame));
		break;
	case ADDRESS:
		/* an address that is not an offset of a file is too large for the profiler's
		 * numbers */
		*ret_cell = frame->image > NAMES_LOST && frame->offset < UINT64_C(1) << 53
				    ? cell_uint(frame->offset)
				    : cell_int(-1);
		break;
	case LINE:
		*ret_cell = cell_known(export_line(firefox->export, (guint)row));
		break;
	default:
		*ret_cell = cell_uint(frame->depth);
	}
}

static void get_function(const void *data, size_t row, unsigned field, struct cell *ret_cell)
{
	struct firefox *firefox = (struct firefox *)data;
	const struct function *function =
		function_at(firefox, function_in_row(firefox, (guint)row));
	uint32_t source = number_at(firefox->source_of, (guint)row);

	switch ((enum field)field) {
	case NAME:
		*ret_cell = cell_uint(string_index(firefox, function->name));
		break;
	case RESOURCE:
		*ret_cell = cell_int((int64_t)number_at(firefox->resource_of, function->image) - 1);
		break;
	case SOURCE:
		*ret_cell = source ? cell_uint(source - 1) : cell_unknown();
		break;
	default:
		*ret_cell = cell_known(function->line);
	}
}

static void get_source(const void *data, size_t row, unsigned field, struct cell *ret_cell)
{
	(void)field;
	*ret_cell =
		cell_uint(g_array_index(((const struct firefox *)data)->sources, uint64_t, row));
}

static void get_resource(const void *data, size_t row, unsigned field, struct cell *ret_cell)
{
	struct firefox *firefox = (struct firefox *)data;
	const char *path = resource_image(firefox, (guint)row)->path;

	*ret_cell = cell_uint(field == ROW ? row : string_index(firefox, base_name(path)));
}

static void list_functions(struct firefox *firefox)
{
	const struct functions *functions = firefox->export->tally.functions;

	g_array_set_size(firefox->function_of, functions->all->len);
	g_array_set_size(firefox->resource_of, firefox->export->reader.capture->names->images->len);
	for (uint32_t i = 0; i < functions->all->len; i++) {
		uint32_t image = functions_at(functions, i)->image;
		uint32_t *resource = &g_array_index(firefox->resource_of, uint32_t, image);

		if (image > NAMES_LOST && !*resource) {
			g_array_append_val(firefox->resources, image);
			*resource = firefox->resources->len;
		}
		if (export_function(firefox->export, i) != i)
			continue;
		g_array_index(firefox->function_of, uint32_t, i) = firefox->functions->len;
		g_array_append_val(firefox->functions, i);
	}
}

static void list_sources(struct firefox *firefox)
{
	g_autoptr(GHashTable) known = g_hash_table_new(g_str_hash, g_str_equal);

	g_array_set_size(firefox->source_of, firefox->functions->len);
	for (guint i = 0; i < firefox->functions->len; i++) {
		const char *file = firefox->export->files[function_in_row(firefox, i)];
		uint64_t name;
		gpointer at;

		if (!file)
			continue;
		at = g_hash_table_lookup(known, file);
		if (!at) {
			name = string_index(firefox, file);
			g_array_append_val(firefox->sources, name);
			at = GUINT_TO_POINTER(firefox->sources->len);
			g_hash_table_insert(known, (gpointer)file, at);
		}
		g_array_index(firefox->source_of, uint32_t, i) = GPOINTER_TO_UINT(at);
	}
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
	static const struct table_member symbols[] = { { "libIndex", NOTHING },
						       { "address", NOTHING },
						       { "name", NOTHING },
						       { "functionSize", NOTHING },
						       { NULL } };
	static const struct table_member locations[] = {
		{ "source", NOTHING }, { "line", NOTHING }, { "column", NOTHING }, { NULL }
	};
	const struct tally *tally = &firefox->export->tally;
	struct json *json = &firefox->json;
	struct {
		const char *key;
		struct table table;
	} tables[] = {
		{ "stackTable",
		  { tally->tree.nodes->len - 1, get_stack, firefox, .members = stacks } },
		{ "frameTable",
		  { tally->functions->all->len, get_frame, firefox, .members = frames } },
		{ "funcTable",
		  { firefox->functions->len, get_function, firefox, .members = functions } },
		{ "sources", { 0, get_source, firefox, .members = sources } },
		{ "resourceTable",
		  { firefox->resources->len, get_resource, firefox, .members = resources } },
		{ "nativeSymbols", { .members = symbols } },
		{ "sourceLocationTable", { .members = locations } },
	};

	list_sources(firefox);
	tables[3].table.rows = firefox->sources->len;
	json_begin_object(json, "shared");
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		write_table(firefox, tables[i].key, &tables[i].table);
	json_begin_array(json, "stringArray");
	for (guint i = 0; i < firefox->strings->len; i++)
		json_string(json, NULL, firefox->strings->pdata[i]);
	json_end(json);
	json_end(json);
}

/* ---- the profile ----------------------------------------------------------------------------- */

static void write_profile(struct firefox *firefox)
{
	struct json *json = &firefox->json;

	firefox->samples = export_samples(firefox->export);
	g_array_sort(firefox->samples, compare_times);
	sort_allocations(firefox);
	list_threads(firefox);
	list_functions(firefox);
	json_begin_object(json, NULL);
	write_meta(firefox);
	write_libraries(firefox);
	json_begin_array(json, "pages");
	json_end(json);
	json_begin_array(json, "threads");
	for (guint i = 0; i < firefox->threads->len; i++)
		write_thread(firefox, g_array_index(firefox->threads, uint32_t, i));
	json_end(json);
	write_counters(firefox);
	write_shared(firefox);
	json_end(json);
}

static void free_array(gpointer array)
{
	if (array)
		g_array_unref(array);
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
		.sources = g_array_new(FALSE, FALSE, sizeof(uint64_t)),
		.source_of = g_array_new(FALSE, TRUE, sizeof(uint32_t)),
		.marks = g_ptr_array_new_with_free_func(free_array),
		.points = g_ptr_array_new_with_free_func(free_array),
		.counters.capture = export->reader.capture,
	};
	bool ok = spans_read(export->reader.capture, keep_mark, &firefox, error) &&
		  counter_values_read(&firefox.counters, add_point, &firefox, error);

	json_init(&firefox.json, out);
	if (ok)
		write_profile(&firefox);
	json_done(&firefox.json);
	counter_values_done(&firefox.counters);
	g_ptr_array_unref(firefox.points);
	g_ptr_array_unref(firefox.marks);
	g_hash_table_unref(firefox.index);
	g_ptr_array_unref(firefox.strings);
	for (size_t i = 0; i < 9; i++)
		free_array((GArray *[]){ firefox.first_event, firefox.functions,
					 firefox.function_of, firefox.resources,
					 firefox.resource_of, firefox.sources, firefox.source_of,
					 firefox.threads, firefox.samples }[i]);
	return ok;
}
