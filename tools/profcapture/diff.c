/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profcapture diff - compares recordings, and separates changes from noise
 *
 * Functions are matched by name, whatever build they are from (diff-rows.c). A change is reported
 * only if it is greater than the noise between recordings of the same program (block-noise.h).
 */
#include "config.h"

#include "tools/profcapture/diff.h"

#include "tools/profcapture/verbs.h"

#include <glib/gi18n.h>
#include <math.h>
#include <string.h>

#define DEFAULT_LIMIT 40

static const char *const memory_measures[] = { "bytes", "calls", "peak", NULL };

static const struct cli_option options[] = {
	{ "normalise", 0, CLI_STRING, offsetof(struct diff, normalise), "BY",
	  N_("Compare shares (samples), per second (time), per mark (mark:NAME), or the whole run (default: samples; run with --fail-over)") },
	{ "paths", 0, CLI_FLAG, offsetof(struct diff, paths), NULL,
	  N_("Compare call paths, not functions") },
	{ "inline", 0, CLI_FLAG, offsetof(struct diff, inlined), NULL,
	  N_("Count inlined functions as functions") },
	{ "mode", 0, CLI_CHOICE, offsetof(struct diff, mode), N_("MODE"),
	  N_("Use only samples taken in this mode (default: any)"), tally_modes },
	{ "memory", 0, CLI_OPTIONAL, offsetof(struct diff, memory), "[=bytes|calls|peak]",
	  N_("Compare allocations: bytes, calls, or the bytes live at the peak (default: bytes)"),
	  memory_measures },
	{ "fail-over", 0, CLI_STRING, offsetof(struct diff, fail_over), N_("PERCENT"),
	  N_("Exit 7 if the whole run or a function grew by more than noise and PERCENT, 8 if the data does not suffice") },
	{ NULL },
};

/* ---- options --------------------------------------------------------------------------------- */

static int parse_norm(struct diff *diff)
{
	static const char *const names[] = { "samples", "time", "run", "mark:NAME", NULL };
	static const char mark[] = "mark:";

	/* Shares cannot show that everything became slower. */
	diff->norm = diff->memory || diff->fail_over ? DIFF_BY_RUN : DIFF_BY_SAMPLES;
	if (!diff->normalise)
		return CLI_CONTINUE;
	if (g_str_has_prefix(diff->normalise, mark) && diff->normalise[sizeof(mark) - 1]) {
		diff->norm = DIFF_BY_MARK;
		diff->mark = diff->normalise + sizeof(mark) - 1;
		return CLI_CONTINUE;
	}
	for (int i = 0; i < DIFF_BY_MARK; i++) {
		if (strcmp(diff->normalise, names[i]) == 0) {
			diff->norm = (enum diff_norm)i;
			return CLI_CONTINUE;
		}
	}
	return cli_unknown(_("value of --normalise"), diff->normalise, names);
}

/* "5", "5%", "0.5%" */
static int parse_percent(struct diff *diff)
{
	const char *text = diff->fail_over;
	size_t digits, length;

	diff->fail_percent = -1;
	if (!text)
		return CLI_CONTINUE;
	digits = strspn(text, "0123456789");
	length = digits;
	if (digits > 0 && text[length] == '.') {
		size_t behind = strspn(text + length + 1, "0123456789");

		length += behind ? behind + 1 : 0;
	}
	if (digits == 0 || digits > 9 || (text[length] && strcmp(text + length, "%") != 0))
		return cli_usage_error(
			_("--fail-over: '%s' is not a percentage such as 5%% or 0.5%%"), text);
	diff->fail_percent = g_ascii_strtod(text, NULL);
	return CLI_CONTINUE;
}

static int unknown_measure(const char *measure)
{
	const char *meant = cli_suggest(measure, memory_measures);

	if (meant)
		return cli_usage_error(
			_("--memory: unknown value '%s'; did you mean '%s'? Valid: bytes calls peak"),
			measure, meant);
	return cli_usage_error(_("--memory: unknown value '%s'. Valid: bytes calls peak"), measure);
}

static int parse_measure(struct diff *diff)
{
	int i = 0;

	if (!diff->memory)
		return CLI_CONTINUE;
	while (memory_measures[i] && strcmp(diff->memory, memory_measures[i]) != 0)
		i++;
	if (!memory_measures[i])
		return unknown_measure(diff->memory);
	diff->measure = (enum diff_measure)(DIFF_BYTES + i);
	if (diff->inlined || diff->mode != TALLY_ANY_MODE || frame_filters_any(&diff->filters) ||
	    diff->options.cpus)
		return cli_usage_error(
			_("--inline, --mode, --cpu and filters of frames do not go with --memory"));
	if (diff->measure == DIFF_PEAK && (diff->paths || diff->norm != DIFF_BY_RUN))
		return cli_usage_error(_("--paths and --normalise do not go with --memory=peak"));
	return CLI_CONTINUE;
}

static int check_options(struct diff *diff)
{
	int status = parse_norm(diff);

	if (status == CLI_CONTINUE)
		status = parse_percent(diff);
	if (status == CLI_CONTINUE)
		status = parse_measure(diff);
	return status;
}

/* All captures are read with the same options; each run frees its own. */
static struct diff_side *run_new(const struct diff *diff, unsigned side, unsigned position)
{
	struct diff_side *run = g_new0(struct diff_side, 1);
	struct reader *reader = &run->reader;

	run->side = side;
	run->position = position;
	*reader = diff->options;
	if (reader->pids)
		g_array_ref(reader->pids);
	if (reader->tids)
		g_array_ref(reader->tids);
	if (reader->cpus)
		g_array_ref(reader->cpus);
	if (reader->comms)
		g_ptr_array_ref(reader->comms);
	return run;
}

static void run_free(gpointer data)
{
	diff_side_done(data);
	g_free(data);
}

/* ---- units ----------------------------------------------------------------------------------- */

static bool has_unit(const struct diff *diff, const char *unit)
{
	for (unsigned side = 0; side < DIFF_SIDES; side++)
		for (guint i = 0; i < diff->runs[side]->len; i++)
			if (strcmp(tally_unit(&diff_run(diff, side, i)->tally), unit) != 0)
				return false;
	return true;
}

/* CPU time, or a number of events, is known only if all captures record what a sample stands
 * for. */
static void choose_unit(struct diff *diff)
{
	static const char *const units[][4] = {
		[DIFF_SAMPLES] = { "percent", "samples_per_s", "samples", "samples_per_mark" },
		[DIFF_BYTES] = { "percent", "bytes_per_s", "bytes", "bytes_per_mark" },
		[DIFF_CALLS] = { "percent", "calls_per_s", "calls", "calls_per_mark" },
		[DIFF_PEAK] = { "bytes", "bytes", "bytes", "bytes" },
	};
	static const char *const timed[] = { "percent", "percent_cpu", "ns", "ns_per_mark" };
	static const char *const counted[] = { "percent", "events_per_s", "events",
					       "events_per_mark" };
	bool is_timed = diff->measure == DIFF_SAMPLES && has_unit(diff, "ns");
	bool is_counted = diff->measure == DIFF_SAMPLES && has_unit(diff, "events");

	diff->unit = is_timed     ? timed[diff->norm]
		     : is_counted ? counted[diff->norm]
				  : units[diff->measure][diff->norm];
	diff->scale = diff->norm == DIFF_BY_SAMPLES ? 100
		      : is_timed && diff->norm == DIFF_BY_TIME
			      ? 1 / 1e7 /* ns per second to percent */
			      : 1;
}

/* ---- the verb -------------------------------------------------------------------------------- */

static bool read_runs(struct diff *diff, unsigned side, char **files, GError **error)
{
	for (; *files; files++) {
		struct diff_side *run = run_new(diff, side, diff->n_runs++);

		g_ptr_array_add(diff->runs[side], run);
		if (!diff_side_read(diff, run, *files, error))
			return false;
		capture_warn(diff_run_reader(diff, run)->capture);
	}
	return true;
}

static bool compare(struct diff *diff, char **files[DIFF_SIDES], GError **error)
{
	for (unsigned side = 0; side < DIFF_SIDES; side++)
		if (!read_runs(diff, side, files[side], error))
			return false;
	diff->notes = g_array_new(FALSE, FALSE, sizeof(struct diff_note));
	if (!diff_note_all(diff, error))
		return false;
	choose_unit(diff);
	diff_rows_init(diff);
	diff_rows_compare(diff);
	if (diff->measure != DIFF_SAMPLES)
		diff_list_processes(diff);
	return true;
}

static void diff_done(struct diff *diff)
{
	json_done(&diff->json);
	diff_rows_done(diff);
	diff_notes_done(diff);
	if (diff->processes)
		g_ptr_array_unref(diff->processes);
	for (unsigned side = 0; side < DIFF_SIDES; side++)
		if (diff->runs[side])
			g_ptr_array_unref(diff->runs[side]);
	reader_done(&diff->options);
}

/*
 * Returns where the captures of B begin: the index of a --to that is not followed by a time, or
 * argc. A file that is named like a time is given as ./5s.
 */
static int find_to(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		struct units_time time;
		g_autoptr(GError) error = NULL;

		if (strcmp(argv[i], "--to") == 0 && i + 1 < argc &&
		    !units_parse_time(argv[i + 1], &time, &error))
			return i;
	}
	return argc;
}

/* Parses the operands of each side, NULL-terminated: "A B", or "A… --to B…". */
static int parse_sides(const struct cli_group *groups, int argc, char **argv,
		       char **ret_files[DIFF_SIDES])
{
	static const char synopsis[] = N_("A B | A… --to B…");
	static const char description[] = N_(
		"Compare two captures: what got slower or faster, and what is only noise. Give several captures per side to measure how much runs differ.");
	static const struct cli_spec pair = { synopsis, description, 2, 2 },
				     side = { synopsis, description, 1, UINT_MAX };
	int to = find_to(argc, argv);
	int status;

	if (to == argc) {
		static char *files[DIFF_SIDES][2];

		status = cli_parse(&pair, groups, &argc, &argv);
		for (unsigned i = 0; status == CLI_CONTINUE && i < DIFF_SIDES; i++) {
			files[i][0] = argv[i];
			ret_files[i] = files[i];
		}
		return status;
	}
	for (unsigned i = 0; i < DIFF_SIDES; i++) {
		int n = i == DIFF_A ? to : argc - to;

		ret_files[i] = i == DIFF_A ? argv : argv + to;
		status = cli_parse(&side, groups, &n, &ret_files[i]);
		if (status != CLI_CONTINUE)
			return status;
	}
	return CLI_CONTINUE;
}

int verb_diff(int argc, char **argv)
{
	CLEANUP(diff_done)
	struct diff diff = { .options.limit = READER_LIMIT_UNSET,
			     .options.text_limit = DEFAULT_LIMIT };
	const struct cli_group groups[] = { { NULL, options, &diff },
					    { N_("Select"), reader_time_options, &diff.options },
					    { NULL, reader_process_options, &diff.options },
					    { NULL, reader_thread_options, &diff.options },
					    { NULL, reader_cpu_options, &diff.options },
					    { NULL, reader_event_options, &diff.options },
					    { N_("Frames (regular expressions, as in pprof)"),
					      frame_filter_options, &diff.filters },
					    { N_("Output"), reader_output_options, &diff.options },
					    { NULL } };
	char **files[DIFF_SIDES];
	GError *error = NULL;
	int status;

	json_init(&diff.json, out_stdout());
	for (unsigned side = 0; side < DIFF_SIDES; side++)
		diff.runs[side] = g_ptr_array_new_with_free_func(run_free);
	status = parse_sides(groups, argc, argv, files);
	if (status == CLI_CONTINUE)
		status = check_options(&diff);
	if (status != CLI_CONTINUE)
		return status;
	if (!compare(&diff, files, &error))
		return cli_fail(error);
	diff_show(&diff, out_stdout());
	return diff.fail_percent >= 0 ? diff_judge(&diff) : CLI_OK;
}
