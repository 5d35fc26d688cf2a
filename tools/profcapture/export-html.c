/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-html - the report as one page for a browser (data/report)
 *
 * The page counts again for each range of time that its reader selects, so it gets the rows, not
 * their sums: samples, slices of threads, allocations, marks. Times are in units of a power of two
 * nanoseconds. The page's ranges begin and end on a grid, of which every unit is a part, so its
 * sums are those of `report --from --to` of the same range  [test-html: same_numbers]. Rows of the
 * same stack in the same unit are merged. If there are too many rows, the unit grows, and the page
 * says so.
 */
#include "config.h"

#include "tools/profcapture/counter-values.h"
#include "tools/profcapture/export-allocations.h"
#include "tools/profcapture/memory-heaps.h"
#include "tools/profcapture/spans.h"
#include "tools/profcapture/summary.h"
#include "tools/profile/function-labels.h"

#include "tools/present/report-page.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define GRID_STEPS 16384u
#define GRID_UNITS 256u /* the finest unit is this part of the grid's step */
#define MOST_SAMPLES 4000000u
#define MOST_SLICES 400000u
#define MOST_MARKS 500000u
#define MOST_LOGS 2000u
#define MOST_POINTS 8000u
#define MOST_COUNTERS 24u

struct page_sample {
	uint32_t time, thread, stack, count;
	uint64_t weight;
};

enum slice_kind { SLICE_RUN, SLICE_READY, SLICE_WAIT, SLICE_KINDS };

struct page_slice {
	int64_t from_ns, to_ns;
	uint64_t ns[SLICE_KINDS]; /* the parts of its time */
	uint32_t thread;
	uint32_t gap, length; /* units since the thread's slice before, and of its own */
	uint8_t kind;
};

struct page_mark {
	int64_t start_ns, end_ns;
	uint32_t thread, name;
};

/* The last known state of a thread. */
struct last_switch {
	int64_t since_ns;
	uint8_t kind; /* SLICE_KINDS: unknown */
};

struct counter_line { /* a counter over time */
	uint32_t counter;
	GArray *points; /* struct page_point */
};

struct page_point {
	int64_t time_ns;
	double value;
};

struct html {
	struct export *export;
	struct report_page page;
	struct json json;
	GPtrArray *notes;
	int64_t grid_ns;
	uint64_t sample_unit, slice_unit;
	GHashTable *threads;                        /* index of names → index of the page + 1 */
	GArray *thread_list;                        /* uint32_t: index of names */
	GHashTable *functions, *images, *processes; /* the same */
	GArray *function_list, *image_list, *process_list;
	GHashTable *mark_names; /* group and name → index + 1 */
	GPtrArray *mark_list;   /* group, then name, of each */
	GArray *samples, *slices, *marks, *states, *lines;
	struct counter_values counters;
	GError **error;
};

/* Returns the index of `key` in the list, to which it adds it if needed. */
static uint32_t index_in(GHashTable *known, GArray *list, uint32_t key)
{
	gpointer at = g_hash_table_lookup(known, GUINT_TO_POINTER(key + 1));

	if (!at) {
		g_array_append_val(list, key);
		at = GUINT_TO_POINTER(list->len);
		g_hash_table_insert(known, GUINT_TO_POINTER(key + 1), at);
	}
	return GPOINTER_TO_UINT(at) - 1;
}

static uint32_t thread_index(struct html *html, uint32_t thread)
{
	return index_in(html->threads, html->thread_list, thread);
}

/* ---- samples --------------------------------------------------------------------------------- */

static gint compare_samples(gconstpointer left, gconstpointer right)
{
	const struct page_sample *a = left, *b = right;

	if (a->time != b->time)
		return a->time < b->time ? -1 : 1;
	if (a->thread != b->thread)
		return a->thread < b->thread ? -1 : 1;
	return a->stack < b->stack ? -1 : a->stack > b->stack;
}

/* Sorts the samples and merges those of the same time, thread and stack. */
static void merge_samples(struct html *html)
{
	struct page_sample *all = (struct page_sample *)(void *)html->samples->data;
	guint n = 0;

	g_array_sort(html->samples, compare_samples);
	for (guint i = 0; i < html->samples->len; i++) {
		if (n > 0 && compare_samples(&all[n - 1], &all[i]) == 0) {
			all[n - 1].count += all[i].count;
			all[n - 1].weight += all[i].weight;
		} else {
			all[n++] = all[i];
		}
	}
	g_array_set_size(html->samples, n);
}

static void add_samples(struct html *html)
{
	const GArray *each = html->export->profile.each;

	for (guint i = 0; i < each->len; i++) {
		const struct profile_sample *at = &g_array_index(each, struct profile_sample, i);
		struct page_sample sample = {
			.time = (uint32_t)((uint64_t)MAX_OF(at->time_ns, INT64_C(0)) /
					   html->sample_unit),
			.thread = thread_index(html, at->thread),
			.stack = at->node,
			.count = 1,
			.weight = at->weight,
		};

		g_array_append_val(html->samples, sample);
	}
	merge_samples(html);
	while (html->samples->len > MOST_SAMPLES && html->sample_unit < (uint64_t)html->grid_ns) {
		html->sample_unit *= 4;
		for (guint i = 0; i < html->samples->len; i++)
			g_array_index(html->samples, struct page_sample, i).time /= 4;
		merge_samples(html);
	}
}

#define SAMPLE_COLUMN(name, member)                                    \
	static uint64_t sample_##name(const void *data, size_t row)    \
	{                                                              \
		return ((const struct page_sample *)data)[row].member; \
	}
SAMPLE_COLUMN(time, time)
SAMPLE_COLUMN(thread, thread)
SAMPLE_COLUMN(stack, stack)
SAMPLE_COLUMN(count, count)
SAMPLE_COLUMN(weight, weight)

static void write_samples(struct html *html)
{
	const void *data = html->samples->data;
	size_t rows = html->samples->len;
	const struct report_column columns[] = {
		{ "samples.time", sample_time, data, rows, true, 0 },
		{ "samples.thread", sample_thread, data, rows, false, 0 },
		{ "samples.stack", sample_stack, data, rows, false, 0 },
		{ "samples.count", sample_count, data, rows, false, 0 },
		{ "samples.weight", sample_weight, data, rows, false, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
		report_page_add(&html->page, &columns[i]);
}

/* ---- stacks ---------------------------------------------------------------------------------- */

static uint64_t stack_parent(const void *data, size_t row)
{
	const struct html *html = data;

	return g_array_index(html->export->profile.tree.nodes, struct profile_node, row).parent;
}

static uint64_t stack_function(const void *data, size_t row)
{
	const struct html *html = data;
	uint32_t function =
		g_array_index(html->export->profile.tree.nodes, struct profile_node, row).entity;

	/* the root has none */
	return row ? GPOINTER_TO_UINT(
			     g_hash_table_lookup(html->functions, GUINT_TO_POINTER(function + 1))) -
			       1
		   : 0;
}

static void write_stacks(struct html *html)
{
	const GArray *nodes = html->export->profile.tree.nodes;
	const struct report_column columns[] = {
		{ "stacks.parent", stack_parent, html, nodes->len, false, 0 },
		{ "stacks.function", stack_function, html, nodes->len, false, 0 },
	};

	for (guint i = 1; i < nodes->len; i++)
		(void)index_in(html->functions, html->function_list,
			       g_array_index(nodes, struct profile_node, i).entity);
	for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
		report_page_add(&html->page, &columns[i]);
}

static void write_functions(struct html *html)
{
	const struct functions *functions = html->export->profile.functions;
	struct function_labels *labels = function_labels_new(functions, false);
	const uint32_t *list = (const uint32_t *)(void *)html->function_list->data;

	for (guint i = 0; i < html->function_list->len; i++)
		function_labels_add(labels, list[i]);
	json_begin_array(&html->json, "functions");
	for (guint i = 0; i < html->function_list->len; i++) {
		const struct function *function = functions_at(functions, list[i]);
		g_autofree char *name = function_labels_name(labels, list[i]);
		const char *file = function->file ? function->file : function->code_file;

		json_begin_object(&html->json, NULL);
		json_string(&html->json, "name", name);
		if (g_strcmp0(name, function->name) != 0)
			json_string(&html->json, "full", function->name);
		json_string(&html->json, "kind", function->kind);
		json_uint(&html->json, "origin", code_origin_of(functions, list[i]));
		json_uint(&html->json, "image",
			  index_in(html->images, html->image_list, function->image));
		if (file)
			json_string(&html->json, "file", file);
		if (file && function->line)
			json_uint(&html->json, "line", function->line);
		if (function->is_inlined)
			json_bool(&html->json, "inlined", true);
		json_end(&html->json);
	}
	json_end(&html->json);
	function_labels_free(labels);
	json_begin_array(&html->json, "images");
	for (guint i = 0; i < html->image_list->len; i++) {
		uint32_t image = g_array_index(html->image_list, uint32_t, i);

		json_string(&html->json, NULL, names_image_at(functions->names, image)->path);
	}
	json_end(&html->json);
}

/* ---- slices ---------------------------------------------------------------------------------- */

enum { SWITCH_TIME, SWITCH_THREAD, SWITCH_START, SWITCH_STATE, N_SWITCH_COLUMNS };

static void add_slice(struct html *html, uint32_t thread, uint8_t kind, int64_t from_ns,
		      int64_t to_ns)
{
	struct page_slice slice = { .from_ns = MAX_OF(from_ns, INT64_C(0)),
				    .to_ns = to_ns,
				    .thread = thread,
				    .kind = kind };

	if (slice.from_ns < to_ns)
		g_array_append_val(html->slices, slice);
}

static bool take_switches(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
			  GError **error)
{
	struct html *html = data;
	struct reader *reader = &html->export->reader;
	const struct capture *capture = reader->capture;
	bool has_wakeups = capture_metadata_of(capture, batch->segment, "wakeups") != NULL;

	(void)error;
	for (size_t i = 0; i < batch->rows; i++) {
		uint32_t thread =
			names_thread(epoch, array_number_or(&batch->columns[SWITCH_THREAD], i, 0));
		uint64_t end = array_number_or(&batch->columns[SWITCH_TIME], i, 0);
		uint64_t start = array_number_or(&batch->columns[SWITCH_START], i, end);
		uint64_t how =
			array_number_or(&batch->columns[SWITCH_STATE], i, PROF_SWITCH_RUNNING);
		int64_t from_ns = capture_time(capture, batch->segment, start);
		int64_t to_ns = capture_time(capture, batch->segment, end);
		struct last_switch *state;
		uint32_t index;

		if (thread <= NAMES_LOST || !reader_wants_thread(reader, thread))
			continue;
		index = thread_index(html, thread);
		while (html->states->len <= index) {
			struct last_switch unknown = { .kind = SLICE_KINDS };

			g_array_append_val(html->states, unknown);
		}
		state = &g_array_index(html->states, struct last_switch, index);
		if (state->kind < SLICE_KINDS)
			add_slice(html, index, state->kind, state->since_ns, from_ns);
		add_slice(html, index, SLICE_RUN, from_ns, to_ns);
		state->since_ns = to_ns;
		state->kind = how == PROF_SWITCH_WAIT ? SLICE_WAIT
			      : how == PROF_SWITCH_RUNNING || (how == PROF_SWITCH_RUNNABLE &&
							       !has_wakeups && from_ns < to_ns)
				      ? SLICE_KINDS
				      : SLICE_READY;
	}
	return true;
}

static gint compare_slices(gconstpointer left, gconstpointer right)
{
	const struct page_slice *a = left, *b = right;

	if (a->thread != b->thread)
		return a->thread < b->thread ? -1 : 1;
	return a->from_ns < b->from_ns ? -1 : a->from_ns > b->from_ns;
}

/* Replaces slices by shares of equal parts of the time. */
static void merge_slices(struct html *html, int64_t bin_ns)
{
	GArray *merged = g_array_new(FALSE, FALSE, sizeof(struct page_slice));
	struct page_slice *last = NULL;

	for (guint i = 0; i < html->slices->len; i++) {
		struct page_slice at = g_array_index(html->slices, struct page_slice, i);

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
	g_array_unref(html->slices);
	html->slices = merged;
}

/* Lays the slices out in units: from the end of the thread's slice before. */
static void place_slices(struct html *html)
{
	const int64_t unit = (int64_t)html->slice_unit;
	int64_t end = 0;

	for (guint i = 0; i < html->slices->len; i++) {
		struct page_slice *slice = &g_array_index(html->slices, struct page_slice, i);

		if (i == 0 || slice->thread != slice[-1].thread)
			end = 0;
		slice->gap = (uint32_t)MAX_OF(slice->from_ns / unit - end, INT64_C(0));
		end += slice->gap;
		slice->length = (uint32_t)MAX_OF(slice->to_ns / unit - end, INT64_C(0));
		end += slice->length;
	}
}

#define SLICE_COLUMN(name, member)                                    \
	static uint64_t slice_##name(const void *data, size_t row)    \
	{                                                             \
		return ((const struct page_slice *)data)[row].member; \
	}
SLICE_COLUMN(thread, thread)
SLICE_COLUMN(gap, gap)
SLICE_COLUMN(length, length)
SLICE_COLUMN(kind, kind)
SLICE_COLUMN(run, ns[SLICE_RUN])
SLICE_COLUMN(ready, ns[SLICE_READY])
SLICE_COLUMN(wait, ns[SLICE_WAIT])

static bool write_slices(struct html *html)
{
	static const uint16_t columns[N_SWITCH_COLUMNS] = { PROF_SWITCH_TIME, PROF_SWITCH_THREAD,
							    PROF_SWITCH_START, PROF_SWITCH_STATE };
	const struct prof_cursor_options options = { .table = PROF_TABLE_SWITCH,
						     .columns = columns,
						     .n_columns = N_SWITCH_COLUMNS };
	bool is_merged;
	int64_t bin_ns = html->grid_ns;

	if (!names_each_batch(html->export->reader.capture->names, &options, take_switches, html,
			      _("cannot read context switches of '%s'"), html->error))
		return false;
	g_array_sort(html->slices, compare_slices);
	is_merged = html->slices->len > MOST_SLICES;
	if (is_merged) {
		merge_slices(html, bin_ns);
		while (html->slices->len > MOST_SLICES && bin_ns < html->grid_ns * GRID_STEPS) {
			bin_ns *= 2;
			merge_slices(html, bin_ns);
		}
		g_ptr_array_add(
			html->notes,
			g_strdup_printf(_("When threads ran and waited has steps of %.3g ms."),
					(double)bin_ns / 1e6));
	}
	place_slices(html);
	for (unsigned i = 0; i < 7 && html->slices->len > 0; i++) {
		const struct report_column all[] = {
			{ "slices.thread", slice_thread, NULL, 0, true, 0 },
			{ "slices.gap", slice_gap, NULL, 0, false, 0 },
			{ "slices.length", slice_length, NULL, 0, false, 0 },
			{ "slices.kind", slice_kind, NULL, 0, false, 0 },
			{ "slices.run", slice_run, NULL, 0, false, 0 },
			{ "slices.ready", slice_ready, NULL, 0, false, 0 },
			{ "slices.wait", slice_wait, NULL, 0, false, 0 },
		};
		struct report_column column = all[i];

		if ((i == 3 && is_merged) || (i > 3 && !is_merged))
			continue;
		column.data = html->slices->data;
		column.rows = html->slices->len;
		report_page_add(&html->page, &column);
	}
	return true;
}

/* ---- marks and logs -------------------------------------------------------------------------- */

static uint32_t mark_name(struct html *html, const char *group, const char *name)
{
	g_autofree char *key = g_strdup_printf("%p %p", (const void *)group, (const void *)name);
	gpointer at = g_hash_table_lookup(html->mark_names, key);

	if (!at) {
		g_ptr_array_add(html->mark_list, (gpointer)group);
		g_ptr_array_add(html->mark_list, (gpointer)name);
		at = GUINT_TO_POINTER(html->mark_list->len / 2);
		g_hash_table_insert(html->mark_names, g_steal_pointer(&key), at);
	}
	return GPOINTER_TO_UINT(at) - 1;
}

static void take_span(const struct span *span, void *data)
{
	struct html *html = data;
	struct reader *reader = &html->export->reader;
	struct page_mark mark = { .start_ns = MAX_OF(span->start_ns, INT64_C(0)),
				  .end_ns = span->kind == SPAN_NO_END ? reader->capture->duration_ns
								      : span->end_ns };

	if (mark.end_ns < reader->from_ns || mark.start_ns > reader->to_ns ||
	    !reader_wants_thread_at(reader, span->thread, span->start_ns))
		return;
	mark.end_ns = MAX_OF(mark.end_ns, mark.start_ns);
	mark.thread = thread_index(html, span->thread);
	mark.name = mark_name(html, span->group, span->name);
	g_array_append_val(html->marks, mark);
}

static gint compare_marks(gconstpointer left, gconstpointer right)
{
	const struct page_mark *a = left, *b = right;

	if (a->start_ns != b->start_ns)
		return a->start_ns < b->start_ns ? -1 : 1;
	if (a->end_ns != b->end_ns)
		return a->end_ns < b->end_ns ? -1 : 1;
	if (a->thread != b->thread)
		return a->thread < b->thread ? -1 : 1;
	return a->name < b->name ? -1 : a->name > b->name;
}

static gint compare_lengths(gconstpointer left, gconstpointer right)
{
	const struct page_mark *a = left, *b = right;
	int64_t one = a->end_ns - a->start_ns, two = b->end_ns - b->start_ns;

	return one != two ? (one > two ? -1 : 1) : compare_marks(left, right);
}

#define MARK_COLUMN(column, expression)                                                            \
	static uint64_t mark_##column(const void *data, size_t row)                                \
	{                                                                                          \
		const struct html *html = data;                                                    \
		const struct page_mark *mark = &g_array_index(html->marks, struct page_mark, row); \
                                                                                                   \
		(void)html;                                                                        \
		return (expression);                                                               \
	}
MARK_COLUMN(time, (uint64_t)mark->start_ns / html->sample_unit)
MARK_COLUMN(length, (uint64_t)(mark->end_ns - mark->start_ns))
MARK_COLUMN(thread, mark->thread)
MARK_COLUMN(name_of, mark->name)

static bool write_marks(struct html *html)
{
	size_t rows;

	if (!spans_read(html->export->reader.capture, take_span, html, html->error))
		return false;
	if (html->marks->len > MOST_MARKS) {
		g_ptr_array_add(
			html->notes,
			g_strdup_printf(
				_("Of %u marks, the %u longest are here; 'profcapture marks' counts all."),
				html->marks->len, MOST_MARKS));
		g_array_sort(html->marks, compare_lengths);
		g_array_set_size(html->marks, MOST_MARKS);
	}
	g_array_sort(html->marks, compare_marks);
	rows = html->marks->len;
	if (rows > 0) {
		const struct report_column columns[] = {
			{ "marks.time", mark_time, html, rows, true, 0 },
			{ "marks.length", mark_length, html, rows, false, 0 },
			{ "marks.thread", mark_thread, html, rows, false, 0 },
			{ "marks.name", mark_name_of, html, rows, false, 0 },
		};

		for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
			report_page_add(&html->page, &columns[i]);
	}
	json_begin_array(&html->json, "mark_names");
	for (guint i = 0; i < html->mark_list->len; i += 2) {
		json_begin_object(&html->json, NULL);
		json_string(&html->json, "group", html->mark_list->pdata[i]);
		json_string(&html->json, "name", html->mark_list->pdata[i + 1]);
		json_end(&html->json);
	}
	json_end(&html->json);
	return true;
}

enum { LOG_TIME, LOG_THREAD, LOG_LEVEL, LOG_TEXT, N_LOG_COLUMNS };

struct page_logs {
	struct html *html;
	uint64_t n;
};

static bool take_logs(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
		      GError **error)
{
	struct page_logs *logs = data;
	struct json *json = &logs->html->json;

	(void)error;
	for (size_t i = 0; i < batch->rows; i++) {
		uint32_t thread =
			names_thread(epoch, array_number_or(&batch->columns[LOG_THREAD], i, 0));

		if (!reader_wants_thread(&logs->html->export->reader, thread) ||
		    logs->n++ >= MOST_LOGS)
			continue;
		json_begin_object(json, NULL);
		json_int(json, "time_ns",
			 capture_time(logs->html->export->reader.capture, batch->segment,
				      array_number_or(&batch->columns[LOG_TIME], i, 0)));
		json_uint(json, "level", array_number_or(&batch->columns[LOG_LEVEL], i, 0));
		json_string(json, "text",
			    names_text(epoch, array_number_or(&batch->columns[LOG_TEXT], i, 0)));
		json_end(json);
	}
	return true;
}

static bool write_logs(struct html *html)
{
	static const uint16_t columns[N_LOG_COLUMNS] = { PROF_LOG_TIME, PROF_LOG_THREAD,
							 PROF_LOG_LEVEL, PROF_LOG_TEXT };
	const struct prof_cursor_options options = { .table = PROF_TABLE_LOG,
						     .columns = columns,
						     .n_columns = N_LOG_COLUMNS };
	struct page_logs logs = { html, 0 };
	bool ok;

	json_begin_array(&html->json, "logs");
	ok = names_each_batch(html->export->reader.capture->names, &options, take_logs, &logs,
			      _("cannot read logs of '%s'"), html->error);
	json_end(&html->json);
	if (logs.n > MOST_LOGS)
		g_ptr_array_add(
			html->notes,
			g_strdup_printf(_("Of %" PRIu64 " log lines, the first %u are here."),
					logs.n, MOST_LOGS));
	return ok;
}

/* ---- counters -------------------------------------------------------------------------------- */

static void take_value(const struct counter_value *value, void *data)
{
	struct html *html = data;
	const struct counter *counter = counter_at(&html->counters, value->counter);
	struct page_point point = { value->time_ns, value->value };

	if (!counter_is_wanted(counter, &html->export->reader) || !isfinite(value->value))
		return;
	while (html->lines->len <= value->counter) {
		struct counter_line line = { html->lines->len,
					     g_array_new(FALSE, FALSE, sizeof(struct page_point)) };

		g_array_append_val(html->lines, line);
	}
	g_array_append_val(g_array_index(html->lines, struct counter_line, value->counter).points,
			   point);
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

static bool write_counters(struct html *html)
{
	const struct capture *capture = html->export->reader.capture;
	const struct names *names = capture->names;
	guint shown = 0, all = 0;

	html->counters.capture = html->export->reader.capture;
	if (!counter_values_read(&html->counters, take_value, html, html->error))
		return false;
	json_begin_array(&html->json, "counters");
	for (guint i = 0; i < html->lines->len; i++) {
		GArray *points = g_array_index(html->lines, struct counter_line, i).points;
		const struct counter *counter = counter_at(&html->counters, i);
		const struct names_process *process = names_process_at(names, counter->process);

		if (points->len == 0 || all++ >= MOST_COUNTERS)
			continue;
		shown++;
		thin(points, MAX_OF(capture->duration_ns, INT64_C(1)));
		json_begin_object(&html->json, NULL);
		json_string(&html->json, "group", counter->group);
		json_string(&html->json, "name", counter->name);
		json_string(&html->json, "unit", counter->unit);
		json_uint(&html->json, "pid", process->pid);
		json_bool(&html->json, "is_rss", g_strcmp0(counter->name, "rss") == 0);
		json_begin_array(&html->json, "times");
		for (guint k = 0; k < points->len; k++)
			json_int(&html->json, NULL,
				 g_array_index(points, struct page_point, k).time_ns);
		json_end(&html->json);
		json_begin_array(&html->json, "values");
		for (guint k = 0; k < points->len; k++)
			json_double(&html->json, NULL,
				    g_array_index(points, struct page_point, k).value);
		json_end(&html->json);
		json_end(&html->json);
	}
	json_end(&html->json);
	if (shown < all)
		g_ptr_array_add(
			html->notes,
			g_strdup_printf(
				_("Of %u counters, the first %u are here; 'profcapture counters' lists all."),
				all, shown));
	return true;
}

/* ---- allocations ----------------------------------------------------------------------------- */

/* Sampled blocks stand for parts of blocks, too. */
#define BLOCK_SCALE 256u

#define LIFE_COLUMN(name, expression)                                                              \
	static uint64_t life_##name(const void *data, size_t row)                                  \
	{                                                                                          \
		const struct allocation_life *life = &((const struct allocation_life *)data)[row]; \
                                                                                                   \
		return (uint64_t)(expression);                                                     \
	}
LIFE_COLUMN(time, life->time)
LIFE_COLUMN(freed, life->freed)
LIFE_COLUMN(thread, life->thread)
LIFE_COLUMN(stack, life->node)
LIFE_COLUMN(bytes, llround(life->bytes))
LIFE_COLUMN(blocks, llround(life->blocks *BLOCK_SCALE))
LIFE_COLUMN(brief, llround(life->brief *BLOCK_SCALE))

static void write_allocations(struct html *html)
{
	GArray *lives = html->export->allocations ? html->export->allocations->lives : NULL;
	const void *data = lives ? lives->data : NULL;
	size_t rows = lives ? lives->len : 0;
	const struct report_column columns[] = {
		{ "allocations.time", life_time, data, rows, true, 0 },
		{ "allocations.freed", life_freed, data, rows, false, 0 },
		{ "allocations.thread", life_thread, data, rows, false, 0 },
		{ "allocations.stack", life_stack, data, rows, false, 0 },
		{ "allocations.bytes", life_bytes, data, rows, false, 0 },
		{ "allocations.blocks", life_blocks, data, rows, false, BLOCK_SCALE },
		{ "allocations.brief", life_brief, data, rows, false, BLOCK_SCALE },
	};

	for (guint i = 0; i < rows; i++) {
		struct allocation_life *life = &g_array_index(lives, struct allocation_life, i);

		life->thread = thread_index(html, life->thread);
	}
	for (size_t i = 0; rows > 0 && i < ARRAY_SIZE(columns); i++)
		report_page_add(&html->page, &columns[i]);
}

/* ---- header ---------------------------------------------------------------------------------- */

static void write_threads(struct html *html)
{
	const struct names *names = html->export->reader.capture->names;

	json_begin_array(&html->json, "threads");
	for (guint i = 0; i < html->thread_list->len; i++) {
		uint32_t index = g_array_index(html->thread_list, uint32_t, i);
		const struct names_thread *thread = names_thread_at(names, index);

		json_begin_object(&html->json, NULL);
		json_string(&html->json, "name", export_thread_name(html->export, index));
		json_uint(&html->json, "tid", thread->tid);
		json_uint(&html->json, "process",
			  index_in(html->processes, html->process_list, thread->process));
		json_end(&html->json);
	}
	json_end(&html->json);
	json_begin_array(&html->json, "processes");
	for (guint i = 0; i < html->process_list->len; i++) {
		const struct names_process *process =
			names_process_at(names, g_array_index(html->process_list, uint32_t, i));
		g_autofree char *program = process->exe ? g_path_get_basename(process->exe)
							: g_strdup("-");
		g_autofree char *name = g_strdup_printf("%s (%" PRIu64 ")", program, process->pid);

		json_begin_object(&html->json, NULL);
		json_string(&html->json, "name", name);
		json_uint(&html->json, "pid", process->pid);
		json_end(&html->json);
	}
	json_end(&html->json);
}

static void write_fact(struct json *json, const char *title, const char *text)
{
	if (!text)
		return;
	json_begin_array(json, NULL);
	json_string(json, NULL, title);
	json_string(json, NULL, text);
	json_end(json);
}

static void write_losses(struct html *html)
{
	const GArray *losses = html->export->reader.capture->losses;

	json_begin_array(&html->json, "losses");
	for (guint i = 0; i < losses->len; i++) {
		const struct capture_loss *loss = &g_array_index(losses, struct capture_loss, i);
		g_autofree char *count = loss->count ? text_count(loss->count)
						     : g_strdup(_("An unknown number"));
		g_autofree char *text = g_strdup_printf(
			_("%s of %s was lost from %.3f to %.3f s: %s."), count,
			loss->stream ? loss->stream : "-", (double)loss->from_ns / 1e9,
			(double)loss->to_ns / 1e9, loss->cause);

		json_begin_object(&html->json, NULL);
		json_bool(&html->json, "is_tick", strcmp(loss->cause, "ticks-missed") == 0);
		json_uint(&html->json, "count", loss->count);
		json_int(&html->json, "from_ns", loss->from_ns);
		json_int(&html->json, "to_ns", loss->to_ns);
		json_string(&html->json, "text", text);
		json_end(&html->json);
	}
	json_end(&html->json);
}

static void write_capture(struct html *html)
{
	static const struct {
		const char *key, *title;
	} facts[] = {
		{ "command", N_("Command") }, { "host", N_("Host") },
		{ "kernel", N_("Kernel") },   { "arch", N_("Architecture") },
		{ "cpus", N_("CPUs") },       { "call_graph", N_("Stacks") },
		{ "options", N_("Options") }, { "version", N_("Recorded by profd") },
	};
	const struct profile *profile = &html->export->profile;
	const struct capture *capture = html->export->reader.capture;
	g_autofree char *title = export_title(html->export);
	g_autofree char *word = capture_shell_word(capture->file);
	g_autofree char *duration =
		text_duration((uint64_t)MAX_OF(capture->duration_ns, INT64_C(0)));
	g_autofree char *count = text_count(profile->all.samples);
	const char *host = capture_metadata(capture, "host"),
		   *cpus = capture_metadata(capture, "cpus");
	g_autofree char *summary = g_strdup_printf(_("%s%s%s · %s samples of %s"), duration,
						   host ? _(" on ") : "", host ? host : "", count,
						   profile_event_name(profile));

	json_begin_object(&html->json, "capture");
	json_string(&html->json, "title",
		    capture_metadata(capture, "command") ? title : _("The system"));
	json_string(&html->json, "summary", summary);
	json_string(&html->json, "file_word", word);
	json_int(&html->json, "duration_ns", MAX_OF(capture->duration_ns, INT64_C(1)));
	json_uint(&html->json, "cpus", cpus ? g_ascii_strtoull(cpus, NULL, 10) : 0);
	json_string(&html->json, "state", capture_state_name(capture));
	json_bool(&html->json, "is_time", export_is_time(html->export));
	json_bool(&html->json, "is_system", capture_is_system(capture));
	json_uint(&html->json, "sample_weight",
		  profile->all.samples ? profile->all.weight / profile->all.samples : 0);
	write_losses(html);
	json_begin_array(&html->json, "facts");
	for (size_t i = 0; i < ARRAY_SIZE(facts); i++)
		write_fact(&html->json, _(facts[i].title), capture_metadata(capture, facts[i].key));
	json_end(&html->json);
	json_end(&html->json);
}

/* ---- verdict --------------------------------------------------------------------------------- */

/* Begins a sentence of the verdict: the number that it is about, in the color of what it counts,
 * and the panel that shows its evidence. */
static void begin_sentence(struct html *html, const char *figure, const char *text,
			   const char *color, const char *tab, const char *measure)
{
	json_begin_object(&html->json, NULL);
	json_string(&html->json, "figure", figure);
	json_string(&html->json, "text", text);
	json_string(&html->json, "color", color);
	json_begin_object(&html->json, "show");
	json_string(&html->json, "tab", tab);
	if (measure)
		json_string(&html->json, "measure", measure);
}

static void end_sentence(struct html *html)
{
	json_end(&html->json);
	json_end(&html->json);
}

static void write_where(const struct summary_where *where, void *data)
{
	struct html *html = data;
	g_autofree char *figure = g_strdup_printf("%.0f %%", where->pct);
	g_autofree char *callee =
		where->callee ? g_strdup_printf(" (%s %.0f %%)", where->callee, where->callee_pct)
			      : g_strdup("");
	g_autofree char *text = g_strdup_printf(_("in %s%s and the library code that it calls"),
						where->name, callee);

	begin_sentence(html, figure, text, "own", "functions", "cpu");
	json_uint(&html->json, "fn",
		  index_in(html->functions, html->function_list, where->function));
	end_sentence(html);
}

static void write_not_freed(struct html *html)
{
	const GArray *lives = html->export->allocations ? html->export->allocations->lives : NULL;
	double bytes = 0, not_freed = 0;
	g_autofree char *figure = NULL, *all = NULL, *text = NULL;

	if (!lives || lives->len == 0)
		return;
	for (guint i = 0; i < lives->len; i++) {
		const struct allocation_life *life =
			&g_array_index(lives, struct allocation_life, i);

		bytes += life->bytes;
		not_freed += life->freed ? 0 : life->bytes;
	}
	figure = text_bytes((uint64_t)llround(not_freed));
	all = text_bytes((uint64_t)llround(bytes));
	text = g_strdup_printf(_("not freed at exit, of %s that were allocated"), all);
	begin_sentence(html, figure, text, "heap", "memory", "live");
	end_sentence(html);
}

static void write_longest_mark(struct html *html)
{
	const struct page_mark *longest = NULL;
	g_autofree char *figure = NULL, *text = NULL;

	for (guint i = 0; i < html->marks->len; i++) {
		const struct page_mark *mark = &g_array_index(html->marks, struct page_mark, i);

		if (!longest || mark->end_ns - mark->start_ns > longest->end_ns - longest->start_ns)
			longest = mark;
	}
	if (!longest || longest->end_ns <= longest->start_ns)
		return;
	figure = text_duration((uint64_t)(longest->end_ns - longest->start_ns));
	text = g_strdup_printf(_("in the longest mark, %s, at %.3f s"),
			       (const char *)html->mark_list->pdata[2 * longest->name + 1],
			       (double)longest->start_ns / 1e9);
	begin_sentence(html, figure, text, "mark", "marks", NULL);
	json_uint(&html->json, "mark", longest->name);
	end_sentence(html);
}

static bool write_verdict(struct html *html)
{
	struct export *export = html->export;
	g_autoptr(GArray) times = run_times_read(&export->reader, html->error);
	struct summary summary = { &export->reader, &export->profile, &export->own, times, false };
	struct out text;

	if (!times)
		return false;
	json_begin_array(&html->json, "verdict");
	if (export_is_time(export) && export->profile.all.weight > 0 && !export->profile.filters) {
		g_autofree char *figure = text_duration(export->profile.all.weight);
		g_autofree char *waited = text_duration(summary_waited_ns(&summary));

		out_init(&text, -1);
		summary_print_cost(&summary, &text);
		begin_sentence(html, figure, text.text->str, "run", "tree", "cpu");
		end_sentence(html);
		out_done(&text);
		summary_each_where(&summary, write_where, html);
		out_init(&text, -1);
		summary_print_waiting(&summary, &text);
		if (text.text->len && !capture_is_system(export->reader.capture)) {
			begin_sentence(html, waited, g_strchomp(text.text->str), "idle", "waiting",
				       NULL);
			end_sentence(html);
		}
		out_done(&text);
	}
	write_not_freed(html);
	write_longest_mark(html);
	json_end(&html->json);
	return true;
}

static void write_rest(struct html *html)
{
	const struct capture *capture = html->export->reader.capture;
	bool all;

	write_capture(html);
	write_threads(html);
	json_uint(&html->json, "grid_ns", (uint64_t)html->grid_ns);
	json_uint(&html->json, "sample_unit_ns", html->sample_unit);
	json_uint(&html->json, "slice_unit_ns", html->slice_unit);
	json_uint(&html->json, "mark_unit_ns", html->sample_unit);
	json_uint(&html->json, "allocation_unit_ns", (uint64_t)html->grid_ns);
	json_bool(&html->json, "has_wakeups", run_times_have_wakeups(capture));
	json_uint(&html->json, "sample_interval",
		  memory_most_setting(capture, MEMORY_SAMPLE_BYTES, &all));
	json_begin_array(&html->json, "notes");
	for (guint i = 0; i < html->notes->len; i++)
		json_string(&html->json, NULL, html->notes->pdata[i]);
	json_end(&html->json);
}

int64_t export_html_grid(const struct capture *capture)
{
	int64_t grid_ns = GRID_UNITS;

	while (grid_ns < capture->duration_ns / GRID_STEPS)
		grid_ns *= 2;
	return grid_ns;
}

static void html_init(struct html *html, struct export *export, struct out *members)
{
	int64_t duration = MAX_OF(export->reader.capture->duration_ns, INT64_C(1));

	html->export = export;
	report_page_init(&html->page);
	json_init(&html->json, members);
	html->grid_ns = export_html_grid(export->reader.capture);
	html->sample_unit = (uint64_t)html->grid_ns / GRID_UNITS;
	/* lengths and gaps have 32 bits */
	for (html->slice_unit = 1; (uint64_t)duration / html->slice_unit > UINT32_MAX / 2;)
		html->slice_unit *= 2;
	html->notes = g_ptr_array_new_with_free_func(g_free);
	html->threads = g_hash_table_new(NULL, NULL);
	html->functions = g_hash_table_new(NULL, NULL);
	html->images = g_hash_table_new(NULL, NULL);
	html->processes = g_hash_table_new(NULL, NULL);
	html->thread_list = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	html->function_list = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	html->image_list = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	html->process_list = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	html->mark_names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
	html->mark_list = g_ptr_array_new();
	html->samples = g_array_new(FALSE, FALSE, sizeof(struct page_sample));
	html->slices = g_array_new(FALSE, FALSE, sizeof(struct page_slice));
	html->marks = g_array_new(FALSE, FALSE, sizeof(struct page_mark));
	html->states = g_array_new(FALSE, FALSE, sizeof(struct last_switch));
	html->lines = g_array_new(FALSE, FALSE, sizeof(struct counter_line));
}

static void html_done(struct html *html)
{
	GHashTable *tables[] = { html->threads, html->functions, html->images, html->processes,
				 html->mark_names };
	GArray *arrays[] = { html->thread_list,  html->function_list, html->image_list,
			     html->process_list, html->samples,       html->slices,
			     html->marks,        html->states };

	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		g_hash_table_unref(tables[i]);
	for (size_t i = 0; i < ARRAY_SIZE(arrays); i++)
		g_array_unref(arrays[i]);
	for (guint i = 0; i < html->lines->len; i++)
		g_array_unref(g_array_index(html->lines, struct counter_line, i).points);
	g_array_unref(html->lines);
	g_ptr_array_unref(html->mark_list);
	g_ptr_array_unref(html->notes);
	counter_values_done(&html->counters);
	json_done(&html->json);
	report_page_done(&html->page);
}

bool export_html(struct export *export, struct out *out, GError **error)
{
	struct html html = { .error = error };
	struct out members;
	bool ok;

	out_init(&members, -1);
	html_init(&html, export, &members);
	json_begin_object(&html.json, NULL);
	add_samples(&html);
	write_samples(&html);
	write_stacks(&html);
	write_allocations(&html);
	ok = write_slices(&html) && write_marks(&html) && write_logs(&html) &&
	     write_counters(&html) && write_verdict(&html);
	if (ok) {
		write_functions(&html);
		write_rest(&html);
		/* its members follow the list of columns */
		g_string_erase(members.text, 0, 1);
		if (!report_page_write(&html.page, members.text, out)) {
			g_set_error_literal(error, CLI_ERROR, CLI_FAILURE,
					    _("cannot compress the page"));
			ok = false;
		}
	}
	html_done(&html);
	out_done(&members);
	return ok;
}
