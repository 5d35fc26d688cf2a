/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profcapture report - shows where the time went
 *
 * Percentages are relative to the weight of all samples that pass the filters other than frame
 * filters. The text above the rows also reports losses, and how complete stacks and names are.
 */
#include "config.h"

#include "tools/profcapture/report.h"

#include "tools/profcapture/report-hint.h"
#include "tools/profcapture/verbs.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const struct cli_option options[] = {
	{ "by", 0, CLI_CHOICE, offsetof(struct report, profile.by), N_("KEY"),
	  N_("Group by (default: function)"), profile_by_names },
	{ "tree", 0, CLI_FLAG, offsetof(struct report, tree), NULL,
	  N_("Show the call tree, callers first") },
	{ "inverted", 0, CLI_FLAG, offsetof(struct report, profile.inverted), NULL,
	  N_("Show the call tree from the bottom: hottest functions first, then their callers") },
	{ "no-inline", 0, CLI_FLAG, offsetof(struct report, not_inlined), NULL,
	  N_("Attribute inlined functions to their callers") },
	{ "inline", 0, CLI_FLAG, offsetof(struct report, inlined), NULL,
	  N_("Count inlined functions separately from their callers (default)") },
	{ "no-fold", 0, CLI_FLAG, offsetof(struct report, no_fold), NULL,
	  N_("Show every frame in trees and --callers (default: fold runs of library frames, and chains of single callees)") },
	{ "callers", 0, CLI_STRING, offsetof(struct report, callers), N_("F"), NULL },
	{ "callees", 0, CLI_STRING, offsetof(struct report, callees), N_("F"),
	  N_("Show who calls F, or what F calls") },
	{ "per-mark", 0, CLI_STRING, offsetof(struct report, inside.name), N_("NAME"),
	  N_("Use only samples taken inside marks named NAME") },
	{ "mark-scope", 0, CLI_CHOICE, offsetof(struct report, inside.scope), N_("SCOPE"),
	  N_("With --per-mark: use samples of the whole process or of the marking thread (default: process)"),
	  span_scope_names },
	{ "mode", 0, CLI_CHOICE, offsetof(struct report, profile.mode), N_("MODE"),
	  N_("Use only samples taken in this mode (default: any)"), profile_modes },
	{ "timeline", 0, CLI_FLAG, offsetof(struct report, profile.wants_timeline), NULL,
	  N_("Add a column that shows when each row ran") },
	{ "full-names", 0, CLI_FLAG, offsetof(struct report, full_names), NULL,
	  N_("Do not shorten names") },
	{ "no-children", 0, CLI_FLAG, offsetof(struct report, no_children), NULL,
	  N_("Show self time only") },
	{ NULL },
};

double report_percent(const struct report *report, struct amount amount)
{
	return amount_percent(amount, report->profile.all);
}

/* ---- head ------------------------------------------------------------------------------------ */

static void write_per_mark(const struct report *report, struct json *json)
{
	const struct span_set *set = &report->inside;

	json_begin_object(json, "per_mark");
	json_string(json, "name", set->name);
	json_string(json, "scope", span_scope_names[set->scope]);
	json_uint(json, "spans", set->spans);
	json_uint(json, "total_ns", set->total_ns);
	json_uint(json, "unmatched_begin", set->no_end);
	json_uint(json, "unmatched_end", set->no_begin);
	json_bool(json, "incomplete", reader_misses_rows(&report->reader, "mark"));
	json_end(json);
}

/* Prints a sentence, wrapped on a terminal, and empties it. */
static void say(const struct report *report, struct out *out, struct out *sentence)
{
	if (sentence->text->len > 0)
		text_wrap(out, sentence->text->str, 0, 2, report->reader.columns);
	g_string_truncate(sentence->text, 0);
}

static void print_per_mark(const struct report *report, struct out *out)
{
	const struct span_set *set = &report->inside;
	g_autofree char *total = text_duration(set->total_ns);
	g_autofree char *name = text_escape(set->name);
	CLEANUP_OUT struct out line = out_buffer();

	out_printf(&line, _("Inside of %" PRIu64 " spans of '%s', which take %s"), set->spans, name,
		   total);
	if (set->no_end)
		out_printf(&line, _(" (%" PRIu64 " without an end)"), set->no_end);
	if (set->no_begin)
		out_printf(&line, _(" (%" PRIu64 " without a begin)"), set->no_begin);
	out_char(&line, '.');
	if (reader_misses_rows(&report->reader, "mark"))
		out_text(&line,
			 _(" Marks may be missing: counts may be low, and begins without an end, "
			   "or whole spans, wrong."));
	say(report, out, &line);
}

void report_write_head(const struct report *report, struct json *json)
{
	const struct profile *profile = &report->profile;
	struct report_hint hint = report_hint_find(profile);

	json_string(json, "by", profile_by_names[profile->by]);
	json_string(json, "metric",
		    report->reader.metric == READER_CPU ? "samples"
							: reader_metrics[report->reader.metric]);
	json_string(json, "event", profile_event_name(profile));
	json_string(json, "unit", profile_unit(profile));
	json_uint(json, "total", profile->all.samples);
	json_uint(json, "self_total", profile->all.samples - profile->filtered.samples);
	json_uint(json, "total_weight", profile->all.weight);
	json_uint(json, "self_total_weight", profile->all.weight - profile->filtered.weight);
	json_begin_object(json, "modes");
	json_uint(json, "user", profile->all.samples - profile->kernel.samples);
	json_uint(json, "kernel", profile->kernel.samples);
	json_end(json);
	json_begin_object(json, "modes_weight");
	json_uint(json, "user", profile->all.weight - profile->kernel.weight);
	json_uint(json, "kernel", profile->kernel.weight);
	json_end(json);
	json_uint_if(json, "period_ns", profile->period_ns, profile->period_ns);
	json_bool(json, "incomplete",
		  (report->reader.metric != READER_OFF_CPU &&
		   capture_lacks_rows(report->reader.capture, PROF_TABLE_SAMPLE)) ||
			  (report->reader.metric != READER_CPU &&
			   capture_lacks_rows(report->reader.capture, PROF_TABLE_WAIT)));
	profile_write_unwind(profile, json, "unwind");
	profile_write_interpreter(profile, json, "interpreter");
	report_hint_write(&hint, json, "hint");
	if (profile->wants_timeline) {
		json_begin_object(json, "timeline");
		json_int(json, "from_ns", profile->bins_from_ns);
		json_uint(json, "bin_ns", profile->bin_ns);
		json_end(json);
	}
	if (report->inside.name)
		write_per_mark(report, json);
}

static bool is_of_clock(const struct report *report)
{
	return strcmp(profile_unit(&report->profile), "ns") == 0;
}

/* Returns whether the report covers the whole recording, measured by a clock or by the default
 * event. */
static bool is_whole(const struct report *report)
{
	const struct reader *reader = &report->reader;

	return reader->metric == READER_CPU && (is_of_clock(report) || !reader->event) &&
	       report->profile.mode == PROFILE_ANY_MODE && !report->inside.name && !reader->timed &&
	       !reader_filters_threads(reader) && reader->cpus == NULL &&
	       reader->capture->duration_ns > 0;
}

bool report_is_all_cpu_time(const struct report *report)
{
	return is_whole(report) && is_of_clock(report) && report->profile.all.weight > 0;
}

/* Returns whether the first lines say how long threads waited. Most threads of a whole system are
 * idle, so a report of the system says this only if the places of the waits are known. */
static bool says_waiting(const struct report *report)
{
	return is_whole(report) && (report->waits.functions ||
				    (is_of_clock(report) && report->profile.by != PROFILE_THREAD &&
				     !capture_is_system(report->reader.capture)));
}

/* Prints a sentence such as "The busiest 4 ran 25-27 % of their lives, waited 68-69 % and were
 * without a CPU 5-6 %." */
static void print_busiest(const struct report *report, struct out *out)
{
	enum { RAN, WAITED, READY, N_SHARES };
	const GArray *times = report->times;
	double least[N_SHARES] = { 100, 100, 100 }, most[N_SHARES] = { 0 };
	char *ranges[N_SHARES];
	uint64_t longest = 0;
	unsigned n = 0;
	CLEANUP_OUT struct out line = out_buffer();

	for (guint i = 0; i < times->len; i++)
		longest = MAX_OF(longest, g_array_index(times, struct run_time, i).run_ns);
	for (guint i = 0; longest && i < times->len; i++) {
		const struct run_time *time = &g_array_index(times, struct run_time, i);
		double run = (double)time->run_ns, wait = (double)time->wait_ns;
		double ready = (double)time->preempted_ns + (double)time->runnable_ns;
		double life = run + wait + ready;
		const double shares[N_SHARES] = { 100 * run / life, 100 * wait / life,
						  100 * ready / life };

		if (time->run_ns < longest / 2)
			continue;
		n++;
		for (unsigned k = 0; k < N_SHARES; k++) {
			least[k] = MIN_OF(least[k], shares[k]);
			most[k] = MAX_OF(most[k], shares[k]);
		}
	}
	if (n == 0)
		return;
	for (unsigned k = 0; k < N_SHARES; k++)
		ranges[k] = round(least[k]) < round(most[k])
				    ? g_strdup_printf("%.0f-%.0f %%", least[k], most[k])
				    : g_strdup_printf("%.0f %%", most[k]);
	if (n == 1)
		out_printf(&line,
			   _("The busiest ran %s of its life, waited %s and was without a CPU %s."),
			   ranges[RAN], ranges[WAITED], ranges[READY]);
	else
		out_printf(
			&line,
			_("The busiest %u ran %s of their lives, waited %s and were without a CPU %s."),
			n, ranges[RAN], ranges[WAITED], ranges[READY]);
	say(report, out, &line);
	for (unsigned k = 0; k < N_SHARES; k++)
		g_free(ranges[k]);
}

static bool count_rows(const struct prof_chunk *chunk, void *data, GError **error)
{
	uint64_t *rows = data;

	*rows += chunk->rows;
	return true;
}

/* Appends "Lost: 526 of 3,293 waits (16 %), in 1 damaged chunk." */
static void append_damage(const struct report *report, GString *line)
{
	const struct capture *capture = report->reader.capture;
	const unsigned tables[] = { PROF_TABLE_SAMPLE, PROF_TABLE_SWITCH, PROF_TABLE_WAIT };
	const char *const names[] = { N_("samples"), N_("context switches"), N_("waits") };
	struct prof_lost all = capture_unreadable(capture, 0);
	uint64_t chunks = 0;
	guint before = line->len;

	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		struct prof_lost lost = capture_unreadable(capture, tables[i]);
		uint64_t rows = 0;
		g_autofree char *count = text_count(lost.rows), *of = NULL;

		if (lost.rows == 0 ||
		    !capture_each_chunk(capture, tables[i], count_rows, &rows, NULL))
			continue;
		rows = MAX_OF(rows, lost.rows);
		of = text_count(rows);
		g_string_append_printf(line, _("%s%s of %s %s (%.0f %%)"),
				       line->len > before ? ", " : _("Lost: "), count, of,
				       _(names[i]), 100 * (double)lost.rows / (double)rows);
		chunks += lost.chunks;
	}
	if (line->len > before && chunks == all.chunks && all.stretches == 0)
		g_string_append_printf(line,
				       ngettext(", in %" PRIu64 " damaged chunk.",
						", in %" PRIu64 " damaged chunks.", chunks),
				       chunks);
	else
		g_string_append(
			line,
			line->len > before
				? _(", and more in damaged parts "
				    "('profcapture verify' lists them).")
				: _("Lost: the content of damaged parts of the capture ('profcapture verify' lists them)."));
}

void report_print_losses(const struct report *report, struct out *out)
{
	const struct profile *profile = &report->profile;
	const struct capture *capture = report->reader.capture;
	g_autoptr(GString) line = g_string_new(NULL);

	reader_print_losses(&report->reader, out, READER_LOSSES);
	if (!profile->focus) {
		if (reader_is_complete(&report->reader))
			g_string_append(line, _("Lost: nothing."));
		else if (capture->lost == 0 && capture_state(capture) == PROF_STATE_UNFINISHED)
			g_string_append(line,
					_("Lost: perhaps the end, the capture is unfinished."));
		else if (capture_state(capture) != PROF_STATE_FINISHED &&
			 (capture->lost == 0 || capture_lacks_rows(capture, 0)))
			append_damage(report, line);
		summary_append_quality(profile, line);
		g_strchug(line->str);
		if (*line->str)
			text_wrap(out, line->str, 0, 2, report->reader.columns);
	}
	if (report->reader.metric != READER_CPU && capture_lacks_rows(capture, PROF_TABLE_WAIT))
		out_text(out, _("Waits could not be read: times are lower bounds\n"));
	if (report->reader.metric != READER_OFF_CPU &&
	    capture_lacks_rows(capture, PROF_TABLE_SAMPLE))
		out_text(
			out,
			_("Samples could not be read: counts are lower bounds, and shares refer to the others\n"));
	if (profile->by == PROFILE_THREAD && capture_lacks_rows(capture, PROF_TABLE_SWITCH))
		out_text(out, _("Context switches could not be read: times are lower bounds\n"));
	if (profile->bad_stacks)
		out_printf(out, _("Broken stacks, cut: %" PRIu64 "\n"), profile->bad_stacks);
	reader_print_lost_names(&report->reader, out);
	reader_print_missed_ticks(&report->reader, out);
}

struct summary report_summary(const struct report *report)
{
	return (struct summary){
		.reader = &report->reader,
		.profile = &report->profile,
		.own = &report->own,
		.times = report->times,
		.waits = report->waits.functions ? &report->waits : NULL,
		.full_names = report->full_names,
	};
}

/* Prints how much of the waiting time has a stack. */
static void print_wait_stacks(const struct report *report, struct out *out)
{
	bool has_own = report->reader.metric == READER_CPU || report->profile.by == PROFILE_STATE;
	const struct profile *waits = has_own ? &report->waits : &report->profile;

	if (!waits->functions)
		out_text(out, _("Where threads waited was not recorded ('profctl record "
				"--off-cpu' does).\n"));
	else
		profile_print_wait_stacks(waits, out);
}

void report_print_states_head(const struct report *report, struct out *out)
{
	const struct summary summary = report_summary(report);
	CLEANUP_OUT struct out line = out_buffer();

	summary_print_waiting(&summary, &line);
	say(report, out, &line);
	reader_print_losses(&report->reader, out, READER_LOSSES);
	if (capture_lacks_rows(report->reader.capture, PROF_TABLE_SWITCH))
		out_text(out, _("Context switches could not be read: times are lower bounds\n"));
	else if (reader_is_complete(&report->reader))
		out_text(out, _("Lost: nothing.\n"));
	print_wait_stacks(report, out);
}

const char *report_count_title(const struct report *report)
{
	return report->reader.metric == READER_OFF_CPU ? _("waits") : _("samples");
}

void report_print_head(const struct report *report, struct out *out)
{
	const struct profile *profile = &report->profile;
	bool is_all = report_is_all_cpu_time(report);

	const struct summary summary = report_summary(report);
	CLEANUP_OUT struct out line = out_buffer();

	if (is_all)
		summary_print_cost(&summary, &line);
	else
		summary_print_samples(&summary, &line);
	say(report, out, &line);
	summary_print_where(&summary, &line);
	say(report, out, &line);
	if (is_all && profile->by == PROFILE_THREAD &&
	    !capture_lacks_rows(report->reader.capture, PROF_TABLE_SWITCH))
		print_busiest(report, out);
	if (says_waiting(report)) {
		summary_print_waiting(&summary, &line);
		say(report, out, &line);
		if (summary_waited_ns(&summary) > 0)
			print_wait_stacks(report, out);
	}
	if (report->reader.metric != READER_CPU)
		print_wait_stacks(report, out);
	if (report->inside.name)
		print_per_mark(report, out);
	summary_print_passed(profile, &line);
	say(report, out, &line);
	if (profile->mode != PROFILE_ANY_MODE)
		out_printf(out, _("Only samples in %s mode.\n"), profile_modes[profile->mode]);
	report_print_losses(report, out);
	if (profile->by == PROFILE_THREAD && report->times->len &&
	    !run_times_have_wakeups(report->reader.capture))
		out_text(
			out,
			_("Waits end when the thread runs again, because wake-ups were not recorded.\n"));
	out_char(out, '\n');
}

/* Prints hints on what to do next, below the answer. */
static void print_tail(const struct report *report, struct out *out)
{
	const char *file = report->reader.capture->file;
	struct report_hint hint = report_hint_find(&report->profile);
	g_autofree char *word = text_shell_file(file), *quoted = text_escape(word);
	CLEANUP_OUT struct out line = out_buffer();

	report_hint_print(&hint, &line);
	g_strchomp(line.text->str);
	g_string_truncate(line.text, strlen(line.text->str));
	say(report, out, &line);
	if (report->reader.columns > 0 && report->profile.by == PROFILE_FUNCTION && !report->tree &&
	    !report->profile.focus && report->profile.all.samples > 0 && strcmp(file, "-") != 0)
		out_printf(out, _("Next: profcapture report %s --tree\n"), quoted);
}

bool report_read_waits(struct report *report, GError **error)
{
	struct reader *reader = &report->reader;
	int metric = reader->metric;
	bool has, ok;

	if (!reader_has_rows(reader, PROF_TABLE_WAIT, &has, error))
		return false;
	if (!has)
		return true;
	reader->metric = READER_OFF_CPU;
	report->waits = (struct profile){ .by = PROFILE_FUNCTION,
					  .inlined = true,
					  .joins_inlined = true,
					  .waiting = &report->waiting };
	ok = profile_run(&report->waits, reader, error);
	reader->metric = metric;
	return ok;
}

/* ---- the verb -------------------------------------------------------------------------------- */

static int check_options(const struct report *report)
{
	bool edges = report->callers || report->callees;
	bool nested = report->tree || edges;
	int by = report->profile.by, format = report->reader.format;
	const struct {
		bool is_wrong;
		const char *message;
	} rules[] = {
		{ report->profile.inverted && edges,
		  N_("--inverted cannot be combined with --callers or --callees") },
		{ report->no_children && nested,
		  N_("--no-children applies to rows, not to trees") },
		{ report->callers && report->callees &&
			  strcmp(report->callers, report->callees) != 0,
		  N_("--callers and --callees together take one function") },
		{ report->tree && edges,
		  N_("--tree cannot be combined with --callers or --callees") },
		{ nested && by != PROFILE_FUNCTION && by != PROFILE_IMAGE,
		  N_("--tree, --callers and --callees need --by function or image") },
		{ report->inlined && by != PROFILE_FUNCTION, N_("--inline needs --by function") },
		{ report->inlined && report->not_inlined,
		  N_("--inline and --no-inline exclude each other") },
		{ report->profile.wants_timeline && nested,
		  N_("--timeline cannot be combined with --tree, --callers or --callees") },
		{ report->profile.wants_timeline && (by > PROFILE_IMAGE || format == READER_CSV),
		  N_("--timeline needs --by function, line or image, and text, json or ndjson") },
		{ report->inside.scope != SPAN_OF_PROCESS && !report->inside.name,
		  N_("--mark-scope needs --per-mark") },
		{ by == PROFILE_STATE &&
			  (nested || report->inside.name || report->profile.wants_timeline ||
			   report->reader.cpus || report->profile.mode != PROFILE_ANY_MODE ||
			   frame_filters_any(&report->filters)),
		  N_("--by state cannot be combined with another view, --cpu, --mode, --per-mark or frame filters") },
		{ edges && by != PROFILE_FUNCTION,
		  N_("--callers and --callees need --by function") },
		{ nested && (format == READER_NDJSON || format == READER_CSV),
		  N_("--tree, --callers and --callees are printed as text or json") },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rules); i++)
		if (rules[i].is_wrong)
			return cli_usage_error("%s", _(rules[i].message));
	return CLI_CONTINUE;
}

/* Fills in the name of each process: its main thread's, or else its first known thread's. */
static void list_process_comms(struct report *report)
{
	const struct names *names = report->reader.capture->names;

	report->process_comms = g_ptr_array_new();
	g_ptr_array_set_size(report->process_comms, (gint)names->processes->len);
	for (guint i = NAMES_LOST + 1; i < names->threads->len; i++) {
		const struct names_thread *thread = names_thread_at(names, i);
		gpointer *comm = &report->process_comms->pdata[thread->process];

		if (!*comm || thread->tid == names_process_at(names, thread->process)->pid)
			*comm = (gpointer)thread->comm;
	}
}

/* All matching functions with one name. */
struct match {
	const char *raw_name; /* raw name of the first function */
	uint64_t samples;
};

/* Returns a map from each name that matches --callers or --callees best to its struct match.
 * *ret_only: false if another function matches less well. */
static GHashTable *best_names(const struct report *report, bool *ret_only)
{
	const struct profile *profile = &report->profile;
	enum function_name_match best = FUNCTION_NAME_COMPONENT;
	GHashTable *names = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, g_free);

	*ret_only = true;
	for (guint i = FUNCTION_LOST + 1; i < profile->functions->all->len; i++) {
		const struct function *f = functions_at(profile->functions, i);
		enum function_name_match how =
			function_name_match(f->name, f->raw_name, profile->focus);
		uint64_t samples = profile_count_at(profile->counts, i).total.samples;
		struct match *match;

		if (how == FUNCTION_NAME_DIFFERS || samples == 0)
			continue;
		*ret_only = *ret_only && (how == best || g_hash_table_size(names) == 0);
		if (how > best)
			g_hash_table_remove_all(names);
		best = MAX_OF(best, how);
		if (how < best)
			continue;
		match = g_hash_table_lookup(names, f->name);
		if (!match) {
			match = g_new0(struct match, 1);
			match->raw_name = f->raw_name;
			g_hash_table_insert(names, (gpointer)f->name, match);
		}
		match->samples += samples;
	}
	return names;
}

static bool refuse_several(const struct report *report, GHashTable *names, GError **error)
{
	g_autoptr(GList) sorted = g_list_sort(g_hash_table_get_keys(names), (GCompareFunc)strcmp);
	g_autoptr(GString) list = g_string_new(NULL);

	for (const GList *name = sorted; name; name = name->next) {
		const struct match *match = g_hash_table_lookup(names, name->data);
		g_autofree char *simple = function_name_simplify(name->data, match->raw_name);

		g_string_append_printf(list, "%s%s (%" PRIu64 ")", list->len ? ", " : "", simple,
				       match->samples);
	}
	return cli_set_error(error, CLI_USAGE,
			     _("'%s' matches %u functions (samples); name one: %s"),
			     report->profile.focus, g_hash_table_size(names), list->str);
}

/* Counts the callers and callees of the selected function. If only a part of a name is given,
 * selects the function that matches best, and fails if several match equally well. If the first run
 * also counted weaker matches, a second run counts only the best one. */
static bool count_focus(struct report *report, GError **error)
{
	struct profile wanted;
	g_autoptr(GHashTable) names = NULL;
	GHashTableIter iter;
	gpointer name;
	bool only;

	report->profile.focus_is_part = true;
	wanted = report->profile;
	if (!profile_run(&report->profile, &report->reader, error))
		return false;
	names = best_names(report, &only);
	if (g_hash_table_size(names) > 1)
		return refuse_several(report, names, error);
	g_hash_table_iter_init(&iter, names);
	if (!g_hash_table_iter_next(&iter, &name, NULL))
		return true;
	report->focus_name = g_strdup(name);
	if (!only) {
		profile_done(&report->profile);
		report->profile = wanted;
		report->profile.focus_is_part = false;
	}
	report->profile.focus = report->focus_name;
	return only || profile_run(&report->profile, &report->reader, error);
}

static bool report_run(struct report *report, const char *file, GError **error)
{
	struct reader *reader = &report->reader;
	struct profile *profile = &report->profile;
	bool is_text;

	/* A whole tree is rarely useful, in any format. */
	if (report->tree && reader->limit == READER_LIMIT_UNSET)
		reader->limit = READER_USUAL_ROWS;
	else if (report->tree)
		report->tree_lines = reader->limit;
	if (!frame_filters_open(&report->filters, error) || !reader_open(reader, file, error))
		return false;
	if (frame_filters_any(&report->filters))
		profile->filters = &report->filters;
	if (report->inside.name) {
		if (!capture_check(reader->capture, PROF_TABLE_MARK, error) ||
		    !span_set_read(&report->inside, reader, error))
			return false;
		if (report->inside.marks == 0)
			return reader_no_mark(reader, report->inside.name, error);
		profile->inside = &report->inside;
	}
	if (report->full_names)
		reader->columns = 0;
	if (profile->by == PROFILE_STATE) {
		report->times = run_times_read(reader, error);
		return report->times && report_read_waits(report, error);
	}
	is_text = reader->format == READER_TEXT;
	profile->wants_tree = report->tree;
	profile->inlined = profile->joins_inlined = profile->by == PROFILE_FUNCTION &&
						    !report->not_inlined;
	if (reader->limit)
		/* Folding combines branches, so it needs the small ones, too. */
		profile->tree.min_share = REPORT_TREE_MIN_PCT /
					  (is_text && !report->no_fold ? 1000 : 100);
	profile->focus = report->callers ? report->callers : report->callees;
	profile->own_callers = is_text && !report->no_fold;
	profile->wants_threads = is_text && !profile->focus;
	if (profile->by == PROFILE_FUNCTION && !profile->focus && is_text)
		profile->own = &report->own;
	if (!(profile->focus ? count_focus(report, error) : profile_run(profile, reader, error)))
		return false;
	if (profile->by == PROFILE_PROCESS || (is_text && report_is_all_cpu_time(report) &&
					       capture_is_system(report->reader.capture)))
		list_process_comms(report);
	if (profile->by == PROFILE_THREAD && (!reader_load_names(reader, error) ||
					      !thread_starts_read(&report->starts, reader, error)))
		return false;
	if (profile->by != PROFILE_THREAD && (!is_text || profile->focus || !is_whole(report)))
		return true;
	/* Run times are per thread and cannot be limited to spans. */
	report->times = report->inside.name ? g_array_new(FALSE, TRUE, sizeof(struct run_time))
					    : run_times_read(reader, error);
	return report->times && (!is_text || !is_whole(report) || report_read_waits(report, error));
}

/* Fails if the options select none of the recorded samples or waits. For the metric cpu, a capture
 * without samples is not a failure. */
static bool check_found(const struct report *report, GError **error)
{
	const struct reader *reader = &report->reader;
	const struct profile *profile = &report->profile;
	uint64_t recorded = capture_samples(reader->capture);
	g_autofree char *samples = text_count(recorded);
	g_autofree char *duration = text_duration((uint64_t)reader->capture->duration_ns);

	if (!reader_fails_empty(reader) || (recorded == 0 && reader->metric == READER_CPU) ||
	    profile->by == PROFILE_STATE || profile->by == PROFILE_THREAD ||
	    profile->all.samples > profile->filtered.samples)
		return true;
	if (!reader->timed && !reader_filters_threads(reader) && !reader->cpus &&
	    !profile->filters && !profile->inside && profile->mode == PROFILE_ANY_MODE)
		return true;
	if (reader->metric == READER_OFF_CPU)
		return cli_set_error(error, CLI_NOTHING_CAPTURED,
				     _("no wait in '%s' matches these options. Recorded: %s"),
				     reader->capture->file, duration);
	return cli_set_error(error, CLI_NOTHING_CAPTURED,
			     _("no sample in '%s' matches these options. Recorded: %s "
			       "samples in %s"),
			     reader->capture->file, samples, duration);
}

void report_done(struct report *report)
{
	json_done(&report->json);
	g_clear_pointer(&report->times, g_array_unref);
	g_clear_pointer(&report->process_comms, g_ptr_array_unref);
	profile_done(&report->profile);
	profile_done(&report->waits);
	wait_places_done(&report->waiting);
	thread_starts_done(&report->starts);
	own_weights_done(&report->own);
	g_free(report->focus_name);
	frame_filters_done(&report->filters);
	span_set_done(&report->inside);
	reader_done(&report->reader);
}

/* Returns the *.cap file in the current directory that was modified last, and prints its name. */
static char *newest_capture(GError **error)
{
	g_autoptr(GError) failure = NULL;
	g_autoptr(GDir) folder = g_dir_open(".", 0, &failure);
	g_autofree char *newest = NULL, *escaped = NULL;
	const char *name;
	int64_t newest_ns = 0;

	while (folder && (name = g_dir_read_name(folder))) {
		struct stat status;
		int64_t ns;

		if (!g_str_has_suffix(name, ".cap") || stat(name, &status) < 0 ||
		    !S_ISREG(status.st_mode))
			continue;
		ns = (int64_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec;
		if (newest && ns <= newest_ns)
			continue;
		newest_ns = ns;
		g_free(newest);
		newest = g_strdup(name);
	}
	if (failure)
		g_set_error(error, CLI_ERROR, CLI_FAILURE, _("cannot read this folder: %s"),
			    cli_reason(failure));
	else if (!newest)
		g_set_error(error, CLI_ERROR, CLI_USAGE,
			    _("this folder has no capture (*.cap); name a FILE, or record "
			      "one: profctl record -- COMMAND"));
	if (!newest)
		return NULL;
	escaped = text_escape(newest);
	fprintf(stderr, _("Reading '%s', the newest capture in this folder.\n"), escaped);
	return g_steal_pointer(&newest);
}

int verb_report(int argc, char **argv)
{
	static const struct cli_spec spec = {
		N_("[FILE]"),
		N_("Show where the time went (default: the newest capture in this folder)."), 0, 1
	};
	CLEANUP(report_done)
	struct report report = { .reader = READER_TEXT_ROWS(READER_USUAL_ROWS) };
	const struct cli_group groups[] = {
		{ N_("Views"), options, &report },
		READER_SELECT(N_("Select"), &report.reader),
		{ NULL, reader_cpu_options, &report.reader },
		{ NULL, reader_event_options, &report.reader },
		{ N_("Frames (regular expressions on function, file or image, as in pprof)"),
		  frame_filter_options, &report.filters },
		{ NULL, reader_interpreter_options, &report.reader },
		{ N_("Output"), reader_output_options, &report.reader },
		{ NULL, reader_pager_options, &report.reader },
		{ NULL }
	};
	struct out *out = out_stdout();
	g_autofree char *newest = NULL;
	GError *error = NULL;
	int status = cli_parse(&spec, groups, &argc, &argv);

	json_init(&report.json, out);
	report.tree |= report.profile.inverted;
	if (status == CLI_CONTINUE)
		status = check_options(&report);
	if (status != CLI_CONTINUE)
		return status;
	if (argc == 0)
		newest = newest_capture(&error);
	if (error || !report_run(&report, argc ? argv[0] : newest, &error) ||
	    !check_found(&report, &error))
		return cli_fail(error);
	capture_warn(report.reader.capture);
	reader_page(&report.reader);
	if (report.profile.by == PROFILE_STATE)
		report_show_states(&report, out);
	else if (report.tree)
		report_show_tree(&report, out);
	else if (report.profile.focus)
		status = report_show_edges(&report, out);
	else
		report_show_rows(&report, out);
	if (status != CLI_CONTINUE && status != CLI_OK)
		return status;
	if (report.reader.format == READER_TEXT && report.profile.by != PROFILE_STATE)
		print_tail(&report, out);
	return CLI_OK;
}
