/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profctl record - makes one recording
 *
 *     fork the command, blocked ▶ reach a profd ▶ CreateSession, Start ▶ release the command
 *     ▶ the command ends, the time is over or Ctrl-C: Stop ▶ Finished ▶ add names ▶ summary
 *
 * Ctrl-C: the first stops, the second skips the names, the third aborts. Unless aborted, profctl
 * always waits for the command, which got the signal too and decides for itself. If this process
 * dies at any time, profd notices and finishes the file. --bus auto tries the system's profd first.
 * If that is missing, has another version or denies access, profctl starts one of its own, and
 * prints a line that says why.
 */
#include "config.h"

#include "arch/errno-text.h"
#include "arch/start-threads.h"
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

/* Our own, and the processes of the command and of profd. */
#define THREADS 5

struct recording {
	struct record_options options;
	struct preload preload;
	struct attachments attachments; /* processes to attach to, for their allocations */
	struct command command;
	struct output output;
	struct progress progress;
	struct record_control control;
	struct client *client;
	GMainLoop *loop;
	GError *error;    /* the error that ended it, else NULL */
	GError *fallback; /* why the system's profd was not used, until another one is reached */
	char *reason;     /* of Finished */
	const char *own_reason; /* why profctl stopped it, if profd cannot know: "duration" */
	GVariant *summary;
	struct record_symbols *symbols; /* NULL: not begun */
	guint timer;
	unsigned interrupts;
	bool created, started, stopping, finished, ok, gave_up;
};

/* ---- Ending ---------------------------------------------------------------------------------- */

/* Quits when both the session and the command have ended. */
static void check_end(struct recording *recording)
{
	if ((recording->finished || recording->error) && !recording->command.running)
		g_main_loop_quit(recording->loop);
}

static void stop(struct recording *recording)
{
	if (recording->stopping || recording->finished || recording->error)
		return;
	recording->stopping = true;
	g_clear_handle_id(&recording->timer, g_source_remove);
	if (recording->started)
		client_stop(recording->client);
	else
		g_set_error(&recording->error, CLI_ERROR, CLI_INTERRUPTED,
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
	} else if (recording->interrupts == 2 && recording->symbols) {
		record_symbols_skip(recording->symbols);
	}
	stop(recording);
	return G_SOURCE_CONTINUE;
}

/* Forwards a signal that was sent to this process alone. */
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

/* nohup ignores SIGHUP: the recording outlives its terminal. */
static bool is_ignored(int number)
{
	struct sigaction action;

	return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
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

/* At most RECORD_MAX_NS. */
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

static void release_command(struct recording *recording)
{
	g_autoptr(GError) error = NULL;

	if (command_release(&recording->command, recording->options.command[0],
			    client_control(recording->client), client_sysprof(recording->client),
			    &error)) {
		g_child_watch_add(recording->command.pid, on_command_end, recording);
		return;
	}
	output_discard(&recording->output);
	stop(recording);
	recording->error = g_steal_pointer(&error);
	check_end(recording);
}

static void on_created(void *data)
{
	struct recording *recording = data;

	recording->created = true;
	if (recording->options.command || recording->control.fd >= 0 ||
	    recording->attachments.n > 0)
		client_start_with_collectors(recording->client,
					     recording->options.no_sysprof ||
						     !recording->options.command);
	else
		client_start(recording->client);
}

static void on_started(void *data)
{
	struct recording *recording = data;

	recording->started = true;
	if (recording->error || !output_commit(&recording->output, &recording->error)) {
		command_cancel(&recording->command);
		check_end(recording);
		return;
	}
	if (recording->options.command)
		release_command(recording);
	if (recording->attachments.n > 0)
		attachments_request(&recording->attachments, client_control(recording->client),
				    &recording->preload);
	if (recording->control.fd >= 0)
		record_control_ready(&recording->control, client_control(recording->client));
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

static void on_warning(const char *code, const char *message, void *data)
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
		cli_warning(_("somebody else stopped the session; nothing more is recorded"));
	}
	check_end(recording);
}

static gboolean on_fall_back(gpointer data);

static void on_failed(const GError *error, void *data)
{
	struct recording *recording = data;

	if (!recording->created && !recording->stopping &&
	    client_may_fall_back(recording->client, recording->options.bus, error)) {
		recording->fallback = g_error_copy(error);
		g_idle_add(on_fall_back, recording);
		return;
	}
	if (!recording->error)
		recording->error = g_error_copy(error);
	if (!recording->started)
		command_cancel(&recording->command);
	check_end(recording);
}

/* ---- From start to end ----------------------------------------------------------------------- */

static const struct client_listener client_listener = {
	.created = on_created,
	.started = on_started,
	.progress = on_progress,
	.warning = on_warning,
	.finished = on_finished,
	.failed = on_failed,
};

/* why: the error of the system's profd; NULL: it was not tried. */
static bool create_session(struct recording *recording, const GError *why, GError **error)
{
	const struct record_options *options = &recording->options;

	recording->client = client_open(why ? CLIENT_PRIVATE : options->bus, why, options->quiet,
					&client_listener, recording, error);
	return recording->client &&
	       client_create(recording->client,
			     record_options_session(options, recording->command.pid),
			     recording->output.fd, recording->control.switch_fd, error);
}

static gboolean on_fall_back(gpointer data)
{
	struct recording *recording = data;
	g_autoptr(GError) why = g_steal_pointer(&recording->fallback);

	g_clear_pointer(&recording->client, client_free);
	if (recording->stopping || create_session(recording, why, &recording->error))
		return G_SOURCE_REMOVE;
	command_cancel(&recording->command);
	check_end(recording);
	return G_SOURCE_REMOVE;
}

static void on_program_end(void *data)
{
	stop(data);
}

/* Returns a line of /proc/PID/status; NULL if it is missing. */
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

/* Rejects pids that cannot be recorded although they exist in /proc. */
static bool check_pid(uint32_t pid, GError **error)
{
	g_autofree char *process = status_of(pid, "Tgid:");
	g_autofree char *state = status_of(pid, "State:");
	g_autofree char *threads = status_of(pid, "Threads:");
	g_autofree char *memory = status_of(pid, "VmSize:");
	g_autofree char *name = status_of(pid, "Name:");

	if (process && strtoul(process, NULL, 10) != pid) {
		g_set_error(error, CLI_ERROR, CLI_FAILURE,
			    _("%" PRIu32 " is a thread ('%s') of process %s; use --pid %s"), pid,
			    name ? name : "?", process, process);
		return false;
	}
	/* The first thread of a process may end before the others. */
	if (state && (*state == 'Z' || *state == 'X') && threads &&
	    strtoul(threads, NULL, 10) <= 1) {
		g_set_error(error, CLI_ERROR, CLI_FAILURE,
			    _("process %" PRIu32
			      " has ended, though its parent has not waited for it yet (zombie)"),
			    pid);
		return false;
	}
	if (state && *state != 'Z' && !memory)
		cli_warning(_("process %" PRIu32 " ('%s') is a kernel thread: it has kernel stacks "
			      "only, and none while it sleeps"),
			    pid, name ? name : "?");
	return true;
}

static bool begin(struct recording *recording, GError **error)
{
	const struct record_options *options = &recording->options;
	char why[ERRNO_TEXT_BYTES];
	bool to_stdout = options->output && strcmp(options->output, "-") == 0;
	g_autofree char *stem = record_options_stem(options);
	const struct output_options output = {
		.path = options->output,
		.stem = stem,
		.force = options->force,
		.append = options->append,
		.needs_reading = !options->no_symbols,
	};

	if (!start_threads_check(THREADS, why)) {
		g_set_error(error, CLI_ERROR, CLI_FAILURE,
			    _("cannot start the threads and processes of a recording: %s"), why);
		return false;
	}
	for (guint i = 0; options->pids && i < options->pids->len; i++)
		if (!check_pid(g_array_index(options->pids, uint32_t, i), error))
			return false;
	if (options->control != RECORD_NO_CONTROL &&
	    !record_control_open((int)options->control, &recording->control, error))
		return false;
	/* first, because no thread may exist before a fork */
	if (!preload_init(&recording->preload, &options->memory, error))
		return false;
	if (!attachments_open(&recording->attachments, options->pids, &recording->preload, error))
		return false;
	if (options->command && !command_start(&recording->command, options->command,
					       &recording->preload, to_stdout, error))
		return false;
	if (!output_open(&output, &recording->output, error))
		return false;
	/* not earlier: opening a pipe waits for its reader, and Ctrl-C may end that */
	g_unix_signal_add(SIGINT, on_interrupt, recording);
	g_unix_signal_add(SIGTERM, on_terminate, recording);
	if (!is_ignored(SIGHUP))
		g_unix_signal_add(SIGHUP, on_hang_up, recording);
	if (recording->control.fd >= 0)
		record_control_watch(&recording->control, on_program_end, recording);
	return create_session(recording, NULL, error);
}

static void run(struct recording *recording)
{
	recording->loop = g_main_loop_new(NULL, FALSE);
	progress_init(&recording->progress, &recording->options);
	if (begin(recording, &recording->error))
		g_main_loop_run(recording->loop);
	progress_done(&recording->progress);
}

static void on_named(void *data)
{
	struct recording *recording = data;

	g_main_loop_quit(recording->loop);
}

/* Returns whether the capture has its names. A capture that ended badly stays unchanged. */
static bool add_names(struct recording *recording, struct record_result *result)
{
	g_autoptr(GError) error = NULL;
	bool named;

	if (recording->options.no_symbols || !recording->ok || recording->error ||
	    recording->interrupts >= 2)
		return false;
	recording->symbols = record_symbols_start(recording->output.fd, recording->output.path,
						  recording->client, on_named, recording, &error);
	if (recording->symbols)
		g_main_loop_run(recording->loop);
	if (recording->gave_up)
		return false;
	named = recording->symbols &&
		record_symbols_finish(recording->symbols, &result->samples, &error);
	result->has_samples = named;
	if (error)
		cli_warning(_("no names were added: %s"), error->message);
	return named;
}

static bool nothing_captured(const struct recording *recording, const struct record_result *result)
{
	if (record_result_number(result, "samples"))
		return false;
	/* a short command, or block of a program, may be over before its first sample */
	return (recording->options.frequency && !recording->options.command &&
		recording->control.fd < 0) ||
	       !record_result_number(result, "events");
}

/* Sets the error for a bad recording without a failure so far. */
static void judge(struct recording *recording, const struct record_result *result)
{
	int32_t failed = 0;

	if (recording->error)
		return;
	if (!recording->ok && result->is_lost) {
		g_set_error(
			&recording->error, CLI_ERROR, CLI_FAILURE,
			_("nothing was recorded: it ended (%s) before anything was written to '%s'; "
			  "record again"),
			recording->reason, recording->output.path);
	} else if (!recording->ok) {
		g_variant_lookup(recording->summary, "error", "i", &failed);
		g_set_error(
			&recording->error, CLI_ERROR, CLI_FAILURE,
			_("the recording ended early (%s%s%s); '%s' has what was written until then"),
			recording->reason, failed ? ": " : "", failed ? ERRNO_TEXT(failed) : "",
			recording->output.path);
	} else if (nothing_captured(recording, result)) {
		g_set_error(&recording->error, CLI_ERROR, CLI_NOTHING_CAPTURED,
			    _("nothing was captured: no sample was taken while the recording ran"));
	}
}

/* Returns the status of the recording alone. */
static int recording_status(struct recording *recording, const struct record_result *result)
{
	judge(recording, result);
	if (!recording->error)
		return recording->interrupts ? CLI_INTERRUPTED : CLI_OK;
	record_control_fail(&recording->control, recording->error->message);
	return cli_fail(g_steal_pointer(&recording->error));
}

static void report(const struct recording *recording, const struct record_result *result)
{
	struct json json;

	if (!recording->finished || result->is_lost)
		return;
	if (!recording->options.quiet)
		record_result_print(result);
	if (recording->options.json) {
		json_init(&json, out_stdout());
		record_result_write_json(result, &json);
		json_done(&json);
	}
}

static int end(struct recording *recording)
{
	g_autofree char *target = record_options_target(&recording->options, true);
	struct record_result result = {
		.target = target,
		.file = recording->output.path,
		.reason = recording->own_reason ? recording->own_reason : recording->reason,
		.summary = recording->summary,
		.command_pid = recording->command.pid,
		.wait_status = recording->command.wait_status,
		.memory = recording->options.memory.wanted,
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
			result.symbols = add_names(recording, &result);
		if (recording->gave_up)
			return CLI_INTERRUPTED;
		if (ran)
			result.left = left =
				record_capture_left(recording->output.fd, recording->command.pid);
		if (result.memory && !recording->options.append)
			result.has_allocations = record_capture_allocations(recording->output.fd,
									    &result.allocations);
		result.is_sampled = recording->options.memory.sample_bytes > 0;
		result.has_exited = ran && !result.left->len;
		result.kept = output_is_kept(&recording->output);
		result.bytes = output_bytes(&recording->output);
		if (!result.bytes)
			result.bytes = record_result_number(&result, "bytes");
		if (!output_finish(&recording->output, &recording->error))
			recording->ok = false;
	} else if (!recording->started) {
		output_discard(&recording->output);
	}
	if (!recording->error)
		report(recording, &result);
	status = recording_status(recording, &result);
	if (ran && (command_exit_status(&recording->command) || status == CLI_INTERRUPTED))
		status = command_exit_status(&recording->command);
	return status;
}

/* The program is notified last, because it may record into the same file at once. */
static void recording_done(struct recording *recording, int status)
{
	command_cancel(&recording->command);
	record_symbols_free(recording->symbols);
	client_free(recording->client);
	if (recording->output.path)
		output_done(&recording->output);
	g_clear_pointer(&recording->summary, g_variant_unref);
	g_clear_error(&recording->fallback);
	g_clear_pointer(&recording->loop, g_main_loop_unref);
	g_free(recording->reason);
	attachments_done(&recording->attachments);
	preload_done(&recording->preload);
	record_options_done(&recording->options);
	record_control_end(&recording->control, status);
}

int profctl_record(int argc, char **argv)
{
	struct recording recording = {
		.command = { .go_fd = -1, .error_fd = -1 },
		.control = { .fd = -1, .switch_fd = -1, .program_fd = -1, .pidfd = -1 },
	};
	int status = record_options_parse(&recording.options, argc, argv);

	if (status != CLI_CONTINUE) {
		record_options_done(&recording.options);
		return status;
	}
	run(&recording);
	status = recording.gave_up ? CLI_INTERRUPTED : end(&recording);
	if (recording.gave_up) {
		/* exit at once without waiting, even if a thread is still adding names */
		cli_error(_("aborted; what was recorded is in '%s'"), recording.output.path);
		_exit(CLI_INTERRUPTED);
	}
	recording_done(&recording, status);
	return status;
}
