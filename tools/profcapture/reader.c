/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/reader.h"

#include "base/each.h"
#include "tools/common/pager.h"
#include "tools/profcapture/capture-losses.h"
#include "tools/profcapture/spans.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

const struct cli_option reader_interpreter_options[] = {
	{ "interpreter-frames", 0, CLI_FLAG, offsetof(struct reader, interpreter_frames), NULL,
	  N_("Show the interpreter's own functions in stacks of interpreted programs") },
	{ NULL },
};
const struct cli_option reader_redact_options[] = {
	{ "redact", 0, CLI_FLAG, offsetof(struct reader, redacts), NULL,
	  N_("Leave out arguments, host and user names, log lines, and the folders of paths, except system folders such as /usr") },
	{ NULL },
};

const char *const reader_metrics[] = { "cpu", "off-cpu", "wall", NULL };
const char *const reader_formats[] = { "text", "json", "ndjson", "csv", NULL };

const struct cli_option reader_time_options[] = {
	{ "from", 0, CLI_RANGE, offsetof(struct reader, range), N_("TIME"), NULL },
	{ "to", 0, CLI_TIME, offsetof(struct reader, range.to), N_("TIME"),
	  N_("Use only data between the two times: 1.5s, -5s (before the end) or @mark:NAME; --from also takes a range: 1.2s..1.5s") },
	{ NULL },
};

const struct cli_option reader_process_options[] = {
	{ "pid", 0, CLI_NUMBERS, offsetof(struct reader, pids), "PID", NULL },
	{ NULL },
};

const struct cli_option reader_cpu_options[] = {
	{ "cpu", 0, CLI_NUMBERS, offsetof(struct reader, cpus), "CPU",
	  N_("Use only these CPUs; repeatable") },
	{ NULL },
};

const struct cli_option reader_event_options[] = {
	{ "event", 0, CLI_STRING, offsetof(struct reader, event), N_("NAME"),
	  N_("Use the samples of this event (default: the first recorded)") },
	{ "metric", 0, CLI_CHOICE, offsetof(struct reader, metric), N_("METRIC"),
	  N_("Measure computing, waiting or both (default: cpu)"), reader_metrics },
	{ NULL },
};

const struct cli_option reader_thread_options[] = {
	{ "tid", 0, CLI_NUMBERS, offsetof(struct reader, tids), "TID", NULL },
	{ "comm", 0, CLI_LIST, offsetof(struct reader, comms), N_("NAME"),
	  N_("Use only these processes or threads; repeatable") },
	{ NULL },
};

const struct cli_option reader_output_options[] = {
	{ "limit", 0, CLI_UINT, offsetof(struct reader, limit), "N",
	  N_("Show at most N rows (0: all). By default, trees and most texts are cut") },
	{ "format", 0, CLI_CHOICE, offsetof(struct reader, format), N_("FORMAT"), NULL,
	  reader_formats },
	{ "json", 0, CLI_FLAG, offsetof(struct reader, json), NULL,
	  N_("Output format (default: text; some verbs have no ndjson or csv)") },
	{ "color", 0, CLI_CHOICE, offsetof(struct reader, color), N_("WHEN"),
	  N_("Use colors (default: auto)"), cli_color_choices },
	{ NULL },
};

const struct cli_option reader_pager_options[] = {
	{ "no-pager", 0, CLI_FLAG, offsetof(struct reader, no_pager), NULL,
	  N_("Do not start a pager") },
	{ NULL },
};

/* ---- time range ------------------------------------------------------------------------------ */

struct mark_search {
	const char *name;
	bool found;
	int64_t start_ns, end_ns;
	const struct capture *capture;
};

/* Finds the first mark with that name; if several begin at the same time, the longest one. A mark
 * without an end lasts until the end of the capture. */
static void search_mark(const struct span *span, void *data)
{
	struct mark_search *search = data;
	int64_t end = span->kind == SPAN_NO_END
			      ? MAX_OF(search->capture->duration_ns, span->start_ns)
			      : span->end_ns;

	if (span->kind == SPAN_NO_BEGIN || !span->name || strcmp(span->name, search->name) != 0)
		return;
	if (search->found && (span->start_ns > search->start_ns ||
			      (span->start_ns == search->start_ns && end <= search->end_ns)))
		return;
	search->found = true;
	search->start_ns = span->start_ns;
	search->end_ns = end;
}

bool reader_no_mark(const struct reader *reader, const char *name, GError **error)
{
	return cli_set_error(error, CLI_USAGE,
			     _("capture '%s' has no mark '%s'; 'profcapture marks' lists them"),
			     reader->capture->file, name);
}

bool reader_resolve_time(const struct reader *reader, const struct units_time *time, bool end,
			 int64_t otherwise, int64_t *ret_ns, GError **error)
{
	struct mark_search search = { .name = time->mark, .capture = reader->capture };
	int64_t ns = (int64_t)MIN_OF(time->ns, (uint64_t)INT64_MAX / 2);

	switch (time->kind) {
	case UNITS_TIME_START:
		*ret_ns = ns;
		return true;
	case UNITS_TIME_END:
		*ret_ns = reader->capture->duration_ns - ns;
		return true;
	case UNITS_TIME_MARK:
		if (!spans_read(reader->capture, search_mark, &search, error))
			return false;
		if (!search.found)
			return reader_no_mark(reader, time->mark, error);
		*ret_ns = end ? search.end_ns : search.start_ns;
		return true;
	default:
		*ret_ns = otherwise;
		return true;
	}
}

static bool resolve_range(struct reader *reader, GError **error)
{
	g_autofree char *from = NULL, *to = NULL;

	reader->timed = reader->range.from.kind != UNITS_TIME_UNSET ||
			reader->range.to.kind != UNITS_TIME_UNSET;
	if (!reader_resolve_time(reader, &reader->range.from, false, INT64_MIN, &reader->from_ns,
				 error) ||
	    !reader_resolve_time(reader, &reader->range.to, true, INT64_MAX, &reader->to_ns, error))
		return false;
	if (reader->from_ns <= reader->to_ns)
		return true;
	from = text_seconds(reader->from_ns);
	to = text_seconds(reader->to_ns);
	return cli_set_error(error, CLI_USAGE, _("--from %s s is after --to %s s"), from, to);
}

void reader_clock_range(const struct reader *reader, uint32_t segment, uint64_t *ret_from,
			uint64_t *ret_to)
{
	*ret_from = reader->from_ns == INT64_MIN
			    ? 0
			    : capture_clock(reader->capture, segment, reader->from_ns);
	*ret_to = reader->to_ns == INT64_MAX
			  ? UINT64_MAX
			  : capture_clock(reader->capture, segment, reader->to_ns);
}

/* ---- threads and CPUs ------------------------------------------------------------------------ */

static bool has_number(const GArray *numbers, uint64_t number)
{
	for (guint i = 0; i < numbers->len; i++)
		if (g_array_index(numbers, uint32_t, i) == number)
			return true;
	return false;
}

bool reader_filters_threads(const struct reader *reader)
{
	return reader->pids || reader->tids || reader->comms;
}

static bool judge_thread(const struct reader *reader, uint32_t index)
{
	const struct names *names = reader->capture->names;
	const struct names_thread *thread = names_thread_at(names, index);

	if (reader->pids &&
	    (thread->process <= NAMES_LOST ||
	     !has_number(reader->pids, names_process_at(names, thread->process)->pid)))
		return false;
	if (reader->tids && (index <= NAMES_LOST || !has_number(reader->tids, thread->tid)))
		return false;
	for (guint i = 0; reader->comms && i < reader->comms->len; i++)
		if (thread_names_has(reader->thread_names, index, reader->comms->pdata[i]))
			return true;
	return !reader->comms;
}

bool reader_wants_thread(struct reader *reader, uint32_t thread)
{
	enum { UNKNOWN, YES, NO };

	if (!reader_filters_threads(reader))
		return true;
	if (reader->verdicts->len <= thread) {
		guint before = reader->verdicts->len;

		g_byte_array_set_size(reader->verdicts, thread + 64);
		memset(reader->verdicts->data + before, UNKNOWN, reader->verdicts->len - before);
	}
	if (reader->verdicts->data[thread] == UNKNOWN)
		reader->verdicts->data[thread] = judge_thread(reader, thread) ? YES : NO;
	return reader->verdicts->data[thread] == YES;
}

bool reader_wants_thread_at(struct reader *reader, uint32_t thread, int64_t time_ns)
{
	const char *comm;

	if (!reader->comms)
		return reader_wants_thread(reader, thread);
	if (!reader_wants_thread(reader, thread))
		return false;
	comm = thread_names_at(reader->thread_names, thread, time_ns);
	return comm && g_ptr_array_find_with_equal_func(reader->comms, comm, g_str_equal, NULL);
}

bool reader_load_names(struct reader *reader, GError **error)
{
	if (!reader->thread_names)
		reader->thread_names = thread_names_read(reader->capture, error);
	return reader->thread_names;
}

const char *reader_comm_at(const struct reader *reader, uint32_t thread, int64_t time_ns)
{
	return reader->thread_names ? thread_names_at(reader->thread_names, thread, time_ns)
				    : names_thread_at(reader->capture->names, thread)->comm;
}

void reader_forget_threads(struct reader *reader)
{
	g_byte_array_set_size(reader->verdicts, 0);
}

bool reader_wants_cpu(const struct reader *reader, uint64_t cpu)
{
	return !reader->cpus || has_number(reader->cpus, cpu);
}

/* ---- options that select nothing ------------------------------------------------------------- */

/* If the requested value does not exist, list at most this many existing ones. */
#define NAMED_MOST 10

bool reader_fails_empty(const struct reader *reader)
{
	return reader->format == READER_TEXT && !reader->judges_damage && !reader->writes_empty &&
	       !capture_lacks_rows(reader->capture, 0);
}

static bool select_nothing(struct reader *reader, char *message, GError **error)
{
	g_autofree char *text = message;

	if (reader_fails_empty(reader))
		return cli_set_error(error, CLI_NOTHING_CAPTURED, "%s", text);
	cli_warning("%s", text);
	reader->has_warned = true;
	return true;
}

bool reader_check_start(struct reader *reader, int64_t from_ns, GError **error)
{
	const struct capture *capture = reader->capture;
	g_autofree char *length = text_duration((uint64_t)MAX_OF(capture->duration_ns, 0));
	g_autofree char *from = text_seconds(from_ns);

	if (from_ns <= capture->duration_ns)
		return true;
	return select_nothing(reader,
			      g_strdup_printf(_("nothing from %s s on: '%s' is %s long"), from,
					      capture->file, length),
			      error);
}

struct column_values {
	/* key: a number or a name, as text; value: the name of the number, or NULL */
	GHashTable *values;
	unsigned table;
	bool is_text; /* the column refers to strings */
};

static bool add_values(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
		       GError **error)
{
	const struct column_values *of = data;

	for (size_t i = 0; i < batch->rows; i++) {
		uint64_t value = array_number_or(&batch->columns[0], i, 0);

		if (!of->is_text)
			g_hash_table_insert(of->values, g_strdup_printf("%" PRIu64, value), NULL);
		else if (value)
			g_hash_table_insert(of->values, g_strdup(names_text(epoch, value)), NULL);
	}
	return true;
}

/* Sets the names of values that are tids or pids to the names of the threads with these tids. A pid
 * is the tid of a main thread. */
static bool name_values(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
			GError **error)
{
	const struct column_values *of = data;

	for (size_t i = 0; i < batch->rows; i++) {
		g_autofree char *tid =
			g_strdup_printf("%" PRIu64, array_number_or(&batch->columns[0], i, 0));
		const char *comm = names_text(epoch, array_number_or(&batch->columns[1], i, 0));

		if (comm && g_hash_table_contains(of->values, tid))
			g_hash_table_insert(of->values, steal_ptr(&tid), (gpointer)comm);
	}
	return true;
}

/* Reads columns of a table: the first has the values, the second, if any, their names. */
static bool read_columns(const struct capture *capture, struct column_values *of,
			 const uint16_t *columns, unsigned n, GError **error)
{
	const struct prof_cursor_options options = { .table = of->table,
						     .columns = columns,
						     .n_columns = n };

	return names_each_batch(capture->names, &options, n > 1 ? name_values : add_values, of,
				error);
}

static gint compare_values(gconstpointer left, gconstpointer right, gpointer data)
{
	const char *a = *(const char *const *)left, *b = *(const char *const *)right;

	/* Numbers have no leading zeros, so a longer one is greater. */
	if (data && strlen(a) != strlen(b))
		return strlen(a) < strlen(b) ? -1 : 1;
	return strcmp(a, b);
}

/* Returns text such as "12 (make), 345 (cc1), …". */
static char *list_values(GHashTable *values, bool are_numbers)
{
	GString *text = g_string_new(NULL);
	guint n;
	g_autofree gpointer *all = g_hash_table_get_keys_as_array(values, &n);

	g_qsort_with_data(all, (gint)n, sizeof(*all), compare_values,
			  GINT_TO_POINTER((gint)are_numbers));
	for (guint i = 0; i < n && i < NAMED_MOST; i++) {
		const char *name = g_hash_table_lookup(values, all[i]);

		g_string_append_printf(text, "%s%s", i ? ", " : "", (const char *)all[i]);
		if (name)
			g_string_append_printf(text, " (%s)", name);
	}
	if (n > NAMED_MOST)
		g_string_append_printf(text, ", %s", text_sign(TEXT_ELLIPSIS));
	return g_string_free(text, FALSE);
}

/* Reports requested numbers or strings that no row has. If no row has any of them, fails if
 * reader_fails_empty(), else warns. */
static bool check_absent(struct reader *reader, const GArray *numbers, const GPtrArray *texts,
			 GHashTable *values, const char *format, GError **error)
{
	guint n = numbers ? numbers->len : texts->len, n_absent = 0;
	g_autoptr(GString) absent = g_string_new(NULL);
	g_autofree char *list = list_values(values, numbers), *message = NULL;

	for (guint i = 0; i < n; i++) {
		g_autofree char *asked =
			texts ? g_strdup_printf("'%s'", (const char *)texts->pdata[i])
			      : g_strdup_printf("%" PRIu32, g_array_index(numbers, uint32_t, i));

		if (texts ? g_hash_table_contains(values, texts->pdata[i])
			  : g_hash_table_contains(values, asked))
			continue;
		g_string_append_printf(absent, "%s%s", n_absent++ ? ", " : "", asked);
	}
	if (n_absent == 0)
		return true;
	message = g_strdup_printf(format, absent->str, reader->capture->file, *list ? list : "-");
	if (n_absent == n)
		return select_nothing(reader, steal_ptr(&message), error);
	cli_warning("%s", message);
	return true;
}

/* Checks the options that select by the value of a column. */
static bool check_values(struct reader *reader, GError **error)
{
	static const uint16_t threads[] = { PROF_THREAD_TID, PROF_THREAD_COMM };
	const struct {
		const GArray *numbers;
		const GPtrArray *texts;
		struct {
			unsigned table;
			uint16_t column;
		} sources[2];
		const char *format;
	} kinds[] = {
		{ reader->pids,
		  NULL,
		  { { PROF_TABLE_PROCESS, PROF_PROCESS_PID } },
		  N_("no process %s in '%s'. Recorded: %s") },
		{ reader->tids,
		  NULL,
		  { { PROF_TABLE_THREAD, PROF_THREAD_TID } },
		  N_("no thread %s in '%s'. Recorded: %s") },
		{ NULL,
		  reader->comms,
		  { { PROF_TABLE_THREAD, PROF_THREAD_COMM }, { PROF_TABLE_TASK, PROF_TASK_COMM } },
		  N_("no thread %s in '%s'. Recorded: %s") },
		{ reader->cpus,
		  NULL,
		  { { PROF_TABLE_SAMPLE, PROF_SAMPLE_CPU }, { PROF_TABLE_WAIT, PROF_WAIT_CPU } },
		  N_("nothing of CPU %s in '%s'. Recorded: %s") },
	};

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		g_autoptr(GHashTable)
			values = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
		struct column_values of = { .values = values, .is_text = kinds[i].texts };

		if (!kinds[i].numbers && !kinds[i].texts)
			continue;
		for (size_t k = 0; k < 2 && kinds[i].sources[k].table; k++) {
			of.table = kinds[i].sources[k].table;
			if (!read_columns(reader->capture, &of, &kinds[i].sources[k].column, 1,
					  error))
				return false;
		}
		of.table = PROF_TABLE_THREAD;
		if ((kinds[i].numbers == reader->pids || kinds[i].numbers == reader->tids) &&
		    kinds[i].numbers &&
		    !read_columns(reader->capture, &of, threads, ARRAY_SIZE(threads), error))
			return false;
		if (!check_absent(reader, kinds[i].numbers, kinds[i].texts, values,
				  _(kinds[i].format), error))
			return false;
	}
	return true;
}

/* Fails or warns if the options select a time or a value that the capture does not have. */
static bool check_options(struct reader *reader, GError **error)
{
	const struct capture *capture = reader->capture;
	uint64_t lost = capture->names->lost;
	g_autofree char *to = text_seconds(reader->to_ns);
	bool ok;

	if (!reader_check_start(reader, reader->from_ns, error))
		return false;
	if (reader->to_ns < 0 &&
	    !select_nothing(reader,
			    g_strdup_printf(_("nothing up to %s s: '%s' starts at 0 s"), to,
					    capture->file),
			    error))
		return false;
	ok = check_values(reader, error);
	/* The check above may have counted lost names, which do not affect the answer. */
	capture->names->lost = lost;
	return ok;
}

/* ---- opening and output ---------------------------------------------------------------------- */

bool reader_open(struct reader *reader, const char *file, GError **error)
{
	if (reader->json)
		reader->format = READER_JSON;
	if (reader->limit == READER_LIMIT_UNSET)
		reader->limit = reader->format == READER_TEXT ? reader->text_limit : 0;
	reader->colored = reader->format == READER_TEXT &&
			  cli_color_wanted((enum cli_color)reader->color, out_stdout()->fd);
	reader->columns = reader->format == READER_TEXT ? cli_columns(out_stdout()->fd) : 0;
	reader->is_padded = reader->columns > 0;
	reader->verdicts = g_byte_array_new();
	reader->capture = capture_open(file, reader->redacts, error);
	if (!reader->capture)
		return false;
	reader->capture->is_quiet = reader->judges_damage;
	reader->capture->names->interpreter_frames = reader->interpreter_frames;
	if (resolve_range(reader, error) &&
	    (reader->finds_damage_late ||
	     capture_scan(reader->capture, reader->from_ns, reader->to_ns, error)) &&
	    (reader->judges_damage || capture_refuse_nothing(reader->capture, error)) &&
	    (!reader->comms || reader_load_names(reader, error)) && check_options(reader, error))
		return true;
	capture_free(reader->capture);
	reader->capture = NULL;
	return false;
}

void reader_done(struct reader *reader)
{
	if (reader->capture)
		capture_warn(reader->capture);
	thread_names_free(reader->thread_names);
	capture_free(reader->capture);
	g_clear_pointer(&reader->verdicts, g_byte_array_unref);
	g_clear_pointer(&reader->pids, g_array_unref);
	g_clear_pointer(&reader->tids, g_array_unref);
	g_clear_pointer(&reader->cpus, g_array_unref);
	g_clear_pointer(&reader->comms, g_ptr_array_unref);
	*reader = (struct reader){ 0 };
}

void reader_page(const struct reader *reader)
{
	if (reader->format == READER_TEXT && !reader->no_pager)
		pager_start();
}

void reader_begin(const struct reader *reader, struct json *json, const char *verb, bool truncated,
		  uint64_t total)
{
	g_autofree char *schema = g_strdup_printf("profcapture.%s/1", verb);

	if (reader->format == READER_CSV)
		return;
	json_begin_object(json, NULL);
	json_string(json, "schema", schema);
	capture_write_json(reader->capture, json, "capture");
	json_bool(json, "truncated", truncated);
	json_uint_if(json, "total_rows", total != READER_TOTAL_UNKNOWN, total);
	if (reader->format == READER_NDJSON)
		json_end(json);
	else
		json_begin_object(json, "data");
}

void reader_end(const struct reader *reader, struct json *json)
{
	if (reader->format != READER_JSON)
		return;
	json_end(json);
	json_end(json);
}

void reader_style(const struct reader *reader, struct out *out, enum reader_style style)
{
	static const char *const codes[] = { "\033[0m", "\033[1m", "\033[1;33m" };

	if (reader->colored)
		out_text(out, codes[style]);
}

void reader_print_losses(const struct reader *reader, struct out *out, uint64_t most)
{
	g_auto(GStrv) lines = NULL;
	CLEANUP_OUT struct out text = out_buffer();

	if (!reader->capture->lost)
		return;
	capture_print_losses(reader->capture, &text, most);
	lines = g_strsplit(g_strchomp(text.text->str), "\n", -1);
	reader_style(reader, out, READER_WARNING);
	for (char **line = lines; *line; line++)
		text_wrap(out, *line, 0, 4, reader->columns);
	reader_style(reader, out, READER_PLAIN);
}

void reader_print_missed_ticks(const struct reader *reader, struct out *out)
{
	capture_print_missed_ticks(reader->capture, out, READER_MIN_MISSED_PCT);
}

bool reader_is_complete(const struct reader *reader)
{
	const struct capture *capture = reader->capture;

	return capture->lost == 0 && !capture->lost_incomplete && capture->names->lost == 0 &&
	       capture_state(capture) == PROF_STATE_FINISHED && !capture_lacks_rows(capture, 0);
}

void reader_print_lost_names(const struct reader *reader, struct out *out)
{
	if (reader->capture->names->lost)
		out_printf(out,
			   _("Names that the capture lost are shown as %s "
			     "(%" PRIu64 " look-ups)\n"),
			   NAMES_LOST_TEXT, reader->capture->names->lost);
}

/* Returns whether a loss may have removed rows of a table that collectors record. Losses of kernel
 * events do not affect these tables, and damage of one table does not affect others. */
static bool takes_rows_of(const struct capture_loss *loss, const char *table)
{
	static const char *const kernel_causes[] = {
		"perf-ring", "perf-lost-samples", "throttled",      "ticks-missed",
		"side-band", "cpu-offline",       "unwind-backlog", NULL,
	};

	if (g_strv_contains(kernel_causes, loss->cause))
		return false;
	if (!loss->stream || strcmp(loss->stream, table) == 0)
		return true;
	for (unsigned id = 1; id < PROF_TABLE_FIRST_FOREIGN; id++)
		if (prof_table_v1(id) && strcmp(prof_table_v1(id)->name, loss->stream) == 0)
			return false;
	return !g_str_has_prefix(loss->stream, "cpu");
}

uint64_t reader_lost_rows(const struct reader *reader, const char *const *tables,
			  const char *stream)
{
	const struct capture *capture = reader->capture;
	uint64_t lost = 0;

	ARRAY_EACH(const struct capture_loss, loss, capture->losses) {
		const char *const *table = tables;

		if (loss->from_ns > reader->to_ns || loss->to_ns < reader->from_ns ||
		    (stream && g_strcmp0(loss->stream, stream) != 0))
			continue;
		while (*table && !takes_rows_of(loss, *table))
			table++;
		lost += *table ? capture_loss_least(loss) : 0;
	}
	return lost;
}

bool reader_misses_rows(const struct reader *reader, const char *table)
{
	const struct capture *capture = reader->capture;
	const struct prof_table_def *def = prof_reader_table_by_name(capture->reader, table);

	const char *const tables[] = { table, NULL };

	return (def ? capture_lacks_rows(capture, def->id)
		    : capture_unreadable(capture, 0).stretches > 0) ||
	       reader_lost_rows(reader, tables, NULL) > 0;
}

static bool note_chunk(const struct prof_chunk *chunk, void *data, GError **error)
{
	bool *has = data;

	*has |= chunk->rows > 0;
	return true;
}

bool reader_has_rows(const struct reader *reader, unsigned table, bool *ret_has, GError **error)
{
	struct reader always = *reader;
	bool has = false;

	if (!capture_each_chunk(reader->capture, table, note_chunk, &has, error) ||
	    (!has && !capture_check(reader->capture, 0, error)))
		return false;
	always.from_ns = INT64_MIN;
	always.to_ns = INT64_MAX;
	*ret_has = has || reader_misses_rows(&always, prof_table_v1(table)->name);
	return true;
}

size_t reader_shown(const struct reader *reader, size_t all)
{
	return reader->limit ? MIN_OF(reader->limit, (uint64_t)all) : all;
}

void reader_print_table(const struct reader *reader, struct out *out, const struct table *table)
{
	const struct table_style style = { .out = out,
					   .is_colored = reader->colored,
					   .columns = reader->columns,
					   .is_padded = reader->is_padded };
	size_t shown = reader_shown(reader, table->rows), more = table->rows - shown;

	table_print(table, &style, shown);
	if (more > 0) {
		g_autofree char *rest = table->rest ? table->rest(table->data, shown) : NULL;
		g_autofree char *count = text_count(more);

		if (rest)
			out_printf(out, _("%s (--limit 0)\n"), rest);
		else
			out_printf(out,
				   ngettext("%s more row (--limit 0)\n",
					    "%s more rows (--limit 0)\n", more),
				   count);
	}
}

void reader_write_table(const struct reader *reader, struct json *json, const struct table *table)
{
	table_write(table, json, reader_json_format(reader), reader_shown(reader, table->rows));
}

void reader_print_limit(const struct reader *reader, struct out *out, uint64_t shown, uint64_t all)
{
	if (shown < all)
		out_printf(out, _("showing %" PRIu64 " of %" PRIu64 " (--limit 0 shows all)\n"),
			   shown, all);
}

bool reader_open_rows(struct reader *reader, const char *file, unsigned table, const char *none,
		      GError **error)
{
	bool has;

	if (!reader_open(reader, file, error) || !reader_has_rows(reader, table, &has, error))
		return false;
	if (!has) {
		capture_warn(reader->capture);
		g_set_error(error, CLI_ERROR, CLI_NOTHING_CAPTURED, none, file);
	}
	return has;
}

static bool find_waker(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
		       GError **error)
{
	bool *found = data;

	for (size_t i = 0; i < batch->rows && !*found; i++)
		*found = array_number_or(&batch->columns[0], i, PROF_WAKER_UNKNOWN) !=
			 PROF_WAKER_UNKNOWN;
	return true;
}

/* Stores in *ret_has whether any wait has a waker. If the metadata does not say so, reads the rows,
 * because metadata may be lost. */
static bool has_wakers(const struct capture *capture, bool *ret_has, GError **error)
{
	*ret_has = capture_metadata(capture, "wakers");
	return *ret_has ||
	       names_each_batch(capture->names, NAMES_COLUMNS(PROF_TABLE_WAIT, PROF_WAIT_WAKER),
				find_waker, ret_has, error);
}

bool reader_open_wakers(struct reader *reader, const char *file, GError **error)
{
	bool has;

	if (!reader_open(reader, file, error) || !has_wakers(reader->capture, &has, error))
		return false;
	if (!has) {
		capture_warn(reader->capture);
		return cli_set_error(
			error, CLI_NOTHING_CAPTURED,
			_("capture '%s' does not say who woke threads; 'profctl record "
			  "--wakers' records it, as root or with the profd service"),
			file);
	}
	return capture_check(reader->capture, PROF_TABLE_WAIT, error);
}

static int print_rows(const struct reader *reader, const struct reader_verb *verb, struct out *out)
{
	const struct table table = verb->table(reader);

	reader_print_losses(reader, out, READER_LOSSES);
	reader_print_lost_names(reader, out);
	if (reader->is_incomplete)
		out_text(out, _(verb->incomplete));
	if (table.rows == 0) {
		GError *error = g_error_new(CLI_ERROR, CLI_NOTHING_CAPTURED, _(verb->empty),
					    reader->capture->file);
		int status = cli_fail(error);

		/* Rows that the capture lost may have matched. */
		return reader->is_incomplete ? reader->status : status;
	}
	verb->print(reader, out);
	if (reader_is_complete(reader))
		out_text(out, _("Lost: nothing.\n"));
	out_char(out, '\n');
	reader_print_table(reader, out, &table);
	return reader->status;
}

static void write_rows(const struct reader *reader, const struct reader_verb *verb,
		       struct json *json)
{
	const struct table table = verb->table(reader);

	reader_begin(reader, json, verb->name, reader_shown(reader, table.rows) < table.rows,
		     table.rows);
	if (reader->format == READER_JSON)
		json_bool(json, "incomplete", reader->is_incomplete);
	reader_write_table(reader, json, &table);
	reader_end(reader, json);
}

int reader_run(const struct reader_verb *verb, const struct cli_group *groups, void *data, int argc,
	       char **argv)
{
	struct reader *reader = data;
	struct json json;
	GError *error = NULL;
	int status = cli_parse(&verb->spec, groups, &argc, &argv);

	if (status == CLI_CONTINUE && verb->check)
		status = verb->check(data);
	if (status != CLI_CONTINUE)
		return status;
	if (!verb->query(data, argv, &error))
		return error ? cli_fail(error) : reader->status;
	capture_warn(reader->capture);
	if (verb->is_paged)
		reader_page(reader);
	json_init(&json, out_stdout());
	if (reader->format == READER_TEXT && verb->table)
		reader->status = print_rows(reader, verb, out_stdout());
	else if (reader->format == READER_TEXT && verb->print)
		verb->print(data, out_stdout());
	else if (verb->table)
		write_rows(reader, verb, &json);
	else if (verb->write)
		verb->write(data, &json);
	json_done(&json);
	return reader->status;
}
