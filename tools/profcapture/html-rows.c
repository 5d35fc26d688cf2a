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

#define GRID_STEPS 16384u
#define LEAST_STEPS 1024u /* of the grid, however many samples there are */
#define GRID_UNITS 256u   /* the finest unit is this part of the grid's step */
#define MOST_SAMPLES 4000000u
#define MOST_SLICES 400000u
#define MOST_MARKS 500000u
#define MOST_LOGS 2000u
#define MOST_POINTS 8000u
#define MOST_COUNTERS 24u

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

static void write_samples(struct html_rows *rows)
{
	static const struct report_column columns[] = {
		{ "samples.time", REPORT_MEMBER(struct page_sample, time), .delta = true },
		{ "samples.thread", REPORT_MEMBER(struct page_sample, thread) },
		{ "samples.stack", REPORT_MEMBER(struct page_sample, stack) },
		{ "samples.count", REPORT_MEMBER(struct page_sample, count) },
		{ "samples.weight", REPORT_MEMBER(struct page_sample, weight) },
	};
	const GArray *each = rows->export->profile.each;
	g_autoptr(GArray)
		samples = g_array_sized_new(FALSE, FALSE, sizeof(struct page_sample), each->len);
	const struct amount *all = &rows->export->profile.all;
	const uint64_t duration_ns =
		(uint64_t)MAX_OF(rows->export->reader.capture->duration_ns, INT64_C(1));
	bool is_even = true;

	rows->sample_weight = all->samples ? all->weight / all->samples : 0;
	for (guint i = 0; i < each->len; i++) {
		const struct profile_sample *at = &g_array_index(each, struct profile_sample, i);
		uint64_t time_ns = (uint64_t)MAX_OF(at->time_ns, INT64_C(0));
		struct page_sample sample = { .time = (uint32_t)(time_ns / rows->sample_unit),
					      .thread = html_index(&rows->threads, at->thread),
					      .stack = at->node,
					      .count = 1,
					      .weight = at->weight };

		g_array_append_val(samples, sample);
	}
	merge_samples(samples);
	while (samples->len > MOST_SAMPLES && rows->sample_unit < duration_ns / LEAST_STEPS) {
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
	/* counts are enough if each sample weighs as much as every other */
	for (guint i = 0; i < samples->len && is_even; i++) {
		const struct page_sample *at = &g_array_index(samples, struct page_sample, i);

		is_even = at->weight == at->count * rows->sample_weight;
	}
	report_page_add(rows->page, samples, columns, ARRAY_SIZE(columns) - is_even);
}

static void write_stacks(struct html_rows *rows)
{
	static const struct report_column parent = { "stacks.parent",
						     REPORT_MEMBER(struct profile_node, parent) };
	static const struct report_column function = { "stacks.function", 0, sizeof(uint32_t) };
	GArray *nodes = rows->export->profile.tree.nodes;
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
	uint32_t gap, length; /* units since the thread's slice before, and of its own */
	uint8_t kind;
};

struct slices {
	struct html_rows *rows;
	GArray *all;
};

static void add_slice(const struct run_state *state, void *data)
{
	struct slices *slices = data;
	struct page_slice slice = { .from_ns = MAX_OF(state->from_ns, INT64_C(0)),
				    .to_ns = state->to_ns,
				    .kind = state->state == PROF_SWITCH_RUNNING ? SLICE_RUN
					    : state->state == PROF_SWITCH_WAIT  ? SLICE_WAIT
										: SLICE_READY };

	if (slice.from_ns >= slice.to_ns)
		return;
	slice.thread = html_index(&slices->rows->threads, state->thread);
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
		while ((*all)->len > MOST_SLICES && bin_ns < rows->grid_ns * GRID_STEPS) {
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
	bool ok = run_times_each_state(&rows->export->reader, add_slice, &slices, error);

	if (ok)
		add_slices(rows, &slices.all);
	g_array_unref(slices.all);
	return ok;
}

/* ---- marks and logs -------------------------------------------------------------------------- */

struct page_marks {
	struct html_rows *rows;
	GArray *all;
	GHashTable *names; /* group and name → index + 1 */
};

static uint32_t mark_name(struct page_marks *marks, const char *group, const char *name)
{
	g_autofree char *key = g_strdup_printf("%p %p", (const void *)group, (const void *)name);
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
	struct reader *reader = &marks->rows->export->reader;
	struct html_mark mark = { .start_ns = MAX_OF(span->start_ns, INT64_C(0)) };
	int64_t end_ns = span->kind == SPAN_NO_END ? reader->capture->duration_ns : span->end_ns;

	if (end_ns < reader->from_ns || mark.start_ns > reader->to_ns ||
	    !reader_wants_thread_at(reader, span->thread, span->start_ns))
		return;
	mark.length_ns = (uint64_t)(MAX_OF(end_ns, mark.start_ns) - mark.start_ns);
	mark.time = (uint64_t)mark.start_ns / marks->rows->sample_unit;
	mark.thread = html_index(&marks->rows->threads, span->thread);
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

	if (!spans_read(rows->export->reader.capture, take_span, &marks, error))
		return false;
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
	struct reader *reader = &logs->rows->export->reader;

	(void)error;
	for (size_t i = 0; i < batch->rows; i++) {
		uint32_t thread =
			names_thread(epoch, array_number_or(&batch->columns[LOG_THREAD], i, 0));

		if (!reader_wants_thread(reader, thread) || logs->n++ >= MOST_LOGS)
			continue;
		json_begin_object(json, NULL);
		json_int(json, "time_ns",
			 capture_time(reader->capture, batch->segment,
				      array_number_or(&batch->columns[LOG_TIME], i, 0)));
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
	bool ok;

	json_begin_array(rows->json, "logs");
	/* log lines may say anything */
	ok = rows->export->reader.redacts ||
	     names_each_batch(rows->export->reader.capture->names, &options, take_logs, &logs,
			      _("cannot read logs of '%s'"), error);
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
	struct page_point point = { value->time_ns, value->value };

	if (!counter_is_wanted(counter_at(&lines->counters, value->counter),
			       &lines->rows->export->reader) ||
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

static void add_counter(const struct counter_lines *lines, guint index)
{
	struct json *json = lines->rows->json;
	const struct capture *capture = lines->rows->export->reader.capture;
	const struct counter *counter = counter_at(&lines->counters, index);
	GArray *points = lines->points->pdata[index];

	thin(points, MAX_OF(capture->duration_ns, INT64_C(1)));
	json_begin_object(json, NULL);
	json_string(json, "group", counter->group);
	json_string(json, "name", counter->name);
	json_string(json, "unit", counter->unit);
	json_uint(json, "pid", names_process_at(capture->names, counter->process)->pid);
	json_bool(json, "is_rss", g_strcmp0(counter->name, "rss") == 0);
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

static bool write_counters(struct html_rows *rows, GError **error)
{
	struct counter_lines lines = { .rows = rows,
				       .counters.capture = rows->export->reader.capture,
				       .points = g_ptr_array_new_with_free_func(
					       (GDestroyNotify)g_array_unref) };
	bool ok = counter_values_read(&lines.counters, take_value, &lines, error);
	guint n = 0;

	json_begin_array(rows->json, "counters");
	for (guint i = 0; ok && i < lines.points->len; i++)
		if (((GArray *)lines.points->pdata[i])->len > 0 && n++ < MOST_COUNTERS)
			add_counter(&lines, i);
	json_end(rows->json);
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
	const GArray *lives = rows->export->allocations ? rows->export->allocations->lives : NULL;
	guint n = lives ? lives->len : 0;
	g_autoptr(GArray) all = g_array_sized_new(FALSE, FALSE, sizeof(struct page_life), n);

	for (guint i = 0; i < n; i++) {
		const struct allocation_life *life =
			&g_array_index(lives, struct allocation_life, i);
		struct page_life row = { life->time,
					 life->freed,
					 html_index(&rows->threads, life->thread),
					 life->node,
					 (uint64_t)llround(life->bytes),
					 (uint64_t)llround(life->blocks * BLOCK_SCALE),
					 (uint64_t)llround(life->brief * BLOCK_SCALE) };

		g_array_append_val(all, row);
	}
	if (n > 0)
		report_page_add(rows->page, all, columns, ARRAY_SIZE(columns));
}

/* ---- all ------------------------------------------------------------------------------------- */

int64_t export_html_grid(const struct capture *capture)
{
	int64_t grid_ns = GRID_UNITS;

	while (grid_ns < capture->duration_ns / GRID_STEPS)
		grid_ns *= 2;
	return grid_ns;
}

void html_rows_init(struct html_rows *rows, struct export *export, struct report_page *page,
		    struct json *json)
{
	const struct capture *capture = export->reader.capture;
	uint64_t duration = (uint64_t)MAX_OF(capture->duration_ns, INT64_C(1));

	*rows = (struct html_rows){ .export = export, .page = page, .json = json };
	rows->grid_ns = export_html_grid(capture);
	rows->sample_unit = (uint64_t)rows->grid_ns / GRID_UNITS;
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
