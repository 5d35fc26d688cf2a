/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profcapture marks - how often, and how long
 *
 * One row for each group and name, with separate rows for spans and instants. A mark counts with
 * its whole duration if it begins in the time range, so that adjacent ranges add up, and if the
 * thread that began it passes the filters.
 *
 * Memory: one duration for each span (durations.h), and the open spans (spans.h)
 * [test_marks: memory]
 */
#include "config.h"

#include "tools/profcapture/durations.h"
#include "tools/profcapture/reader.h"
#include "tools/profcapture/spans.h"
#include "tools/profcapture/verbs.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

#define DEFAULT_LIMIT 40

struct series {
	const char *group, *name; /* interned, so pointers can be compared; NULL = none */
	bool instants;
	uint64_t count, no_end, no_begin;
	struct durations durations;
};

struct marks {
	struct reader reader;
	GHashTable *by_name; /* set of struct series */
	GPtrArray *all;      /* the same, in output order */
	bool incomplete;
	struct json json;
};

/* ---- gathering ------------------------------------------------------------------------------- */

static guint series_hash(gconstpointer pointer)
{
	const struct series *series = pointer;

	return (g_direct_hash(series->group) * 31 ^ g_direct_hash(series->name)) * 2 +
	       series->instants;
}

static gboolean series_equal(gconstpointer left, gconstpointer right)
{
	const struct series *a = left, *b = right;

	return a->group == b->group && a->name == b->name && a->instants == b->instants;
}

static void series_free(gpointer pointer)
{
	struct series *series = pointer;

	durations_done(&series->durations);
	g_free(series);
}

static struct series *series_of(struct marks *marks, const struct span *span)
{
	const struct series key = { .group = span->group,
				    .name = span->name,
				    .instants = span->kind == SPAN_INSTANT };
	struct series *series = g_hash_table_lookup(marks->by_name, &key);

	if (!series) {
		series = g_new(struct series, 1);
		*series = key;
		g_hash_table_add(marks->by_name, series);
	}
	return series;
}

static void add_span(const struct span *span, void *data)
{
	struct marks *marks = data;
	struct series *series;

	if (span->start_ns < marks->reader.from_ns || span->start_ns > marks->reader.to_ns ||
	    !reader_wants_thread_at(&marks->reader, span->thread, span->start_ns))
		return;
	series = series_of(marks, span);
	switch (span->kind) {
	case SPAN_WHOLE:
		durations_add(&series->durations,
			      (uint64_t)span->end_ns - (uint64_t)span->start_ns);
		series->count++;
		break;
	case SPAN_INSTANT:
		series->count++;
		break;
	case SPAN_NO_END:
		series->no_end++;
		break;
	case SPAN_NO_BEGIN:
		series->no_begin++;
		break;
	}
}

/* Sorts by total duration, then count, then name. Two series are never equal. */
static gint compare_series(gconstpointer left, gconstpointer right)
{
	const struct series *a = *(const struct series *const *)left;
	const struct series *b = *(const struct series *const *)right;
	int order;

	if (a->durations.total_ns != b->durations.total_ns)
		return a->durations.total_ns > b->durations.total_ns ? -1 : 1;
	if (a->count != b->count)
		return a->count > b->count ? -1 : 1;
	order = g_strcmp0(a->group, b->group);
	if (order == 0)
		order = g_strcmp0(a->name, b->name);
	return order ? order : (int)a->instants - (int)b->instants;
}

static void list_series(struct marks *marks)
{
	GHashTableIter iter;
	gpointer series;

	g_hash_table_iter_init(&iter, marks->by_name);
	while (g_hash_table_iter_next(&iter, &series, NULL))
		g_ptr_array_add(marks->all, series);
	g_ptr_array_sort(marks->all, compare_series);
}

static guint shown(const struct marks *marks)
{
	uint64_t limit = marks->reader.limit;

	return limit && limit < marks->all->len ? (guint)limit : marks->all->len;
}

/* ---- JSON and CSV ---------------------------------------------------------------------------- */

static const char *const columns[] = { "group",         "name",   "kind",    "count",
				       "total_ns",      "min_ns", "mean_ns", "median_ns",
				       "p95_ns",        "p99_ns", "max_ns",  "unmatched_begin",
				       "unmatched_end", NULL };

static void write_durations(struct json *json, struct durations *durations)
{
	static const char *const names[] = { "total_ns", "min_ns", "mean_ns", "median_ns",
					     "p95_ns",   "p99_ns", "max_ns" };

	if (durations_count(durations) == 0) {
		for (size_t i = 0; i < ARRAY_SIZE(names); i++)
			json_null(json, names[i]);
		return;
	}
	json_uint(json, "total_ns", durations->total_ns);
	json_uint(json, "min_ns", durations->min_ns);
	json_uint(json, "mean_ns", durations_mean(durations));
	json_uint(json, "median_ns", durations_percentile(durations, 50));
	json_uint(json, "p95_ns", durations_percentile(durations, 95));
	json_uint(json, "p99_ns", durations_percentile(durations, 99));
	json_uint(json, "max_ns", durations->max_ns);
}

static void write_marks(struct marks *marks)
{
	struct json *json = &marks->json;

	reader_begin(&marks->reader, json, "marks", shown(marks) < marks->all->len);
	if (marks->reader.format == READER_JSON)
		json_bool(json, "incomplete", marks->incomplete);
	rows_open(json, reader_json_format(&marks->reader), columns);
	for (guint i = 0; i < shown(marks); i++) {
		struct series *series = marks->all->pdata[i];

		rows_begin(json);
		json_string(json, "group", series->group);
		json_string(json, "name", series->name);
		json_string(json, "kind", series->instants ? "instant" : "span");
		json_uint(json, "count", series->count);
		write_durations(json, &series->durations);
		json_uint(json, "unmatched_begin", series->no_end);
		json_uint(json, "unmatched_end", series->no_begin);
		rows_end(json);
	}
	rows_close(json);
	reader_end(&marks->reader, json);
}

/* ---- text ------------------------------------------------------------------------------------ */

#define DURATION_WIDTH 10

static void print_duration(struct out *out, bool known, uint64_t ns)
{
	g_autofree char *text = known ? text_duration(ns) : g_strdup("-");

	text_cell(out, text, DURATION_WIDTH, TEXT_RIGHT);
	out_char(out, ' ');
}

static void print_series(struct out *out, struct series *series)
{
	struct durations *d = &series->durations;
	bool known = durations_count(d) > 0;

	out_printf(out, "%10" PRIu64 " ", series->count);
	print_duration(out, known, d->total_ns);
	print_duration(out, known, d->min_ns);
	print_duration(out, known, known ? durations_mean(d) : 0);
	print_duration(out, known, known ? durations_percentile(d, 50) : 0);
	print_duration(out, known, known ? durations_percentile(d, 95) : 0);
	print_duration(out, known, known ? durations_percentile(d, 99) : 0);
	print_duration(out, known, d->max_ns);
	out_char(out, ' ');
	text_cell(out, series->group ? series->group : "-", 0, TEXT_LEFT);
	out_text(out, " / ");
	text_cell(out, series->name ? series->name : "-", 0, TEXT_LEFT);
	if (series->no_end)
		out_printf(out, _(" (%" PRIu64 " without an end)"), series->no_end);
	if (series->no_begin)
		out_printf(out, _(" (%" PRIu64 " without a begin)"), series->no_begin);
	out_char(out, '\n');
}

static void print_titles(const struct marks *marks, struct out *out)
{
	const char *const titles[] = { _("total"), _("min"),  _("mean"), _("median"),
				       _("95 %"),  _("99 %"), _("max") };

	reader_style(&marks->reader, out, READER_BOLD);
	text_cell(out, _("count"), DURATION_WIDTH, TEXT_RIGHT);
	out_char(out, ' ');
	for (size_t i = 0; i < ARRAY_SIZE(titles); i++) {
		text_cell(out, titles[i], DURATION_WIDTH, TEXT_RIGHT);
		out_char(out, ' ');
	}
	out_printf(out, " %s\n", _("group / name"));
	reader_style(&marks->reader, out, READER_PLAIN);
}

static void print_marks(struct marks *marks, struct out *out)
{
	reader_print_losses(&marks->reader, out, READER_LOSSES);
	reader_print_lost_names(&marks->reader, out);
	if (marks->incomplete)
		out_text(out,
			 _("Marks may be missing: counts may be low, and begins without an end, "
			   "or whole spans, wrong\n"));
	if (marks->all->len == 0) {
		out_text(out, _("No marks of these threads at that time\n"));
		return;
	}
	print_titles(marks, out);
	for (guint i = 0; i < shown(marks); i++)
		print_series(out, marks->all->pdata[i]);
	reader_print_limit(&marks->reader, out, shown(marks), marks->all->len);
}

/* ---- the verb -------------------------------------------------------------------------------- */

static bool marks_run(struct marks *marks, const char *file, GError **error)
{
	struct reader *reader = &marks->reader;
	bool has_marks;

	if (!reader_open(reader, file, error) ||
	    !capture_check(reader->capture, PROF_TABLE_MARK, error) ||
	    !reader_has_rows(reader, PROF_TABLE_MARK, &has_marks, error))
		return false;
	if (!has_marks) {
		capture_warn(reader->capture);
		g_set_error(error, CLI_ERROR, CLI_NOTHING_CAPTURED,
			    _("capture '%s' has no marks. Programs that 'profctl record' starts "
			      "make them with <prof/mark.h> or libprofcollector"),
			    file);
		return false;
	}
	marks->by_name = g_hash_table_new_full(series_hash, series_equal, series_free, NULL);
	marks->all = g_ptr_array_new();
	if (!spans_read(reader->capture, add_span, marks, error))
		return false;
	list_series(marks);
	marks->incomplete = reader_misses_rows(reader, "mark");
	return true;
}

static void marks_done(struct marks *marks)
{
	json_done(&marks->json);
	if (marks->all)
		g_ptr_array_unref(marks->all);
	if (marks->by_name)
		g_hash_table_unref(marks->by_name);
	reader_done(&marks->reader);
}

int verb_marks(int argc, char **argv)
{
	static const struct cli_spec spec = {
		N_("FILE"),
		N_("Show the marks of a capture by group and name: how often and how long they were."),
		1, 1
	};
	CLEANUP(marks_done)
	struct marks marks = { .reader.limit = READER_LIMIT_UNSET,
			       .reader.text_limit = DEFAULT_LIMIT };
	const struct cli_group groups[] = { { N_("Select"), reader_time_options, &marks.reader },
					    { NULL, reader_process_options, &marks.reader },
					    { NULL, reader_thread_options, &marks.reader },
					    { N_("Output"), reader_output_options, &marks.reader },
					    { NULL } };
	GError *error = NULL;
	int status = cli_parse(&spec, groups, &argc, &argv);

	json_init(&marks.json, out_stdout());
	if (status != CLI_CONTINUE)
		return status;
	if (!marks_run(&marks, argv[0], &error))
		return cli_fail(error);
	capture_warn(marks.reader.capture);
	if (marks.reader.format == READER_TEXT)
		print_marks(&marks, out_stdout());
	else
		write_marks(&marks);
	return CLI_OK;
}
