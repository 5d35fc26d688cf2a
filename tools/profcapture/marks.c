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
	GHashTable *threads; /* that began spans; NULL = none */
	uint32_t last_thread;
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
	g_clear_pointer(&series->threads, g_hash_table_unref);
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
		if (!series->threads)
			series->threads = g_hash_table_new(NULL, NULL);
		if (series->last_thread != span->thread)
			g_hash_table_add(series->threads, GUINT_TO_POINTER(span->thread));
		series->last_thread = span->thread;
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

/* ---- output ---------------------------------------------------------------------------------- */

enum field {
	GROUP,
	NAME,
	GROUP_AND_NAME,
	KIND,
	COUNT,
	TOTAL,
	MIN,
	MEAN,
	MEDIAN,
	P95,
	P99,
	MAX,
	NO_END,
	NO_BEGIN,
};

static const struct table_member members[] = {
	{ "group", GROUP },
	{ "name", NAME },
	{ "kind", KIND },
	{ "count", COUNT },
	{ "total_ns", TOTAL },
	{ "min_ns", MIN },
	{ "mean_ns", MEAN },
	{ "median_ns", MEDIAN },
	{ "p95_ns", P95 },
	{ "p99_ns", P99 },
	{ "max_ns", MAX },
	{ "unmatched_begin", NO_END },
	{ "unmatched_end", NO_BEGIN },
	{ NULL },
};

/* "orders/order (2 without an end)" */
static char *describe(const struct series *series)
{
	GString *text = g_string_new(NULL);

	g_string_printf(text, "%s/%s", series->group ? series->group : "-",
			series->name ? series->name : "-");
	if (series->no_end)
		g_string_append_printf(text, _(" (%" PRIu64 " without an end)"), series->no_end);
	if (series->no_begin)
		g_string_append_printf(text, _(" (%" PRIu64 " without a begin)"), series->no_begin);
	return g_string_free(text, FALSE);
}

static uint64_t duration_of(struct durations *durations, enum field field)
{
	switch (field) {
	case TOTAL:
		return durations->total_ns;
	case MIN:
		return durations->min_ns;
	case MEAN:
		return durations_mean(durations);
	case MEDIAN:
		return durations_percentile(durations, 50);
	case P95:
		return durations_percentile(durations, 95);
	case P99:
		return durations_percentile(durations, 99);
	default:
		return durations->max_ns;
	}
}

static void get_cell(const void *data, size_t row, unsigned field, struct cell *ret_cell)
{
	const struct marks *marks = data;
	struct series *series = marks->all->pdata[row];

	switch ((enum field)field) {
	case GROUP:
		*ret_cell = cell_text(series->group);
		break;
	case NAME:
		*ret_cell = cell_text(series->name);
		break;
	case GROUP_AND_NAME:
		*ret_cell = cell_own_text(describe(series));
		break;
	case KIND:
		*ret_cell = cell_text(series->instants ? "instant" : "span");
		break;
	case COUNT:
		*ret_cell = cell_uint(series->count);
		break;
	case NO_END:
		*ret_cell = cell_uint(series->no_end);
		break;
	case NO_BEGIN:
		*ret_cell = cell_uint(series->no_begin);
		break;
	default:
		if (durations_count(&series->durations) > 0)
			*ret_cell = cell_uint(duration_of(&series->durations, field));
	}
}

static struct table table_of(const struct marks *marks)
{
	struct table table = {
		.rows = marks->all->len, .get = get_cell, .data = marks, .members = members
	};

	table_add_column(&table, COUNT, COLUMN_COUNT, _("count"));
	table_add_column(&table, TOTAL, COLUMN_DURATION, _("total"));
	table_add_column(&table, MEDIAN, COLUMN_DURATION, _("median"));
	table_add_column(&table, P95, COLUMN_DURATION, _("95 %"));
	table_add_column(&table, P99, COLUMN_DURATION, _("99 %"));
	table_add_column(&table, MAX, COLUMN_DURATION, _("max"));
	table_add_column(&table, GROUP_AND_NAME, COLUMN_NAME, _("group/name"));
	return table;
}

/* "80,000 orders/order took 6.81 s over 4 threads; 1 % took longer than 618 us." */
static void print_verdict(struct series *series, struct out *out)
{
	struct durations *d = &series->durations;
	g_autofree char *count = text_count(durations_count(d)),
			*total = text_duration(d->total_ns);
	g_autofree char *p99 = NULL, *plain = NULL, *name = NULL;
	guint threads = series->threads ? g_hash_table_size(series->threads) : 0;

	if (durations_count(d) == 0)
		return;
	p99 = text_duration(durations_percentile(d, 99));
	plain = g_strdup_printf("%s/%s", series->group ? series->group : "-",
				series->name ? series->name : "-");
	name = text_escape(plain);
	out_printf(out, _("%s %s took %s"), count, name, total);
	if (threads > 1)
		out_printf(out, _(" over %u threads"), threads);
	if (durations_count(d) >= 100)
		out_printf(out, _("; 1 %% took longer than %s"), p99);
	out_text(out, ".\n");
}

static void print_marks(struct marks *marks, struct out *out)
{
	const struct table table = table_of(marks);

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
	print_verdict(marks->all->pdata[0], out);
	if (reader_is_complete(&marks->reader))
		out_text(out, _("Lost: nothing.\n"));
	out_char(out, '\n');
	reader_print_table(&marks->reader, out, &table);
}

static void write_marks(struct marks *marks)
{
	const struct table table = table_of(marks);
	struct json *json = &marks->json;

	reader_begin(&marks->reader, json, "marks",
		     reader_shown(&marks->reader, table.rows) < table.rows);
	if (marks->reader.format == READER_JSON)
		json_bool(json, "incomplete", marks->incomplete);
	reader_write_table(&marks->reader, json, &table);
	reader_end(&marks->reader, json);
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
		N_("FILE"), N_("Show how often and how long marks were, by group and name."), 1, 1
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
