/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Report of states - where the time of the threads went: computing, ready, or waiting, and for what
 *
 * Times come from the context switches, so they add up to the lifetimes of the threads, as far as
 * these are known (run-times.h). The waits divide the waiting time by state and by cause; the rest
 * of the waiting time has an unknown state and cause.
 * [test_off_cpu: test_states]
 */
#include "config.h"

#include "tools/profcapture/report.h"

#include "base/each.h"
#include "base/order.h"
#include "tools/profile/function-labels.h"

#include <glib/gi18n.h>
#include <inttypes.h>

enum { STATE, NS, PCT, WAITS, CALL, FUNCTION, PLACE, N_FIELDS };

struct state_row {
	const char *state; /* name of the state, or of the cause of a wait */
	uint64_t ns, waits;
	const char *call;
	uint32_t function;
};

struct state_table {
	const struct report *report;
	struct function_labels *labels; /* NULL: rows have no function */
	GArray *rows;                   /* struct state_row */
	uint64_t all_ns;                /* 100 % of the shares */
};

static void add_row(GArray *rows, const char *state, uint64_t ns)
{
	if (ns)
		g_array_append_val(rows, ((struct state_row){ .state = state, .ns = ns }));
}

COMPARE_BY(compare_rows, struct state_row, ORDER(b->ns, a->ns), g_strcmp0(a->state, b->state))

/* Returns an array with a struct state_row for each state with a time. */
static GArray *list_states(const struct report *report, uint64_t *ret_all_ns)
{
	static const char *const waiting[] = { "waiting", "sleeping", "uninterruptible", "stopped",
					       "traced" };
	GArray *rows = g_array_new(FALSE, TRUE, sizeof(struct state_row));
	struct run_time sum = { 0 };
	uint64_t known_ns = 0;

	ARRAY_EACH(const struct run_time, time, report->times) {
		sum.run_ns += time->run_ns;
		sum.runnable_ns += time->runnable_ns;
		sum.preempted_ns += time->preempted_ns;
		sum.wait_ns += time->wait_ns;
	}
	add_row(rows, "running", sum.run_ns);
	add_row(rows, "runnable", sum.runnable_ns);
	add_row(rows, "preempted", sum.preempted_ns);
	for (size_t i = PROF_WAIT_SLEEPING; i < ARRAY_SIZE(waiting); i++) {
		add_row(rows, waiting[i], report->waits.wait_ns[i]);
		known_ns += report->waits.wait_ns[i];
	}
	/* Waits and switches are recorded by different events, so a capture may have waits without
	 * switches. */
	sum.wait_ns = MAX_OF(sum.wait_ns, known_ns);
	add_row(rows, waiting[PROF_WAIT_UNKNOWN], sum.wait_ns - known_ns);
	*ret_all_ns = sum.run_ns + sum.runnable_ns + sum.preempted_ns + sum.wait_ns;
	g_array_sort(rows, compare_rows);
	return rows;
}

/* Returns an array with a struct state_row for each place (by_place) or cause. */
static GArray *list_waits(const struct report *report, bool by_place)
{
	GArray *rows = g_array_new(FALSE, TRUE, sizeof(struct state_row));
	g_autoptr(GArray) places = wait_places_rows(&report->waiting);
	struct state_row causes[WAIT_CAUSES] = { 0 };

	ARRAY_EACH(const struct wait_place, place, places) {
		const struct state_row row = { wait_cause_names[place->cause], place->weight,
					       place->n, place->call, place->function };

		causes[place->cause].ns += place->weight;
		causes[place->cause].waits += place->n;
		if (by_place)
			g_array_append_val(rows, row);
	}
	for (size_t i = 0; !by_place && i < WAIT_CAUSES; i++) {
		causes[i].state = wait_cause_names[i];
		if (causes[i].waits)
			g_array_append_val(rows, causes[i]);
	}
	g_array_sort(rows, compare_rows);
	return rows;
}

static struct cell get_cell(const void *data, size_t row, unsigned field)
{
	const struct state_table *table = data;
	const struct state_row *at = &g_array_index(table->rows, struct state_row, row);

	switch (field) {
	case STATE:
		return cell_text(at->state);
	case NS:
		return cell_uint(at->ns);
	case PCT:
		return cell_double(table->all_ns ? 100.0 * (double)at->ns / (double)table->all_ns
						 : 0);
	case WAITS:
		return cell_uint(at->waits);
	case CALL:
		return cell_text(at->call);
	default:
		if (at->function <= FUNCTION_LOST)
			return cell_unknown();
		return cell_own_text(field == PLACE
					     ? function_labels_place(table->labels, at->function)
					     : function_labels_name(table->labels, at->function));
	}
}

static struct table table_of(const struct state_table *data, const struct table_member *members,
			     const char *key)
{
	return (struct table){
		.rows = data->rows->len,
		.get = get_cell,
		.data = data,
		.members = members,
		.key = key,
	};
}

static void print_table(const struct state_table *data, struct out *out)
{
	struct table table = table_of(data, NULL, NULL);
	bool is_state = data->rows->len &&
			g_array_index(data->rows, struct state_row, 0).waits == 0;

	if (data->rows->len == 0)
		return;
	table_add_column(&table, PCT, COLUMN_PERCENT, is_state ? _("wall %") : _("wait %"));
	table_add_column(&table, NS, COLUMN_DURATION, _("time"));
	if (!is_state)
		table_add_column(&table, WAITS, COLUMN_COUNT, _("waits"));
	table_add_column(&table, STATE, COLUMN_WORD, is_state ? _("state") : _("cause"));
	if (data->labels) {
		table_add_column(&table, CALL, COLUMN_WORD, _("call"));
		table_add_column(&table, FUNCTION, COLUMN_NAME, _("function"));
		table_add_column(&table, PLACE, COLUMN_PLACE, NULL);
	}
	out_char(out, '\n');
	reader_print_table(&data->report->reader, out, &table);
}

void report_show_states(struct report *report, struct out *out)
{
	static const struct table_member state_members[] = {
		{ "state", STATE }, { "time_ns", NS }, { "pct", PCT }, { NULL }
	};
	static const struct table_member cause_members[] = {
		{ "cause", STATE }, { "time_ns", NS }, { "pct", PCT }, { "waits", WAITS }, { NULL }
	};
	static const struct table_member place_members[] = { { "cause", STATE },
							     { "call", CALL },
							     { "function", FUNCTION },
							     { "time_ns", NS },
							     { "pct", PCT },
							     { "waits", WAITS },
							     { NULL } };
	struct function_labels *labels =
		report->waits.functions
			? function_labels_new(report->waits.functions, report->full_names)
			: NULL;
	uint64_t all_ns = 0, waited_ns = report->waits.all.weight;
	g_autoptr(GArray) states = list_states(report, &all_ns);
	g_autoptr(GArray) causes = list_waits(report, false);
	g_autoptr(GArray) places = list_waits(report, true);
	const struct state_table tables[] = { { report, NULL, states, all_ns },
					      { report, NULL, causes, waited_ns },
					      { report, labels, places, waited_ns } };
	struct json *json = &report->json;

	for (guint i = 0; i < places->len; i++)
		function_labels_add(labels, g_array_index(places, struct state_row, i).function);
	if (report->reader.format == READER_TEXT) {
		report_print_states_head(report, out);
		for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
			print_table(&tables[i], out);
	} else {
		const struct table table[] = { table_of(&tables[0], state_members, "rows"),
					       table_of(&tables[1], cause_members, "causes"),
					       table_of(&tables[2], place_members, "places") };

		reader_begin(&report->reader, json, "report",
			     reader_shown(&report->reader, places->len) < places->len, states->len);
		if (report->reader.format == READER_JSON) {
			json_string(json, "by", "state");
			json_string(json, "metric", "wall");
			json_uint(json, "total_ns", all_ns);
			json_uint(json, "waited_ns", waited_ns);
			table_write_array(&table[1], json, "causes", causes->len);
			table_write_array(&table[2], json, "places",
					  reader_shown(&report->reader, places->len));
		}
		table_write(&table[0], json, reader_json_format(&report->reader), states->len);
		reader_end(&report->reader, json);
	}
	function_labels_free(labels);
}
