/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profcapture counters - the values of counters, and how long they held
 *
 * Shows a row for each counter of each process. A value holds until the next one, or until the end
 * of its process, of the segment or of the capture. The value at the start of the time range is the
 * first value of the counter, but does not count as set in the range.
 *
 * Memory: a block for each counter.
 */
#include "config.h"

#include "tools/profcapture/counter-values.h"
#include "tools/profcapture/reader.h"
#include "tools/profcapture/verbs.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <math.h>

#define DEFAULT_LIMIT 40

struct series {
	uint32_t counter;
	/* over the time range */
	uint64_t count;
	bool known; /* the next four are set */
	double first, last, min, max;
	long double weighted; /* sum of value times ns */
	uint64_t weight_ns;
	/* at the current row */
	bool holds;
	double value;
	int64_t since_ns;
};

struct counters {
	struct reader reader;
	struct counter_values values;
	GPtrArray *series; /* struct series by counter */
	GPtrArray *all;    /* the same, in the order of the answer */
	GArray *exits;     /* int64_t by process; INT64_MAX = not seen */
	GArray *ends;      /* int64_t by segment */
	uint32_t segment;
	bool incomplete;
	struct json json;
};

/* ---- when values end ------------------------------------------------------------------------- */

static int64_t *time_at(GArray *times, guint index, int64_t unknown)
{
	while (times->len <= index)
		g_array_append_val(times, unknown);
	return &g_array_index(times, int64_t, index);
}

static int64_t time_or(const GArray *times, uint32_t index, int64_t unknown)
{
	return index < times->len ? g_array_index(times, int64_t, index) : unknown;
}

static bool note_segment(const struct prof_chunk *chunk, void *data, GError **error)
{
	struct counters *counters = data;
	const struct capture *capture = counters->reader.capture;
	const struct prof_table_def *table = prof_reader_table(capture->reader, chunk->table);
	int64_t end = capture_time(capture, chunk->segment, chunk->t_max);
	int64_t *at;

	if (!table || !(table->flags & PROF_TABLE_TIMED) || chunk->segment > capture->n_segments)
		return true;
	at = time_at(counters->ends, chunk->segment, INT64_MIN);
	*at = MAX_OF(*at, end);
	return true;
}

static void note_exit(uint32_t process, int64_t time_ns, void *data)
{
	struct counters *counters = data;
	int64_t *at = time_at(counters->exits, process, INT64_MAX);

	*at = *at == INT64_MAX ? time_ns : MAX_OF(*at, time_ns);
}

/* ---- one counter ----------------------------------------------------------------------------- */

static void note_value(struct series *series, double value)
{
	if (!series->known) {
		series->first = series->min = series->max = value;
		series->known = true;
	}
	series->last = value;
	series->min = MIN_OF(series->min, value);
	series->max = MAX_OF(series->max, value);
}

/* Accounts for the current value until that time. */
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
}

static void set_value(const struct counters *counters, struct series *series, int64_t time,
		      double value)
{
	bool in_range = time >= counters->reader.from_ns && time <= counters->reader.to_ns;

	hold(counters, series, time);
	series->count += in_range;
	series->holds = isfinite(value);
	series->value = value;
	series->since_ns = time;
	if (in_range && series->holds)
		note_value(series, value);
}

/* A counter's value between two segments is unknown. */
static void end_segment(struct counters *counters)
{
	int64_t end = time_or(counters->ends, counters->segment, INT64_MIN);

	for (guint i = 0; i < counters->series->len; i++) {
		struct series *series = counters->series->pdata[i];
		uint32_t process = counter_at(&counters->values, i)->process;

		hold(counters, series, MIN_OF(end, time_or(counters->exits, process, INT64_MAX)));
		series->holds = false;
	}
}

static void add_value(const struct counter_value *value, void *data)
{
	struct counters *counters = data;

	if (value->segment != counters->segment)
		end_segment(counters);
	counters->segment = value->segment;
	while (counters->series->len <= value->counter) {
		struct series *series = g_new0(struct series, 1);

		series->counter = counters->series->len;
		g_ptr_array_add(counters->series, series);
	}
	set_value(counters, counters->series->pdata[value->counter], value->time_ns, value->value);
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
	int order = g_strcmp0(a->group, b->group);

	if (order == 0)
		order = g_strcmp0(a->name, b->name);
	if (order == 0)
		order = g_strcmp0(a->unit, b->unit);
	if (order == 0 && a->kind != b->kind)
		order = a->kind < b->kind ? -1 : 1;
	return order ? order : a->process < b->process ? -1 : a->process > b->process;
}

static bool is_wanted(const struct counters *counters, const struct series *series)
{
	return (series->count > 0 || series->known) &&
	       counter_is_wanted(counter_of(counters, series), &counters->reader);
}

static void list_series(struct counters *counters)
{
	for (guint i = 0; i < counters->series->len; i++)
		if (is_wanted(counters, counters->series->pdata[i]))
			g_ptr_array_add(counters->all, counters->series->pdata[i]);
	g_ptr_array_sort_with_data(counters->all, compare_series, counters);
}

static double mean_of(const struct series *series)
{
	return series->weight_ns ? (double)(series->weighted / (long double)series->weight_ns)
				 : series->last;
}

static enum column_format unit_format(const struct counter *counter)
{
	return g_strcmp0(counter->unit, "bytes") == 0 ? COLUMN_SIZE
	       : g_strcmp0(counter->unit, "ns") == 0  ? COLUMN_DURATION
						      : COLUMN_REAL;
}

static const char *kind_name(const struct counter *counter)
{
	static const char *const names[] = { "gauge", "sum" };

	return counter->kind < ARRAY_SIZE(names) ? names[counter->kind] : NULL;
}

enum field { GROUP, NAME, GROUP_AND_NAME, UNIT, KIND, PID, COUNT, FIRST, LAST, MIN, MAX, MEAN };

static const struct table_member members[] = {
	{ "group", GROUP }, { "name", NAME },   { "unit", UNIT },   { "kind", KIND },
	{ "pid", PID },     { "count", COUNT }, { "first", FIRST }, { "last", LAST },
	{ "min", MIN },     { "max", MAX },     { "mean", MEAN },   { NULL },
};

/* "shop/orders [events], process 5"; the values have the unit if it is one of size or time. */
static char *describe(const struct counters *counters, const struct counter *counter)
{
	const struct names *names = counters->reader.capture->names;
	GString *text = g_string_new(NULL);

	g_string_printf(text, "%s/%s", counter->group ? counter->group : "-",
			counter->name ? counter->name : "-");
	if (counter->unit && unit_format(counter) == COLUMN_REAL)
		g_string_append_printf(text, " [%s]", counter->unit);
	if (counter->process > NAMES_LOST)
		g_string_append_printf(text, _(", process %" PRIu64),
				       names_process_at(names, counter->process)->pid);
	return g_string_free(text, FALSE);
}

static double value_of(const struct series *series, enum field field)
{
	switch (field) {
	case FIRST:
		return series->first;
	case LAST:
		return series->last;
	case MIN:
		return series->min;
	case MAX:
		return series->max;
	default:
		return mean_of(series);
	}
}

static void get_cell(const void *data, size_t row, unsigned field, struct cell *ret_cell)
{
	const struct counters *counters = data;
	const struct series *series = counters->all->pdata[row];
	const struct counter *counter = counter_of(counters, series);

	switch ((enum field)field) {
	case GROUP:
		*ret_cell = cell_text(counter->group);
		break;
	case NAME:
		*ret_cell = cell_text(counter->name);
		break;
	case GROUP_AND_NAME:
		*ret_cell = cell_own_text(describe(counters, counter));
		break;
	case UNIT:
		*ret_cell = cell_text(counter->unit);
		break;
	case KIND:
		*ret_cell = cell_text(kind_name(counter));
		break;
	case PID:
		if (counter->process > NAMES_LOST)
			*ret_cell = cell_uint(
				names_process_at(counters->reader.capture->names, counter->process)
					->pid);
		break;
	case COUNT:
		*ret_cell = cell_uint(series->count);
		break;
	default:
		*ret_cell = series->known ? cell_double(value_of(series, field)) : cell_unknown();
		ret_cell->format = unit_format(counter);
	}
}

static struct table table_of(const struct counters *counters)
{
	struct table table = {
		.rows = counters->all->len, .get = get_cell, .data = counters, .members = members
	};

	table_add_column(&table, COUNT, COLUMN_COUNT, _("count"));
	table_add_column(&table, FIRST, COLUMN_REAL, _("first"));
	table_add_column(&table, LAST, COLUMN_REAL, _("last"));
	table_add_column(&table, MIN, COLUMN_REAL, _("min"));
	table_add_column(&table, MEAN, COLUMN_REAL, _("mean"));
	table_add_column(&table, MAX, COLUMN_REAL, _("max"));
	table_add_column(&table, GROUP_AND_NAME, COLUMN_NAME, _("counter"));
	return table;
}

static void write_counters(struct counters *counters)
{
	const struct table table = table_of(counters);
	struct json *json = &counters->json;

	reader_begin(&counters->reader, json, "counters",
		     reader_shown(&counters->reader, table.rows) < table.rows);
	if (counters->reader.format == READER_JSON)
		json_bool(json, "incomplete", counters->incomplete);
	reader_write_table(&counters->reader, json, &table);
	reader_end(&counters->reader, json);
}

static void print_counters(const struct counters *counters, struct out *out)
{
	const struct table table = table_of(counters);

	reader_print_losses(&counters->reader, out, READER_LOSSES);
	reader_print_lost_names(&counters->reader, out);
	if (counters->incomplete)
		out_text(out, _("Values may be missing\n"));
	if (counters->all->len == 0) {
		out_text(out, _("No counters of these processes at that time\n"));
		return;
	}
	reader_print_table(&counters->reader, out, &table);
}

/* ---- the verb -------------------------------------------------------------------------------- */

static bool counters_run(struct counters *counters, const char *file, GError **error)
{
	struct reader *reader = &counters->reader;
	bool has_values;

	if (!reader_open(reader, file, error) ||
	    !reader_has_rows(reader, PROF_TABLE_COUNTER_VALUE, &has_values, error))
		return false;
	if (!has_values) {
		capture_warn(reader->capture);
		g_set_error(error, CLI_ERROR, CLI_NOTHING_CAPTURED,
			    _("capture '%s' has no counters. Programs that 'profctl record' starts "
			      "set them with libprofcollector; --memory records how much memory "
			      "processes use"),
			    file);
		return false;
	}
	counters->values.capture = reader->capture;
	counters->series = g_ptr_array_new_with_free_func(g_free);
	counters->all = g_ptr_array_new();
	counters->exits = g_array_new(FALSE, FALSE, sizeof(int64_t));
	counters->ends = g_array_new(FALSE, FALSE, sizeof(int64_t));
	if (!capture_each_chunk(reader->capture, 0, note_segment, counters, error) ||
	    !capture_each_exit(counters->reader.capture, note_exit, counters, error) ||
	    !counter_values_read(&counters->values, add_value, counters, error))
		return false;
	end_segment(counters);
	counters->incomplete = counters->values.unknown > 0;
	list_series(counters);
	counters->incomplete = counters->incomplete || reader_misses_rows(reader, "counter_value");
	return true;
}

static void counters_done(struct counters *counters)
{
	json_done(&counters->json);
	counter_values_done(&counters->values);
	if (counters->series) {
		g_array_unref(counters->ends);
		g_array_unref(counters->exits);
		g_ptr_array_unref(counters->all);
		g_ptr_array_unref(counters->series);
	}
	reader_done(&counters->reader);
}

int verb_counters(int argc, char **argv)
{
	static const struct cli_spec spec = {
		N_("FILE"), N_("Show the counters of a capture, with their averages over time."), 1,
		1
	};
	CLEANUP(counters_done)
	struct counters counters = { .reader.limit = READER_LIMIT_UNSET,
				     .reader.text_limit = DEFAULT_LIMIT };
	const struct cli_group groups[] = { { N_("Select"), reader_time_options, &counters.reader },
					    { NULL, reader_process_options, &counters.reader },
					    { N_("Output"), reader_output_options,
					      &counters.reader },
					    { NULL } };
	GError *error = NULL;
	int status = cli_parse(&spec, groups, &argc, &argv);

	json_init(&counters.json, out_stdout());
	if (status != CLI_CONTINUE)
		return status;
	if (!counters_run(&counters, argv[0], &error))
		return cli_fail(error);
	capture_warn(counters.reader.capture);
	if (counters.reader.format == READER_TEXT)
		print_counters(&counters, out_stdout());
	else
		write_counters(&counters);
	return CLI_OK;
}
