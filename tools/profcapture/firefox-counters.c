/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Firefox-counters - counters as graphs, each next to the threads of its process
 *
 * The profiler adds up the changes of a counter, starts with its first row, and shows the sum (a
 * gauge), or the change (a sum). So a gauge gets a row of zero before its first value, which makes
 * the sums its values. A counter without a process, or of a process without a thread in the
 * profile, is shown with the first process.
 */
#include "config.h"

#include "tools/profcapture/counter-values.h"
#include "tools/profcapture/firefox.h"

#include <inttypes.h>
#include <math.h>

struct point {
	int64_t time_ns;
	double value;
};

struct firefox_counters {
	struct counter_values values;
	const struct reader *reader;
	GPtrArray *points; /* GArray of struct point, by counter */
};

/* Its value at the start of the time range is its first value. */
static void add_point(const struct counter_value *value, void *data)
{
	struct firefox_counters *counters = data;
	const struct reader *reader = counters->reader;
	struct point point = { MAX_OF(value->time_ns, reader->from_ns), value->value };
	GArray *points;

	while (counters->points->len <= value->counter)
		g_ptr_array_add(counters->points, g_array_new(FALSE, FALSE, sizeof(struct point)));
	points = counters->points->pdata[value->counter];
	if (value->time_ns > reader->to_ns || !isfinite(value->value))
		return;
	if (value->time_ns < reader->from_ns)
		g_array_set_size(points, 0);
	g_array_append_val(points, point);
}

bool firefox_read_counters(struct firefox *firefox, GError **error)
{
	struct firefox_counters *counters = g_new0(struct firefox_counters, 1);

	firefox->counters = counters;
	counters->reader = &firefox->export->reader;
	counters->values.capture = firefox->export->reader.capture;
	counters->points = g_ptr_array_new_with_free_func((GDestroyNotify)g_array_unref);
	return counter_values_read(&counters->values, add_point, counters, error);
}

void firefox_free_counters(struct firefox *firefox)
{
	if (!firefox->counters)
		return;
	counter_values_done(&firefox->counters->values);
	g_ptr_array_unref(firefox->counters->points);
	g_free(firefox->counters);
}

static gint compare_points(gconstpointer left, gconstpointer right)
{
	const struct point *a = left, *b = right;

	return a->time_ns < b->time_ns ? -1 : a->time_ns > b->time_ns;
}

static void write_points(struct json *json, GArray *points, bool is_sum)
{
	const struct point *all = (const struct point *)(void *)points->data;
	int64_t before_ns = 0;
	double before;

	g_array_sort(points, compare_points);
	json_begin_object(json, "samples");
	json_begin_array(json, "timeDeltas");
	firefox_ms(json, NULL, all[0].time_ns);
	before_ns = all[0].time_ns;
	for (guint i = is_sum; i < points->len; i++) {
		firefox_ms_between(json, before_ns, all[i].time_ns);
		before_ns = all[i].time_ns;
	}
	json_end(json);
	json_begin_array(json, "count");
	json_uint(json, NULL, 0);
	before = is_sum ? all[0].value : 0;
	for (guint i = is_sum; i < points->len; i++) {
		json_double(json, NULL, all[i].value - before);
		before = all[i].value;
	}
	json_end(json);
	json_uint(json, "length", points->len + !is_sum);
	json_end(json);
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
	const struct counter *counter = counter_at(&firefox->counters->values, index);
	const GArray *points = firefox->counters->points->pdata[index];

	return points->len > 0 && counter_is_wanted(counter, reader) &&
	       (!(reader->tids || reader->comms) || thread_of(firefox, counter->process) >= 0);
}

void firefox_write_counters(struct firefox *firefox)
{
	const struct names *names = firefox->export->reader.capture->names;
	struct json *json = &firefox->json;

	json_begin_array(json, "counters");
	for (guint i = 0; i < firefox->counters->points->len; i++) {
		const struct counter *counter = counter_at(&firefox->counters->values, i);
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
		write_points(json, firefox->counters->points->pdata[i],
			     counter->kind == PROF_COUNTER_SUM);
		json_end(json);
	}
	json_end(json);
}
