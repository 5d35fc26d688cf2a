/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profcapture events - how often events occurred, and the time from each to its counterpart
 *
 * Counts each occurrence of tracepoints and other events with a fixed period; with --by, each value
 * of a field separately. An event whose name ends an interval (sys_exit_read, irq_handler_exit) is
 * paired with the last event of its thread that begins one (sys_enter_read, irq_handler_entry). A
 * probe of a function is paired with the probe of its return; calls may be nested, so a return ends
 * the last call that has not returned.
 * The interval counts for the event that began it and, with --by, also for the event that ended it,
 * because either may have the field. It counts for an event that is in the time range and passes
 * the filters, so numbers of adjacent ranges add up.
 *
 * Memory: one duration for each interval (durations.h), a series for each value
 * [test_small_captures: memory]
 */
#include "config.h"

#include "base/order.h"
#include "tools/common/keyed.h"
#include "tools/profcapture/durations.h"
#include "tools/profcapture/reader.h"
#include "tools/profcapture/stored-cell.h"
#include "tools/profcapture/verbs.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

#define NO_COUNTERPART UINT32_MAX
#define MAX_NAMES 256 /* an error lists at most this many field names */

/* Parts of the names of events that begin an interval, and of the events that end it. */
static const struct {
	const char *begin, *end;
} counterparts[] = {
	{ "sys_enter", "sys_exit" }, { "_entry", "_exit" },     { "_begin", "_end" },
	{ "_start", "_end" },        { "__entry", "__return" }, { "__start", "__done" },
};
#define RETURN "%return" /* suffix of a probe of a function's return */

/* The field that --by selects, in the rows of one source. */
struct by_field {
	uint32_t position; /* in the source's list of fields */
	uint32_t kind;     /* enum prof_argument_kind */
};

struct event_series {
	uint32_t event; /* index in the capture's sampled events */
	uint32_t kind;  /* enum prof_argument_kind of `value` */
	bool has_value;
	uint64_t value;
	/* interned; NULL: none, or empty. If has_value is false: why the value is unknown. */
	const char *text;
	uint64_t count;
	struct durations durations;
};

/* An interval that has begun. */
struct open_interval {
	uint64_t key; /* thread, and event that ends it */
	struct event_series *series;
	int64_t start_ns;
	GArray *outer; /* struct open_interval: calls that contain this one; NULL: none */
};

struct events_verb {
	struct reader reader;
	const char *by;
	GArray *ends;             /* uint32_t by event: the event that ends its interval */
	GArray *begins;           /* uint32_t by event: the event that begins its interval */
	GArray *places;           /* struct by_field */
	struct number_map fields; /* epoch and id of a source → index in places + 1 */
	GPtrArray *names;         /* interned names of all fields, for an error */
	GHashTable *by_value;     /* set of struct event_series */
	GHashTable *open;         /* set of struct open_interval */
	GPtrArray *all;           /* struct event_series in output order */
	uint32_t segment, only;   /* only: the event of --event */
	uint64_t total;
};

/* ---- Gathering ------------------------------------------------------------------------------- */

KEYED_BY(open, struct open_interval, a->key)
KEYED_BY(series, struct event_series, (uint64_t)a->event << 32 | a->kind, a->has_value, a->value,
	 (uintptr_t)a->text)

static void series_free(gpointer pointer)
{
	struct event_series *series = pointer;

	durations_done(&series->durations);
	g_free(series);
}

/* Names of probes begin with the path of a file. */
static bool is_probe(const char *name)
{
	return name[0] == '/';
}

/* Returns the length of a name without its filter, which ends with a slash. Names of Go's functions
 * contain slashes, but do not end with one. */
static size_t name_length(const char *name)
{
	const char *colon = is_probe(name) ? strchr(name, ':') : NULL;

	if (colon && g_str_has_suffix(name, "/"))
		return (size_t)(colon - name) + strcspn(colon, "/");
	return is_probe(name) ? strlen(name) : strcspn(name, "/");
}

/* Returns the event with this name; names are compared without their filters. */
static uint32_t find_event(const struct sampled_events *sampled, const char *wanted)
{
	size_t length = name_length(wanted);

	for (uint32_t other = 0; other < sampled->all->len; other++) {
		const char *candidate = sampled_event_at(sampled, other)->name;

		if (candidate && name_length(candidate) == length &&
		    strncmp(candidate, wanted, length) == 0)
			return other;
	}
	return NO_COUNTERPART;
}

/* Returns the event that ends the intervals that an event begins, or NO_COUNTERPART. */
static uint32_t find_counterpart(const struct sampled_events *sampled, uint32_t event)
{
	const char *name = sampled_event_at(sampled, event)->name;

	if (name && is_probe(name) && !g_str_has_suffix(name, RETURN)) {
		g_autofree char *wanted = g_strconcat(name, RETURN, NULL);
		uint32_t end = find_event(sampled, wanted);

		if (end != NO_COUNTERPART)
			return end;
	}
	for (size_t i = 0; i < G_N_ELEMENTS(counterparts); i++) {
		const char *at = name ? strstr(name, counterparts[i].begin) : NULL;
		g_autofree char *wanted = NULL;
		uint32_t end;

		if (!at)
			continue;
		wanted = g_strdup_printf("%.*s%s%s", (int)(at - name), name, counterparts[i].end,
					 at + strlen(counterparts[i].begin));
		end = find_event(sampled, wanted);
		if (end != NO_COUNTERPART)
			return end;
	}
	return NO_COUNTERPART;
}

static void pair_events(struct events_verb *verb)
{
	const struct sampled_events *sampled = verb->reader.capture->sampled;
	uint32_t none = NO_COUNTERPART;

	verb->ends = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	verb->begins = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	for (uint32_t i = 0; i < sampled->all->len; i++) {
		uint32_t end = find_counterpart(sampled, i);

		g_array_append_val(verb->ends, end);
		g_array_append_val(verb->begins, none);
	}
	for (uint32_t i = 0; i < verb->ends->len; i++)
		if (g_array_index(verb->ends, uint32_t, i) != NO_COUNTERPART)
			g_array_index(verb->begins, uint32_t,
				      g_array_index(verb->ends, uint32_t, i)) = i;
}

/* Finds the field of --by in each source. */
static bool add_sources(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
			GError **error)
{
	const struct prof_array *id = &batch->columns[0], *fields = &batch->columns[1],
				*kinds = &batch->columns[2];
	struct events_verb *verb = data;

	if (!fields->numbers || !fields->offsets || !kinds->numbers || !kinds->offsets)
		return true;
	for (size_t row = 0; row < batch->rows; row++) {
		uint64_t first = fields->offsets[row], n = fields->offsets[row + 1] - first;

		n = MIN_OF(n, kinds->offsets[row + 1] - kinds->offsets[row]);
		for (uint64_t i = 0; i < n; i++) {
			const char *name = names_text(epoch, fields->numbers[first + i]);
			struct by_field place = {
				.position = (uint32_t)i,
				.kind = (uint32_t)kinds->numbers[kinds->offsets[row] + i],
			};

			if (name && verb->names->len < MAX_NAMES &&
			    !g_ptr_array_find(verb->names, name, NULL))
				g_ptr_array_add(verb->names, (void *)name);
			if (g_strcmp0(name, verb->by) != 0)
				continue;
			g_array_append_val(verb->places, place);
			*number_map_at(&verb->fields,
				       (uint64_t)batch->epoch << 32 |
					       (uint32_t)array_number_or(id, row, 0)) =
				verb->places->len;
			break;
		}
	}
	return true;
}

static bool read_fields(struct events_verb *verb, GError **error)
{
	g_autofree char *valid = NULL;

	if (!names_each_batch(verb->reader.capture->names,
			      NAMES_COLUMNS(PROF_TABLE_SOURCE, PROF_SOURCE_ID, PROF_SOURCE_FIELDS,
					    PROF_SOURCE_FIELD_KINDS),
			      add_sources, verb, error))
		return false;
	if (!verb->by || verb->places->len > 0)
		return true;
	if (verb->names->len == 0) {
		return cli_set_error(
			error, CLI_USAGE,
			_("--by: the events of '%s' have no fields. Tracepoints and static "
			  "probes have some"),
			verb->reader.capture->file);
	}
	g_ptr_array_add(verb->names, NULL);
	valid = g_strjoinv(", ", (char **)verb->names->pdata);
	return cli_set_error(error, CLI_USAGE,
			     _("--by: no event of '%s' has a field '%s'. Recorded: %s"),
			     verb->reader.capture->file, verb->by, valid);
}

enum { TIME, THREAD, CPU, SOURCE, WEIGHT, VALUES, TEXTS, N_COLUMNS };

static const uint16_t sample_columns[N_COLUMNS] = {
	PROF_SAMPLE_TIME,   PROF_SAMPLE_THREAD, PROF_SAMPLE_CPU,   PROF_SAMPLE_SOURCE,
	PROF_SAMPLE_WEIGHT, PROF_SAMPLE_VALUES, PROF_SAMPLE_TEXTS,
};

/* Returns an item of a list; 0 if the list is shorter. */
static uint64_t item_of(const struct prof_array *list, size_t row, uint32_t position)
{
	if (!list->numbers || !list->offsets ||
	    position >= list->offsets[row + 1] - list->offsets[row])
		return 0;
	return list->numbers[list->offsets[row] + position];
}

/* Returns the series of a row, or NULL if --by asks for a field that its event does not have. */
static struct event_series *series_of(struct events_verb *verb, struct names_epoch *epoch,
				      const struct prof_batch *batch, size_t row, uint32_t event)
{
	const struct prof_array *c = batch->columns;
	struct event_series key = { .event = event };

	if (verb->by) {
		uint32_t index = number_map_get(
			&verb->fields, (uint64_t)batch->epoch << 32 |
					       (uint32_t)array_number_or(&c[SOURCE], row, 0));
		const struct by_field *place =
			index ? &g_array_index(verb->places, struct by_field, index - 1) : NULL;

		if (!place)
			return NULL;
		key.has_value = c[VALUES].offsets &&
				place->position <
					c[VALUES].offsets[row + 1] - c[VALUES].offsets[row];
		key.kind = place->kind;
		key.text = names_text(epoch, item_of(&c[TEXTS], row, place->position));
		/* If a number could not be read, its text says why. */
		if (place->kind != PROF_ARGUMENT_STRING)
			key.has_value &= key.text == NULL;
		if (key.has_value && place->kind != PROF_ARGUMENT_STRING)
			key.value = item_of(&c[VALUES], row, place->position);
	}
	return keyed_at(verb->by_value, &key, sizeof(key));
}

static void open_free(gpointer pointer)
{
	struct open_interval *open = pointer;

	g_clear_pointer(&open->outer, g_array_unref);
	g_free(open);
}

static bool has_begun(const struct open_interval *open)
{
	return open->start_ns != INT64_MIN;
}

static void begin_interval(struct events_verb *verb, uint64_t key, struct event_series *series,
			   int64_t time_ns)
{
	struct open_interval *open = g_hash_table_lookup(verb->open, &key);
	const char *name;

	if (!open) {
		open = g_new0(struct open_interval, 1);
		open->key = key;
		g_hash_table_add(verb->open, open);
	} else if (has_begun(open)) {
		name = sampled_event_at(verb->reader.capture->sampled, (uint32_t)key)->name;
		if (name && is_probe(name)) {
			if (!open->outer)
				open->outer = g_array_new(FALSE, FALSE, sizeof(*open));
			g_array_append_val(open->outer, *open);
		} else if (open->series) {
			open->series->durations.no_end++;
		}
	}
	open->series = series;
	open->start_ns = time_ns;
}

static void end_interval(struct events_verb *verb, uint64_t key, struct event_series *series,
			 int64_t time_ns)
{
	struct open_interval *open = g_hash_table_lookup(verb->open, &key);

	if (open && has_begun(open)) {
		uint64_t ns = (uint64_t)MAX_OF(time_ns, open->start_ns) - (uint64_t)open->start_ns;

		if (open->series)
			durations_add(&open->series->durations, ns);
		if (verb->by && series)
			durations_add(&series->durations, ns);
		open->series = NULL;
		open->start_ns = INT64_MIN;
		if (open->outer && open->outer->len > 0) {
			const struct open_interval *outer = &g_array_index(
				open->outer, struct open_interval, open->outer->len - 1);

			open->series = outer->series;
			open->start_ns = outer->start_ns;
			g_array_set_size(open->outer, open->outer->len - 1);
		}
	} else if (series) {
		series->durations.no_begin++;
	}
}

/* Intervals that are open at the end of a segment have no end. */
static void end_segment(struct events_verb *verb)
{
	GHashTableIter iter;
	gpointer pointer;

	g_hash_table_iter_init(&iter, verb->open);
	while (g_hash_table_iter_next(&iter, &pointer, NULL)) {
		const struct open_interval *open = pointer;

		if (open->series)
			open->series->durations.no_end++;
		for (guint i = 0; open->outer && i < open->outer->len; i++) {
			const struct open_interval *outer =
				&g_array_index(open->outer, struct open_interval, i);

			if (outer->series)
				outer->series->durations.no_end++;
		}
	}
	g_hash_table_remove_all(verb->open);
}

/* Returns whether an event is shown, or begins or ends intervals with the shown one. */
static bool concerns_only(const struct events_verb *verb, uint32_t event)
{
	return verb->only == SAMPLED_NO_EVENT || event == verb->only ||
	       g_array_index(verb->begins, uint32_t, event) == verb->only ||
	       g_array_index(verb->ends, uint32_t, event) == verb->only ||
	       g_array_index(verb->ends, uint32_t, verb->only) == event;
}

/* Returns a number for the thread in which an interval begins and ends. The idle thread of each CPU
 * has its own number. Returns 0 if the thread is not known. */
static uint64_t where_it_runs(struct names_epoch *epoch, uint32_t thread, uint64_t cpu)
{
	if (thread <= NAMES_LOST)
		return 0;
	if (names_thread_at(epoch->names, thread)->tid == 0)
		return UINT64_C(1) << 31 | (cpu & INT32_MAX);
	return thread;
}

static bool add_batch(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
		      GError **error)
{
	struct events_verb *verb = data;
	struct reader *reader = &verb->reader;
	const struct sampled_events *sampled = reader->capture->sampled;
	const struct prof_array *c = batch->columns;

	if (batch->segment != verb->segment)
		end_segment(verb);
	verb->segment = batch->segment;
	for (size_t i = 0; i < batch->rows; i++) {
		uint32_t event =
			sampled_events_of(sampled, batch->epoch, array_number_or(&c[SOURCE], i, 0));
		uint32_t thread, end, begin;
		struct event_series *series = NULL;
		bool counts;
		int64_t time_ns;
		uint64_t where;

		if (event == SAMPLED_NO_EVENT ||
		    sampled_event_is_clock(sampled_event_at(sampled, event)) ||
		    sampled_event_at(sampled, event)->frequency)
			continue;
		end = g_array_index(verb->ends, uint32_t, event);
		begin = g_array_index(verb->begins, uint32_t, event);
		if (!concerns_only(verb, event))
			continue;
		time_ns = capture_time(reader->capture, batch->segment,
				       array_number_or(&c[TIME], i, 0));
		thread = names_thread(epoch, array_number_or(&c[THREAD], i, 0));
		counts = (verb->only == SAMPLED_NO_EVENT || event == verb->only) &&
			 time_ns >= reader->from_ns && time_ns <= reader->to_ns &&
			 reader_wants_thread_at(reader, thread, time_ns) &&
			 reader_wants_cpu(reader, array_number_or(&c[CPU], i, 0));
		if (counts)
			series = series_of(verb, epoch, batch, i, event);
		if (series) {
			uint64_t weight = sampled_event_weight(sampled_event_at(sampled, event),
							       array_number_or(&c[WEIGHT], i, 0));

			series->count += weight;
			verb->total += weight;
		}
		/* An interval that begins in the range counts, even if its end is outside. */
		where = where_it_runs(epoch, thread, array_number_or(&c[CPU], i, 0));
		if (where == 0)
			continue;
		if (begin != NO_COUNTERPART)
			end_interval(verb, where << 32 | event, series, time_ns);
		if (end != NO_COUNTERPART)
			begin_interval(verb, where << 32 | end, series, time_ns);
	}
	return true;
}

/* Sorts by total duration, then count, then event and value. Two series are never equal. */
COMPARE_AT(compare_series, struct event_series, ORDER(b->durations.total_ns, a->durations.total_ns),
	   ORDER(b->count, a->count), ORDER(a->event, b->event), ORDER(b->has_value, a->has_value),
	   ORDER((int64_t)a->value, (int64_t)b->value), g_strcmp0(a->text, b->text))

/* ---- Output ---------------------------------------------------------------------------------- */

enum field {
	EVENT = DURATION_FIELDS,
	VALUE,
	EVENT_AND_VALUE,
	COUNT,
	INTERVALS,
};

static const struct table_member members[] = {
	{ "event", EVENT },         { "value", VALUE }, { "count", COUNT },
	{ "intervals", INTERVALS }, DURATION_MEMBERS,   { NULL },
};

static const char *event_name(const struct events_verb *verb, const struct event_series *series)
{
	const char *name = sampled_event_at(verb->reader.capture->sampled, series->event)->name;

	return name ? name : NAMES_LOST_TEXT;
}

static struct cell value_cell(const struct event_series *series)
{
	return series->has_value ? stored_argument(series->kind, series->value,
						   series->text ? series->text : "")
				 : cell_unknown();
}

/* Returns text such as "syscalls:sys_enter_read fd=3 (1 without an end)". */
static char *describe(const struct events_verb *verb, const struct event_series *series)
{
	GString *text = g_string_new(event_name(verb, series));

	if (verb->by) {
		g_string_append_printf(text, " %s=", verb->by);
		if (!series->has_value)
			g_string_append_printf(text, series->text ? "? (%s)" : "?", series->text);
		else if (series->kind == PROF_ARGUMENT_DOUBLE)
			g_string_append_printf(text, "%.17g", value_cell(series).real);
		else if (series->kind == PROF_ARGUMENT_STRING)
			g_string_append(text, series->text ? series->text : "\"\"");
		else
			g_string_append_printf(text,
					       series->kind == PROF_ARGUMENT_S64 ? "%" PRId64
					       : series->kind == PROF_ARGUMENT_ADDRESS
						       ? "0x%" PRIx64
						       : "%" PRIu64,
					       series->value);
	}
	durations_append_unmatched(&series->durations, text);
	return g_string_free(text, FALSE);
}

static struct cell get_cell(const void *data, size_t row, unsigned field)
{
	const struct events_verb *verb = data;
	struct event_series *series = verb->all->pdata[row];

	switch ((enum field)field) {
	case EVENT:
		return cell_text(event_name(verb, series));
	case VALUE:
		return value_cell(series);
	case EVENT_AND_VALUE:
		return cell_own_text(describe(verb, series));
	case COUNT:
		return cell_uint(series->count);
	case INTERVALS:
		return cell_uint(durations_count(&series->durations));
	default:
		return durations_cell(&series->durations, field);
	}
}

static struct table table_of(const void *data)
{
	const struct events_verb *verb = data;
	struct table table = {
		.rows = verb->all->len, .get = get_cell, .data = verb, .members = members
	};

	table_add_column(&table, COUNT, COLUMN_COUNT, _("count"));
	if (verb->all->len > 0 &&
	    durations_count(&((struct event_series *)verb->all->pdata[0])->durations) > 0)
		durations_add_columns(&table);
	table_add_column(&table, EVENT_AND_VALUE, COLUMN_NAME, _("event"));
	return table;
}

/* Prints "1,204 events. Most time: syscalls:sys_enter_read, 1.2 s in 602 calls." */
static void print_verdict(const void *data, struct out *out)
{
	const struct events_verb *verb = data;
	struct event_series *first = verb->all->pdata[0];
	g_autofree char *total = text_count(verb->total);
	guint n = durations_count(&first->durations);

	out_printf(out, ngettext("%s event.", "%s events.", verb->total), total);
	if (n > 0) {
		g_autofree char *count = text_count(n);
		g_autofree char *time = text_duration(first->durations.total_ns);
		g_autofree char *name = text_escape(event_name(verb, first));

		out_printf(out,
			   ngettext(" Most time: %s, %s in %s call.",
				    " Most time: %s, %s in %s calls.", n),
			   name, time, count);
	}
	out_text(out, "\n");
}

/* Prints the command that shows where the event of this series came from. */
static void print_next(const struct events_verb *verb, const struct event_series *series,
		       struct out *out)
{
	const char *name = sampled_event_at(verb->reader.capture->sampled, series->event)->name;
	const char *file = verb->reader.capture->file;
	g_autofree char *file_word = text_shell_file(file), *file_text = text_escape(file_word);
	g_autofree char *word = text_shell_word(name ? name : ""), *text = text_escape(word);

	if (name && strcmp(file, "-") != 0)
		out_printf(out, _("Next: profcapture report %s --event %s --tree\n"), file_text,
			   text);
}

/* ---- The verb -------------------------------------------------------------------------------- */

static const struct cli_option what_options[] = {
	{ "event", 0, CLI_STRING, offsetof(struct events_verb, reader.event), N_("NAME"),
	  N_("Show only this event (default: all except clocks)") },
	{ "by", 0, CLI_STRING, offsetof(struct events_verb, by), N_("FIELD"),
	  N_("Show a row for each value of FIELD") },
	{ NULL },
};

static bool events_query(void *data, char **operands, GError **error)
{
	struct events_verb *verb = data;
	struct reader *reader = &verb->reader;

	if (!reader_open_rows(reader, operands[0], PROF_TABLE_SAMPLE,
			      _("capture '%s' has no events. 'profctl record -e "
				"syscalls:sys_enter_read' records some"),
			      error) ||
	    !capture_check(reader->capture, PROF_TABLE_SAMPLE, error) ||
	    !sampled_events_read(reader->capture->sampled, reader->capture->reader,
				 reader->capture->names, error))
		return false;
	verb->only = SAMPLED_NO_EVENT;
	if (reader->event && !sampled_events_find(reader->capture->sampled, reader->event,
						  reader->capture->file, &verb->only, error))
		return false;
	pair_events(verb);
	verb->places = g_array_new(FALSE, FALSE, sizeof(struct by_field));
	verb->names = g_ptr_array_new();
	number_map_init(&verb->fields);
	verb->by_value = g_hash_table_new_full(series_hash, series_equal, series_free, NULL);
	verb->open = g_hash_table_new_full(open_hash, open_equal, open_free, NULL);
	if (!read_fields(verb, error) ||
	    !names_each_batch(reader->capture->names,
			      NAMES_COLUMNS_OF(PROF_TABLE_SAMPLE, sample_columns), add_batch, verb,
			      error))
		return false;
	end_segment(verb);
	verb->all = keyed_sorted(verb->by_value, compare_series);
	reader->is_incomplete = reader_misses_rows(reader, "sample");
	return true;
}

static void events_done(struct events_verb *verb)
{
	g_clear_pointer(&verb->all, g_ptr_array_unref);
	g_clear_pointer(&verb->open, g_hash_table_unref);
	g_clear_pointer(&verb->by_value, g_hash_table_unref);
	if (verb->names)
		number_map_done(&verb->fields);
	g_clear_pointer(&verb->names, g_ptr_array_unref);
	g_clear_pointer(&verb->places, g_array_unref);
	g_clear_pointer(&verb->begins, g_array_unref);
	g_clear_pointer(&verb->ends, g_array_unref);
	reader_done(&verb->reader);
}

int verb_events(int argc, char **argv)
{
	static const struct reader_verb verb = {
		.spec = { N_("FILE"),
			  N_("Show how often traced events occurred, and the time from entry to return."),
			  1, 1 },
		.query = events_query,
		.print = print_verdict,
		.name = "events",
		.table = table_of,
		.incomplete = N_("Events may be missing: counts may be low, and times wrong\n"),
		.empty = N_(
			"capture '%s' has no such events. 'profctl record -e NAME' records events; 'profctl list' shows their names"),
	};
	CLEANUP(events_done)
	struct events_verb events = { .reader = READER_TEXT_ROWS(READER_USUAL_ROWS) };
	const struct cli_group groups[] = { { N_("Select"), what_options, &events },
					    READER_SELECT(NULL, &events.reader),
					    { NULL, reader_cpu_options, &events.reader },
					    { N_("Output"), reader_output_options, &events.reader },
					    { NULL } };
	int status = reader_run(&verb, groups, &events, argc, argv);

	if (status == CLI_OK && events.reader.columns > 0 && events.all->len > 0)
		print_next(&events, events.all->pdata[0], out_stdout());
	return status;
}
