/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profcapture counters - the values of counters, and how they changed over time
 *
 * A row is a counter of a process. A counter keeps a value until its next value, or until the
 * process, the segment or the capture ends. The value at the start of the time range is the
 * counter's first value, but is not counted as a value set in the range. A sum counts from the
 * start of the machine or the process, so text shows only how much it grew in the range.
 *
 * Memory: a fixed amount for each counter; with --timeline, 32 bytes for each value.
 */
#include "config.h"

#include "base/each.h"
#include "base/order.h"
#include "tools/present/sparkline.h"
#include "tools/profcapture/counter-values.h"
#include "tools/profcapture/reader.h"
#include "tools/profcapture/verbs.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Statistics of a counter, in the order of their fields. */
enum { AT_FIRST, AT_LAST, AT_MIN, AT_MAX, AT_MEAN, N_NUMBERS };

struct series {
	uint32_t counter;
	/* over the time range */
	uint64_t count;
	bool known; /* whether `numbers` is set; the mean is set after all values are read */
	double numbers[N_NUMBERS];
	long double weighted; /* sum of value times ns */
	uint64_t weight_ns;
	double grown;                           /* growth within segments, not between them */
	double bin_weighted[SPARKLINE_COLUMNS]; /* like `weighted`, for each bin */
	double bin_ns[SPARKLINE_COLUMNS];
	/* the counter's state at the current row */
	bool holds;
	double value;
	int64_t since_ns;
};

/* A value of --timeline. */
struct counter_point {
	int64_t time_ns;
	double value, rate; /* rate: change per second since the last value; NAN: unknown */
	uint32_t counter;
};

struct counters {
	struct reader reader;
	struct counter_values values;
	GPtrArray *series;  /* struct series by counter */
	GPtrArray *all;     /* the selected struct series, in the order of the output */
	GArray *exits;      /* int64_t by process: when it exited; INT64_MIN: unknown */
	GArray *ends;       /* int64_t by segment: when it ended */
	const char **comms; /* counter_values_comms() */
	uint32_t segment;
	int64_t bins_from_ns, bins_to_ns;
	char *range;    /* title of the sparklines */
	GArray *points; /* struct counter_point; NULL: no --timeline */
	bool timeline;
	const char *wanted; /* GROUP or GROUP/NAME, with * and ?; NULL: all */
};

/* ---- when values end ------------------------------------------------------------------------- */

static bool note_segment(const struct prof_chunk *chunk, void *data, GError **error)
{
	struct counters *counters = data;
	const struct capture *capture = counters->reader.capture;
	const struct prof_table_def *table = prof_reader_table(capture->reader, chunk->table);

	if (table && (table->flags & PROF_TABLE_TIMED) && chunk->segment <= capture->n_segments)
		latest_note(counters->ends, chunk->segment,
			    capture_time(capture, chunk->segment, chunk->t_max));
	return true;
}

/* ---- one counter ----------------------------------------------------------------------------- */

static void note_value(struct series *series, double value)
{
	double *numbers = series->numbers;

	if (!series->known)
		numbers[AT_FIRST] = numbers[AT_MIN] = numbers[AT_MAX] = value;
	series->known = true;
	numbers[AT_LAST] = value;
	numbers[AT_MIN] = MIN_OF(numbers[AT_MIN], value);
	numbers[AT_MAX] = MAX_OF(numbers[AT_MAX], value);
}

/* Adds the current value, which the counter had from `from` to `to`, to the bins of that time. */
static void hold_in_bins(const struct counters *counters, struct series *series, int64_t from,
			 int64_t to)
{
	int64_t start = counters->bins_from_ns, end = counters->bins_to_ns;
	uint64_t bin_ns = (uint64_t)(end - start) / SPARKLINE_COLUMNS + 1, next;

	if (MAX_OF(from, start) >= MIN_OF(to, end))
		return;
	to = MIN_OF(to, end) - start;
	for (uint64_t at = (uint64_t)(MAX_OF(from, start) - start); at < (uint64_t)to; at = next) {
		next = MIN_OF((uint64_t)to, (at / bin_ns + 1) * bin_ns);
		series->bin_weighted[at / bin_ns] += series->value * (double)(next - at);
		series->bin_ns[at / bin_ns] += (double)(next - at);
	}
}

/* Counts the current value for the time up to `until`. */
static void hold(const struct counters *counters, struct series *series, int64_t until)
{
	int64_t from = MAX_OF(series->since_ns, counters->reader.from_ns);
	int64_t to = MIN_OF(until, counters->reader.to_ns);
	uint64_t held_ns;

	if (!series->holds || from > to)
		return;
	if (series->since_ns < from && from < until)
		note_value(series, series->value);
	held_ns = (uint64_t)to - (uint64_t)from;
	series->weighted += (long double)series->value * (long double)held_ns;
	series->weight_ns += held_ns;
	hold_in_bins(counters, series, from, to);
}

/* Ends the values of all counters at the end of a segment: between segments, they are unknown. */
static void end_segment(struct counters *counters)
{
	int64_t end = latest_or(counters->ends, counters->segment, INT64_MIN);

	for (guint i = 0; i < counters->series->len; i++) {
		struct series *series = counters->series->pdata[i];
		uint32_t process = counter_at(&counters->values, i)->process;

		hold(counters, series, MIN_OF(end, latest_or(counters->exits, process, INT64_MAX)));
		series->holds = false;
	}
}

/* Returns whether --counter and --pid select the counter. */
static bool is_wanted(const struct counters *counters, uint32_t index)
{
	const struct counter *counter = counter_at(&counters->values, index);
	const char *group = counter->group ? counter->group : "";
	g_autofree char *name = g_strdup_printf("%s/%s", group, counter->name ? counter->name : "");

	return counter_is_wanted(counter, &counters->reader) &&
	       (!counters->wanted || g_pattern_match_simple(counters->wanted, group) ||
		g_pattern_match_simple(counters->wanted, name));
}

static void add_point(struct counters *counters, const struct series *series,
		      const struct counter_value *value)
{
	struct counter_point point = { value->time_ns, value->value, NAN, value->counter };

	if (!is_wanted(counters, value->counter))
		return;
	if (series->holds && value->time_ns > series->since_ns)
		point.rate = (value->value - series->value) /
			     ((double)(value->time_ns - series->since_ns) / 1e9);
	g_array_append_val(counters->points, point);
}

static void add_value(const struct counter_value *value, void *data)
{
	struct counters *counters = data;
	bool in_range = value->time_ns >= counters->reader.from_ns &&
			value->time_ns <= counters->reader.to_ns;
	struct series *series;

	if (value->segment != counters->segment)
		end_segment(counters);
	counters->segment = value->segment;
	while (counters->series->len <= value->counter) {
		series = g_new0(struct series, 1);
		series->counter = counters->series->len;
		g_ptr_array_add(counters->series, series);
	}
	series = counters->series->pdata[value->counter];
	if (in_range && counters->points)
		add_point(counters, series, value);
	hold(counters, series, value->time_ns);
	if (in_range && series->holds && isfinite(value->value))
		series->grown += value->value - series->value;
	series->count += in_range;
	series->holds = isfinite(value->value);
	series->value = value->value;
	series->since_ns = value->time_ns;
	if (in_range && series->holds)
		note_value(series, value->value);
}

/* ---- the answer ------------------------------------------------------------------------------ */

static const struct counter *counter_of(const struct counters *counters,
					const struct series *series)
{
	return counter_at(&counters->values, series->counter);
}

static gint compare_series(gconstpointer left, gconstpointer right, gpointer data)
{
	const struct counter *a = counter_of(data, *(const struct series *const *)left);
	const struct counter *b = counter_of(data, *(const struct series *const *)right);

	return ORDER_BY(g_strcmp0(a->group, b->group), g_strcmp0(a->name, b->name),
			g_strcmp0(a->unit, b->unit), ORDER(a->kind, b->kind),
			ORDER(a->process, b->process));
}

static void list_series(struct counters *counters)
{
	const struct names *names = counters->reader.capture->names;

	for (guint i = 0; i < counters->series->len; i++) {
		struct series *series = counters->series->pdata[i];

		if ((series->count == 0 && !series->known) || !is_wanted(counters, series->counter))
			continue;
		series->numbers[AT_MEAN] =
			series->weight_ns
				? (double)(series->weighted / (long double)series->weight_ns)
				: series->numbers[AT_LAST];
		g_ptr_array_add(counters->all, series);
	}
	g_ptr_array_sort_with_data(counters->all, compare_series, counters);
	counters->comms = counter_values_comms(names);
}

static enum column_format unit_format(const struct counter *counter)
{
	return g_strcmp0(counter->unit, "bytes") == 0 ? COLUMN_SIZE
	       : g_strcmp0(counter->unit, "ns") == 0  ? COLUMN_DURATION
						      : COLUMN_REAL;
}

/* The fields below N_NUMBERS are the statistics (AT_FIRST to AT_MEAN). */
enum field {
	GROUP = N_NUMBERS,
	NAME,
	UNIT,
	KIND,
	GROUP_AND_NAME,
	PROCESS,
	PID,
	COUNT,
	OVER_TIME,
	RATE,
	GROWTH,
	TIME,
	VALUE
};

static const struct table_member members[] = {
	{ "group", GROUP },   { "name", NAME },   { "unit", UNIT },      { "kind", KIND },
	{ "pid", PID },       { "count", COUNT }, { "first", AT_FIRST }, { "last", AT_LAST },
	{ "min", AT_MIN },    { "max", AT_MAX },  { "mean", AT_MEAN },   { "rate", RATE },
	{ "growth", GROWTH }, { NULL },
};

static const struct table_member timeline_members[] = {
	{ "time_ns", TIME }, { "group", GROUP }, { "name", NAME },
	{ "unit", UNIT },    { "kind", KIND },   { "pid", PID },
	{ "value", VALUE },  { "rate", RATE },   { NULL },
};

/* Returns "shop/orders [events]". Units of size or time are shown with the values instead. */
static char *describe(const struct counter *counter)
{
	bool has_unit = counter->unit && unit_format(counter) == COLUMN_REAL;

	return g_strdup_printf("%s/%s%s%s%s", counter->group ? counter->group : "-",
			       counter->name ? counter->name : "-", has_unit ? " [" : "",
			       has_unit ? counter->unit : "", has_unit ? "]" : "");
}

/* Returns how much a sum grew; NAN: unknown. */
static double growth_of_sum(const struct counter *counter, const struct series *series)
{
	return counter->kind == PROF_COUNTER_SUM && series->known ? series->grown : (double)NAN;
}

/* Returns the growth of a sum per second of the time in which it had a value; NAN: unknown. */
static double rate_of(const struct counter *counter, const struct series *series)
{
	return series->weight_ns
		       ? growth_of_sum(counter, series) / ((double)series->weight_ns / 1e9)
		       : (double)NAN;
}

/* Fills in the heights of the sparkline: a gauge's mean values, or a sum's growth. Returns the
 * greatest value or growth. */
static double fill_bins(const struct counter *counter, const struct series *series, double *means)
{
	double most = series->numbers[AT_MAX];

	for (size_t i = 0; i < SPARKLINE_COLUMNS; i++)
		means[i] = series->bin_ns[i] > 0 ? series->bin_weighted[i] / series->bin_ns[i] : 0;
	if (counter->kind != PROF_COUNTER_SUM)
		return most;
	most = 0;
	for (size_t i = SPARKLINE_COLUMNS; i-- > 0;) {
		double before = i > 0 && series->bin_ns[i - 1] > 0 ? means[i - 1]
								   : series->numbers[AT_FIRST];

		means[i] = series->bin_ns[i] > 0 ? fmax(means[i] - before, 0) : 0;
		most = fmax(most, means[i]);
	}
	return most;
}

/* Returns a cell that identifies the counter. */
static struct cell counter_cell(const struct counters *counters, const struct counter *counter,
				unsigned field)
{
	static const char *const kinds[] = { "gauge", "sum" };
	bool has_process = counter->process > NAMES_LOST;
	uint64_t pid = names_process_at(counters->reader.capture->names, counter->process)->pid;
	const char *comm = counters->comms[counter->process];
	const char *const texts[] = {
		[GROUP] = counter->group,
		[NAME] = counter->name,
		[UNIT] = counter->unit,
		[KIND] = counter->kind < ARRAY_SIZE(kinds) ? kinds[counter->kind] : NULL,
	};

	if (field < ARRAY_SIZE(texts))
		return cell_text(texts[field]);
	if (field == GROUP_AND_NAME)
		return cell_own_text(describe(counter));
	if (!has_process)
		return cell_none();
	return field == PID ? cell_uint(pid)
			    : cell_own_text(g_strdup_printf("%s %" PRIu64, comm ? comm : "-", pid));
}

static struct cell real_cell(const struct counter *counter, double value)
{
	struct cell cell = isfinite(value) ? cell_double(value) : cell_unknown();

	/* The format of sizes shows 0 as an empty cell, but this 0 was measured. */
	cell.format = value == 0 ? COLUMN_REAL : unit_format(counter);
	return cell;
}

static struct cell get_cell(const void *data, size_t row, unsigned field)
{
	const struct counters *counters = data;
	const struct series *series = counters->all->pdata[row];
	const struct counter *counter = counter_of(counters, series);
	bool is_of_gauges = field < N_NUMBERS, is_of_sums = field == RATE || field == GROWTH;
	double heights[SPARKLINE_COLUMNS], most;

	if (counters->reader.format == READER_TEXT &&
	    (counter->kind == PROF_COUNTER_SUM ? is_of_gauges : is_of_sums))
		return cell_none();
	if (field < N_NUMBERS)
		return real_cell(counter, series->known ? series->numbers[field] : NAN);
	if (field == RATE)
		return real_cell(counter, rate_of(counter, series));
	if (field == GROWTH)
		return real_cell(counter, growth_of_sum(counter, series));
	if (field == COUNT)
		return cell_uint(series->count);
	if (field != OVER_TIME)
		return counter_cell(counters, counter, field);
	most = fill_bins(counter, series, heights);
	return cell_own_text(sparkline(heights, SPARKLINE_COLUMNS, most));
}

static struct cell get_point_cell(const void *data, size_t row, unsigned field)
{
	const struct counters *counters = data;
	const struct counter_point *point =
		&g_array_index(counters->points, struct counter_point, row);
	const struct counter *counter = counter_at(&counters->values, point->counter);

	if (field == TIME)
		return cell_int(point->time_ns);
	if (field == VALUE)
		return real_cell(counter, point->value);
	if (field == RATE)
		return real_cell(counter,
				 counter->kind == PROF_COUNTER_SUM ? point->rate : (double)NAN);
	return counter_cell(counters, counter, field);
}

static struct table timeline_of(const struct counters *counters)
{
	struct table table = { .rows = counters->points->len,
			       .get = get_point_cell,
			       .data = counters,
			       .members = timeline_members,
			       .key = "timeline" };

	table_add_column(&table, TIME, COLUMN_DURATION, _("time"));
	table_add_column(&table, VALUE, COLUMN_REAL, _("value"));
	table_add_column(&table, RATE, COLUMN_REAL, _("per second"));
	table_add_column(&table, GROUP_AND_NAME, COLUMN_NAME, _("counter"));
	table_add_column(&table, PROCESS, COLUMN_PLACE, NULL);
	return table;
}

/* Returns whether any row is a sum or, if !is_sum, of another kind. Columns that apply to no row
 * are omitted. */
static bool has_any(const struct counters *counters, bool is_sum)
{
	for (guint i = 0; i < counters->all->len; i++)
		if ((counter_of(counters, counters->all->pdata[i])->kind == PROF_COUNTER_SUM) ==
		    is_sum)
			return true;
	return false;
}

static struct table table_of(const void *data)
{
	const struct counters *counters = data;
	struct table table = {
		.rows = counters->all->len, .get = get_cell, .data = counters, .members = members
	};

	if (counters->timeline)
		return timeline_of(counters);
	if (has_any(counters, false)) {
		table_add_column(&table, AT_FIRST, COLUMN_REAL, _("first"));
		table_add_column(&table, AT_LAST, COLUMN_REAL, _("last"));
		table_add_column(&table, AT_MEAN, COLUMN_REAL, _("mean"));
		table_add_column(&table, AT_MAX, COLUMN_REAL, _("max"));
	}
	if (has_any(counters, true)) {
		table_add_column(&table, GROWTH, COLUMN_REAL, _("growth"));
		table_add_column(&table, RATE, COLUMN_REAL, _("per second"));
	}
	if (counters->bins_to_ns > counters->bins_from_ns)
		table_add_column(&table, OVER_TIME, COLUMN_SPARKLINE, counters->range);
	table_add_column(&table, GROUP_AND_NAME, COLUMN_NAME, _("counter"));
	table_add_column(&table, PROCESS, COLUMN_PLACE, NULL);
	return table;
}

/* Returns the growth relative to the larger of the first and last values, so that different units
 * are comparable. */
static double growth_of(const struct series *series)
{
	const double *numbers = series->numbers;
	double most = fmax(fabs(numbers[AT_FIRST]), fabs(numbers[AT_LAST]));

	return series->known && most > 0 ? (numbers[AT_LAST] - numbers[AT_FIRST]) / most : 0;
}

/* Prints a line such as "memory/rss grew most: 9.27 to 20.8 MiB.", or for a sum "disk/read grew
 * most: by 1.20 MiB, 312 KiB per second." Sums always grow, so they are considered only if no gauge
 * grew. */
static void print_verdict(const void *data, struct out *out)
{
	const struct counters *counters = data;
	const struct series *found = NULL;
	const struct counter *counter;
	g_autofree char *name = NULL, *escaped = NULL, *first = NULL, *last = NULL;
	const char *missing = capture_metadata(counters->reader.capture, "counters.missing");
	char *first_unit, *last_unit;
	bool is_sum = false;

	if (missing) {
		g_autofree char *shown = text_escape(missing);

		out_printf(out, _("These groups of counters could not be read: %s.\n"), shown);
	}
	if (counters->timeline)
		return;
	POINTER_EACH(const struct series, series, counters->all) {
		bool sum = counter_of(counters, series)->kind != PROF_COUNTER_GAUGE;

		if (growth_of(series) > 0 &&
		    (!found || (is_sum && !sum) ||
		     (sum == is_sum && growth_of(series) > growth_of(found)))) {
			found = series;
			is_sum = sum;
		}
	}
	if (!found) {
		out_text(out, _("No counter grew.\n"));
		return;
	}
	counter = counter_of(counters, found);
	name = describe(counter);
	escaped = text_escape(name);
	if (is_sum) {
		first = table_number(unit_format(counter), found->grown);
		last = table_number(unit_format(counter), rate_of(counter, found));
		out_printf(out, _("%s grew most: by %s, %s per second.\n"), escaped, first, last);
		return;
	}
	first = table_number(unit_format(counter), found->numbers[AT_FIRST]);
	last = table_number(unit_format(counter), found->numbers[AT_LAST]);
	first_unit = strchr(first, ' ');
	last_unit = strchr(last, ' ');
	if (first_unit && last_unit && strcmp(first_unit, last_unit) == 0)
		*first_unit = '\0'; /* such as "9.27 to 20.8 MiB" */
	out_printf(out, _("%s grew most: %s to %s.\n"), escaped, *first ? first : "0", last);
}

/* ---- the verb -------------------------------------------------------------------------------- */

static bool counters_query(void *data, char **operands, GError **error)
{
	struct counters *counters = data;
	struct reader *reader = &counters->reader;

	if (!reader_open_rows(
		    reader, operands[0], PROF_TABLE_COUNTER_VALUE,
		    _("capture '%s' has no counters. Record the machine's: profctl record "
		      "--counters. Programs set their own with libprofcollector."),
		    error))
		return false;
	counters->values.capture = reader->capture;
	counters->series = g_ptr_array_new_with_free_func(g_free);
	counters->all = g_ptr_array_new();
	if (counters->timeline)
		counters->points = g_array_new(FALSE, FALSE, sizeof(struct counter_point));
	counters->ends = g_array_new(FALSE, FALSE, sizeof(int64_t));
	counters->bins_from_ns = MAX_OF(reader->from_ns, 0);
	counters->bins_to_ns = MIN_OF(reader->to_ns, reader->capture->duration_ns);
	counters->range = sparkline_range(counters->bins_from_ns, counters->bins_to_ns);
	counters->exits = counter_values_read_exits(reader->capture, error);
	if (!counters->exits ||
	    !capture_each_chunk(reader->capture, 0, note_segment, counters, error) ||
	    !counter_values_read(&counters->values, add_value, counters, error))
		return false;
	end_segment(counters);
	list_series(counters);
	reader->is_incomplete = counters->values.unknown > 0 ||
				reader_misses_rows(reader, "counter_value");
	return true;
}

static void counters_done(struct counters *counters)
{
	counter_values_done(&counters->values);
	if (counters->series) {
		g_free(counters->range);
		g_clear_pointer(&counters->points, g_array_unref);
		g_free(counters->comms);
		g_array_unref(counters->ends);
		g_clear_pointer(&counters->exits, g_array_unref);
		g_ptr_array_unref(counters->all);
		g_ptr_array_unref(counters->series);
	}
	reader_done(&counters->reader);
}

int verb_counters(int argc, char **argv)
{
	static const struct cli_option process_options[] = {
		{ "pid", 0, CLI_NUMBERS, offsetof(struct reader, pids), "PID",
		  N_("Use only these processes; repeatable") },
		{ NULL },
	};
	static const struct cli_option counter_options[] = {
		{ "counter", 0, CLI_STRING, offsetof(struct counters, wanted), N_("PATTERN"),
		  N_("Use only counters whose GROUP or GROUP/NAME matches, such as 'disk' or 'cpu/*'") },
		{ "timeline", 0, CLI_FLAG, offsetof(struct counters, timeline), NULL,
		  N_("Show each value with its time") },
		{ NULL },
	};
	static const struct reader_verb verb = {
		.spec = { N_("FILE"),
			  N_("Show the counters of a capture, with their averages over time."), 1,
			  1 },
		.query = counters_query,
		.print = print_verdict,
		.name = "counters",
		.table = table_of,
		.incomplete = N_("Values may be missing\n"),
		.empty = N_("no such counters of these processes at that time in '%s'"),
	};
	CLEANUP(counters_done)
	struct counters counters = { .reader = READER_TEXT_ROWS(READER_USUAL_ROWS) };
	const struct cli_group groups[] = { { N_("Select"), reader_time_options, &counters.reader },
					    { NULL, process_options, &counters.reader },
					    { NULL, counter_options, &counters },
					    { N_("Output"), reader_output_options,
					      &counters.reader },
					    { NULL } };

	return reader_run(&verb, groups, &counters, argc, argv);
}
