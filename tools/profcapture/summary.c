/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/summary.h"

#include "base/each.h"
#include "tools/profile/function-labels.h"
#include "tools/profile/function-names.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define NAME_COLUMNS 60u

/* Time without a CPU is mentioned if it is at least this share of the recording's length. */
#define READY_MIN_PCT 1.0

/* Limits of the sentence that says where most time went. */
#define WHERE_FUNCTIONS 3u
#define WHERE_MIN_PCT 1.0
#define WHERE_MIN_CALLEE_PCT 25.0

void summary_count_tasks(const struct summary *summary, unsigned *ret_threads,
			 unsigned *ret_processes)
{
	const struct names *names = summary->reader->capture->names;
	const GArray *times = summary->times, *sampled = summary->profile->threads;
	/* A thread has several indexes if its process executed another program. */
	g_autoptr(GHashTable) tids = g_hash_table_new(NULL, NULL);
	g_autoptr(GHashTable) pids = g_hash_table_new(NULL, NULL);

	for (guint i = NAMES_LOST + 1; i < MAX_OF(times->len, sampled->len); i++) {
		const struct names_thread *thread = names_thread_at(names, i);

		if (!(i < times->len && g_array_index(times, struct run_time, i).known) &&
		    !(i < sampled->len && g_array_index(sampled, struct amount, i).samples))
			continue;
		g_hash_table_add(tids, GSIZE_TO_POINTER(thread->tid));
		g_hash_table_add(pids,
				 GSIZE_TO_POINTER(names_process_at(names, thread->process)->pid));
	}
	*ret_threads = g_hash_table_size(tids);
	*ret_processes = g_hash_table_size(pids);
}

/* Prints " profd itself: 6.6 %.": the share of profd's own processes in the system's CPU time. */
static void print_own_share(const struct summary *summary, struct out *out)
{
	static const char *const programs[] = { "profd", "profd-engine", "profd-files", "profctl" };
	const struct names *names = summary->reader->capture->names;
	const GArray *sampled = summary->profile->threads;
	uint64_t whole = summary->profile->all.weight, weight = 0;
	g_autofree char *share = NULL;

	for (guint i = NAMES_LOST + 1; i < sampled->len; i++) {
		const char *exe = names_process_at(names, names_thread_at(names, i)->process)->exe;
		g_autofree char *program = exe ? g_path_get_basename(exe) : NULL;

		for (size_t j = 0; program && j < ARRAY_SIZE(programs); j++)
			if (strcmp(program, programs[j]) == 0)
				weight += g_array_index(sampled, struct amount, i).weight;
	}
	if (whole == 0)
		return;
	share = text_percent(100.0 * (double)weight / (double)whole, true);
	out_printf(out, _(" profd itself: %s %%."), share);
}

void summary_print_cost(const struct summary *summary, struct out *out)
{
	const struct capture *capture = summary->reader->capture;
	double cpus = (double)summary->profile->all.weight / (double)capture->duration_ns;
	g_autofree char *used = text_duration(summary->profile->all.weight);
	g_autofree char *duration = text_duration((uint64_t)capture->duration_ns);
	const char *metadata = capture_metadata(capture, "cpus");
	uint64_t n_cpus = metadata ? g_ascii_strtoull(metadata, NULL, 10) : 0;
	g_autofree char *command =
		capture_command(capture, summary->full_names ? 0 : CAPTURE_COMMAND_COLUMNS);
	g_autofree char *n_threads = NULL, *n_processes = NULL;
	unsigned threads, processes;

	summary_count_tasks(summary, &threads, &processes);
	n_threads = text_count(threads);
	n_processes = text_count(processes);
	if (summary->profile->by == PROFILE_THREAD)
		out_printf(out, ngettext("%s thread", "%s threads", threads), n_threads);
	else if (capture_metadata(capture, "command"))
		out_text(out, command);
	else
		out_text(out,
			 capture_is_system(capture) ? _("The system") : _("What was recorded"));
	out_printf(out, _(" used %s of CPU in %s"), used, duration);
	if (capture_is_system(capture) && n_cpus > 0)
		out_printf(out, _(" (%.*f of %" PRIu64 " CPUs busy)"),
			   cpus < 9.95 && fabs(cpus - round(cpus)) >= 0.05, cpus, n_cpus);
	else
		out_printf(out, _(" (%.2f CPUs)"), cpus);
	if (capture_is_system(capture))
		out_printf(out, ngettext(", %s process", ", %s processes", processes), n_processes);
	else if (summary->profile->by != PROFILE_THREAD)
		out_printf(out, ngettext(", %s thread", ", %s threads", threads), n_threads);
	profile_print_other_events(summary->profile, out);
	out_char(out, '.');
	if (capture_is_system(capture))
		print_own_share(summary, out);
}

void summary_print_samples(const struct summary *summary, struct out *out)
{
	const struct reader *reader = summary->reader;
	const struct profile *profile = summary->profile;
	int64_t from = MAX_OF(reader->from_ns, 0), end = reader->capture->duration_ns;
	int64_t to = MIN_OF(reader->to_ns, end);
	g_autofree char *first = text_seconds(from);
	g_autofree char *last = text_seconds(to);
	g_autofree char *whole = text_seconds(end);
	g_autofree char *samples = text_count(profile->all.samples);
	g_autofree char *duration = text_duration((uint64_t)MAX_OF(to - from, INT64_C(0)));
	g_autofree char *event = text_escape(profile_event_name(profile));

	if (from >= to && profile->all.samples == 0) {
		/* If no row has a time, the length of the recording is unknown. */
		out_printf(out,
			   end > 0 ? _("No samples: the capture ends at %s s.") : _("No samples."),
			   whole);
	} else if (reader->metric != READER_CPU) {
		g_autofree char *weight = text_duration(profile->all.weight);

		out_printf(out,
			   reader->metric == READER_OFF_CPU
				   ? ngettext("Threads waited %s in %s wait, in %s",
					      "Threads waited %s in %s waits, in %s",
					      profile->all.samples)
				   : _("Threads computed and waited %s, in %s samples and waits, "
				       "in %s"),
			   weight, samples, duration);
		if (reader->timed)
			out_printf(out, _(", from %s s to %s s"), first, last);
		out_char(out, '.');
	} else if (profile->all.samples == 0 && !profile->event) {
		out_printf(out, _("No samples in %s."), duration);
	} else {
		out_printf(out, _("%s samples of %s in %s"), samples, event, duration);
		if (reader->timed)
			out_printf(out, _(", from %s s to %s s"), first, last);
		profile_print_sum(profile, out);
		profile_print_other_events(profile, out);
		out_char(out, '.');
	}
}

void summary_append_quality(const struct profile *profile, GString *to)
{
	const uint64_t *interpreter = profile->interpreter;
	uint64_t user = 0, interpreted = profile_interpreted(profile);

	for (size_t i = 0; i < UNWIND_NO_MEMORY; i++)
		user += profile->unwind[i];

	const struct {
		const char *label;
		uint64_t count, all;
	} kinds[] = {
		{ N_("Stacks cut short"), profile->unwind[UNWIND_TRUNCATED], user },
		{ N_("Stacks guessed"), profile->unwind[UNWIND_GUESSED], user },
		{ N_("Without a user stack"), profile->unwind[UNWIND_NONE], user },
		{ N_("Interpreted functions unreadable"),
		  interpreter[PROF_INTERPRETER_TORN] + interpreter[PROF_INTERPRETER_MISSING],
		  interpreted },
		{ N_("Interpreted functions cut short"), interpreter[PROF_INTERPRETER_DEEPER],
		  interpreted },
		{ N_("Without a name"), profile->unresolved, profile->all.samples },
	};

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		double percent = 100.0 * (double)kinds[i].count / (double)kinds[i].all;

		if (100 * kinds[i].count > kinds[i].all)
			g_string_append_printf(to, " %s: %.*f %%.", _(kinds[i].label), percent < 10,
					       percent);
	}
}

void summary_print_passed(const struct profile *profile, struct out *out)
{
	struct amount passed = amount_less(profile->all, profile->filtered);
	g_autofree char *samples = text_count(passed.samples);

	if (profile->filters)
		out_printf(out, _("%s samples (%.0f %%) pass the filters of frames."), samples,
			   amount_percent(passed, profile->all));
}

/* Returns the name of a function, shortened because template arguments may be long. */
static char *name_in_sentence(const struct summary *summary, const struct function_labels *labels,
			      uint32_t function)
{
	char *name = function_labels_name(labels, function), *fitting;

	if (summary->full_names)
		return name;
	fitting = function_name_fit(name, NAME_COLUMNS);
	g_free(name);
	return fitting;
}

/* Returns the function's place if another function has the same name; else NULL. */
static char *place_in_sentence(const struct function_labels *labels, uint32_t function)
{
	return function > FUNCTION_LOST && function_labels_is_shared(labels, function)
		       ? function_labels_place(labels, function)
		       : NULL;
}

static void print_name(struct out *out, const char *name, const char *place)
{
	text_cell(out, name, 0);
	if (!place)
		return;
	out_text(out, " (");
	text_cell(out, place, 0);
	out_char(out, ')');
}

void summary_each_where(const struct summary *summary,
			void (*each)(const struct summary_where *where, void *data), void *data)
{
	g_autoptr(GArray) rows = own_weights_rows(summary->own);
	const struct own_weight_row *all = (const void *)rows->data;
	struct function_labels *labels =
		function_labels_new(summary->profile->functions, summary->full_names);
	double weight = (double)summary->profile->all.weight;
	guint n = 0;

	while (n < rows->len && n < WHERE_FUNCTIONS &&
	       100 * (double)all[n].weight / weight >= WHERE_MIN_PCT) {
		function_labels_add(labels, all[n].function);
		function_labels_add(labels, all[n++].hottest);
	}
	for (guint i = 0; i < n; i++) {
		double hottest = 100 * (double)all[i].hottest_weight / weight;
		bool has_callee = all[i].hottest != all[i].function &&
				  hottest > WHERE_MIN_CALLEE_PCT;
		g_autofree char *name = name_in_sentence(summary, labels, all[i].function);
		g_autofree char *callee =
			has_callee ? name_in_sentence(summary, labels, all[i].hottest) : NULL;
		g_autofree char *place = place_in_sentence(labels, all[i].function);
		struct summary_where where = {
			all[i].function, name, callee, place, 100 * (double)all[i].weight / weight,
			hottest
		};

		each(&where, data);
	}
	function_labels_free(labels);
}

static void print_one_where(const struct summary_where *where, void *data)
{
	struct out *out = data;

	out_text(out, out->text->len ? ", " : _("Most in "));
	print_name(out, where->name, where->place);
	out_printf(out, " %.0f %%", where->pct);
	if (!where->callee)
		return;
	out_text(out, " (");
	text_cell(out, where->callee, 0);
	out_printf(out, " %.0f %%)", where->callee_pct);
}

void summary_print_where(const struct summary *summary, struct out *out)
{
	summary_each_where(summary, print_one_where, out);
	if (out->text->len)
		out_char(out, '.');
}

uint64_t summary_waited_ns(const struct summary *summary)
{
	uint64_t ns = 0;

	for (guint i = 0; i < summary->times->len; i++)
		ns += g_array_index(summary->times, struct run_time, i).wait_ns;
	return ns;
}

bool summary_cpu_ns(const struct summary *summary, uint64_t *ret_ns)
{
	bool is_clock = strcmp(profile_unit(summary->profile), "ns") == 0, known = false;
	uint64_t ns = 0;

	for (guint i = 0; i < summary->times->len && !is_clock; i++) {
		const struct run_time *time = &g_array_index(summary->times, struct run_time, i);

		ns += time->run_ns;
		known |= time->known;
	}
	if (is_clock || known)
		*ret_ns = is_clock ? summary->profile->all.weight : ns;
	return is_clock || known;
}

void summary_each_wait(const struct summary *summary, unsigned most,
		       void (*each)(const struct summary_wait *wait, void *data), void *data)
{
	const struct profile *waits = summary->waits;
	g_autoptr(GArray) places = NULL;
	struct function_labels *labels;
	const struct wait_place *all;
	guint n = 0;

	if (!waits || waits->all.weight == 0)
		return;
	places = wait_places_rows(waits->waiting);
	all = (const void *)places->data;
	labels = function_labels_new(waits->functions, summary->full_names);
	while (n < places->len && (most == 0 || n < most) &&
	       100 * (double)all[n].weight / (double)waits->all.weight >= WHERE_MIN_PCT)
		function_labels_add(labels, all[n++].function);
	for (guint i = 0; i < n; i++) {
		const char *cause = wait_cause_names[all[i].cause];
		g_autofree char *name = all[i].function > FUNCTION_LOST
						? name_in_sentence(summary, labels, all[i].function)
						: NULL;
		g_autofree char *place = place_in_sentence(labels, all[i].function);
		struct summary_wait wait = { cause, all[i].call ? all[i].call : cause, name, place,
					     all[i].weight };

		each(&wait, data);
	}
	function_labels_free(labels);
}

struct wait_text {
	struct out *out;
	const char *least, *separator;
};

/* Prints ": 7.2 s futex in shop::Stats::add" or, after the first, ", 0.7 s fsync". */
static void print_one_wait(const struct summary_wait *wait, void *data)
{
	struct wait_text *text = data;
	g_autofree char *time = text_duration(wait->ns);

	out_printf(text->out, "%s%s%s %s", text->separator, text->least, time, wait->call);
	if (wait->name) {
		out_text(text->out, _(" in "));
		print_name(text->out, wait->name, wait->place);
	}
	text->separator = ", ";
}

uint64_t summary_ready_ns(const struct summary *summary)
{
	uint64_t ns = 0;

	ARRAY_EACH(const struct run_time, time, summary->times)
		ns += time->preempted_ns + time->runnable_ns;
	return ns;
}

void summary_print_waiting(const struct summary *summary, struct out *out)
{
	const struct capture *capture = summary->reader->capture;
	const char *least =
		capture_lacks_rows(capture, PROF_TABLE_SWITCH) ? text_sign(TEXT_AT_LEAST) : "";
	uint64_t ns = summary_waited_ns(summary), ready_ns = summary_ready_ns(summary);
	g_autofree char *duration = text_duration(ns), *ready = text_duration(ready_ns);
	bool says_ready = (double)ready_ns * 100 >= READY_MIN_PCT * (double)capture->duration_ns &&
			  ready_ns > 0;

	if (ns > 0) {
		struct wait_text text = { out,
					  capture_lacks_rows(capture, PROF_TABLE_WAIT)
						  ? text_sign(TEXT_AT_LEAST)
						  : "",
					  ": " };

		out_printf(out, _("Waited %s%s in all threads"), least, duration);
		summary_each_wait(summary, WHERE_FUNCTIONS, print_one_wait, &text);
	}
	if (says_ready)
		out_printf(out,
			   ns > 0 ? _("; %s%s ready, without a CPU")
				  : _("Threads were ready, without a CPU, for %s%s"),
			   least, ready);
	if (ns > 0 || says_ready)
		out_char(out, '.');
}
