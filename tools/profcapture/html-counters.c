/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/html-counters.h"

#include "tools/common/grown-array.h"
#include "tools/profcapture/counter-values.h"

#include <glib/gi18n.h>
#include <math.h>

#define MOST_POINTS 8000u
#define MOST_COUNTERS 64u

struct page_point {
	int64_t time_ns;
	double value;
};

struct counter_line {
	GArray *points;         /* struct page_point; for a sum, the values are its growth */
	struct page_point last; /* the counter's last value */
	bool is_there;          /* whether `last` is set */
	bool does_change;
};

struct counter_lines {
	struct html_rows *rows;
	struct counter_values counters;
	guint most;  /* maximum number of points of a counter */
	GArray *all; /* struct counter_line by counter */
	GArray *exits;
	const char **comms;
};

/* If there are more than `limit` points, divides the time into limit / 2 equal parts, and keeps
 * only the least and the greatest point of each part. */
static void thin(GArray *points, guint limit, int64_t duration_ns)
{
	struct page_point *all = (struct page_point *)(void *)points->data;
	guint bins = limit / 2, n = 0;

	if (points->len <= limit)
		return;
	for (guint i = 0; i < points->len;) {
		int64_t bin = (int64_t)((double)all[i].time_ns / (double)duration_ns * bins);
		struct page_point least = all[i], most = all[i];

		for (; i < points->len &&
		       (int64_t)((double)all[i].time_ns / (double)duration_ns * bins) == bin;
		     i++) {
			if (all[i].value < least.value)
				least = all[i];
			if (all[i].value >= most.value)
				most = all[i];
		}
		all[n++] = least.time_ns <= most.time_ns ? least : most;
		if (least.time_ns != most.time_ns && n < i)
			all[n++] = least.time_ns <= most.time_ns ? most : least;
	}
	g_array_set_size(points, n);
}

/* Replaces a sum by its growth per second since the previous sum (`before`), and its time by that
 * of `before`. Converts ns to s. Returns false if the growth is unknown: a program may set a sum
 * twice at one time, or start again at a lower value. */
static bool find_growth(const struct page_point *before, const struct counter *counter,
			struct page_point *point)
{
	double seconds = (double)(point->time_ns - before->time_ns) / 1e9;
	double growth = point->value - before->value;

	if (!(seconds > 0 && growth >= 0))
		return false;
	*point = (struct page_point){ before->time_ns, growth / seconds };
	if (g_strcmp0(counter->unit, "ns") == 0)
		point->value /= 1e9;
	return true;
}

static void take_value(const struct counter_value *value, void *data)
{
	struct counter_lines *lines = data;
	const struct counter *counter = counter_at(&lines->counters, value->counter);
	struct page_point point = { html_rows_time(lines->rows, value->time_ns), value->value };
	struct page_point before;
	struct counter_line *line;
	bool has_point;

	if (!counter_is_wanted(counter, &lines->rows->side->export->reader) ||
	    !isfinite(value->value))
		return;
	line = GROWN_AT(lines->all, struct counter_line, value->counter);
	if (!line->points)
		line->points = g_array_new(FALSE, FALSE, sizeof(struct page_point));
	if (line->is_there) /* damaged rows may be out of order */
		point.time_ns = MAX_OF(point.time_ns, line->last.time_ns);
	before = line->last;
	line->does_change |= line->is_there && point.value != before.value;
	has_point = counter->kind != PROF_COUNTER_SUM || line->is_there;
	line->is_there = true;
	line->last = point;
	if (has_point && counter->kind == PROF_COUNTER_SUM)
		has_point = find_growth(&before, counter, &point);
	if (!has_point)
		return;
	g_array_append_val(line->points, point);
	if (line->points->len >= 4 * lines->most)
		thin(line->points, lines->most, lines->rows->side->to_ns);
}

static void add_counter(const struct counter_lines *lines, guint index)
{
	struct json *json = lines->rows->json;
	const struct capture *capture = lines->rows->side->export->reader.capture;
	const struct counter *counter = counter_at(&lines->counters, index);
	const struct counter_line *line = &g_array_index(lines->all, struct counter_line, index);
	GArray *points = line->points;
	int64_t exit_ns = latest_or(lines->exits, counter->process, INT64_MIN);
	bool is_sum = counter->kind == PROF_COUNTER_SUM;
	bool is_ns = g_strcmp0(counter->unit, "ns") == 0;
	g_autofree char *unit = is_sum ? g_strconcat(is_ns           ? "s"
						     : counter->unit ? counter->unit
								     : "",
						     "/s", NULL)
				       : g_strdup(counter->unit);

	if (is_sum && points->len > 0) {
		const struct page_point end = { line->last.time_ns, 0 };

		g_array_append_val(points, end);
	}
	thin(points, lines->most, lines->rows->side->to_ns);
	json_begin_object(json, NULL);
	json_string(json, "group", counter->group);
	json_string(json, "name", counter->name);
	json_string(json, "unit", unit);
	json_uint(json, "pid", names_process_at(capture->names, counter->process)->pid);
	json_string(json, "comm", lines->comms[counter->process]);
	json_bool(json, "is_rss", g_strcmp0(counter->name, "rss") == 0);
	if (exit_ns != INT64_MIN)
		json_int(json, "end_ns", html_rows_time(lines->rows, exit_ns));
	if (lines->rows->side != lines->rows->sides.each)
		json_bool(json, "is_later", true);
	json_begin_array(json, "times");
	for (guint i = 0; i < points->len; i++)
		json_int(json, NULL, g_array_index(points, struct page_point, i).time_ns);
	json_end(json);
	json_begin_array(json, "values");
	for (guint i = 0; i < points->len; i++)
		json_double(json, NULL, g_array_index(points, struct page_point, i).value);
	json_end(json);
	json_end(json);
}

static void clear_line(gpointer pointer)
{
	g_clear_pointer(&((struct counter_line *)pointer)->points, g_array_unref);
}

static bool write_counters_of(struct html_rows *rows, GError **error)
{
	struct counter_lines lines = {
		.rows = rows,
		.most = export_most(rows->side->export, MOST_POINTS),
		.counters.capture = rows->side->export->reader.capture,
		.all = g_array_new(FALSE, TRUE, sizeof(struct counter_line)),
		.exits = counter_values_read_exits(rows->side->export->reader.capture, error)
	};
	bool ok;
	guint n = 0;

	g_array_set_clear_func(lines.all, clear_line);
	ok = lines.exits && counter_values_read(&lines.counters, take_value, &lines, error);
	lines.comms = counter_values_comms(lines.counters.capture->names);
	/* Add counters of processes first, then those of the machine. Leave out counters that do
	 * not change, like most of the kernel's. Exception: a process's gauges in groups other than
	 * "process". */
	for (guint i = 0; ok && i < 2 * lines.all->len; i++) {
		guint index = i % lines.all->len;
		const struct counter_line *line =
			&g_array_index(lines.all, struct counter_line, index);
		const struct counter *counter = counter_at(&lines.counters, index);
		bool has_process = counter->process > NAMES_LOST;

		if (line->is_there && has_process == (i < lines.all->len) &&
		    (line->does_change || (has_process && counter->kind != PROF_COUNTER_SUM &&
					   g_strcmp0(counter->group, "process") != 0)) &&
		    n++ < MOST_COUNTERS)
			add_counter(&lines, index);
	}
	if (n > MOST_COUNTERS)
		g_ptr_array_add(
			rows->notes,
			g_strdup_printf(
				_("Of %u counters, the first %u are here; 'profcapture counters' lists all."),
				n, MOST_COUNTERS));
	g_array_unref(lines.all);
	g_clear_pointer(&lines.exits, g_array_unref);
	g_free(lines.comms);
	counter_values_done(&lines.counters);
	return ok;
}

bool html_counters_write(struct html_rows *rows, GError **error)
{
	bool ok = true;

	json_begin_array(rows->json, "counters");
	for (unsigned i = 0; ok && i < rows->sides.n; i++) {
		rows->side = &rows->sides.each[i];
		ok = write_counters_of(rows, error);
	}
	json_end(rows->json);
	return ok;
}
