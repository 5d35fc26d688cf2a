/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/counter-values.h"

#include "base/each.h"
#include "base/order.h"
#include "tools/common/capture-error.h"
#include "tools/common/keyed.h"

#include <glib/gi18n.h>
#include <math.h>
#include <string.h>

enum { PROCESS, GROUP, NAME, UNIT, KIND, N_COUNTER_COLUMNS };

KEYED_BY(counter, struct counter, (uintptr_t)a->group, (uintptr_t)a->name, (uintptr_t)a->unit,
	 a->kind, a->process)

static void epoch_done(struct counter_values *values)
{
	prof_dictionary_free(values->rows);
	g_free(values->index_of);
	values->rows = NULL;
	values->index_of = NULL;
}

static bool epoch_load(struct counter_values *values, uint32_t number, GError **error)
{
	static const uint16_t columns[N_COUNTER_COLUMNS] = { PROF_COUNTER_PROCESS,
							     PROF_COUNTER_GROUP, PROF_COUNTER_NAME,
							     PROF_COUNTER_UNIT, PROF_COUNTER_KIND };
	const struct capture *capture = values->capture;
	int r;

	if (values->index_of && values->epoch == number)
		return true;
	epoch_done(values);
	values->epoch = number;
	r = prof_dictionary_load(capture->reader, PROF_TABLE_COUNTER, number, columns,
				 N_COUNTER_COLUMNS, &values->rows);
	if (r != 0 && r != PROF_NO_TABLE)
		return capture_error(error, r, _("cannot read counters of '%s'"), capture->file);
	values->index_of =
		g_new0(uint32_t, values->rows ? prof_dictionary_rows(values->rows) + 1 : 1);
	return true;
}

static uint32_t find_counter(struct counter_values *values, struct names_epoch *names, size_t row)
{
	uint64_t number[N_COUNTER_COLUMNS];
	struct counter counter = { 0 };

	for (size_t i = 0; i < N_COUNTER_COLUMNS; i++)
		number[i] = array_number_or(prof_dictionary_column(values->rows, i), row, 0);
	counter.process = names_process(names, number[PROCESS]);
	counter.group = names_text(names, number[GROUP]);
	counter.name = names_text(names, number[NAME]);
	counter.unit = names_text(names, number[UNIT]);
	counter.kind = number[KIND];
	return keyed_index(values->indexes, values->all, &counter);
}

/* Returns false if the counter is not defined. */
static bool index_of(struct counter_values *values, struct names_epoch *names, uint64_t id,
		     uint32_t *ret_index)
{
	ssize_t row = values->rows ? prof_dictionary_find(values->rows, id) : -1;

	if (row < 0)
		return false;
	if (values->index_of[row] == 0)
		values->index_of[row] = find_counter(values, names, (size_t)row) + 1;
	*ret_index = values->index_of[row] - 1;
	return true;
}

struct value_reading {
	struct counter_values *values;
	void (*found)(const struct counter_value *value, void *data);
	void *data;
};

static bool add_values(struct names_epoch *names, const struct prof_batch *batch, void *data,
		       GError **error)
{
	const struct value_reading *reading = data;
	struct counter_values *values = reading->values;

	if (!epoch_load(values, batch->epoch, error))
		return false;
	for (size_t i = 0; i < batch->rows; i++) {
		uint64_t id = array_number_or(&batch->columns[1], i, 0);
		uint64_t bits = array_number_or(&batch->columns[2], i, 0);
		struct counter_value value = { .segment = batch->segment };

		if (!index_of(values, names, id, &value.counter)) {
			values->unknown++;
			names->names->lost++;
			continue;
		}
		value.time_ns = capture_time(values->capture, batch->segment,
					     array_number_or(&batch->columns[0], i, 0));
		memcpy(&value.value, &bits, sizeof(bits));
		reading->found(&value, reading->data);
	}
	return true;
}

bool counter_values_read(struct counter_values *values,
			 void (*found)(const struct counter_value *value, void *data), void *data,
			 GError **error)
{
	struct value_reading reading = { values, found, data };

	values->all = g_array_new(FALSE, FALSE, sizeof(struct counter));
	values->indexes = g_hash_table_new_full(counter_hash, counter_equal, g_free, NULL);
	return names_each_batch(values->capture->names,
				NAMES_COLUMNS(PROF_TABLE_COUNTER_VALUE, PROF_COUNTER_VALUE_TIME,
					      PROF_COUNTER_VALUE_COUNTER, PROF_COUNTER_VALUE_VALUE),
				add_values, &reading, error);
}

struct points_query {
	const struct reader *reader;
	GPtrArray *points;
};

static void add_point(const struct counter_value *value, void *data)
{
	const struct points_query *query = data;
	struct ranged_value point = { MAX_OF(value->time_ns, query->reader->from_ns),
				      value->value };
	GArray *points;

	while (query->points->len <= value->counter)
		g_ptr_array_add(query->points,
				g_array_new(FALSE, FALSE, sizeof(struct ranged_value)));
	points = query->points->pdata[value->counter];
	if (value->time_ns > query->reader->to_ns || !isfinite(value->value))
		return;
	if (value->time_ns < query->reader->from_ns)
		g_array_set_size(points, 0);
	g_array_append_val(points, point);
}

COMPARE_BY(compare_points, struct ranged_value, ORDER(a->time_ns, b->time_ns))

GPtrArray *counter_values_of_range(struct counter_values *values, const struct reader *reader,
				   GError **error)
{
	struct points_query query = { reader, g_ptr_array_new_with_free_func(
						      (GDestroyNotify)g_array_unref) };

	if (!counter_values_read(values, add_point, &query, error)) {
		g_ptr_array_unref(query.points);
		return NULL;
	}
	POINTER_EACH(GArray, points, query.points)
		g_array_sort(points, compare_points);
	return query.points;
}

void counter_values_done(struct counter_values *values)
{
	epoch_done(values);
	if (!values->all)
		return;
	g_array_unref(values->all);
	g_hash_table_unref(values->indexes);
}

struct rss_query {
	const struct counter_values *values;
	const struct reader *reader;
	GArray *found; /* struct counter_rss */
};

static void keep_rss(const struct counter_value *value, void *data)
{
	struct rss_query *query = data;
	const struct counter *counter = counter_at(query->values, value->counter);
	struct counter_rss rss = { value->time_ns, value->counter, value->value };

	if (g_strcmp0(counter->group, "memory") == 0 && g_strcmp0(counter->name, "rss") == 0 &&
	    counter->process && value->value >= 0 && value->value < 0x1p53 &&
	    value->time_ns <= query->reader->to_ns && counter_is_wanted(counter, query->reader))
		g_array_append_val(query->found, rss);
}

GArray *counter_values_read_rss(struct counter_values *values, const struct reader *reader,
				GError **error)
{
	struct rss_query query = { values, reader,
				   g_array_new(FALSE, FALSE, sizeof(struct counter_rss)) };

	if (counter_values_read(values, keep_rss, &query, error))
		return query.found;
	g_array_unref(query.found);
	return NULL;
}

gint counter_rss_compare(gconstpointer left, gconstpointer right)
{
	const struct counter_rss *a = left, *b = right;

	return a->time_ns < b->time_ns ? -1 : a->time_ns > b->time_ns;
}

void latest_note(GArray *times, guint index, int64_t time_ns)
{
	static const int64_t unknown = INT64_MIN;

	while (times->len <= index)
		g_array_append_val(times, unknown);
	g_array_index(times, int64_t, index) =
		MAX_OF(g_array_index(times, int64_t, index), time_ns);
}

int64_t latest_or(const GArray *times, guint index, int64_t otherwise)
{
	int64_t at = index < times->len ? g_array_index(times, int64_t, index) : INT64_MIN;

	return at == INT64_MIN ? otherwise : at;
}

static void note_exit(uint32_t process, int64_t time_ns, void *data)
{
	latest_note(data, process, time_ns);
}

GArray *counter_values_read_exits(const struct capture *capture, GError **error)
{
	GArray *exits = g_array_new(FALSE, FALSE, sizeof(int64_t));

	if (capture_each_exit(capture, note_exit, exits, error))
		return exits;
	g_array_unref(exits);
	return NULL;
}

const char **counter_values_comms(const struct names *names)
{
	const char **comms = g_new0(const char *, names->processes->len);

	ARRAY_EACH(const struct names_thread, thread, names->threads)
		if (thread->tid == names_process_at(names, thread->process)->pid)
			comms[thread->process] = thread->comm;
	return comms;
}

bool counter_is_wanted(const struct counter *counter, const struct reader *reader)
{
	const struct names *names = reader->capture->names;

	for (guint i = 0; reader->pids && i < reader->pids->len; i++)
		if (counter->process > NAMES_LOST &&
		    names_process_at(names, counter->process)->pid ==
			    g_array_index(reader->pids, uint32_t, i))
			return true;
	return !reader->pids;
}
