/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/html-rows.h"

#include "tools/profcapture/counter-values.h"
#include "tools/profcapture/export-allocations.h"
#include "tools/profcapture/run-times.h"
#include "tools/profcapture/spans.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <math.h>

#define MOST_BINS 16384u  /* of the time of slices */
#define LEAST_STEPS 1024u /* of the grid, however many samples there are */
#define MOST_SAMPLES 4000000u
#define MOST_SLICES 400000u
#define MOST_MARKS 500000u
#define MOST_LOGS 2000u
#define MOST_POINTS 8000u
#define MOST_COUNTERS 64u

/* Orders by one member, unless it is equal in both. */
#define ORDER_BY(left, right, member)          \
	if ((left)->member != (right)->member) \
	return (left)->member < (right)->member ? -1 : 1

void html_keys_init(struct html_keys *keys)
{
	keys->known = g_hash_table_new(NULL, NULL);
	keys->all = g_array_new(FALSE, FALSE, sizeof(uint32_t));
}

void html_keys_done(struct html_keys *keys)
{
	g_hash_table_unref(keys->known);
	g_array_unref(keys->all);
}

uint32_t html_index(struct html_keys *keys, uint32_t key)
{
	gpointer at = g_hash_table_lookup(keys->known, GUINT_TO_POINTER(key + 1));

	if (!at) {
		g_array_append_val(keys->all, key);
		at = GUINT_TO_POINTER(keys->all->len);
		g_hash_table_insert(keys->known, GUINT_TO_POINTER(key + 1), at);
	}
	return GPOINTER_TO_UINT(at) - 1;
}

static uint32_t page_thread(struct html_rows *rows, uint32_t thread)
{
	return html_index(&rows->threads, rows->side->first_thread + thread);
}

/* Returns when something happened on the page's axis. */
static int64_t page_time(const struct html_rows *rows, int64_t time_ns)
{
	const struct html_side *side = rows->side;

	return MIN_OF(side->from_ns + MAX_OF(time_ns, INT64_C(0)),
		      rows->sides.n > 1 && side == rows->sides.each
			      ? rows->sides.each[HTML_LATER].from_ns - 1
			      : INT64_MAX);
}

/* ---- samples --------------------------------------------------------------------------------- */

struct page_sample {
	uint32_t time, thread, stack, count;
	uint64_t weight;
};

static gint compare_samples(gconstpointer left, gconstpointer right)
{
	const struct page_sample *a = left, *b = right;

	ORDER_BY(a, b, time);
	ORDER_BY(a, b, thread);
	ORDER_BY(a, b, stack);
	return 0;
}

/* Sorts the samples and merges those of the same time, thread and stack. */
static void merge_samples(GArray *samples)
{
	struct page_sample *all = (struct page_sample *)(void *)samples->data;
	guint n = 0;

	g_array_sort(samples, compare_samples);
	for (guint i = 0; i < samples->len; i++) {
		if (n > 0 && compare_samples(&all[n - 1], &all[i]) == 0) {
			all[n - 1].count += all[i].count;
			all[n - 1].weight += all[i].weight;
		} else {
			all[n++] = all[i];
		}
	}
	g_array_set_size(samples, n);
}

/* The columns of samples. add_samples() may omit the last one. */
#define SAMPLE_COLUMNS(table, key)                                                 \
	{ table ".time", REPORT_MEMBER(struct page_sample, time), .delta = true }, \
		{ table ".thread", REPORT_MEMBER(struct page_sample, thread) },    \
		{ table "." key, REPORT_MEMBER(struct page_sample, stack) },       \
		{ table ".count", REPORT_MEMBER(struct page_sample, count) },      \
	{                                                                          \
		table ".weight", REPORT_MEMBER(struct page_sample, weight)         \
	}

/* Omits the weights if all samples weigh the same: the page computes them from the counts. */
static void add_samples(struct html_rows *rows, const GArray *samples,
			const struct report_column *columns, size_t n)
{
	bool is_even = true;

	for (guint i = 0; i < samples->len && is_even; i++) {
		const struct page_sample *at = &g_array_index(samples, struct page_sample, i);

		is_even = at->weight == at->count * rows->sample_weight;
	}
	report_page_add(rows->page, samples, columns, n - is_even);
}

/* Converts a sample of rows->side to the page's units and indexes. */
static struct page_sample page_sample(struct html_rows *rows, const struct profile_sample *at,
				      uint32_t stack)
{
	return (struct page_sample){ .time = (uint32_t)((uint64_t)page_time(rows, at->time_ns) /
							rows->sample_unit),
				     .thread = page_thread(rows, at->thread),
				     .stack = stack,
				     .count = 1,
				     .weight = at->weight };
}

static void write_samples(struct html_rows *rows)
{
	static const struct report_column columns[] = { SAMPLE_COLUMNS("samples", "stack") };
	g_autoptr(GArray)
		samples = g_array_sized_new(FALSE, FALSE, sizeof(struct page_sample),
					    rows->sides.each[HTML_FIRST].export->profile.each->len);
	const struct html_side *last = &rows->sides.each[rows->sides.n - 1];
	struct amount all = { 0 };

	for (unsigned k = 0; k < rows->sides.n; k++) {
		const struct profile *profile = &rows->sides.each[k].export->profile;

		rows->side = &rows->sides.each[k];
		for (guint i = 0; i < profile->each->len; i++) {
			const struct profile_sample *at =
				&g_array_index(profile->each, struct profile_sample, i);
			struct page_sample sample =
				page_sample(rows, at, html_stack(rows->side, at->node));

			g_array_append_val(samples, sample);
		}
		amount_add(&all, profile->all);
	}
	rows->sample_weight = all.samples ? all.weight / all.samples : 0;
	merge_samples(samples);
	while (samples->len > MOST_SAMPLES &&
	       rows->sample_unit < (uint64_t)last->to_ns / LEAST_STEPS) {
		rows->sample_unit *= 4;
		for (guint i = 0; i < samples->len; i++)
			g_array_index(samples, struct page_sample, i).time /= 4;
		merge_samples(samples);
	}
	if (rows->sample_unit > (uint64_t)rows->grid_ns) {
		rows->grid_ns = (int64_t)rows->sample_unit;
		g_ptr_array_add(
			rows->notes,
			g_strdup_printf(
				_("Ranges begin and end in steps of %.3g s, because there are many samples."),
				(double)rows->grid_ns / 1e9));
	}
	add_samples(rows, samples, columns, ARRAY_SIZE(columns));
}

void html_rows_write_places(struct html_rows *rows, const GArray *each)
{
	static const struct report_column columns[] = { SAMPLE_COLUMNS("places", "place") };
	g_autoptr(GArray)
		samples = g_array_sized_new(FALSE, FALSE, sizeof(struct page_sample), each->len);

	rows->side = &rows->sides.each[HTML_FIRST];
	for (guint i = 0; i < each->len; i++) {
		const struct profile_sample *at = &g_array_index(each, struct profile_sample, i);
		struct page_sample sample = page_sample(rows, at, at->node);

		g_array_append_val(samples, sample);
	}
	merge_samples(samples);
	add_samples(rows, samples, columns, ARRAY_SIZE(columns));
}

static void write_stacks(struct html_rows *rows)
{
	static const struct report_column parent = { "stacks.parent",
						     REPORT_MEMBER(struct profile_node, parent) };
	static const struct report_column function = { "stacks.function", 0, sizeof(uint32_t) };
	GArray *nodes = rows->sides.nodes;
	g_autoptr(GArray) functions = g_array_sized_new(FALSE, TRUE, sizeof(uint32_t), nodes->len);

	g_array_set_size(functions, nodes->len); /* the root has none */
	for (guint i = 1; i < nodes->len; i++)
		g_array_index(functions, uint32_t, i) = html_index(
			&rows->functions, g_array_index(nodes, struct profile_node, i).entity);
	report_page_add(rows->page, nodes, &parent, 1);
	report_page_add(rows->page, functions, &function, 1);
}

/* ---- slices of threads ----------------------------------------------------------------------- */

enum slice_kind { SLICE_RUN, SLICE_READY, SLICE_WAIT, SLICE_KINDS };

struct page_slice {
	int64_t from_ns, to_ns;
	uint64_t ns[SLICE_KINDS]; /* the parts of its time */
	uint32_t thread;
	uint32_t gap, length; /* units after the thread's previous slice; units of this one */
	uint8_t kind;
};

struct slices {
	struct html_rows *rows;
	GArray *all;
};

static void add_slice(const struct run_state *state, void *data)
{
	struct slices *slices = data;
	struct html_rows *rows = slices->rows;
	struct page_slice slice = { .from_ns = page_time(rows, state->from_ns),
				    .to_ns = page_time(rows, state->to_ns),
				    .kind = state->state == PROF_SWITCH_RUNNING ? SLICE_RUN
					    : state->state == PROF_SWITCH_WAIT  ? SLICE_WAIT
										: SLICE_READY };

	if (slice.from_ns >= slice.to_ns)
		return;
	slice.thread = page_thread(rows, state->thread);
	g_array_append_val(slices->all, slice);
}

static gint compare_slices(gconstpointer left, gconstpointer right)
{
	const struct page_slice *a = left, *b = right;

	ORDER_BY(a, b, thread);
	ORDER_BY(a, b, from_ns);
	return 0;
}

/* Replaces slices by shares of equal parts of the time. */
static void merge_slices(GArray **all, int64_t bin_ns)
{
	GArray *merged = g_array_new(FALSE, FALSE, sizeof(struct page_slice));
	struct page_slice *last = NULL;

	for (guint i = 0; i < (*all)->len; i++) {
		struct page_slice at = g_array_index(*all, struct page_slice, i);

		while (at.from_ns < at.to_ns) {
			int64_t bin = at.from_ns / bin_ns;
			int64_t until = MIN_OF(at.to_ns, (bin + 1) * bin_ns);

			if (!last || last->thread != at.thread || last->from_ns / bin_ns != bin) {
				struct page_slice part = { .from_ns = bin * bin_ns,
							   .to_ns = (bin + 1) * bin_ns,
							   .thread = at.thread,
							   .kind = SLICE_KINDS };

				g_array_append_val(merged, part);
				last = &g_array_index(merged, struct page_slice, merged->len - 1);
			}
			last->ns[at.kind] += (uint64_t)(until - at.from_ns);
			at.from_ns = until;
		}
	}
	g_array_unref(*all);
	*all = merged;
}

/* Lays the slices out in units: from the end of the thread's slice before. */
static void place_slices(GArray *all, int64_t unit_ns)
{
	int64_t end = 0;

	for (guint i = 0; i < all->len; i++) {
		struct page_slice *slice = &g_array_index(all, struct page_slice, i);

		if (i == 0 || slice->thread != slice[-1].thread)
			end = 0;
		slice->gap = (uint32_t)MAX_OF(slice->from_ns / unit_ns - end, INT64_C(0));
		end += slice->gap;
		slice->length = (uint32_t)MAX_OF(slice->to_ns / unit_ns - end, INT64_C(0));
		end += slice->length;
	}
}

static void add_slices(struct html_rows *rows, GArray **all)
{
	static const struct report_column places[] = {
		{ "slices.thread", REPORT_MEMBER(struct page_slice, thread), .delta = true },
		{ "slices.gap", REPORT_MEMBER(struct page_slice, gap) },
		{ "slices.length", REPORT_MEMBER(struct page_slice, length) },
	};
	static const struct report_column kind = { "slices.kind",
						   REPORT_MEMBER(struct page_slice, kind) };
	static const struct report_column parts[] = {
		{ "slices.run", REPORT_MEMBER(struct page_slice, ns[SLICE_RUN]) },
		{ "slices.ready", REPORT_MEMBER(struct page_slice, ns[SLICE_READY]) },
		{ "slices.wait", REPORT_MEMBER(struct page_slice, ns[SLICE_WAIT]) },
	};
	bool is_merged = (*all)->len > MOST_SLICES;
	int64_t bin_ns = rows->grid_ns;

	g_array_sort(*all, compare_slices);
	if (is_merged) {
		merge_slices(all, bin_ns);
		while ((*all)->len > MOST_SLICES && bin_ns < rows->grid_ns * MOST_BINS) {
			bin_ns *= 2;
			merge_slices(all, bin_ns);
		}
		g_ptr_array_add(
			rows->notes,
			g_strdup_printf(_("When threads ran and waited has steps of %.3g ms."),
					(double)bin_ns / 1e6));
	}
	place_slices(*all, (int64_t)rows->slice_unit);
	if ((*all)->len == 0)
		return;
	report_page_add(rows->page, *all, places, ARRAY_SIZE(places));
	if (is_merged)
		report_page_add(rows->page, *all, parts, ARRAY_SIZE(parts));
	else
		report_page_add(rows->page, *all, &kind, 1);
}

static bool write_slices(struct html_rows *rows, GError **error)
{
	struct slices slices = { rows, g_array_new(FALSE, FALSE, sizeof(struct page_slice)) };
	bool ok = true;

	for (unsigned i = 0; ok && i < rows->sides.n; i++) {
		rows->side = &rows->sides.each[i];
		ok = run_times_each_state(&rows->side->export->reader, add_slice, &slices, error);
	}
	if (ok)
		add_slices(rows, &slices.all);
	g_array_unref(slices.all);
	return ok;
}

/* ---- marks and logs -------------------------------------------------------------------------- */

struct page_marks {
	struct html_rows *rows;
	GArray *all;
	GHashTable *names; /* length of the group, group and name → index + 1 */
};

static uint32_t mark_name(struct page_marks *marks, const char *group, const char *name)
{
	g_autofree char *key = g_strdup_printf("%zu %s%s", group ? strlen(group) : SIZE_MAX,
					       group ? group : "", name ? name : "");
	gpointer at = g_hash_table_lookup(marks->names, key);

	if (!at) {
		g_ptr_array_add(marks->rows->mark_names, (gpointer)group);
		g_ptr_array_add(marks->rows->mark_names, (gpointer)name);
		at = GUINT_TO_POINTER(marks->rows->mark_names->len / 2);
		g_hash_table_insert(marks->names, g_steal_pointer(&key), at);
	}
	return GPOINTER_TO_UINT(at) - 1;
}

static void take_span(const struct span *span, void *data)
{
	struct page_marks *marks = data;
	struct reader *reader = &marks->rows->side->export->reader;
	struct html_mark mark = { .start_ns = MAX_OF(span->start_ns, INT64_C(0)) };
	int64_t end_ns = span->kind == SPAN_NO_END ? reader->capture->duration_ns : span->end_ns;

	if (end_ns < reader->from_ns || mark.start_ns > reader->to_ns ||
	    !reader_wants_thread_at(reader, span->thread, span->start_ns))
		return;
	mark.length_ns = (uint64_t)(MAX_OF(end_ns, mark.start_ns) - mark.start_ns);
	mark.start_ns = page_time(marks->rows, mark.start_ns);
	mark.time = (uint64_t)mark.start_ns / marks->rows->sample_unit;
	mark.thread = page_thread(marks->rows, span->thread);
	mark.name = mark_name(marks, span->group, span->name);
	g_array_append_val(marks->all, mark);
}

static gint compare_marks(gconstpointer left, gconstpointer right)
{
	const struct html_mark *a = left, *b = right;

	ORDER_BY(a, b, start_ns);
	ORDER_BY(a, b, length_ns);
	ORDER_BY(a, b, thread);
	ORDER_BY(a, b, name);
	return 0;
}

static gint compare_lengths(gconstpointer left, gconstpointer right)
{
	const struct html_mark *a = left, *b = right;

	ORDER_BY(b, a, length_ns);
	return compare_marks(left, right);
}

static bool write_marks(struct html_rows *rows, GError **error)
{
	static const struct report_column columns[] = {
		{ "marks.time", REPORT_MEMBER(struct html_mark, time), .delta = true },
		{ "marks.length", REPORT_MEMBER(struct html_mark, length_ns) },
		{ "marks.thread", REPORT_MEMBER(struct html_mark, thread) },
		{ "marks.name", REPORT_MEMBER(struct html_mark, name) },
	};
	g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(struct html_mark));
	g_autoptr(GHashTable) names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
	struct page_marks marks = { rows, all, names };

	for (unsigned i = 0; i < rows->sides.n; i++) {
		rows->side = &rows->sides.each[i];
		if (!spans_read(rows->side->export->reader.capture, take_span, &marks, error))
			return false;
	}
	if (all->len > MOST_MARKS) {
		g_ptr_array_add(
			rows->notes,
			g_strdup_printf(
				_("Of %u marks, the %u longest are here; 'profcapture marks' counts all."),
				all->len, MOST_MARKS));
		g_array_sort(all, compare_lengths);
		g_array_set_size(all, MOST_MARKS);
	}
	g_array_sort(all, compare_marks);
	for (guint i = 0; i < all->len; i++)
		if (g_array_index(all, struct html_mark, i).length_ns > rows->longest.length_ns)
			rows->longest = g_array_index(all, struct html_mark, i);
	if (all->len > 0)
		report_page_add(rows->page, all, columns, ARRAY_SIZE(columns));
	json_begin_array(rows->json, "mark_names");
	for (guint i = 0; i < rows->mark_names->len; i += 2) {
		json_begin_object(rows->json, NULL);
		json_string(rows->json, "group", rows->mark_names->pdata[i]);
		json_string(rows->json, "name", rows->mark_names->pdata[i + 1]);
		json_end(rows->json);
	}
	json_end(rows->json);
	return true;
}

enum { LOG_TIME, LOG_THREAD, LOG_LEVEL, LOG_TEXT, N_LOG_COLUMNS };

struct page_logs {
	struct html_rows *rows;
	uint64_t n;
};

static bool take_logs(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
		      GError **error)
{
	struct page_logs *logs = data;
	struct json *json = logs->rows->json;
	struct reader *reader = &logs->rows->side->export->reader;

	(void)error;
	for (size_t i = 0; i < batch->rows; i++) {
		uint32_t thread =
			names_thread(epoch, array_number_or(&batch->columns[LOG_THREAD], i, 0));

		if (!reader_wants_thread(reader, thread) || logs->n++ >= MOST_LOGS)
			continue;
		json_begin_object(json, NULL);
		json_int(json, "time_ns",
			 page_time(logs->rows,
				   capture_time(reader->capture, batch->segment,
						array_number_or(&batch->columns[LOG_TIME], i, 0))));
		json_uint(json, "level", array_number_or(&batch->columns[LOG_LEVEL], i, 0));
		json_string(json, "text",
			    names_text_at(epoch->names, &batch->columns[LOG_TEXT], i));
		json_end(json);
	}
	return true;
}

static bool write_logs(struct html_rows *rows, GError **error)
{
	static const uint16_t columns[N_LOG_COLUMNS] = { PROF_LOG_TIME, PROF_LOG_THREAD,
							 PROF_LOG_LEVEL, PROF_LOG_TEXT };
	const struct prof_cursor_options options = { .table = PROF_TABLE_LOG,
						     .columns = columns,
						     .n_columns = N_LOG_COLUMNS };
	struct page_logs logs = { rows, 0 };
	bool ok = true;

	json_begin_array(rows->json, "logs");
	for (unsigned i = 0; ok && i < rows->sides.n; i++) {
		rows->side = &rows->sides.each[i];
		/* log lines may say anything */
		ok = rows->side->export->reader.redacts ||
		     names_each_batch(rows->side->export->reader.capture->names, &options,
				      take_logs, &logs, _("cannot read logs of '%s'"), error);
	}
	json_end(rows->json);
	if (logs.n > MOST_LOGS)
		g_ptr_array_add(
			rows->notes,
			g_strdup_printf(_("Of %" PRIu64 " log lines, the first %u are here."),
					logs.n, MOST_LOGS));
	return ok;
}

/* ---- counters -------------------------------------------------------------------------------- */

struct page_point {
	int64_t time_ns;
	double value;
};

struct counter_lines {
	struct html_rows *rows;
	struct counter_values counters;
	GPtrArray *points; /* by counter: GArray of struct page_point */
};

static void take_value(const struct counter_value *value, void *data)
{
	struct counter_lines *lines = data;
	struct page_point point = { page_time(lines->rows, value->time_ns), value->value };

	if (!counter_is_wanted(counter_at(&lines->counters, value->counter),
			       &lines->rows->side->export->reader) ||
	    !isfinite(value->value))
		return;
	while (lines->points->len <= value->counter)
		g_ptr_array_add(lines->points,
				g_array_new(FALSE, FALSE, sizeof(struct page_point)));
	g_array_append_val((GArray *)lines->points->pdata[value->counter], point);
}

/* Keeps the least and the most of each of equal parts of the time. */
static void thin(GArray *points, int64_t duration_ns)
{
	struct page_point *all = (struct page_point *)(void *)points->data;
	guint bins = MOST_POINTS / 2, n = 0;

	if (points->len <= MOST_POINTS)
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

/* Turns sums into their growth per second, each from the time of the sum before. ns become s. */
static void differentiate(GArray *points, bool is_ns)
{
	struct page_point *all = (struct page_point *)(void *)points->data;
	guint n = 0;

	for (guint i = 1; i < points->len; i++) {
		double seconds = (double)(all[i].time_ns - all[i - 1].time_ns) / 1e9;
		double growth = all[i].value - all[i - 1].value;

		/* A program may set a sum twice at a time, or begin anew. */
		if (seconds > 0 && growth >= 0)
			all[n++] = (struct page_point){ all[i - 1].time_ns,
							growth / seconds / (is_ns ? 1e9 : 1) };
	}
	if (n > 0)
		all[n++] = (struct page_point){ all[points->len - 1].time_ns, 0 };
	g_array_set_size(points, n);
}

static void add_counter(const struct counter_lines *lines, guint index)
{
	struct json *json = lines->rows->json;
	const struct capture *capture = lines->rows->side->export->reader.capture;
	const struct counter *counter = counter_at(&lines->counters, index);
	GArray *points = lines->points->pdata[index];
	bool is_sum = counter->kind == PROF_COUNTER_SUM;
	bool is_ns = g_strcmp0(counter->unit, "ns") == 0;
	g_autofree char *unit = is_sum ? g_strconcat(is_ns           ? "s"
						     : counter->unit ? counter->unit
								     : "",
						     "/s", NULL)
				       : g_strdup(counter->unit);

	if (is_sum)
		differentiate(points, is_ns);
	thin(points, lines->rows->side->to_ns);
	json_begin_object(json, NULL);
	json_string(json, "group", counter->group);
	json_string(json, "name", counter->name);
	json_string(json, "unit", unit);
	json_uint(json, "pid", names_process_at(capture->names, counter->process)->pid);
	json_bool(json, "is_rss", g_strcmp0(counter->name, "rss") == 0);
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

static bool does_change(const GArray *points)
{
	for (guint i = 1; i < points->len; i++)
		if (g_array_index(points, struct page_point, i).value !=
		    g_array_index(points, struct page_point, 0).value)
			return true;
	return false;
}

static bool write_counters_of(struct html_rows *rows, GError **error)
{
	struct counter_lines lines = { .rows = rows,
				       .counters.capture = rows->side->export->reader.capture,
				       .points = g_ptr_array_new_with_free_func(
					       (GDestroyNotify)g_array_unref) };
	bool ok = counter_values_read(&lines.counters, take_value, &lines, error);
	guint n = 0;

	/* Counters of processes first, then those of the machine. Most of the kernel's do not
	 * change. */
	for (guint i = 0; ok && i < 2 * lines.points->len; i++) {
		guint index = i % lines.points->len;
		const struct counter *counter = counter_at(&lines.counters, index);
		bool has_process = counter->process > NAMES_LOST;

		if (((const GArray *)lines.points->pdata[index])->len == 0)
			continue;
		if (has_process == (i < lines.points->len) &&
		    (does_change(lines.points->pdata[index]) ||
		     (has_process && counter->kind != PROF_COUNTER_SUM &&
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
	g_ptr_array_unref(lines.points);
	counter_values_done(&lines.counters);
	return ok;
}

static bool write_counters(struct html_rows *rows, GError **error)
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

/* ---- allocations ----------------------------------------------------------------------------- */

/* Sampled blocks stand for parts of blocks, too. */
#define BLOCK_SCALE 256u

struct page_life {
	uint32_t time, freed, thread, stack;
	uint64_t bytes, blocks, brief;
};

static void write_allocations(struct html_rows *rows)
{
	static const struct report_column columns[] = {
		{ "allocations.time", REPORT_MEMBER(struct page_life, time), .delta = true },
		{ "allocations.freed", REPORT_MEMBER(struct page_life, freed) },
		{ "allocations.thread", REPORT_MEMBER(struct page_life, thread) },
		{ "allocations.stack", REPORT_MEMBER(struct page_life, stack) },
		{ "allocations.bytes", REPORT_MEMBER(struct page_life, bytes) },
		{ "allocations.blocks", REPORT_MEMBER(struct page_life, blocks),
		  .scale = BLOCK_SCALE },
		{ "allocations.brief", REPORT_MEMBER(struct page_life, brief),
		  .scale = BLOCK_SCALE },
	};
	g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(struct page_life));

	for (unsigned k = 0; k < rows->sides.n; k++) {
		const struct html_side *side = rows->side = &rows->sides.each[k];
		const struct allocations *allocations = side->export->allocations;
		uint64_t part = 1, from = (uint64_t)side->from_ns / rows->allocation_unit;

		if (!allocations || !allocations->lives)
			continue;
		part = rows->allocation_unit / (uint64_t)allocations->unit_ns;
		for (guint i = 0; i < allocations->lives->len; i++) {
			const struct allocation_life *life =
				&g_array_index(allocations->lives, struct allocation_life, i);
			struct page_life row = {
				(uint32_t)(from + life->time / part),
				life->freed ? (uint32_t)(from + (life->freed - 1) / part + 1) : 0,
				page_thread(rows, life->thread),
				html_stack(side, life->node),
				(uint64_t)llround(life->bytes),
				(uint64_t)llround(life->blocks * BLOCK_SCALE),
				(uint64_t)llround(life->brief * BLOCK_SCALE)
			};

			/* what a capture leaves live ends where the next one begins */
			if (!row.freed && k + 1 < rows->sides.n)
				row.freed = (uint32_t)((uint64_t)side[1].from_ns /
						       rows->allocation_unit) +
					    1;
			g_array_append_val(all, row);
		}
	}
	if (all->len > 0)
		report_page_add(rows->page, all, columns, ARRAY_SIZE(columns));
}

/* ---- all ------------------------------------------------------------------------------------- */

void html_rows_init(struct html_rows *rows, struct export *export, struct report_page *page,
		    struct json *json)
{
	uint64_t duration;

	*rows = (struct html_rows){ .page = page, .json = json };
	html_sides_init(&rows->sides, export);
	duration = (uint64_t)rows->sides.each[rows->sides.n - 1].to_ns;
	rows->grid_ns = rows->sides.grid_ns;
	rows->sample_unit = (uint64_t)rows->grid_ns / GRID_UNITS;
	rows->allocation_unit = (uint64_t)rows->grid_ns;
	/* lengths and gaps have 32 bits */
	for (rows->slice_unit = 1; duration / rows->slice_unit > UINT32_MAX / 2;)
		rows->slice_unit *= 2;
	rows->notes = g_ptr_array_new_with_free_func(g_free);
	rows->mark_names = g_ptr_array_new();
	html_keys_init(&rows->threads);
	html_keys_init(&rows->functions);
}

void html_rows_done(struct html_rows *rows)
{
	html_sides_done(&rows->sides);
	html_keys_done(&rows->threads);
	html_keys_done(&rows->functions);
	g_ptr_array_unref(rows->mark_names);
	g_ptr_array_unref(rows->notes);
}

bool html_rows_write(struct html_rows *rows, GError **error)
{
	write_samples(rows);
	write_stacks(rows);
	write_allocations(rows);
	return write_slices(rows, error) && write_marks(rows, error) && write_logs(rows, error) &&
	       write_counters(rows, error);
}
