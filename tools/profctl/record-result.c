/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Record-result - prints the progress of `profctl record`, and the summary at its end
 *
 * On a terminal, the progress is one line, which is redrawn when profd reports (about once per
 * second). In a file or log, it is a line every ten seconds. The summary has the same facts as text
 * on standard error, and as JSON (profctl.record/1). Times of losses count from the start of
 * sampling.
 */
#include "config.h"

#include "tools/profctl/record-result.h"

#include "tools/common/cli.h"
#include "tools/common/json.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/wait.h>

#define MAX_LEFT 8u /* maximum number of pids in the text */
#define LINE_INTERVAL_US (10 * G_USEC_PER_SEC)

/* ---- Progress -------------------------------------------------------------------------------- */

void progress_init(struct progress *progress, const struct record_options *options)
{
	*progress = (struct progress){ .terminal = isatty(STDERR_FILENO) };
	progress->target = record_options_target(options, false);
	/* do not interrupt the command's own output on the terminal */
	progress->shown = !options->quiet && !(progress->terminal && options->command);
}

void progress_begin(struct progress *progress)
{
	progress->start_us = progress->last_us = g_get_monotonic_time();
}

void progress_clear(struct progress *progress)
{
	if (progress->drawn)
		fputs("\r\033[K", stderr);
	progress->drawn = false;
}

/* Returns "Recording ./shop: 1.2 s, 1,329 samples, 20.7 KiB, nothing lost. Ctrl-C stops." */
static char *progress_line(const struct progress *progress, int64_t now,
			   const struct client_counters *counters)
{
	g_autofree char *elapsed =
		text_duration((uint64_t)(now - progress->start_us) / 100000 * 100000000);
	g_autofree char *count =
		text_count(counters->samples ? counters->samples : counters->events);
	g_autofree char *lost = text_count(counters->lost);
	g_autofree char *bytes = text_bytes(counters->bytes);
	const char *stops = _(" Ctrl-C stops.");
	GString *text = g_string_new(NULL);

	g_string_printf(text,
			counters->samples || !counters->events
				? _("Recording %s: %s, %s samples, %s, ")
				: _("Recording %s: %s, %s events, %s, "),
			progress->target, elapsed, count, bytes);
	if (counters->lost)
		g_string_append_printf(text, _("%s lost."), lost);
	else
		g_string_append(text, _("nothing lost."));
	if (text_width(text->str) + text_width(stops) < cli_columns(STDERR_FILENO))
		g_string_append(text, stops);
	return g_string_free(text, FALSE);
}

void progress_update(struct progress *progress, const struct client_counters *counters)
{
	int64_t now = g_get_monotonic_time();
	g_autofree char *text = NULL;

	if (!progress->shown || !progress->start_us)
		return;
	if (!progress->terminal && now - progress->last_us < LINE_INTERVAL_US)
		return;
	progress->last_us = now;
	text = progress_line(progress, now, counters);
	if (progress->terminal) {
		unsigned columns = MAX_OF(cli_columns(STDERR_FILENO), 2u) - 1;
		g_autofree char *fitting = text_cut(text, columns);

		fprintf(stderr, "\r%s\033[K", fitting);
		fflush(stderr);
		progress->drawn = true;
	} else {
		fprintf(stderr, "profctl: %s\n", text);
	}
}

void progress_done(struct progress *progress)
{
	progress_clear(progress);
	g_clear_pointer(&progress->target, g_free);
}

/* ---- Facts ----------------------------------------------------------------------------------- */

struct loss {
	const char *stream, *cause;
	guint64 count; /* 0: unknown, but at least one */
	guint64 bytes, from, to;
};

uint64_t record_result_number(const struct record_result *result, const char *key)
{
	guint64 value = 0;

	if (result->summary)
		g_variant_lookup(result->summary, key, "t", &value);
	return value;
}

/* Keys for the time of waits, by the source of the stacks. Waits without a stack come last. */
static const char *const slept_keys[] = { "off-cpu-copied", "off-cpu-late", "off-cpu-shared-out",
					  "off-cpu-raced", "off-cpu-none" };
enum { SLEPT_RACED = 3, SLEPT_NONE, SLEPT_KEYS };

uint64_t record_result_waited_ns(const struct record_result *result)
{
	uint64_t waited_ns = 0;

	for (size_t i = 0; i < SLEPT_KEYS; i++)
		waited_ns += record_result_number(result, slept_keys[i]);
	return waited_ns;
}

/* Returns a time relative to the start of sampling. */
static uint64_t since_start(const struct record_result *result, uint64_t time)
{
	uint64_t start = record_result_number(result, "start-time");

	return time > start ? time - start : 0;
}

static GVariant *losses_of(const struct record_result *result)
{
	GVariant *losses = NULL;

	if (result->summary)
		losses = g_variant_lookup_value(result->summary, "loss",
						G_VARIANT_TYPE("a(sstttt)"));
	return losses ? losses
		      : g_variant_ref_sink(
				g_variant_new_array(G_VARIANT_TYPE("(sstttt)"), NULL, 0));
}

static void get_loss(GVariant *losses, gsize index, struct loss *loss)
{
	g_variant_get_child(losses, index, "(&s&stttt)", &loss->stream, &loss->cause, &loss->count,
			    &loss->bytes, &loss->from, &loss->to);
}

/* Returns whether the number of some losses is unknown. */
static bool is_incomplete(GVariant *losses)
{
	struct loss loss;
	bool found = false;

	for (gsize i = 0; i < g_variant_n_children(losses); i++) {
		get_loss(losses, i, &loss);
		found |= loss.count == 0;
	}
	return found;
}

static char *command_line(const char *verb, const char *file, const char *option)
{
	g_autofree char *path = g_strconcat(file[0] == '-' ? "./" : "", file, NULL);
	g_autofree char *quoted = text_shell_file(path);

	return g_strdup_printf("profcapture %s %s%s", verb, quoted, option);
}

/* Returns a NULL-terminated array of commands to run next; empty if there is no file. */
static GStrv next_steps(const struct record_result *result)
{
	g_autoptr(GPtrArray) steps = g_ptr_array_new();
	bool only_waited = record_result_number(result, "samples") == 0 &&
			   record_result_waited_ns(result) > 0;

	if (result->kept) {
		if (!result->symbols)
			g_ptr_array_add(steps, command_line("symbolize", result->file, ""));
		if (result->memory)
			g_ptr_array_add(steps, command_line("memory", result->file, ""));
		g_ptr_array_add(steps, command_line("report", result->file,
						    only_waited ? " --metric off-cpu" : ""));
	}
	g_ptr_array_add(steps, NULL);
	return (GStrv)g_ptr_array_free(g_steal_pointer(&steps), FALSE);
}

/* ---- Text ------------------------------------------------------------------------------------ */

struct sum {
	guint64 count;
	bool is_unknown; /* the count of some rows is unknown */
};

/* Returns counts by cause, such as "perf-ring 12, late 3, ring-full an unknown number". Leaves out
 * missed ticks. */
static char *causes(GVariant *losses)
{
	g_autoptr(GHashTable)
		counts = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
	GString *text = g_string_new(NULL);
	GHashTableIter iter;
	gpointer cause, value;
	struct loss loss;

	for (gsize i = 0; i < g_variant_n_children(losses); i++) {
		struct sum *sum;

		get_loss(losses, i, &loss);
		if (strcmp(loss.cause, "ticks-missed") == 0)
			continue;
		sum = g_hash_table_lookup(counts, loss.cause);
		if (!sum) {
			sum = g_new0(struct sum, 1);
			g_hash_table_insert(counts, g_strdup(loss.cause), sum);
		}
		sum->count += loss.count;
		sum->is_unknown |= loss.count == 0;
	}
	g_hash_table_iter_init(&iter, counts);
	while (g_hash_table_iter_next(&iter, &cause, &value)) {
		const struct sum *sum = value;
		g_autofree char *number = text_count(sum->count);

		g_string_append_printf(text, text->len ? ", %s " : "%s ", (char *)cause);
		if (sum->is_unknown && sum->count)
			g_string_append_printf(text, _("at least %s"), number);
		else
			g_string_append(text, sum->is_unknown ? _("an unknown number") : number);
	}
	return g_string_free(text, FALSE);
}

/* Appends "Lost: nothing.", or the losses by cause. A process that did not register sent nothing
 * that could be counted as lost. */
static void append_losses(const struct record_result *result, GString *line)
{
	g_autoptr(GVariant) losses = losses_of(result);
	uint64_t lost = record_result_number(result, "lost");
	double all = (double)lost + (double)record_result_number(result, "events");
	g_autofree char *lost_text = text_count(lost);
	g_autofree char *share = text_percent(100 * (double)lost / MAX_OF(all, 1.0), true);
	g_autofree char *by_cause = causes(losses);
	uint64_t n_unregistered =
		result->memory ? record_result_number(result, "excluded-unregistered") : 0;

	if (is_incomplete(losses))
		g_string_append_printf(line, _(" Lost: at least %s records (%s %% of all: %s)."),
				       lost_text, share, by_cause);
	else if (lost)
		g_string_append_printf(line,
				       ngettext(" Lost: %s record (%s %% of all: %s).",
						" Lost: %s records (%s %% of all: %s).",
						(gulong)lost),
				       lost_text, share, by_cause);
	else if (n_unregistered)
		g_string_append_printf(line,
				       ngettext(" Lost: all allocations of %" PRIu64 " process.",
						" Lost: all allocations of %" PRIu64 " processes.",
						(gulong)n_unregistered),
				       n_unregistered);
	else if (result->summary)
		g_string_append(line, _(" Lost: nothing."));
}

/* Prints "Recorded ./shop 40000: 3.18 s, 3,066 samples in 5 threads. Lost: nothing." */
static void print_recorded(const struct record_result *result)
{
	g_autoptr(GString) line = g_string_new(NULL);
	uint64_t n_samples = record_result_number(result, "samples");
	unsigned n = result->command_pid ? result->samples.threads : result->samples.processes;
	g_autofree char *elapsed = text_duration(
		result->length_ns ? result->length_ns
				  : since_start(result, record_result_number(result, "stop-time")));
	g_autofree char *samples = text_count(n_samples);
	g_autofree char *events = text_count(record_result_number(result, "events"));

	g_string_append_printf(line, _("Recorded %s: %s"), result->target, elapsed);
	if (n_samples)
		g_string_append_printf(
			line, ngettext(", %s sample", ", %s samples", (gulong)n_samples), samples);
	else if (!result->memory)
		g_string_append_printf(line, _(", no samples, %s events"), events);
	if (n_samples && result->symbols)
		g_string_append_printf(line,
				       result->command_pid
					       ? ngettext(" in %u thread", " in %u threads", n)
					       : ngettext(" in %u process", " in %u processes", n),
				       n);
	g_string_append_c(line, '.');
	append_losses(result, line);
	fprintf(stderr, "%s\n", line->str);
}

static void print_allocations(const struct record_result *result)
{
	const struct record_allocations *allocations = &result->allocations;
	g_autofree char *n = text_count(allocations->n);
	g_autofree char *live = text_bytes(allocations->live_bytes);

	if (!result->has_allocations)
		return;
	if (result->is_sampled)
		fprintf(stderr, _("%s sampled allocations.\n"), n);
	else if (!allocations->knows_live || record_result_number(result, "lost") > 0)
		fprintf(stderr, _("%s allocations.\n"), n);
	else if (result->left && !result->left->len)
		fprintf(stderr, _("%s allocations; %s not freed at exit.\n"), n, live);
	else
		fprintf(stderr, _("%s allocations; %s not freed yet.\n"), n, live);
}

static void print_stacks(const struct record_result *result)
{
	uint64_t samples = record_result_number(result, "samples");
	uint64_t n_truncated = record_result_number(result, "unwind-truncated");
	uint64_t n_guessed = record_result_number(result, "unwind-guessed");
	g_autofree char *truncated = text_count(n_truncated);
	g_autofree char *guessed = text_count(n_guessed);
	uint64_t n_unresolved = result->symbols ? result->samples.unresolved : 0;
	uint64_t n_missed = record_result_number(result, "missed-ticks");
	g_autofree char *unresolved = text_count(n_unresolved);
	g_autofree char *missed = text_count(n_missed);

	if (100 * n_missed > n_missed + samples)
		fprintf(stderr, _("Missed: %s timer ticks that the kernel never reported\n"),
			missed);
	if (100 * (n_truncated + n_guessed) > samples)
		fprintf(stderr, _("User stacks: %s truncated, %s possibly incomplete\n"), truncated,
			guessed);
	if (100 * n_unresolved > samples)
		fprintf(stderr, _("Without a name: %s samples\n"), unresolved);
}

/* Returns the word that says which waits have stacks; NULL if profd does not say. */
static const char *off_cpu_of(const struct record_result *result)
{
	const char *recorded = NULL;

	if (result->summary)
		(void)g_variant_lookup(result->summary, "off-cpu", "&s", &recorded);
	return recorded;
}

static void print_waits(const struct record_result *result)
{
	const char *recorded = off_cpu_of(result);
	uint64_t waited_ns = record_result_waited_ns(result);

	if (!recorded)
		return;
	if (strcmp(recorded, "none") == 0) {
		if (!result->no_off_cpu)
			fputs(_("Where threads waited was not recorded (--off-cpu records it).\n"),
			      stderr);
		return;
	}
	if (waited_ns == 0)
		return;
	g_autofree char *slept = text_duration(waited_ns);
	double percent = 100.0 / (double)waited_ns;
	double raced = percent * (double)record_result_number(result, slept_keys[SLEPT_RACED]);
	double none = percent * (double)record_result_number(result, slept_keys[SLEPT_NONE]);

	if (raced + none < 0.05) {
		fprintf(stderr, _("Threads waited %s.\n"), slept);
		return;
	}
	fprintf(stderr,
		strcmp(recorded, "own") == 0
			? _("Threads waited %s; %.1f %% of that has a stack (%.1f %% read too late, "
			    "%.1f %% not read: short waits need root or the system service).\n")
		: strcmp(recorded, "stopped") == 0
			? _("Threads waited %s; %.1f %% of that has a stack (%.1f %% read too late, "
			    "%.1f %% not read: they waited too often, --off-cpu records all).\n")
			: _("Threads waited %s; %.1f %% of that has a stack (%.1f %% read too late, "
			    "%.1f %% not read).\n"),
		slept, MAX_OF(100 - raced - none, 0.0), raced, none);
}

/* Reasons why allocations of processes are not in the capture. */
static const struct {
	const char *key, *name, *text;
} exclusions[] = {
	{ "excluded-static", "static", N_("static") },
	{ "excluded-setuid", "setuid", N_("setuid") },
	{ "excluded-other-arch", "other-arch", N_("for another architecture") },
	{ "excluded-other-libc", "other-libc", N_("with another libc than glibc") },
	{ "excluded-environment", "environment", N_("started without LD_PRELOAD") },
	{ "excluded-no-descriptors", "no-descriptors", N_("without a free file descriptor") },
	{ "excluded-no-memory", "no-memory", N_("without memory for it") },
	{ "excluded-sanitizer", "sanitizer", N_("with a sanitizer") },
	{ "excluded-never-allocated", "never-allocated", N_("that never allocated") },
	{ "excluded-unregistered", "unregistered", N_("that did not register") },
};

static void print_excluded(const struct record_result *result)
{
	g_autoptr(GString) list = g_string_new(NULL);
	uint64_t all = 0;

	for (size_t i = 0; i < ARRAY_SIZE(exclusions); i++) {
		uint64_t n = record_result_number(result, exclusions[i].key);
		g_autofree char *count = text_count(n);

		all += n;
		if (n)
			g_string_append_printf(list, "%s%s %s", list->len ? ", " : "", count,
					       _(exclusions[i].text));
	}
	g_autofree char *count = text_count(all);
	if (result->memory && all)
		fprintf(stderr, _("Processes without allocations: %s (%s)\n"), count, list->str);
}

static void print_left(const struct record_result *result)
{
	g_autoptr(GString) list = g_string_new(NULL);
	unsigned n = result->left ? result->left->len : 0;

	for (unsigned i = 0; i < MIN_OF(n, MAX_LEFT); i++)
		g_string_append_printf(list, "%s%" PRIu32, i ? "," : "",
				       g_array_index(result->left, uint32_t, i));
	if (n > MAX_LEFT)
		g_string_append(list, ",...");
	if (n > 0)
		fprintf(stderr,
			ngettext("%u process it started is still running: --pid %s\n",
				 "%u processes it started are still running: --pid %s\n", n),
			n, list->str);
}

void record_result_print(const struct record_result *result)
{
	g_autofree char *file = strcmp(result->file, "-") == 0 ? g_strdup(_("standard output"))
							       : text_escape(result->file);
	g_autofree char *bytes = text_bytes(result->bytes);
	g_autofree char *step = !result->symbols ? command_line("symbolize", result->file, "")
				: result->memory ? command_line("memory", result->file, " --leaks")
						 : command_line("report", result->file, "");
	g_autofree char *next = text_escape(step);

	print_recorded(result);
	print_allocations(result);
	print_stacks(result);
	print_waits(result);
	print_excluded(result);
	print_left(result);
	if (result->kept && isatty(STDERR_FILENO))
		fprintf(stderr, _("%s (%s). Next: %s\n"), file, bytes, next);
	else
		fprintf(stderr, "%s (%s).\n", file, bytes);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void write_command(const struct record_result *result, struct json *json)
{
	if (!result->command_pid) {
		json_null(json, "command");
		return;
	}
	json_begin_object(json, "command");
	json_int(json, "pid", result->command_pid);
	if (WIFSIGNALED(result->wait_status)) {
		json_null(json, "exit");
		json_int(json, "signal", WTERMSIG(result->wait_status));
	} else {
		json_int(json, "exit", WEXITSTATUS(result->wait_status));
		json_null(json, "signal");
	}
	json_begin_array(json, "still_running");
	for (unsigned i = 0; result->left && i < result->left->len; i++)
		json_uint(json, NULL, g_array_index(result->left, uint32_t, i));
	json_end(json);
	json_end(json);
}

static void write_losses(const struct record_result *result, struct json *json)
{
	g_autoptr(GVariant) losses = losses_of(result);
	struct loss loss;

	json_bool(json, "lost_incomplete", is_incomplete(losses));
	json_begin_array(json, "loss");
	for (gsize i = 0; i < g_variant_n_children(losses); i++) {
		get_loss(losses, i, &loss);
		json_begin_object(json, NULL);
		json_string(json, "stream", loss.stream);
		json_string(json, "cause", loss.cause);
		json_uint_if(json, "count", loss.count, loss.count);
		json_uint(json, "bytes", loss.bytes);
		json_uint(json, "from_ns", since_start(result, loss.from));
		json_uint(json, "to_ns", since_start(result, loss.to));
		json_end(json);
	}
	json_end(json);
}

static void write_memory(const struct record_result *result, struct json *json)
{
	if (!result->memory) {
		json_null(json, "memory");
		return;
	}
	json_begin_object(json, "memory");
	json_begin_object(json, "excluded");
	for (size_t i = 0; i < ARRAY_SIZE(exclusions); i++)
		json_uint(json, exclusions[i].name,
			  record_result_number(result, exclusions[i].key));
	json_end(json);
	json_end(json);
}

void record_result_print_json(const struct record_result *result)
{
	static const char *const unwind[][2] = {
		{ "complete", "unwind-complete" },   { "truncated", "unwind-truncated" },
		{ "guessed", "unwind-guessed" },     { "none", "unwind-none" },
		{ "no_memory", "unwind-no-memory" },
	};
	g_auto(GStrv) steps = next_steps(result);
	bool has_waits = off_cpu_of(result) && strcmp(off_cpu_of(result), "none") != 0;
	struct json json;

	json_init(&json, out_stdout());
	json_begin_envelope(&json, "profctl.record/1");
	json_string(&json, "file", result->file);
	json_string(&json, "transport", result->system ? "system" : "private");
	write_command(result, &json);
	json_string(&json, "reason", result->reason);
	json_uint(&json, "elapsed_ns",
		  since_start(result, record_result_number(result, "stop-time")));
	json_uint(&json, "samples", record_result_number(result, "samples"));
	json_uint(&json, "events", record_result_number(result, "events"));
	json_uint(&json, "lost", record_result_number(result, "lost"));
	write_losses(result, &json);
	json_uint(&json, "bytes", result->bytes);
	json_begin_object(&json, "unwind");
	for (size_t i = 0; i < ARRAY_SIZE(unwind); i++)
		json_uint(&json, unwind[i][0], record_result_number(result, unwind[i][1]));
	json_end(&json);
	json_uint_if(&json, "unresolved_samples", result->symbols, result->samples.unresolved);
	write_memory(result, &json);
	json_begin_object(&json, "off_cpu");
	json_string(&json, "recorded", off_cpu_of(result));
	for (size_t i = 0; i < SLEPT_KEYS; i++) {
		g_autofree char *key = g_strdelimit(
			g_strdup_printf("%s_ns", slept_keys[i] + strlen("off-cpu-")), "-", '_');

		json_uint_if(&json, key, has_waits, record_result_number(result, slept_keys[i]));
	}
	json_end(&json);
	json_bool(&json, "symbols", result->symbols);
	json_strings(&json, "next", (const char *const *)steps);
	json_end_envelope(&json);
	json_done(&json);
}
