/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profcapture marks - how often marks occurred, and how long they took
 *
 * A row is a group and a name; spans and instants have separate rows. A mark counts, with its whole
 * duration, if it begins in the time range and the thread that began it passes the filters. So the
 * numbers of adjacent ranges add up.
 *
 * Memory: one duration for each span (durations.h), and the open spans (spans.h)
 * [test_marks: memory]
 */
#include "config.h"

#include "base/order.h"
#include "tools/common/keyed.h"
#include "tools/profcapture/durations.h"
#include "tools/profcapture/reader.h"
#include "tools/profcapture/spans.h"
#include "tools/profcapture/verbs.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

struct series {
	const char *group, *name; /* interned, so pointers can be compared; NULL = none */
	bool instants;
	uint64_t count;
	struct durations durations;
	GHashTable *threads; /* set of threads that began spans; NULL = none */
	uint32_t last_thread;
};

struct marks {
	struct reader reader;
	GHashTable *by_name; /* set of struct series */
	GPtrArray *all;      /* struct series in output order */
};

/* ---- gathering ------------------------------------------------------------------------------- */

KEYED_BY(series, struct series, (uintptr_t)a->group, (uintptr_t)a->name, a->instants)

static void series_free(gpointer pointer)
{
	struct series *series = pointer;

	durations_done(&series->durations);
	g_clear_pointer(&series->threads, g_hash_table_unref);
	g_free(series);
}

static void add_span(const struct span *span, void *data)
{
	struct marks *marks = data;
	const struct series key = { .group = span->group,
				    .name = span->name,
				    .instants = span->kind == SPAN_INSTANT };
	struct series *series;

	if (span->start_ns < marks->reader.from_ns || span->start_ns > marks->reader.to_ns ||
	    !reader_wants_thread_at(&marks->reader, span->thread, span->start_ns))
		return;
	series = keyed_at(marks->by_name, &key, sizeof(key));
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
		series->durations.no_end++;
		break;
	case SPAN_NO_BEGIN:
		series->durations.no_begin++;
		break;
	}
}

/* Orders by total duration and count, largest first, then by group, name, and spans before
 * instants. Two series are never equal. */
COMPARE_AT(compare_series, struct series, ORDER(b->durations.total_ns, a->durations.total_ns),
	   ORDER(b->count, a->count), g_strcmp0(a->group, b->group), g_strcmp0(a->name, b->name),
	   ORDER(a->instants, b->instants))

/* ---- output ---------------------------------------------------------------------------------- */

enum field {
	GROUP = DURATION_FIELDS,
	NAME,
	GROUP_AND_NAME,
	KIND,
	COUNT,
};

static const struct table_member members[] = {
	{ "group", GROUP }, { "name", NAME }, { "kind", KIND },
	{ "count", COUNT }, DURATION_MEMBERS, { NULL },
};

static char *full_name(const struct series *series)
{
	return g_strdup_printf("%s/%s", series->group ? series->group : "-",
			       series->name ? series->name : "-");
}

/* Returns text such as "orders/order (2 without an end)". */
static char *describe(const struct series *series)
{
	g_autofree char *name = full_name(series);
	GString *text = g_string_new(name);

	durations_append_unmatched(&series->durations, text);
	return g_string_free(text, FALSE);
}

static struct cell get_cell(const void *data, size_t row, unsigned field)
{
	const struct marks *marks = data;
	struct series *series = marks->all->pdata[row];

	switch ((enum field)field) {
	case GROUP:
		return cell_text(series->group);
	case NAME:
		return cell_text(series->name);
	case GROUP_AND_NAME:
		return cell_own_text(describe(series));
	case KIND:
		return cell_text(series->instants ? "instant" : "span");
	case COUNT:
		return cell_uint(series->count);
	default:
		return durations_cell(&series->durations, field);
	}
}

static struct table table_of(const void *data)
{
	const struct marks *marks = data;
	struct table table = {
		.rows = marks->all->len, .get = get_cell, .data = marks, .members = members
	};

	table_add_column(&table, COUNT, COLUMN_COUNT, _("count"));
	durations_add_columns(&table);
	table_add_column(&table, GROUP_AND_NAME, COLUMN_NAME, _("group/name"));
	return table;
}

/* Prints text such as "80,000 orders/order took 6.81 s over 4 threads; 1 % took longer than
 * 618 us." */
static void print_verdict(const void *data, struct out *out)
{
	struct series *series = ((const struct marks *)data)->all->pdata[0];
	struct durations *d = &series->durations;
	guint n = durations_count(d),
	      threads = series->threads ? g_hash_table_size(series->threads) : 0;
	g_autofree char *count = text_count(n), *total = text_duration(d->total_ns);
	g_autofree char *plain = full_name(series), *name = text_escape(plain);

	if (n == 0)
		return;
	out_printf(out, _("%s %s took %s"), count, name, total);
	if (threads > 1)
		out_printf(out, _(" over %u threads"), threads);
	if (n >= 100) {
		g_autofree char *p99 = text_duration(durations_percentile(d, 99));

		out_printf(out, _("; 1 %% took longer than %s"), p99);
	}
	out_text(out, ".\n");
}

/* ---- the verb -------------------------------------------------------------------------------- */

static bool marks_query(void *data, char **operands, GError **error)
{
	struct marks *marks = data;
	struct reader *reader = &marks->reader;

	if (!reader_open_rows(reader, operands[0], PROF_TABLE_MARK,
			      _("capture '%s' has no marks. Programs that 'profctl record' starts "
				"make them with <prof/mark.h> or libprofcollector"),
			      error) ||
	    !capture_check(reader->capture, PROF_TABLE_MARK, error))
		return false;
	marks->by_name = g_hash_table_new_full(series_hash, series_equal, series_free, NULL);
	if (!spans_read(reader->capture, add_span, marks, error))
		return false;
	marks->all = keyed_sorted(marks->by_name, compare_series);
	reader->is_incomplete = reader_misses_rows(reader, "mark");
	return true;
}

static void marks_done(struct marks *marks)
{
	g_clear_pointer(&marks->all, g_ptr_array_unref);
	g_clear_pointer(&marks->by_name, g_hash_table_unref);
	reader_done(&marks->reader);
}

int verb_marks(int argc, char **argv)
{
	static const struct reader_verb verb = {
		.spec = { N_("FILE"),
			  N_("Show how often marks occurred and how long they took, by group and name."),
			  1, 1 },
		.query = marks_query,
		.print = print_verdict,
		.name = "marks",
		.table = table_of,
		.incomplete =
			N_("Marks may be missing: counts may be low, and begins without an end, "
			   "or whole spans, wrong\n"),
		.empty = N_("no marks of these threads at that time in '%s'"),
	};
	CLEANUP(marks_done)
	struct marks marks = { .reader = READER_TEXT_ROWS(READER_USUAL_ROWS) };
	const struct cli_group groups[] = { READER_SELECT(N_("Select"), &marks.reader),
					    { N_("Output"), reader_output_options, &marks.reader },
					    { NULL } };

	return reader_run(&verb, groups, &marks, argc, argv);
}
