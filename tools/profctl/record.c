/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profctl record - makes one recording
 *
 *     fork the command, blocked ▶ connect to a profd ▶ CreateSession, Start ▶ release the command
 *     ▶ the command ends, the time is over or Ctrl-C: Stop ▶ Finished ▶ add names ▶ summary
 *
 * The first Ctrl-C stops the recording, the second skips the names, the third aborts. Unless
 * aborted, profctl waits for the command, which also gets the signal and may ignore it. If profctl
 * dies at any time, profd notices it and finishes the file. --bus auto tries the system's profd
 * first. If the system's profd is missing, has another version or denies access, profctl starts a
 * private one and, unless it runs as root, prints a line with the reason.
 */
#include "config.h"

#include "arch/errno-text.h"
#include "arch/start-threads.h"
#include "tools/profcapture/verbs.h"
#include "tools/profctl/attach.h"
#include "tools/profctl/client.h"
#include "tools/profctl/command.h"
#include "tools/profctl/output.h"
#include "tools/profctl/record-capture.h"
#include "tools/profctl/record-control.h"
#include "tools/profctl/record-options.h"
#include "tools/profctl/record-result.h"
#include "tools/profctl/verbs.h"

#include <glib-unix.h>
#include <glib/gi18n.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>

/* Number of processes and threads that profctl, profd and the command need. */
#define THREADS 7

struct recording {
	struct record_options options;
	struct preload preload;
	struct attachments attachments; /* running processes whose allocations are recorded */
	struct command command;
	struct output output;
	struct progress progress;
	struct record_control control;
	struct client *client;
	GMainLoop *loop;
	GError *error;          /* error that ended the recording, else NULL */
	char *reason;           /* reason in the signal Finished */
	const char *own_reason; /* reason why profctl stopped the recording, such as "duration" */
	GVariant *summary;
	char *to_view; /* the capture that --view shows; NULL: none */
	guint timer;
	unsigned interrupts;
	atomic_bool skips_names;
	bool started, stopping, finished, ok, gave_up;
};

/* ---- Ending ---------------------------------------------------------------------------------- */

/* Quits the main loop when both the session and the command have ended. */
static void check_end(struct recording *recording)
{
	if ((recording->finished || recording->error) && !recording->command.running)
		g_main_loop_quit(recording->loop);
}

static void stop(void *data)
{
	struct recording *recording = data;

	if (recording->stopping || recording->finished || recording->error)
		return;
	recording->stopping = true;
	g_clear_handle_id(&recording->timer, g_source_remove);
	client_stop(recording->client);
	if (!recording->started)
		cli_set_error(&recording->error, CLI_INTERRUPTED,
			      _("interrupted before the recording began"));
	check_end(recording);
}

static gboolean on_interrupt(gpointer data)
{
	struct recording *recording = data;

	recording->interrupts++;
	if (recording->interrupts >= 3) {
		recording->gave_up = true;
		g_main_loop_quit(recording->loop);
	} else if (recording->interrupts == 2) {
		recording->skips_names = true;
	}
	stop(recording);
	return G_SOURCE_CONTINUE;
}

/* Forwards to the command a signal that was sent only to profctl, and stops the recording. */
static gboolean forward(struct recording *recording, int number)
{
	if (recording->command.running)
		kill(recording->command.pid, number);
	recording->interrupts = MAX_OF(recording->interrupts, 1u);
	stop(recording);
	return G_SOURCE_CONTINUE;
}

static gboolean on_terminate(gpointer data)
{
	return forward(data, SIGTERM);
}

static gboolean on_hang_up(gpointer data)
{
	return forward(data, SIGHUP);
}

static void on_command_end(GPid pid, gint wait_status, gpointer data)
{
	struct recording *recording = data;

	recording->command.running = false;
	recording->command.wait_status = wait_status;
	stop(recording);
	check_end(recording);
}

static gboolean on_duration(gpointer data)
{
	struct recording *recording = data;

	recording->timer = 0;
	recording->own_reason = "duration";
	stop(recording);
	return G_SOURCE_REMOVE;
}

/* ---- Messages of profd ----------------------------------------------------------------------- */

/* Calls `function` after `ns`, which is at most RECORD_MAX_NS. */
static guint timeout(uint64_t ns, GSourceFunc function, struct recording *recording)
{
	return g_timeout_add((guint)((ns + 999999) / 1000000), function, recording);
}

static void begin_sampling(struct recording *recording)
{
	progress_begin(&recording->progress);
	if (recording->options.duration_ns != RECORD_NO_END)
		recording->timer = timeout(recording->options.duration_ns, on_duration, recording);
}

static gboolean on_delay(gpointer data)
{
	struct recording *recording = data;

	recording->timer = 0;
	client_resume(recording->client);
	begin_sampling(recording);
	return G_SOURCE_REMOVE;
}

static void on_started(const char *control, int sysprof, void *data)
{
	struct recording *recording = data;
	struct command *command = &recording->command;
	g_autoptr(GError) error = NULL;

	recording->started = true;
	if (recording->error || !output_commit(&recording->output, &recording->error)) {
		command_cancel(command);
		check_end(recording);
		return;
	}
	if (recording->options.command &&
	    command_release(command, recording->options.command[0], control, sysprof, &error)) {
		g_child_watch_add(command->pid, on_command_end, recording);
	} else if (recording->options.command) {
		output_discard(&recording->output);
		stop(recording);
		recording->error = g_steal_pointer(&error);
		check_end(recording);
	}
	attachments_request(&recording->attachments, control, &recording->preload);
	if (recording->control.fd >= 0)
		record_control_ready(&recording->control, control);
	if (recording->stopping)
		return;
	if (recording->options.delay_ns)
		recording->timer = timeout(recording->options.delay_ns, on_delay, recording);
	else
		begin_sampling(recording);
}

static void on_progress(const struct client_counters *counters, void *data)
{
	struct recording *recording = data;

	progress_update(&recording->progress, counters);
}

static void on_warning(const char *message, void *data)
{
	struct recording *recording = data;

	progress_clear(&recording->progress);
	cli_warning("%s", message);
}

static void on_finished(bool ok, const char *reason, GVariant *summary, void *data)
{
	struct recording *recording = data;

	recording->finished = true;
	recording->ok = ok;
	recording->reason = g_strdup(reason);
	recording->summary = g_variant_ref(summary);
	g_clear_handle_id(&recording->timer, g_source_remove);
	if (strcmp(reason, "stopped") == 0 && !recording->stopping) {
		progress_clear(&recording->progress);
		cli_error(_("somebody else stopped the session; nothing more is recorded"));
	}
	check_end(recording);
}

static void on_failed(const GError *error, void *data)
{
	struct recording *recording = data;

	if (!recording->error)
		recording->error = g_error_copy(error);
	if (!recording->started)
		command_cancel(&recording->command);
	check_end(recording);
}

/* ---- From start to end ----------------------------------------------------------------------- */

/* Returns the value of a line of /proc/PID/status; NULL if the line is missing. */
static char *status_of(uint32_t pid, const char *name)
{
	g_autofree char *path = g_strdup_printf("/proc/%" PRIu32 "/status", pid);
	g_autofree char *text = NULL;
	g_auto(GStrv) lines = NULL;

	if (!g_file_get_contents(path, &text, NULL, NULL))
		return NULL;
	lines = g_strsplit(text, "\n", -1);
	for (char **line = lines; *line; line++)
		if (g_str_has_prefix(*line, name))
			return g_strdup(g_strchug(*line + strlen(name)));
	return NULL;
}

/* Rejects pids that exist in /proc but cannot be recorded. Warns about kernel threads. */
static bool check_pid(uint32_t pid, GError **error)
{
	g_autofree char *process = status_of(pid, "Tgid:");
	g_autofree char *state = status_of(pid, "State:");
	g_autofree char *threads = status_of(pid, "Threads:");
	g_autofree char *memory = status_of(pid, "VmSize:");
	g_autofree char *name = status_of(pid, "Name:");

	if (process && strtoul(process, NULL, 10) != pid)
		return cli_set_error(error, CLI_FAILURE,
				     _("%" PRIu32
				       " is a thread ('%s') of process %s; use --pid %s"),
				     pid, name ? name : "?", process, process);
	/* The main thread of a process may end before the others. */
	if (state && (*state == 'Z' || *state == 'X') && threads && strtoul(threads, NULL, 10) <= 1)
		return cli_set_error(
			error, CLI_FAILURE,
			_("process %" PRIu32
			  " has ended, though its parent has not waited for it yet (zombie)"),
			pid);
	if (state && *state != 'Z' && !memory)
		cli_warning(_("process %" PRIu32 " ('%s') is a kernel thread: it has kernel stacks "
			      "only, and none while it sleeps"),
			    pid, name ? name : "?");
	return true;
}

static bool begin(struct recording *recording, GError **error)
{
	static const struct client_listener listener = {
		.started = on_started,
		.progress = on_progress,
		.warning = on_warning,
		.finished = on_finished,
		.failed = on_failed,
	};
	const struct record_options *options = &recording->options;
	char why[ERRNO_TEXT_BYTES];
	struct client_request request;
	struct sigaction hang_up;
	bool to_stdout = options->output && strcmp(options->output, "-") == 0;
	g_autofree char *stem = record_options_stem(options);
	const struct output_options output = {
		.path = options->output,
		.stem = stem,
		.force = options->force,
		.append = options->append,
		.needs_reading = !options->no_symbols,
	};

	if (!start_threads_check(THREADS, why))
		return cli_set_error(error, CLI_FAILURE,
				     _("cannot start the threads and processes of a recording: %s"),
				     why);
	for (guint i = 0; options->pids && i < options->pids->len; i++)
		if (!check_pid(g_array_index(options->pids, uint32_t, i), error))
			return false;
	if (options->control != RECORD_NO_CONTROL &&
	    !record_control_open((int)options->control, &recording->control, error))
		return false;
	if (options->python_perf) {
		g_setenv("PYTHONPERFSUPPORT", "1", TRUE);
		if (!options->quiet)
			fputs(_("profctl: with --python-perf, Python calls its functions more slowly: programs may take up to twice as long\n"),
			      stderr);
	}
	/* do this first: fork needs a process with one thread */
	if (!preload_init(&recording->preload, &options->memory, error) ||
	    !attachments_open(&recording->attachments, options->pids, &recording->preload, error) ||
	    (options->command && !command_start(&recording->command, options->command,
						&recording->preload, to_stdout, error)) ||
	    !output_open(&output, &recording->output, error))
		return false;
	/* do this only after opening the output: opening a pipe may wait for a reader, and Ctrl-C
	 * must end the wait */
	g_unix_signal_add(SIGINT, on_interrupt, recording);
	g_unix_signal_add(SIGTERM, on_terminate, recording);
	/* nohup ignores SIGHUP: keep that, so that the recording survives its terminal */
	if (sigaction(SIGHUP, NULL, &hang_up) == 0 && hang_up.sa_handler != SIG_IGN)
		g_unix_signal_add(SIGHUP, on_hang_up, recording);
	if (recording->control.fd >= 0)
		record_control_watch(&recording->control, stop, recording);
	request = (struct client_request){
		.bus = options->bus,
		.probes = record_options_have_probes(options),
		.quiet = options->quiet,
		.wants_control = options->command || recording->control.fd >= 0 ||
				 recording->attachments.n > 0,
		.wants_sysprof = options->command && !options->no_sysprof,
		.options = record_options_session(options, recording->command.pid),
		.capture_fd = recording->output.fd,
		.switch_fd = recording->control.switch_fd,
	};
	recording->client = client_open(&request, &listener, recording, error);
	return recording->client;
}

/* Adds names. Returns whether the capture has them. Leaves a capture that ended badly unchanged. */
static bool add_names(struct recording *recording, struct record_samples *ret_samples)
{
	g_autoptr(GError) error = NULL;
	bool named;

	if (recording->options.no_symbols || !recording->ok || recording->error ||
	    recording->skips_names)
		return false;
	named = record_capture_symbolize(recording->output.fd, recording->output.path,
					 recording->client, recording->loop,
					 &recording->skips_names, ret_samples, &error);
	if (error)
		cli_warning(_("no names were added: %s"), error->message);
	return named;
}

/* Sets an error if the recording is unusable or incomplete, but nothing has failed so far. */
static void judge(struct recording *recording, const struct record_result *result)
{
	const struct record_options *options = &recording->options;
	int32_t failed = 0;

	if (recording->error)
		return;
	if (!recording->ok && result->is_lost) {
		cli_set_error(
			&recording->error, CLI_FAILURE,
			_("nothing was recorded: it ended (%s) before anything was written to '%s'; "
			  "record again"),
			recording->reason, recording->output.path);
	} else if (!recording->ok) {
		g_variant_lookup(recording->summary, "error", "i", &failed);
		cli_set_error(
			&recording->error, CLI_FAILURE,
			_("the recording ended early (%s%s%s); '%s' has what was written until then"),
			recording->reason, failed ? ": " : "", failed ? ERRNO_TEXT(failed) : "",
			recording->output.path);
	} else if (!record_result_number(result, "samples") && !record_result_waited_ns(result) &&
		   (!record_result_number(result, "events") ||
		    /* a short command, or a recording that a program controls, may end before its
		     * first sample */
		    (options->frequency && !options->command && recording->control.fd < 0))) {
		cli_set_error(
			&recording->error, CLI_NOTHING_CAPTURED,
			_("nothing was captured: no sample was taken while the recording ran"));
	}
}

static int end(struct recording *recording)
{
	const struct record_options *options = &recording->options;
	g_autofree char *target = record_options_target(options, true);
	struct record_result result = {
		.target = target,
		.file = recording->output.path,
		.reason = recording->own_reason ? recording->own_reason : recording->reason,
		.summary = recording->summary,
		.command_pid = recording->command.pid,
		.wait_status = recording->command.wait_status,
		.memory = options->memory.wanted,
		.no_off_cpu = options->no_off_cpu,
		.is_sampled = options->memory.sample_bytes > 0,
	};
	g_autoptr(GArray) left = NULL;
	bool ran = recording->command.pid && recording->started;
	int status;

	if (recording->started)
		attachments_check(&recording->attachments);
	if (recording->finished) {
		result.system = client_is_system(recording->client);
		result.is_lost = !recording->ok && output_is_unreadable(&recording->output);
		if (result.is_lost)
			output_discard(&recording->output);
		else
			result.symbols = add_names(recording, &result.samples);
		if (recording->gave_up)
			return CLI_INTERRUPTED;
		result.length_ns = record_capture_length(recording->output.fd);
		if (ran)
			result.left = left =
				record_capture_left(recording->output.fd, recording->command.pid);
		if (result.memory && !options->append)
			result.has_allocations = record_capture_allocations(recording->output.fd,
									    &result.allocations);
		result.kept = output_is_kept(&recording->output);
		result.bytes = output_bytes(&recording->output);
		if (!result.bytes)
			result.bytes = record_result_number(&result, "bytes");
		if (!output_finish(&recording->output, &recording->error))
			recording->ok = false;
	} else if (!recording->started) {
		output_discard(&recording->output);
	}
	if (!recording->error && recording->finished && !result.is_lost) {
		if (!options->quiet)
			record_result_print(&result);
		if (options->json)
			record_result_print_json(&result);
		if (options->view && result.kept)
			recording->to_view = g_strdup(result.file);
	}
	judge(recording, &result);
	status = recording->interrupts ? CLI_INTERRUPTED : CLI_OK;
	if (recording->error)
		status = cli_fail(g_error_copy(recording->error));
	if (ran && (command_exit_status(&recording->command) || status == CLI_INTERRUPTED))
		status = command_exit_status(&recording->command);
	return status;
}

static void recording_done(struct recording *recording, int status)
{
	command_cancel(&recording->command);
	client_free(recording->client);
	if (recording->output.path)
		output_done(&recording->output);
	g_clear_pointer(&recording->summary, g_variant_unref);
	g_main_loop_unref(recording->loop);
	g_free(recording->reason);
	attachments_done(&recording->attachments);
	preload_done(&recording->preload);
	record_options_done(&recording->options);
	/* do this last, because afterwards the program may record to the same file */
	record_control_end(&recording->control, status,
			   recording->error ? recording->error->message : NULL);
	g_clear_error(&recording->error);
}

/* Runs `profcapture view`. Returns its status, or `status` if that is an error. */
static int view(char *file, int status)
{
	char verb[] = "view", end_of_options[] = "--";
	char *arguments[] = { verb, end_of_options, file, NULL };
	int viewed = verb_view(3, arguments);

	return status == CLI_OK ? viewed : status;
}

int profctl_record(int argc, char **argv)
{
	struct recording recording = {
		.command = { .go_fd = -1, .error_fd = -1 },
		.control = { .fd = -1, .switch_fd = -1, .program_fd = -1, .pidfd = -1 },
	};
	int status = record_options_parse(&recording.options, argc, argv);
	g_autofree char *to_view = NULL;

	if (status != CLI_CONTINUE) {
		record_options_done(&recording.options);
		return status;
	}
	if (recording.options.quiet)
		cli_be_quiet();
	recording.loop = g_main_loop_new(NULL, FALSE);
	progress_init(&recording.progress, &recording.options);
	if (begin(&recording, &recording.error))
		g_main_loop_run(recording.loop);
	progress_done(&recording.progress);
	if (!recording.gave_up)
		status = end(&recording);
	if (recording.gave_up) {
		/* exit immediately, even if a thread is still adding names */
		cli_error(_("aborted; what was recorded is in '%s'"), recording.output.path);
		_exit(CLI_INTERRUPTED);
	}
	to_view = recording.to_view;
	recording_done(&recording, status);
	return to_view ? view(to_view, status) : status;
}
