/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profcapture summary - the first sentences of `report` and `memory`, and commands to run next
 *
 * JSON has the sentences and their numbers.
 */
#include "config.h"

#include "base/each.h"
#include "tools/profcapture/capture-losses.h"
#include "tools/profcapture/memory.h"
#include "tools/profcapture/report-hint.h"
#include "tools/profcapture/report.h"
#include "tools/profcapture/summary.h"
#include "tools/profcapture/verbs.h"

#include <glib/gi18n.h>
#include <math.h>
#include <string.h>

struct verdict {
	struct report report; /* must come first, because its first member is the reader */
	struct memory memory; /* with the same reader */
	bool has_memory;
	struct report_hint hint;
	GStrv lines;
	GPtrArray *next; /* commands, then NULL */
};

static const struct cli_option options[] = {
	{ "json", 0, CLI_FLAG, offsetof(struct reader, json), NULL,
	  N_("Print JSON, with the numbers behind each sentence") },
	{ NULL },
};

static void add_steps(struct verdict *verdict)
{
	const char *file = verdict->report.reader.capture->file;
	g_autofree char *word = text_shell_file(file);
	bool can_repeat = strcmp(file, "-") != 0;

	if (can_repeat && verdict->report.profile.all.samples > 0)
		g_ptr_array_add(verdict->next,
				g_strdup_printf("profcapture report %s --tree", word));
	if (can_repeat && verdict->has_memory)
		g_ptr_array_add(verdict->next, g_strdup_printf("profcapture memory %s %s", word,
							       memory_next_view(&verdict->memory)));
	if (can_repeat)
		g_ptr_array_add(verdict->next, g_strdup_printf("profcapture view %s", word));
	g_ptr_array_add(verdict->next, NULL);
}

static bool summary_query(void *data, char **operands, GError **error)
{
	struct verdict *verdict = data;
	struct report *report = &verdict->report;
	struct memory *memory = &verdict->memory;
	GError *failure = NULL;
	CLEANUP_OUT struct out text = out_buffer();

	report->profile.own = &report->own;
	report->profile.wants_threads = true;
	report->profile.inlined = report->profile.joins_inlined = true;
	if (!reader_open(&report->reader, operands[0], error) ||
	    !profile_run(&report->profile, &report->reader, error))
		return false;
	report->times = run_times_read(&report->reader, error);
	if (!report->times || !report_read_waits(report, error))
		return false;
	report_print_head(report, &text);
	g_string_truncate(text.text, text.text->len - 1); /* remove the empty line below a head */
	memory->reader = report->reader;
	memory->inlined = memory->hides_runtime = memory->losses_are_printed = true;
	verdict->has_memory = memory_run(memory, operands[0], &failure);
	if (verdict->has_memory)
		(void)memory_print_verdict(memory, &text);
	verdict->hint = report_hint_find(&report->profile);
	report_hint_print(&verdict->hint, &text);
	verdict->lines = g_strsplit(g_strchomp(text.text->str), "\n", -1);
	add_steps(verdict);
	if (!failure || g_error_matches(failure, CLI_ERROR, CLI_NOTHING_CAPTURED)) {
		g_clear_error(&failure);
		return true;
	}
	g_propagate_error(error, failure);
	return false;
}

static void summary_print(const void *data, struct out *out)
{
	const struct verdict *verdict = data;

	for (char **line = verdict->lines; *line; line++)
		out_printf(out, "%s\n", *line);
	for (guint i = 0; i + 1 < verdict->next->len; i++) {
		g_autofree char *step = text_escape(verdict->next->pdata[i]);

		out_printf(out, _("Next: %s\n"), step);
	}
}

static void write_where(const struct summary_where *where, void *data)
{
	struct json *json = data;

	json_begin_object(json, NULL);
	json_string(json, "name", where->name);
	json_double(json, "pct", where->pct);
	json_string(json, "callee", where->callee);
	json_double(json, "callee_pct", where->callee ? where->callee_pct : (double)NAN);
	json_end(json);
}

struct top_writer {
	const struct functions *functions;
	struct json *json;
};

static void write_top(const struct summary_where *where, void *data)
{
	const struct top_writer *top = data;

	json_begin_object(top->json, NULL);
	functions_write(top->functions, where->function, top->json);
	json_double(top->json, "pct", where->pct);
	json_end(top->json);
}

static void write_wait(const struct summary_wait *wait, void *data)
{
	struct json *json = data;

	json_begin_object(json, NULL);
	json_string(json, "cause", wait->cause);
	json_string(json, "call", wait->call);
	json_uint(json, "ns", wait->ns);
	json_string(json, "function", wait->name);
	json_end(json);
}

/* Writes the lines without the breaks that a terminal's width made. */
static void write_sentences(char **lines, struct json *json)
{
	g_autoptr(GString) sentence = g_string_new(NULL);

	json_begin_array(json, "sentences");
	for (; *lines; lines++) {
		if (sentence->len > 0)
			g_string_append_c(sentence, ' ');
		g_string_append(sentence, *lines + strspn(*lines, " "));
		if (lines[1] && lines[1][0] == ' ')
			continue;
		if (sentence->len > 0)
			json_string(json, NULL, sentence->str);
		g_string_truncate(sentence, 0);
	}
	json_end(json);
}

static void write_numbers(const struct summary *summary, struct json *json)
{
	struct top_writer top = { summary->profile->functions, json };
	int64_t wall_ns = summary->reader->capture->duration_ns;
	unsigned threads, processes;
	uint64_t cpu_ns;
	bool has_times = false, has_cpu = summary_cpu_ns(summary, &cpu_ns);

	summary_count_tasks(summary, &threads, &processes);
	ARRAY_EACH(const struct run_time, time, summary->times)
		has_times |= time->known;
	json_uint_if(json, "cpu_ns", has_cpu, has_cpu ? cpu_ns : 0);
	json_uint_if(json, "wall_ns", wall_ns > 0, (uint64_t)wall_ns);
	json_uint_if(json, "waited_ns", has_times, summary_waited_ns(summary));
	json_uint_if(json, "ready_ns", has_times, summary_ready_ns(summary));
	json_uint(json, "threads", threads);
	json_begin_array(json, "top");
	if (summary->profile->all.weight > 0)
		summary_each_where(summary, write_top, &top);
	json_end(json);
	if (summary->waits) {
		json_begin_array(json, "waiting");
		summary_each_wait(summary, 0, write_wait, json);
		json_end(json);
	} else {
		json_null(json, "waiting");
	}
}

static void summary_write(const void *data, struct json *json)
{
	const struct verdict *verdict = data;
	const struct report *report = &verdict->report;
	const struct summary summary = report_summary(report);

	reader_begin(&report->reader, json, "summary", false, READER_TOTAL_UNKNOWN);
	json_strings(json, "verdict", (const char *const *)verdict->lines);
	write_sentences(verdict->lines, json);
	json_bool(json, "incomplete", !reader_is_complete(&report->reader));
	json_string(json, "event", profile_event_name(&report->profile));
	json_string(json, "unit", profile_unit(&report->profile));
	json_uint(json, "total", report->profile.all.samples);
	json_uint(json, "total_weight", report->profile.all.weight);
	write_numbers(&summary, json);
	json_begin_array(json, "functions");
	if (report->profile.all.weight > 0)
		summary_each_where(&summary, write_where, json);
	json_end(json);
	if (verdict->has_memory) {
		memory_write_summary(&verdict->memory, json, "memory");
		memory_write_runtime(&verdict->memory, json);
	} else {
		json_null(json, "memory");
		json_null(json, "runtime");
	}
	report_hint_write(&verdict->hint, json, "hint");
	capture_write_losses(report->reader.capture, json, "loss");
	capture_write_losses(report->reader.capture, json, "lost");
	json_strings(json, "next", (const char *const *)verdict->next->pdata);
	reader_end(&report->reader, json);
}

static void verdict_done(struct verdict *verdict)
{
	verdict->memory.reader = (struct reader){ 0 };
	memory_done(&verdict->memory);
	report_done(&verdict->report);
	g_strfreev(verdict->lines);
	g_ptr_array_unref(verdict->next);
}

int verb_summary(int argc, char **argv)
{
	static const struct reader_verb verb = {
		.spec = { N_("FILE"),
			  N_("Say in a few sentences where time and memory went, and what to run next."),
			  1, 1 },
		.query = summary_query,
		.print = summary_print,
		.write = summary_write,
	};
	CLEANUP(verdict_done)
	struct verdict verdict = { .memory.within_ns = UINT64_MAX,
				   .memory.threshold = MEMORY_THRESHOLD,
				   .next = g_ptr_array_new_with_free_func(g_free) };
	const struct cli_group groups[] = { { NULL, options, &verdict.report.reader }, { NULL } };

	return reader_run(&verb, groups, &verdict, argc, argv);
}
