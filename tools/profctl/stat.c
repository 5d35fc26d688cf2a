/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profctl stat - counts events while a command runs, like perf stat
 *
 * The events are opened on the child before exec, disabled; exec enables them, and children inherit
 * them. So profctl's own work is not counted. profctl stat uses the caller's rights and no profd.
 * An event that cannot be opened, or that had no counter of the CPU, has no value: it is never
 * shown as 0. If only user mode may be counted, the event's name says so.
 * A saved run is a key file with the values of every repetition, so that a comparison can estimate
 * the noise on both sides, as `profcapture diff` does between runs.
 *                                                                                   [test_stat]
 */
#include "config.h"

#include "arch/errno-text.h"
#include "base/clock.h"
#include "base/each.h"
#include "daemon/broker/events.h"
#include "tools/common/cli.h"
#include "tools/common/json.h"
#include "tools/present/table.h"
#include "tools/profcapture/block-noise.h"
#include "tools/profctl/command.h"
#include "tools/profctl/record-options.h"
#include "tools/profctl/verbs.h"

#include <errno.h>
#include <glib/gi18n.h>
#include <glib/gstdio.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define MAX_RUNS 10000
#define FILE_GROUP "profctl stat"
#define FILE_VERSION 1

enum measure_state { STATE_COUNTED, STATE_UNSUPPORTED, STATE_NOT_PERMITTED, STATE_NO_COUNTER };
static const char *const state_names[] = { "counted", "not-supported", "not-permitted",
					   "not-counted" };

/* An event or a time, over all runs. */
struct measure {
	struct event event; /* for a time, only `name` and `counts_ns` are set */
	bool is_event;
	bool without_kernel; /* exclude_kernel is set, because the kernel's part is not permitted */
	bool user_only;      /* `without_kernel`, and not a clock: only user mode is counted */
	enum measure_state state;
	int fd;
	double counted; /* smallest share of a run's time in which the event was counted */
	GArray *values; /* double by run; empty if a run has no value */
	double *before; /* values of the saved run; NULL: none */
	unsigned n_before;
};

enum time { TIME_ELAPSED, TIME_USER, TIME_SYSTEM, TIMES };

struct stat_run {
	GPtrArray *events; /* char *, as given; NULL: the default */
	uint64_t repeat;
	const char *save, *compare;
	bool json;
	char **command;
	GPtrArray *measures; /* struct measure: the times, then the events */
	unsigned runs;
	int status;      /* exit status of the first run that failed, else of the last run */
	unsigned failed; /* number of runs that failed */
};

static volatile sig_atomic_t interrupted;

/* ---- Measures -------------------------------------------------------------------------------- */

static void free_measure(gpointer data)
{
	struct measure *measure = data;

	g_array_unref(measure->values);
	g_free(measure->before);
	g_free(measure);
}

static struct measure *add_measure(struct stat_run *run, const char *name)
{
	struct measure *measure = g_new0(struct measure, 1);

	g_strlcpy(measure->event.name, name, sizeof(measure->event.name));
	measure->event.counts_ns = true;
	measure->counted = 1;
	measure->fd = -1;
	measure->values = g_array_new(FALSE, FALSE, sizeof(double));
	g_ptr_array_add(run->measures, measure);
	return measure;
}

static bool add_events(struct stat_run *run, GError **error)
{
	static const char *const usual[] = { "task-clock",  "context-switches", "cpu-migrations",
					     "page-faults", "cycles",           "instructions",
					     "branches",    "branch-misses" };
	unsigned n = run->events ? run->events->len : ARRAY_SIZE(usual);
	struct event_dirs dirs;
	bool ok = true;

	event_dirs_prepare();
	event_dirs_open(&dirs);
	for (unsigned i = 0; ok && i < n; i++) {
		const char *name = run->events ? run->events->pdata[i] : usual[i];
		g_autoptr(GError) failed = NULL;
		struct measure *measure;
		struct event event;

		ok = event_parse(&dirs, name, &event, &failed);
		if (ok && event.kind == PROF_SOURCE_PROBE) {
			ok = false;
			cli_set_error(error, CLI_USAGE,
				      _("event '%s': 'profctl stat' counts no probes; "
					"'profctl record' and 'profcapture events' do"),
				      name);
			break;
		}
		if (!ok) {
			cli_set_error(error, CLI_USAGE, "%s", failed->message);
			break;
		}
		measure = add_measure(run, name);
		measure->event = event;
		measure->is_event = true;
	}
	event_dirs_done(&dirs);
	return ok;
}

/* Fails only if the event's filter is wrong. */
static bool open_event(struct measure *measure, pid_t pid, GError **error)
{
	struct perf_event_attr attr = measure->event.attr;

	attr.size = sizeof(attr);
	attr.disabled = attr.enable_on_exec = attr.inherit = 1;
	attr.precise_ip = 0;
	attr.exclude_kernel |= measure->without_kernel;
	attr.exclude_hv |= measure->without_kernel;
	attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
	measure->fd = (int)syscall(SYS_perf_event_open, &attr, pid, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (measure->fd >= 0 &&
	    (!measure->event.filter[0] ||
	     ioctl(measure->fd, PERF_EVENT_IOC_SET_FILTER, measure->event.filter) == 0))
		return true;
	if (measure->fd >= 0)
		return cli_set_error(error, CLI_USAGE,
				     _("event '%s': the kernel refuses the filter '%s': %s"),
				     measure->event.name, measure->event.filter, ERRNO_TEXT(errno));
	measure->state = errno == EACCES || errno == EPERM ? STATE_NOT_PERMITTED
							   : STATE_UNSUPPORTED;
	/* An event that only the kernel causes would be 0 in user mode. */
	if (measure->state == STATE_NOT_PERMITTED && !measure->without_kernel &&
	    !measure->event.attr.exclude_user && !measure->event.kernel_only &&
	    measure->event.kind != PROF_SOURCE_TRACEPOINT) {
		measure->without_kernel = true;
		measure->user_only = !measure->event.counts_ns;
		measure->state = STATE_COUNTED;
		return open_event(measure, pid, error);
	}
	return true;
}

static void read_event(struct measure *measure)
{
	struct {
		uint64_t value, enabled, running;
	} read_value = { 0 };
	double value;

	if (measure->fd < 0)
		return;
	if (read(measure->fd, &read_value, sizeof(read_value)) != sizeof(read_value) ||
	    (read_value.running == 0 && read_value.enabled > 0)) {
		measure->state = STATE_NO_COUNTER;
		g_array_set_size(measure->values, 0);
	}
	close(measure->fd);
	measure->fd = -1;
	if (measure->state != STATE_COUNTED)
		return;
	value = (double)read_value.value;
	/* If the CPU has too few counters, events take turns, and the count is scaled. */
	if (read_value.running < read_value.enabled) {
		double share = (double)read_value.running / (double)read_value.enabled;

		value /= share;
		measure->counted = MIN_OF(measure->counted, share);
	}
	g_array_append_val(measure->values, value);
}

static double time_ns(const struct timeval *time)
{
	return (double)time->tv_sec * 1e9 + (double)time->tv_usec * 1e3;
}

static double mean_of(const double *values, unsigned n)
{
	double mean = 0;

	for (unsigned i = 0; i < n; i++)
		mean += values[i] / n;
	return mean;
}

/* Returns the standard deviation of a single run's value, estimated from all runs. */
static double deviation_of(const double *values, unsigned n)
{
	double mean = mean_of(values, n), squares = 0;

	for (unsigned i = 0; i < n; i++)
		squares += (values[i] - mean) * (values[i] - mean);
	return n > 1 ? sqrt(squares / (n - 1)) : 0;
}

static const double *values_of(const struct measure *measure)
{
	return (const double *)(void *)measure->values->data;
}

static double measure_mean(const struct measure *measure)
{
	return mean_of(values_of(measure), measure->values->len);
}

/* ---- Running --------------------------------------------------------------------------------- */

static void on_signal(int number)
{
	interrupted = number;
}

static bool run_once(struct stat_run *run, const struct preload *preload, GError **error)
{
	struct command command = { .go_fd = -1, .error_fd = -1 };
	uint64_t start_ns;
	struct rusage usage;
	double times[TIMES];

	if (!command_start(&command, run->command, preload, false, error))
		return false;
	for (unsigned i = TIMES; i < run->measures->len; i++) {
		if (!open_event(run->measures->pdata[i], command.pid, error)) {
			command_cancel(&command);
			return false;
		}
	}
	start_ns = clock_now();
	if (!command_release(&command, run->command[0], NULL, -1, error))
		return false;
	while (wait4(command.pid, &command.wait_status, 0, &usage) < 0 && errno == EINTR)
		continue;
	times[TIME_ELAPSED] = (double)(clock_now() - start_ns);
	times[TIME_USER] = time_ns(&usage.ru_utime);
	times[TIME_SYSTEM] = time_ns(&usage.ru_stime);
	for (unsigned i = 0; i < TIMES; i++)
		g_array_append_val(((struct measure *)run->measures->pdata[i])->values, times[i]);
	for (unsigned i = TIMES; i < run->measures->len; i++)
		read_event(run->measures->pdata[i]);
	run->runs++;
	run->failed += command_exit_status(&command) != 0;
	if (run->status == 0)
		run->status = command_exit_status(&command);
	return true;
}

static bool run_all(struct stat_run *run, GError **error)
{
	const struct preload_memory no_memory = { 0 };
	struct preload preload;
	bool ok = preload_init(&preload, &no_memory, error);
	/* The command gets the signal of a terminal, too. Unlike SIG_IGN, a handler is reset by
	 * exec. */
	const struct sigaction action = { .sa_handler = on_signal };

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGQUIT, &action, NULL);
	while (ok && run->runs < run->repeat && !interrupted)
		ok = run_once(run, &preload, error);
	preload_done(&preload);
	return ok;
}

/* ---- Saved runs ------------------------------------------------------------------------------ */

/* Returns the key file in `path`. Returns NULL with an error if `stat --save` did not write it. */
static GKeyFile *load(const char *path, GError **error)
{
	g_autoptr(GKeyFile) file = g_key_file_new();
	g_autoptr(GError) failed = NULL;

	if (!g_key_file_load_from_file(file, path, G_KEY_FILE_NONE, &failed)) {
		if (failed->domain == G_FILE_ERROR)
			cli_set_error(error, CLI_FAILURE, _("cannot read '%s': %s"), path,
				      cli_reason(failed));
		else
			cli_set_error(error, CLI_UNREADABLE,
				      _("'%s' was not written by 'profctl stat --save'"), path);
		return NULL;
	}
	if (g_key_file_get_integer(file, FILE_GROUP, "version", NULL) != FILE_VERSION) {
		cli_set_error(error, CLI_UNREADABLE,
			      _("'%s' is not a file of 'profctl stat --save', or is of another "
				"version"),
			      path);
		return NULL;
	}
	return g_steal_pointer(&file);
}

/* Returns the name of the measure's group. Escapes brackets, which a group name cannot have. */
static char *group_of(const struct measure *measure)
{
	return g_uri_escape_string(measure->event.name, " :/=<>!&|*~\"'(),", TRUE);
}

static bool compare_with(struct stat_run *run, GError **error)
{
	g_autoptr(GKeyFile) file = load(run->compare, error);

	if (!file)
		return false;
	POINTER_EACH(struct measure, measure, run->measures) {
		g_autofree char *group = group_of(measure);
		gsize n = 0;
		double *values = g_key_file_get_double_list(file, group, "values", &n, NULL);
		bool user_only = g_key_file_get_boolean(file, group, "user-only", NULL);
		bool valid = values && n > 0 && n <= MAX_RUNS && user_only == measure->user_only;

		for (gsize j = 0; valid && j < n; j++)
			valid = isfinite(values[j]) && values[j] >= 0;
		if (valid && measure->values->len > 0) {
			measure->before = values;
			measure->n_before = (unsigned)n;
		} else {
			g_free(values);
		}
	}
	return true;
}

static bool save(const struct stat_run *run, GError **error)
{
	g_autoptr(GKeyFile) file = g_key_file_new();
	g_autoptr(GError) failed = NULL;

	g_key_file_set_integer(file, FILE_GROUP, "version", FILE_VERSION);
	g_key_file_set_string_list(file, FILE_GROUP, "command", (const char *const *)run->command,
				   g_strv_length(run->command));
	POINTER_EACH(const struct measure, measure, run->measures) {
		g_autofree char *group = group_of(measure);

		if (measure->values->len == 0)
			continue;
		g_key_file_set_double_list(file, group, "values",
					   (double *)(void *)measure->values->data,
					   measure->values->len);
		g_key_file_set_boolean(file, group, "user-only", measure->user_only);
	}
	if (g_key_file_save_to_file(file, run->save, &failed))
		return true;
	return cli_set_error(error, CLI_FAILURE, _("cannot write '%s': %s"), run->save,
			     cli_reason(failed));
}

/* ---- Results --------------------------------------------------------------------------------- */

static const char *const verdicts[] = { "same", "more", "less", "unclear" };
enum verdict { VERDICT_SAME, VERDICT_MORE, VERDICT_LESS, VERDICT_UNCLEAR };

/* Compares with the saved run. Stores the size up to which a change may be noise; NAN: unknown. */
static enum verdict judge(const struct stat_run *run, const struct measure *measure,
			  double *ret_noise)
{
	unsigned n = measure->values->len, compared = 0;
	double change = measure_mean(measure) - mean_of(measure->before, measure->n_before);
	struct noise_change noise;

	*ret_noise = NAN;
	if (n + measure->n_before <= 2)
		return VERDICT_UNCLEAR;
	for (guint i = 0; i < run->measures->len; i++)
		compared += ((struct measure *)run->measures->pdata[i])->before != NULL;
	noise = noise_runs(measure->before, measure->n_before, values_of(measure), n);
	*ret_noise = noise_interval(&noise, compared);
	if (fabs(change) <= *ret_noise)
		return VERDICT_SAME;
	return change > 0 ? VERDICT_MORE : VERDICT_LESS;
}

enum field {
	NAME,
	UNIT,
	STATE,
	USER_ONLY,
	COUNTED,
	MEAN,
	DEVIATION,
	LEAST,
	MOST,
	VALUES,
	BEFORE,
	CHANGE,
	NOISE,
	VERDICT,
	VALUE_TEXT,
	DEVIATION_PCT,
	CHANGE_PCT,
	NOISE_PCT,
	LABEL,
	NOTE
};

static const struct table_member members[] = {
	{ "name", NAME },           { "unit", UNIT },           { "state", STATE },
	{ "user_only", USER_ONLY }, { "counted_pct", COUNTED }, { "mean", MEAN },
	{ "stddev", DEVIATION },    { "min", LEAST },           { "max", MOST },
	{ "values", VALUES },       { "before_mean", BEFORE },  { "change", CHANGE },
	{ "noise", NOISE },         { "verdict", VERDICT },     { NULL },
};

/* Stores the mean of the event with this name. Returns false if it was not counted, or is 0. */
static bool find_mean(const struct stat_run *run, const char *name, double *ret_mean)
{
	POINTER_EACH(const struct measure, measure, run->measures) {
		if (strcmp(measure->event.name, name) == 0 && measure->values->len > 0) {
			*ret_mean = measure_mean(measure);
			return *ret_mean > 0;
		}
	}
	return false;
}

/* Returns a note on a number: its ratio to another number ("0.98 CPUs"), or why it is unknown or
 * estimated; or NULL. */
static char *note_of(const struct stat_run *run, const struct measure *measure)
{
	const char *name = measure->event.name;
	double mean, other;

	if (measure->state == STATE_NOT_PERMITTED)
		return g_strdup(_("not permitted"));
	if (measure->state == STATE_UNSUPPORTED)
		return g_strdup(_("not supported here"));
	if (measure->state == STATE_NO_COUNTER)
		return g_strdup(_("not counted: no counter was free"));
	mean = measure_mean(measure);
	if (measure->counted < 1)
		return g_strdup_printf(_("estimated: counted %.0f %% of the time"),
				       measure->counted * 100);
	if (strcmp(name, "task-clock") == 0 && find_mean(run, "elapsed", &other))
		return g_strdup_printf(_("%.2f CPUs"), mean / other);
	if (strcmp(name, "cycles") == 0 && !measure->user_only &&
	    find_mean(run, "task-clock", &other))
		return g_strdup_printf(_("%.2f GHz"), mean / other);
	if (strcmp(name, "instructions") == 0 && find_mean(run, "cycles", &other))
		return g_strdup_printf(_("%.2f per cycle"), mean / other);
	if (strcmp(name, "branch-misses") == 0 && find_mean(run, "branches", &other))
		return g_strdup_printf(_("%.1f %% of branches"), mean / other * 100);
	return NULL;
}

static void write_values(struct json *json, const char *key, const void *data)
{
	const struct measure *measure = data;

	json_begin_array(json, key);
	for (guint i = 0; i < measure->values->len; i++)
		json_double(json, NULL, values_of(measure)[i]);
	json_end(json);
}

static double extreme(const struct measure *measure, bool largest)
{
	double found = values_of(measure)[0];

	for (guint i = 1; i < measure->values->len; i++)
		found = largest ? fmax(found, values_of(measure)[i])
				: fmin(found, values_of(measure)[i]);
	return found;
}

/* Returns a cell that compares a measure with the saved run. */
static struct cell comparison_cell(const struct stat_run *run, const struct measure *measure,
				   unsigned field)
{
	double before = mean_of(measure->before, measure->n_before), noise;
	double change = measure_mean(measure) - before;
	enum verdict verdict = judge(run, measure, &noise);

	if (field == BEFORE)
		return cell_double(before);
	if (field == CHANGE)
		return cell_double(change);
	if (field == CHANGE_PCT && before > 0)
		return cell_double(change / before * 100);
	if (field == NOISE_PCT && before > 0 && isfinite(noise))
		return cell_double(noise / before * 100);
	if (field == NOISE && isfinite(noise))
		return cell_double(noise);
	return field == VERDICT ? cell_text(verdicts[verdict]) : cell_unknown();
}

static struct cell get_cell(const void *data, size_t row, unsigned field)
{
	const struct stat_run *run = data;
	const struct measure *measure = run->measures->pdata[row];
	const double *values = values_of(measure);
	unsigned n = measure->values->len;
	struct cell mean;

	switch ((enum field)field) {
	case NAME:
		return cell_text(measure->event.name);
	case UNIT:
		return cell_text(measure->event.counts_ns ? "ns" : "events");
	case STATE:
		return cell_text(state_names[measure->state]);
	case USER_ONLY:
		return cell_bool(measure->user_only);
	case LABEL:
		return cell_own_text(g_strdup_printf("%s%s", measure->event.name,
						     measure->user_only ? _(" (user mode)") : ""));
	case NOTE:
		return cell_own_or_none(note_of(run, measure));
	case VALUES:
		return (struct cell){ .kind = CELL_WRITTEN,
				      .write = write_values,
				      .data = measure };
	default:
		break;
	}
	if (field >= BEFORE && field != VALUE_TEXT && field != DEVIATION_PCT)
		return measure->before ? comparison_cell(run, measure, field) : cell_unknown();
	if (n == 0)
		return cell_unknown();
	if (field == COUNTED)
		return cell_double(measure->counted * 100);
	if (field == MEAN)
		return cell_double(mean_of(values, n));
	if (field == VALUE_TEXT) {
		mean = cell_double(measure_mean(measure));
		mean.format = measure->event.counts_ns ? COLUMN_DURATION : COLUMN_REAL;
		return mean;
	}
	if (field == DEVIATION && n > 1)
		return cell_double(deviation_of(values, n));
	if (field == DEVIATION_PCT && n > 1 && mean_of(values, n) > 0)
		return cell_double(deviation_of(values, n) / mean_of(values, n) * 100);
	return field == LEAST || field == MOST ? cell_double(extreme(measure, field == MOST))
					       : cell_unknown();
}

static void print_text(const struct stat_run *run)
{
	const struct record_options named = { .command = run->command };
	g_autofree char *target = record_options_target(&named, true);
	struct table table = { .rows = run->measures->len, .get = get_cell, .data = run };
	struct table_style style = { .columns = cli_columns(STDERR_FILENO),
				     .is_colored =
					     cli_color_wanted(CLI_COLOR_AUTO, STDERR_FILENO) };
	struct out out;
	bool is_refused = false;

	out_init(&out, STDERR_FILENO);
	style.out = &out;
	out_printf(&out, ngettext("%s: %u run.", "%s: %u runs, the mean of them.", run->runs),
		   target, run->runs);
	if (run->failed)
		out_printf(&out, _(" %u failed, exit status %d."), run->failed, run->status);
	out_text(&out, "\n\n");
	table_add_column(&table, VALUE_TEXT, COLUMN_REAL, run->runs > 1 ? _("mean") : _("count"));
	if (run->runs > 1)
		table_add_column(&table, DEVIATION_PCT, COLUMN_PERCENT, _("± %"));
	if (run->compare) {
		table_add_column(&table, CHANGE_PCT, COLUMN_PERCENT, _("change %"));
		table.columns[table.n_columns - 1].is_signed = true;
		table_add_column(&table, NOISE_PCT, COLUMN_PERCENT, _("noise %"));
		table_add_column(&table, VERDICT, COLUMN_WORD, _("verdict"));
	}
	table_add_column(&table, LABEL, COLUMN_NAME, _("event"));
	table_add_column(&table, NOTE, COLUMN_PLACE, NULL);
	table_print(&table, &style, table.rows);
	POINTER_EACH(const struct measure, measure, run->measures)
		is_refused |= measure->state == STATE_NOT_PERMITTED || measure->user_only;
	if (is_refused)
		out_text(
			&out,
			_("\nThe kernel permits counting only a part. To count all, as root: sysctl "
			  "kernel.perf_event_paranoid=-1\n"));
	out_flush(&out);
	out_done(&out);
}

static void print_json(const struct stat_run *run)
{
	struct table table = {
		.rows = run->measures->len, .get = get_cell, .data = run, .members = members
	};
	struct json json;

	json_init(&json, out_stdout());
	json_begin_envelope(&json, "profctl.stat/1");
	json_strings(&json, "command", (const char *const *)run->command);
	json_uint(&json, "runs", run->runs);
	json_int(&json, "exit", run->status);
	json_uint(&json, "failed", run->failed);
	table_write_array(&table, &json, "rows", table.rows);
	json_end_envelope(&json);
	json_done(&json);
}

/* ---- The verb -------------------------------------------------------------------------------- */

static bool stat_command(struct stat_run *run, GError **error)
{
	static const char *const times[] = { "elapsed", "user", "system" };
	g_autoptr(GKeyFile) saved = NULL;

	for (unsigned i = 0; i < TIMES; i++)
		add_measure(run, times[i]);
	if (!add_events(run, error))
		return false;
	/* Report errors in these files before the command runs, which may take hours. */
	if (run->compare && !(saved = load(run->compare, error)))
		return false;
	if (run->save && !g_file_test(run->save, G_FILE_TEST_EXISTS)) {
		g_autofree char *folder = g_path_get_dirname(run->save);

		if (g_access(folder, W_OK | X_OK) != 0)
			return cli_set_error(error, CLI_FAILURE, _("cannot write '%s': %s"),
					     run->save, ERRNO_TEXT(errno));
	} else if (run->save) {
		g_clear_pointer(&saved, g_key_file_unref);
		/* Overwrite only a file that stat wrote. */
		saved = load(run->save, error);
		if (!saved)
			return false;
	}
	if (!run_all(run, error) || (run->compare && !compare_with(run, error)))
		return false;
	if (run->json)
		print_json(run);
	else
		print_text(run);
	return !run->save || save(run, error);
}

int profctl_stat(int argc, char **argv)
{
	static const struct cli_option options[] = {
		{ "event", 'e', CLI_LIST, offsetof(struct stat_run, events), N_("EVENT[,...]"),
		  N_("Count EVENT, named as in perf (default: times, faults, switches, cycles, instructions, branches)") },
		{ "repeat", 'r', CLI_UINT, offsetof(struct stat_run, repeat), "N",
		  N_("Run COMMAND N times; show mean and standard deviation"), NULL, 1, MAX_RUNS },
		{ "save", 0, CLI_STRING, offsetof(struct stat_run, save), N_("FILE"),
		  N_("Write the counts of each run to FILE") },
		{ "compare", 0, CLI_STRING, offsetof(struct stat_run, compare), N_("FILE"),
		  N_("Compare with the counts in FILE; say which changes are only noise") },
		{ "json", 0, CLI_FLAG, offsetof(struct stat_run, json), NULL,
		  N_("Print the counts as one line of JSON on standard output") },
		{ NULL },
	};
	static const struct cli_spec spec = {
		.synopsis = N_("[--] COMMAND [ARG...]"),
		.description = N_("Count events while a command and its children run."),
		.min_operands = 1,
		.max_operands = UINT_MAX,
		.command = true,
	};
	struct stat_run run = { .repeat = 1 };
	const struct cli_group groups[] = { { NULL, options, &run }, { NULL } };
	int status = cli_parse(&spec, groups, &argc, &argv);
	g_autoptr(GError) error = NULL;

	if (status == CLI_CONTINUE && run.events)
		status = record_split_events(&run.events);
	if (status == CLI_CONTINUE) {
		run.command = argv;
		run.measures = g_ptr_array_new_with_free_func(free_measure);
		status = stat_command(&run, &error) ? run.status
						    : cli_fail(g_steal_pointer(&error));
		if (run.status)
			status = run.status;
		g_ptr_array_unref(run.measures);
	}
	g_clear_pointer(&run.events, g_ptr_array_unref);
	return status;
}
