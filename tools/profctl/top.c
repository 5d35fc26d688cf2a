/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profctl top - a live profile on a terminal
 *
 *     profd ▶ a pipe ▶ prof_stream ▶ live (the last seconds) ▶ top_view (rows) ▶ top_screen
 *
 * The session is a normal one, but its capture goes to a pipe and is not kept. The view takes over
 * the screen when the first rows arrive, so that earlier errors are printed normally. The recording
 * continues while the view is paused. Names are found on a second thread (live-names.c).
 */
#include "config.h"

#include "arch/errno-text.h"
#include "tools/profctl/client.h"
#include "tools/profctl/live-names.h"
#include "tools/profctl/record-options.h"
#include "tools/profctl/top-screen.h"
#include "tools/profctl/verbs.h"

#include <fcntl.h>
#include <glib-unix.h>
#include <glib/gi18n.h>
#include <inttypes.h>
#include <unistd.h>

#define PIPE_BYTES (1 << 20)
#define BATCHES_A_ROUND 256
#define MAX_WINDOW 3600 /* seconds */

struct top_options {
	struct record_options record;
	uint64_t window, interval_ns;
	int by; /* enum top_kind */
	bool no_inline, full_names;
};

struct top {
	struct top_options options;
	struct client *client;
	GMainLoop *loop;
	GError *error;
	struct prof_stream *stream;
	int read_fd, write_fd;
	struct live live;
	struct live_names *names;
	struct top_browse browse;
	uint64_t samples; /* samples and seconds of the window at the last count */
	unsigned seconds;
	char *ending;  /* why the session ended; NULL: it is running */
	char *warning; /* last warning of profd */
	bool open, interrupted;
};

static const char *const kinds[] = { "function", "process", "thread", NULL };

/* ---- Display --------------------------------------------------------------------------------- */

/* Returns text such as "system, last 7 s: 6,419 samples, CPU 92 %. Lost: nothing." */
static char *title_of(const struct top *top)
{
	double cpu_samples = (double)top->options.record.frequency * top->seconds;
	g_autofree char *processes = record_options_target(&top->options.record, false);
	g_autofree char *samples = text_count(top->samples);
	g_autofree char *lost = text_count(top->live.lost);
	g_autofree char *share = text_percent(
		100 * (double)top->live.lost /
			MAX_OF((double)top->live.lost + (double)top->live.samples, 1.0),
		true);
	GString *title = g_string_new(top->options.record.system ? _("system") : processes);

	g_string_append_printf(title, _(", last %u s: %s samples"), top->seconds, samples);
	if (cpu_samples > 0)
		g_string_append_printf(title, _(", CPU %.0f %%"),
				       100.0 * (double)top->samples / cpu_samples);
	if (top->live.lost)
		g_string_append_printf(title,
				       ngettext(". Lost: %s record (%s %%).",
						". Lost: %s records (%s %%).",
						(gulong)top->live.lost),
				       lost, share);
	else if (prof_stream_lost(top->stream))
		g_string_append(title, _(". Some of the recording was damaged."));
	else
		g_string_append(title, _(". Lost: nothing."));
	return g_string_free(title, FALSE);
}

static void draw(struct top *top)
{
	g_autofree char *title = NULL, *browsed = NULL, *status = NULL;
	struct top_content content;

	if (!top->open)
		return;
	title = title_of(top);
	browsed = top_browse_status(&top->browse);
	/* first the reason for the end, then the view, then a warning */
	status = g_strdup_printf("%s   %s   %s", top->ending ? top->ending : "", browsed,
				 top->warning ? top->warning : "");
	content = (struct top_content){
		.title = title,
		.status = g_strstrip(status),
		.browse = &top->browse,
		.cpu_samples = (double)top->options.record.frequency * top->seconds,
	};
	top_screen_draw(&content);
}

static void count(struct top *top)
{
	top_browse_count(&top->browse);
	top->samples = top_view_samples(&top->live);
	top->seconds = top_view_seconds(&top->live);
}

static gboolean on_key(gint fd, GIOCondition condition, gpointer data)
{
	struct top *top = data;
	unsigned key;

	if (condition & (G_IO_HUP | G_IO_ERR)) {
		g_main_loop_quit(top->loop);
		return G_SOURCE_REMOVE;
	}
	while ((key = top_screen_key()) != TOP_KEY_NONE)
		if (top_browse_press(&top->browse, key, top_screen_rows()))
			g_main_loop_quit(top->loop);
	draw(top);
	return G_SOURCE_CONTINUE;
}

/* ---- The recording --------------------------------------------------------------------------- */

static void quit_with(struct top *top, GError *error)
{
	if (!top->error)
		top->error = error;
	else
		g_error_free(error);
	g_main_loop_quit(top->loop);
}

static gboolean on_rows(gint fd, GIOCondition condition, gpointer data)
{
	struct top *top = data;
	struct prof_batch batch;
	unsigned table;
	int r = 0;

	for (unsigned i = 0; i < BATCHES_A_ROUND && !r; i++) {
		r = prof_stream_next(top->stream, &table, &batch);
		if (!r)
			live_add(&top->live, table, &batch);
	}
	if (top->live.generation != top->browse.generation)
		count(top);
	if (r == 0 || r == -EAGAIN)
		return G_SOURCE_CONTINUE;
	if (r != PROF_END)
		quit_with(top,
			  g_error_new(CLI_ERROR, CLI_FAILURE,
				      _("cannot read the data from profd: %s"), prof_strerror(r)));
	return G_SOURCE_REMOVE;
}

static gboolean on_interval(gpointer data)
{
	struct top *top = data;

	if (!top->open && !top_screen_open()) {
		quit_with(top,
			  g_error_new(CLI_ERROR, CLI_FAILURE,
				      _("the terminal of type '%s' cannot show a live view; "
					"set TERM, or use profctl record and profcapture report"),
				      g_getenv("TERM") ? g_getenv("TERM") : ""));
		return G_SOURCE_REMOVE;
	}
	if (!top->open)
		g_unix_fd_add(STDIN_FILENO, G_IO_IN, on_key, top);
	top->open = true;
	live_names_request(top->names);
	if (!top->browse.held)
		count(top);
	draw(top);
	return G_SOURCE_CONTINUE;
}

static gboolean on_signal(gpointer data)
{
	struct top *top = data;

	top->interrupted = true;
	g_main_loop_quit(top->loop);
	return G_SOURCE_CONTINUE;
}

static gboolean on_resize(gpointer data)
{
	struct top *top = data;

	if (top->open)
		top_screen_resize();
	draw(top);
	return G_SOURCE_CONTINUE;
}

static void on_started(const char *control, int sysprof, void *data)
{
	struct top *top = data;

	close(top->write_fd); /* so that the reader sees the end of the pipe */
	top->write_fd = -1;
	g_unix_fd_add(top->read_fd, G_IO_IN, on_rows, top);
	top->names = live_names_new(&top->live, top->client);
	g_timeout_add((guint)(top->options.interval_ns / 1000000), on_interval, top);
}

static void on_warning(const char *message, void *data)
{
	struct top *top = data;

	if (!top->open) {
		cli_warning("%s", message);
		return;
	}
	g_free(top->warning);
	top->warning = text_escape(message);
}

static void on_finished(bool ok, const char *reason, GVariant *summary, void *data)
{
	struct top *top = data;

	top->ending = g_strdup_printf(_("the recording is over (%s); q quits"), reason);
	draw(top);
}

static void on_failed(const GError *error, void *data)
{
	quit_with(data, g_error_copy(error));
}

/* ---- From start to end ----------------------------------------------------------------------- */

static bool begin(struct top *top, GError **error)
{
	static const struct client_listener listener = { .started = on_started,
							 .warning = on_warning,
							 .finished = on_finished,
							 .failed = on_failed };
	struct client_request request = { .bus = top->options.record.bus, .switch_fd = -1 };
	int fds[2], r;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return cli_set_error(error, CLI_FAILURE, _("cannot open a pipe: %s"),
				     ERRNO_TEXT(errno));
	top->read_fd = fds[0];
	top->write_fd = request.capture_fd = fds[1];
	(void)fcntl(top->read_fd, F_SETPIPE_SZ, PIPE_BYTES); /* if it fails, the pipe stays small */
	r = fcntl(top->read_fd, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
	if (!r)
		r = prof_stream_new(top->read_fd, live_tables(), &top->stream);
	if (r)
		return cli_set_error(error, CLI_FAILURE, _("cannot read from a pipe: %s"),
				     prof_strerror(r));
	request.options = record_options_session(&top->options.record, 0);
	top->client = client_open(&request, &listener, top, error);
	return top->client;
}

static void done(struct top *top)
{
	live_names_free(top->names);
	g_clear_pointer(&top->client, client_free);
	prof_stream_free(top->stream);
	if (top->read_fd >= 0)
		close(top->read_fd);
	if (top->write_fd >= 0)
		close(top->write_fd);
	live_done(&top->live);
	top_browse_done(&top->browse);
	g_free(top->ending);
	g_free(top->warning);
	g_main_loop_unref(top->loop);
	record_options_done(&top->options.record);
}

#define FIELD(name) offsetof(struct top_options, name)

static const struct cli_option frequency_options[] = {
	{ "frequency", 'F', CLI_UINT, FIELD(record.frequency), N_("HZ"),
	  N_("Samples per second on each CPU (default: 999)"), NULL, 1, UINT32_MAX },
	{ NULL },
};

static const struct cli_option bus_options[] = {
	{ "bus", 0, CLI_CHOICE, FIELD(record.bus), N_("WHICH"),
	  N_("Use the profd service (system), a profd of its own (private), or the service if there is one (auto, the default)"),
	  record_buses },
	{ NULL },
};

static const struct cli_option view_options[] = {
	{ "by", 0, CLI_CHOICE, FIELD(by), N_("WHAT"),
	  N_("Show this view first (default: function)"), kinds },
	{ "window", 0, CLI_UINT, FIELD(window), N_("SECONDS"),
	  N_("Show the samples of the last SECONDS (default: 10)"), NULL, 1, MAX_WINDOW },
	{ "interval", 0, CLI_DURATION, FIELD(interval_ns), N_("TIME"),
	  N_("Refresh every TIME (default: 1s)") },
	{ "no-inline", 0, CLI_FLAG, FIELD(no_inline), NULL,
	  N_("Attribute inlined functions to their callers") },
	{ "full-names", 0, CLI_FLAG, FIELD(full_names), NULL, N_("Do not shorten names") },
	{ NULL },
};

static const struct cli_spec spec = {
	.synopsis = N_("[--system | --pid PID...]"),
	.description =
		N_("Show a live profile of what is running. Writes no file; '?' lists the keys."),
};

/* Returns CLI_CONTINUE, or an exit status after a message. */
static int parse(struct top_options *options, int argc, char **argv)
{
	const struct cli_group groups[] = {
		{ N_("What to record (default: the system)"), record_what_options,
		  &options->record },
		{ N_("Sampling"), frequency_options, options },
		{ NULL, record_stack_options, &options->record },
		{ NULL, bus_options, options },
		{ N_("View"), view_options, options },
		{ NULL },
	};
	int status;

	*options = (struct top_options){
		.record = RECORD_OPTIONS_DEFAULT,
		.window = 10,
		.interval_ns = 1000000000,
	};
	status = cli_parse(&spec, groups, &argc, &argv);
	if (status != CLI_CONTINUE)
		return status;
	if (options->record.pids && options->record.system)
		return cli_usage_error(_("--pid and --system exclude each other"));
	if (options->interval_ns < 100000000 || options->interval_ns > UINT64_C(3600000000000))
		return cli_usage_error(_("--interval: 100ms to 1h are possible"));
	options->record.system = !options->record.pids;
	options->record.no_off_cpu = true; /* no view shows waits */
	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
		cli_error(_(
			"a live view needs a terminal; 'profctl record' writes what 'profcapture report' prints"));
		return CLI_FAILURE;
	}
	return CLI_CONTINUE;
}

int profctl_top(int argc, char **argv)
{
	struct top top = { .read_fd = -1, .write_fd = -1 };
	int status = parse(&top.options, argc, argv);

	if (status != CLI_CONTINUE) {
		record_options_done(&top.options.record);
		return status;
	}
	live_init(&top.live, (unsigned)top.options.window);
	top_browse_init(&top.browse, &top.live, (enum top_kind)top.options.by);
	top.live.no_inline = top.options.no_inline;
	top.browse.full_names = top.options.full_names;
	top.loop = g_main_loop_new(NULL, FALSE);
	g_unix_signal_add(SIGINT, on_signal, &top);
	g_unix_signal_add(SIGTERM, on_signal, &top);
	g_unix_signal_add(SIGHUP, on_signal, &top);
	g_unix_signal_add(SIGWINCH, on_resize, &top);
	if (begin(&top, &top.error))
		g_main_loop_run(top.loop);
	top_screen_close();
	top.open = false;
	status = top.error ? cli_fail(g_steal_pointer(&top.error))
			   : (top.interrupted ? CLI_INTERRUPTED : CLI_OK);
	done(&top);
	return status;
}
