/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Session - one recording from CreateSession to Finished
 *
 *     created ── start ──▶ starting ── STARTED ──▶ running ◀── pause, resume ──▶ paused
 *        stop, or the engine by itself ──▶ stopping ── engine gone ──▶ finished, or failed
 *
 * Start spawns the engine, opens perf events, and lets /proc be read while the engine starts. Then
 * the engine is sent all that it needs; with per-task events, only when the events of all threads
 * are open (perf-tasks.c). From then on the engine acts on its own: it requests the snapshot and
 * mapped files (requests.c), and reports when it is done.
 * Invariants: (1) `finished` is called once, when the engine is gone, or was killed and waits for a
 *                 file's server: then nothing writes the file any more
 *             (2) an engine that must end is killed after STOP_PATIENCE_MS; or after STOP_LIMIT_MS
 *                 while its capture grows (a pipe that is read slowly); or after STOP_WORK_MS while
 *                 it works (two million blocks of memory) or waits for a busy disk or CPU
 *                 [test_stop, test_hostile_peers]
 *             (3) a message from an engine changes only its own session
 * Main thread only.
 */
#include "config.h"

#include "arch/errno-text.h"
#include "daemon/broker/session-internal.h"

#include "arch/base.h"
#include "base/clock.h"
#include "daemon/broker/counter-files.h"
#include "daemon/broker/engine-config.h"
#include "daemon/broker/error.h"
#include "daemon/broker/limits.h"
#include "daemon/broker/summary.h"
#include "daemon/deferred-close.h"

#include <errno.h>
#include <fcntl.h>
#include <glib-unix.h>
#include <inttypes.h>
#include <limits.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>

/* Sanitizers make an engine several times slower. */
#define SLOW (PROF_SANITIZED ? 8 : 1)
#define STOP_PATIENCE_MS (900 * SLOW)
#define STOP_STILL_MS (450 * SLOW)
#define STOP_WORK_MS 10000
#define WORKING_SHARE 10 /* 1/10 of a CPU counts as work, because CPUs may be busy */
#define STOP_LIMIT_MS (60000 * SLOW)
#define DEATH_PATIENCE_MS (1000 * SLOW)
#define PROGRESS_INTERVAL_US 240000
/* limit for the rings of CPUs that came online again */
#define MAX_RETURNED_BYTES (8 * PERF_RING_BUDGET)
#define MAX_WARNINGS 64 /* maximum from the engine per second */

/* ---- Accessors ------------------------------------------------------------------------------- */

enum session_state session_state(const struct session *session)
{
	return session->state;
}

const char *session_state_name(const struct session *session)
{
	static const char *const names[] = {
		[SESSION_CREATED] = "created",   [SESSION_STARTING] = "created",
		[SESSION_RUNNING] = "running",   [SESSION_PAUSED] = "paused",
		[SESSION_STOPPING] = "stopping", [SESSION_FINISHED] = "finished",
		[SESSION_FAILED] = "failed",
	};

	return names[session->state];
}

bool session_is_active(const struct session *session)
{
	return session->engine != NULL;
}

bool session_shares_capture(const struct session *session, const struct session *other)
{
	return session->capture.stx_dev_major == other->capture.stx_dev_major &&
	       session->capture.stx_dev_minor == other->capture.stx_dev_minor &&
	       session->capture.stx_ino == other->capture.stx_ino;
}

const struct access *session_access(const struct session *session)
{
	return &session->access;
}

const struct options *session_options(const struct session *session)
{
	return session->options;
}

const struct message_progress *session_counters(const struct session *session)
{
	return &session->counters;
}

uint64_t session_start_ns(const struct session *session)
{
	return session->start_ns;
}

static void set_state(struct session *session, enum session_state state)
{
	const char *before = session_state_name(session);

	session->state = state;
	if (state == SESSION_STOPPING && session->interpreters)
		session_interpreters_stop(session->interpreters);
	if (strcmp(before, session_state_name(session)) != 0)
		session->listener->state_changed(session, session->data);
}

bool session_fail_state(const struct session *session, const char *act, GError **error)
{
	return broker_fail(error, BROKER_ERROR_INVALID_STATE, "cannot %s a session that is %s", act,
			   session_state_name(session));
}

/* ---- Making and freeing ---------------------------------------------------------------------- */

/* Checks only what the kernel knows by itself, because a file's server may not answer. The engine
 * checks again. */
static bool check_capture(int fd, bool append, struct statx *ret_status, GError **error)
{
	struct statx status;
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 ||
	    statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &status) < 0)
		return broker_fail(error, BROKER_ERROR_INVALID_OPTION, "capture: %s",
				   ERRNO_TEXT(errno));
	if (!S_ISREG(status.stx_mode) && !S_ISFIFO(status.stx_mode))
		return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				   "the capture must be a regular file or a pipe");
	if ((flags & O_ACCMODE) == O_RDONLY || flags & O_PATH)
		return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				   "the capture is not open for writing");
	if (flags & O_DIRECT)
		return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				   "the capture is open with O_DIRECT, which takes writes of whole "
				   "blocks only");
	if (append && ((flags & O_ACCMODE) != O_RDWR || !S_ISREG(status.stx_mode)))
		return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				   "appending needs a regular file that is open for reading too");
	if (!append && S_ISREG(status.stx_mode) && status.stx_size > 0)
		return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				   "the capture is not empty; \"append\" continues one");
	*ret_status = status;
	return true;
}

static gboolean on_lifetime_end(gint fd, GIOCondition condition, gpointer data)
{
	struct session *session = data;

	session->lifetime_watch = 0;
	if (session->engine)
		session_stop(session, ENGINE_REASON_CLIENT_GONE, NULL);
	return G_SOURCE_REMOVE;
}

/* Limits what the client did not limit, and refuses options that exceed the service's limits. */
static bool apply_limits(const struct access *access, struct options *options, GError **error)
{
	const struct {
		const char *option, *limit;
		uint64_t *value, most;
	} checks[] = {
		{ "max-bytes", "MaxCaptureBytes", &options->max_bytes, LIMITS_CAPTURE_BYTES },
		{ "max-duration", "MaxDuration", &options->max_duration_ns, LIMITS_DURATION_NS },
		{ "max-rate", "MaxSampleRate", &options->max_rate, LIMITS_SAMPLE_RATE },
		{ "ring-bytes", "the \"ring-bytes\" of GetCapabilities", &options->ring_bytes,
		  PERF_RING_BUDGET },
	};

	for (size_t i = 0; access->limited && i < ARRAY_SIZE(checks); i++) {
		if (*checks[i].value > checks[i].most)
			return broker_fail(error, BROKER_ERROR_LIMIT_EXCEEDED,
					   "option \"%s\" is more than %s, %" PRIu64,
					   checks[i].option, checks[i].limit, checks[i].most);
		if (*checks[i].value == 0 && checks[i].value != &options->ring_bytes)
			*checks[i].value = checks[i].most;
	}
	if (options->max_rate == 0)
		options->max_rate = LIMITS_SAMPLE_RATE;
	return true;
}

/* Reads /proc while the engine starts and the larger rings are made. */
static void on_side_bands(void *data)
{
	const struct session *session = data;

	requests_read_ahead(session->requests);
}

bool session_new(const struct access *access, uint32_t id, struct options *options, int capture_fd,
		 const struct session_listener *listener, void *data, struct session **ret_session,
		 GError **error)
{
	struct session *session;
	struct statx capture;

	if (!check_capture(capture_fd, options->append, &capture, error) ||
	    !apply_limits(access, options, error)) {
		deferred_close(capture_fd);
		options_free(options);
		return false;
	}
	session = g_new0(struct session, 1);
	session->listener = listener;
	session->data = data;
	session->access = *access;
	session->options = options;
	session->capture_fd = capture_fd;
	session->capture = capture;
	session->id = id;
	if (getrandom(session->token, sizeof(session->token), 0) != sizeof(session->token))
		g_error("the kernel has no random numbers");
	session->images = images_new();
	session->reason = "internal";
	session->plan = (struct perf_plan){
		.events = options->events,
		.n_events = options->n_events,
		.frequency = options->frequency,
		.by_task = access->own_only,
		.children = options->children,
		.kernel = options->kernel,
		.build_ids = !image_build_ids_known(),
		.call_graph = options->call_graph,
		.ring_bytes = options->ring_bytes,
		.begun = on_side_bands,
		.data = session,
	};
	if (options->lifetime_fd >= 0)
		session->lifetime_watch = g_unix_fd_add(options->lifetime_fd, G_IO_HUP | G_IO_ERR,
							on_lifetime_end, session);
	*ret_session = session;
	return true;
}

static void release(struct session *session)
{
	g_clear_pointer(&session->sysprof, sysprof_free);
	g_clear_pointer(&session->refused, g_array_unref);
	g_clear_handle_id(&session->refused_watch, g_source_remove);
	g_clear_pointer(&session->requests, requests_free);
	g_clear_handle_id(&session->patience, g_source_remove);
	g_clear_handle_id(&session->lifetime_watch, g_source_remove);
	g_clear_pointer(&session->engine, engine_free);
	g_clear_pointer(&session->opening, perf_tasks_free);
	g_clear_pointer(&session->interpreters, session_interpreters_free);
	g_clear_pointer(&session->cpus, g_array_unref);
	g_clear_pointer(&session->events, g_array_unref);
	deferred_close(steal_fd(&session->capture_fd));
}

void session_free(struct session *session)
{
	if (!session)
		return;
	release(session);
	images_free(session->images);
	options_free(session->options);
	g_clear_pointer(&session->summary, g_variant_unref);
	g_clear_pointer(&session->failure, g_free);
	g_free(session);
}

/* ---- Ending an engine ------------------------------------------------------------------------ */

static void end_session(struct session *session, const GError *error);

/* Stops waiting for a killed engine that has not exited: it is stuck in a kernel wait that SIGKILL
 * does not end, such as one for a file whose server does not answer. */
static gboolean on_death_late(gpointer data)
{
	struct session *session = data;
	g_autoptr(GError) error = NULL;

	session->patience = 0;
	engine_abandon(session->engine, session->access.uid);
	broker_fail(&error, BROKER_ERROR_FAILED, "the engine was killed, but has not exited");
	end_session(session, error);
	return G_SOURCE_REMOVE;
}

static void kill_engine(struct session *session)
{
	engine_kill(session->engine);
	g_clear_handle_id(&session->patience, g_source_remove);
	session->patience = g_timeout_add(DEATH_PATIENCE_MS, on_death_late, session);
}

static void give_up(struct session *session, const char *code, const char *text)
{
	session->given_up = true;
	session->listener->warning(session, code, text, session->data);
	kill_engine(session);
}

static gboolean on_patience_end(gpointer data)
{
	struct session *session = data;
	int64_t now = g_get_monotonic_time(), cpu_ns = engine_cpu_ns(session->engine);
	int64_t since_ms = (now - session->stop_us) / 1000;
	bool grows = (now - session->grown_us) / 1000 < STOP_STILL_MS;
	/* Waiting for a file server does not count as work, because the server's owner can prevent
	 * it from answering. */
	bool on_disk = S_ISREG(session->capture.stx_mode) && session->capture.stx_dev_major != 0;
	bool works = (cpu_ns - session->cpu_ns) / 1000000 > STOP_STILL_MS / WORKING_SHARE ||
		     (on_disk && engine_is_busy(session->engine));

	session->cpu_ns = cpu_ns;
	if (since_ms < STOP_PATIENCE_MS || (grows && since_ms < STOP_LIMIT_MS) ||
	    (works && since_ms < STOP_WORK_MS)) {
		session->patience = g_timeout_add(STOP_STILL_MS, on_patience_end, session);
		return G_SOURCE_REMOVE;
	}
	session->patience = 0;
	if (session->summary) { /* the engine has reported that the file is complete */
		kill_engine(session);
		return G_SOURCE_REMOVE;
	}
	give_up(session, "engine-hangs",
		"the engine did not finish the file in time and was ended");
	return G_SOURCE_REMOVE;
}

/* Called when it is certain that the engine must end. A second call has no effect. */
static void await_end(struct session *session)
{
	if (session->patience)
		return;
	session->stop_us = g_get_monotonic_time();
	session->cpu_ns = engine_cpu_ns(session->engine);
	session->patience = g_timeout_add(STOP_STILL_MS, on_patience_end, session);
}

static void receive_image_request(struct session *session, const void *body, size_t bytes)
{
	requests_receive_image(session->requests, body, bytes);
}

static void receive_snapshot_request(struct session *session, const void *body, size_t bytes)
{
	requests_receive_snapshot(session->requests, body);
}

static void receive_usage_request(struct session *session, const void *body, size_t bytes)
{
	requests_receive_usage_request(session->requests, body, bytes);
}

/* ---- Requests of the engine ------------------------------------------------------------------ */

static void on_request_failed(const GError *error, void *data)
{
	struct session *session = data;

	give_up(session, "snapshot", error->message);
}

static void on_request_warning(const char *code, const char *text, void *data)
{
	struct session *session = data;

	session->listener->warning(session, code, text, session->data);
}

static bool start_requests(struct session *session, GError **error)
{
	const struct requests_options options = {
		.access = &session->access,
		.gives_files = session->options->call_graph == ENGINE_CALL_GRAPH_DWARF ||
			       session->options->memory,
		.kernel = session->options->kernel,
		.usage = (session->options->memory ? FILES_USAGE_MEMORY : 0) |
			 (session->options->counters >> COUNTER_GROUP_PROCESS & 1
				  ? FILES_USAGE_COUNTERS
				  : 0),
		.stacks = session->options->off_cpu &&
			  session->options->call_graph == ENGINE_CALL_GRAPH_DWARF,
		.targets = session->options->pids,
		.n_targets = session->options->n_pids,
		.failed = on_request_failed,
		.warning = on_request_warning,
		.data = session,
	};

	session->requests = requests_new(session->engine, session->images, &options, error);
	return session->requests != NULL;
}

/* ---- CPUs and events ------------------------------------------------------------------------- */

static bool send_cpu(struct session *session, struct perf_cpu *cpu, GError **error)
{
	struct message_cpu body = {
		.cpu = cpu->cpu,
		.side_band_pages = session->plan.side_band_pages,
		.sample_pages = session->plan.sample_pages,
		.copy_pages = session->plan.copy_pages,
		.n_sources = cpu->n_fds - 1 - cpu->has_wakeups - cpu->has_sleeps - cpu->has_wakings,
		.side_band_id = cpu->ids[0],
		.has_wakeups = cpu->has_wakeups,
		.has_sleeps = cpu->has_sleeps,
		.has_wakings = cpu->has_wakings,
		.sleep_id = cpu->has_sleeps ? cpu->ids[cpu->n_fds - 1 - cpu->has_wakings] : 0,
		.waking_id = cpu->has_wakings ? cpu->ids[cpu->n_fds - 1] : 0,
	};

	memcpy(body.source_ids, cpu->ids + 1, sizeof(body.source_ids));
	if (!engine_send(session->engine, MESSAGE_CPU, &body, sizeof(body), cpu->fds, cpu->n_fds,
			 error))
		return false;
	if (!session_interpreters_need_events(session->interpreters))
		perf_cpu_close_fds(cpu);
	return true;
}

/* Sends the per-task events, and closes the descriptors that were sent. */
static bool send_events(struct session *session, GError **error)
{
	GArray *events = session->events;
	bool ok = true;

	for (unsigned first = 0; ok && events && first < events->len; first += MESSAGE_MAX_FDS) {
		unsigned n = MIN_OF(events->len - first, (unsigned)MESSAGE_MAX_FDS);
		struct message_event bodies[MESSAGE_MAX_FDS];
		int fds[MESSAGE_MAX_FDS];

		for (unsigned i = 0; i < n; i++) {
			const struct perf_task_event *event =
				&g_array_index(events, struct perf_task_event, first + i);

			fds[i] = event->fd;
			bodies[i] = (struct message_event){
				.id = event->id,
				.cpu = event->cpu,
				.tid = event->tid,
				.rank = event->rank,
				.position = event->position,
			};
		}
		ok = engine_send(session->engine, MESSAGE_EVENTS, bodies, n * sizeof(bodies[0]),
				 fds, n, error);
		for (unsigned i = 0; ok && i < n; i++)
			close(steal_fd(
				&g_array_index(events, struct perf_task_event, first + i).fd));
	}
	g_clear_pointer(&session->events, g_array_unref);
	return ok;
}

static void warn_of_interpreters(const char *text, void *data)
{
	struct session *session = data;

	session->listener->warning(session, "interpreters", text, session->data);
}

static void start_interpreters(struct session *session)
{
	const struct session_interpreters_options options = {
		.engine = session->engine,
		.plan = &session->plan,
		.cpus = session->cpus,
		.access = &session->access,
		.is_wanted = session->options->interpreters,
		.warn = warn_of_interpreters,
		.data = session,
	};

	session->interpreters = session_interpreters_new(&options);
}

static void receive_interpreted(struct session *session, const void *body, size_t bytes)
{
	if (session->interpreters)
		session_interpreters_receive(session->interpreters, body);
}

static bool is_online(unsigned number)
{
	g_autoptr(GArray) online = NULL;

	if (perf_online_cpus(&online, NULL))
		for (unsigned i = 0; i < online->len; i++)
			if (g_array_index(online, unsigned, i) == number)
				return true;
	return false;
}

static void receive_cpu_request(struct session *session, const void *body, size_t bytes)
{
	unsigned number = ((const struct message_cpu_request *)body)->cpu;
	g_autoptr(GError) error = NULL;
	struct perf_cpu cpu;

	if (session->plan.by_task || session->returned_bytes >= MAX_RETURNED_BYTES ||
	    !is_online(number))
		return;
	if (perf_cpu_open(&session->plan, number, &cpu, &error)) {
		/* Count all rings, because only the engine knows whether the CPU's former rings
		 * still exist, and the engine may have been taken over. */
		session->returned_bytes += ((uint64_t)session->plan.side_band_pages +
					    session->plan.sample_pages + session->plan.copy_pages) *
					   (uint64_t)sysconf(_SC_PAGESIZE);
		if (session->returned_bytes >= MAX_RETURNED_BYTES)
			session->listener->warning(
				session, "cpu-online",
				"CPUs came online so often that those that come from now on are not recorded",
				session->data);
		if (send_cpu(session, &cpu, &error))
			session_interpreters_add_cpu(session->interpreters, &cpu, &error);
		for (unsigned i = 0; i < session->cpus->len; i++)
			if (g_array_index(session->cpus, struct perf_cpu, i).cpu == number)
				g_array_remove_index_fast(session->cpus, i--);
		g_array_append_val(session->cpus, cpu);
	}
	if (error)
		session->listener->warning(session, "cpu-online", error->message, session->data);
}

/* ---- Handing over ---------------------------------------------------------------------------- */

static bool has_tracepoints(const struct perf_plan *plan)
{
	for (unsigned i = 0; i < plan->n_events; i++)
		if (plan->events[i].kind == PROF_SOURCE_TRACEPOINT && !plan->events[i].off_cpu)
			return true;
	return false;
}

/* Notes in the capture, and warns the client, that without privilege less is recorded than was
 * requested. */
static void notify_reduced(struct session *session)
{
	const struct perf_plan *plan = &session->plan;
	g_autofree char *stacks = NULL;
	g_autofree char *text = NULL;

	if (plan->stack_bytes)
		stacks = g_strdup_printf(", %u KiB of each stack", plan->stack_bytes >> 10);
	text = g_strdup_printf("without CAP_PERFMON: only the targets' own events%s%s%s",
			       plan->kernel ? "" : ", nothing of the kernel",
			       has_tracepoints(plan) && !plan->fields ? ", no fields of tracepoints"
								      : "",
			       stacks ? stacks : "");
	options_set_reduced(session->options, plan->kernel, text);
	session->listener->warning(session, "reduced", text, session->data);
}

/* Warns that a session without the kernel has no fields of tracepoints, because fields may be
 * kernel addresses. Refuses filters, because filters would reveal the values of fields. */
static bool leave_out_fields(struct session *session, GError **error)
{
	const struct perf_plan *plan = &session->plan;

	for (unsigned i = 0; i < plan->n_events; i++)
		if (plan->events[i].filter[0] && !plan->events[i].off_cpu &&
		    plan->events[i].kind == PROF_SOURCE_TRACEPOINT)
			return broker_fail(error, BROKER_ERROR_NOT_AUTHORIZED,
					   "event \"%s\": a filter compares fields, which may be "
					   "addresses of the kernel, and this session leaves the "
					   "kernel out",
					   plan->events[i].name);
	if (has_tracepoints(plan))
		session->listener->warning(session, "fields",
					   "the fields of tracepoints are left out, because they "
					   "may be addresses of the kernel",
					   session->data);
	return true;
}

/* Adds the event with the stacks of sleeping threads, if it is wanted and can be recorded here. */
static void plan_sleeps(struct session *session)
{
	struct options *options = session->options;
	struct perf_plan *plan = &session->plan;
	bool has_room = options->n_events < ENGINE_MAX_SOURCES;

	if (!options->off_cpu || plan->sleep_id)
		return;
	if (has_room)
		plan->sleep_id = perf_sleep_id(&options->events[options->n_events]);
	plan->n_events = options->n_events + (plan->sleep_id != 0);
	if (!plan->sleep_id && !options->off_cpu_max_rate)
		session->listener->warning(
			session, "off-cpu",
			has_room
				? "where threads wait is recorded only for waits of 0.1 s or longer: " PERF_NO_SLEEPS
				: "where threads wait is recorded only for waits of 0.1 s or longer: a session has at most " G_STRINGIFY(
					  ENGINE_MAX_SOURCES) " events, and this takes one",
			session->data);
}

/* Adds the event with the stacks of wakers, after the event with those of sleeping threads. */
static void plan_wakers(struct session *session)
{
	struct options *options = session->options;
	struct perf_plan *plan = &session->plan;

	if (options->wakers && plan->sleep_id && plan->n_events < ENGINE_MAX_SOURCES)
		plan->waking_id = perf_waking_id(&options->events[plan->n_events]);
	plan->n_events += plan->waking_id != 0;
}

static void warn_no_wakers(struct session *session)
{
	session->listener->warning(session, "wakers",
				   "who wakes threads is not recorded: the tracepoint "
				   "sched:sched_waking needs root or a session of the service that "
				   "may see all processes, tracefs, and room for two events",
				   session->data);
}

/* Opens CPU-wide events, if profd may open them and the client may see all processes. Otherwise, or
 * if there is a switch and few per-task events suffice, opens rings for per-task events. */
static bool open_events(struct session *session, GError **error)
{
	struct options *options = session->options;
	struct perf_plan *plan = &session->plan;
	g_autoptr(GError) refused = NULL;
	bool has_probes = false;

	if (plan->by_task && options->n_pids == 0)
		return broker_fail(error, BROKER_ERROR_NOT_AUTHORIZED,
				   "this session may only record processes of your own; \"pids\" "
				   "names them");
	if (!options->kernel && !leave_out_fields(session, error))
		return false;
	plan_sleeps(session);
	/* A thread cannot inherit a probe: to open the probe again, the kernel reads the path of
	 * the probe's file at the same address, but in the memory of the process that creates the
	 * thread. So clone() fails. */
	for (unsigned i = 0; i < options->n_events; i++)
		has_probes |= options->events[i].kind == PROF_SOURCE_PROBE;
	/* Per-task events do not report who wakes a thread. */
	if (options->switch_fd >= 0 && !options->wakers && !has_probes &&
	    perf_tasks_are_few(plan, options->pids, options->n_pids))
		plan->by_task = true;
	if (!plan->by_task) {
		plan->wakeup_id = perf_wakeup_id();
		plan_wakers(session);
		if (perf_open_all(plan, &session->cpus, &refused)) {
			if (options->wakers && !plan->waking_id)
				warn_no_wakers(session);
			return true;
		}
		plan->n_events -= plan->waking_id != 0;
		plan->waking_id = 0;
		plan->by_task =
			g_error_matches(refused, BROKER_ERROR, BROKER_ERROR_NOT_AUTHORIZED) &&
			options->n_pids > 0;
	}
	if (!plan->by_task) {
		g_propagate_error(error, g_steal_pointer(&refused));
		return false;
	}
	if (has_probes)
		return broker_fail(error, BROKER_ERROR_NOT_AUTHORIZED,
				   "probes of programs need the right to record all processes "
				   "(CAP_PERFMON); run `profctl record` as root");
	if (options->wakers)
		warn_no_wakers(session);
	requests_drop_ahead(session->requests);
	if (!perf_open_all(plan, &session->cpus, error))
		return false;
	session->reduced = refused || plan->kernel != options->kernel ||
			   (options->kernel && has_tracepoints(plan) && !plan->fields);
	return true;
}

/* Opens the files with the machine's counters. Warns the client once about counters that cannot be
 * read. */
static void open_counters(struct session *session, struct counter_files *files)
{
	struct options *options = session->options;
	g_autofree char *text = NULL;

	options->counters_missing = counter_files_open(files, options->counters, options->pids[0],
						       session->access.own_only);
	if (!options->counters_missing)
		return;
	text = g_strdup_printf("these counters cannot be read here: %s", options->counters_missing);
	session->listener->warning(session, "counters", text, session->data);
}

/* Sends the engine all that it needs, and MESSAGE_START last. */
static bool send_all(struct session *session, GError **error)
{
	int *switch_fd = &session->options->switch_fd;
	g_autofree struct counter_files *counters = g_new0(struct counter_files, 1);
	bool ok;

	if (session->reduced)
		notify_reduced(session);
	if (session->options->counters)
		open_counters(session, counters);
	ok = engine_config_send(session->engine, session->options, &session->plan, session->id,
				session->capture_fd, error) &&
	     engine_config_send_fields(session->engine, &session->plan, error) &&
	     engine_config_send_counters(session->engine, counters, error);
	counter_files_close(counters);
	/* The engine has the descriptor now. Close it here, so that a pipe ends when the engine
	 * does. */
	deferred_close(steal_fd(&session->capture_fd));
	for (unsigned i = 0; ok && i < session->cpus->len; i++)
		ok = send_cpu(session, &g_array_index(session->cpus, struct perf_cpu, i), error);
	ok = ok && send_events(session, error);
	if (ok)
		session_interpreters_start(session->interpreters);
	/* Sampling begins only when the switch is turned on. */
	if (ok && *switch_fd >= 0) {
		ok = engine_send(session->engine, MESSAGE_SWITCH, NULL, 0, switch_fd, 1, error);
		if (ok)
			deferred_close(steal_fd(switch_fd));
	}
	return ok && engine_send(session->engine, MESSAGE_START, NULL, 0, NULL, 0, error);
}

static void on_tasks_open(void *data)
{
	struct session *session = data;
	struct options *options = session->options;
	g_autoptr(GError) error = NULL;
	bool ok = perf_tasks_steal(session->opening, options->pids, &options->n_pids,
				   &session->events, &error);

	if (ok) {
		GError *reason = NULL;
		struct interpreters *interpreters =
			perf_tasks_steal_interpreters(session->opening, &reason);

		session_interpreters_take(session->interpreters, interpreters, reason);
	}
	ok = ok && send_all(session, &error);
	g_clear_pointer(&session->opening, perf_tasks_free);
	if (!ok)
		end_session(session, error);
	else if (session->stop_early)
		session_stop(session, session->stop_reason, NULL);
}

static bool open_tasks(struct session *session, GError **error)
{
	const struct perf_tasks_options options = {
		.plan = &session->plan,
		.cpus = session->cpus,
		.access = &session->access,
		.targets = session->options->targets,
		.pids = session->options->pids,
		.n_pids = session->options->n_pids,
		.interpreters = session->options->interpreters && session->plan.stack_bytes > 0,
		.done = on_tasks_open,
		.data = session,
	};

	session->opening = perf_tasks_new(&options, error);
	return session->opening != NULL;
}

/* Before the command begins, loads the BPF programs that read its functions, because loading takes
 * longer than many commands run. */
static void expect_command(struct session *session)
{
	const char *command = session->options->command ? session->options->command[0] : NULL;
	g_autofree char *name = command ? g_path_get_basename(command) : NULL;
	const struct message_interpreted expected = {
		.expected = name ? interp_family_of_name(name) : INTERP_NONE,
		.sleeps = true,
	};

	if (expected.expected)
		session_interpreters_receive(session->interpreters, &expected);
}

/* With per-task events, on_tasks_open() continues when the events of all threads are open. */
static bool hand_over(struct session *session, GError **error)
{
	if (!start_requests(session, error) || !open_events(session, error))
		return false;
	start_interpreters(session);
	if (session->plan.by_task)
		return open_tasks(session, error);
	expect_command(session);
	/* Check the targets last: if they still run, no pid was reused meanwhile. */
	return (!session->options->targets ||
		targets_check(session->options->targets, TARGETS_ANY_USER, error)) &&
	       send_all(session, error);
}

/* ---- Messages of the engine ------------------------------------------------------------------ */

static void receive_started(struct session *session, const void *body, size_t bytes)
{
	if (session->state != SESSION_STARTING)
		return;
	/* The engine has its own mappings now. */
	for (unsigned i = 0; i < session->cpus->len; i++)
		perf_cpu_unmap(&g_array_index(session->cpus, struct perf_cpu, i));
	if (!session_interpreters_need_events(session->interpreters))
		g_array_set_size(session->cpus, 0);
	session->start_ns = clock_now();
	set_state(session, session->options->paused ? SESSION_PAUSED : SESSION_RUNNING);
	session->listener->started(session, NULL, session->data);
}

static void receive_obeyed(struct session *session, const void *body, size_t bytes)
{
	if (session->n_obeyed < session->n_pauses)
		session->listener->obeyed(session, ++session->n_obeyed, session->data);
}

static void receive_progress(struct session *session, const void *body, size_t bytes)
{
	const struct message_progress *progress = body;
	int64_t now = g_get_monotonic_time();

	if (progress->bytes > session->counters.bytes)
		session->grown_us = now;
	session->counters = *progress;
	if (now - session->progress_us < PROGRESS_INTERVAL_US)
		return;
	session->progress_us = now;
	session->listener->progress(session, session->data);
}

static void receive_warning(struct session *session, const void *body, size_t bytes)
{
	const struct message_warning *warning = body;
	g_autofree char *code = g_strndup(warning->code, sizeof(warning->code));
	g_autofree char *text = g_strndup(warning->text, sizeof(warning->text));
	g_autofree char *valid_code = g_utf8_make_valid(code, -1);
	g_autofree char *valid_text = g_utf8_make_valid(text, -1);

	int64_t now = g_get_monotonic_time();

	/* Limit warnings, because the bus queues those that a client does not read, and an engine
	 * may have been taken over. */
	if (now - session->warnings_us >= G_USEC_PER_SEC) {
		session->warnings_us = now;
		session->n_warnings = 0;
	}
	if (session->n_warnings++ < MAX_WARNINGS)
		session->listener->warning(session, valid_code, valid_text, session->data);
	if (!session->failure && strcmp(valid_code, "failed") == 0)
		session->failure = g_steal_pointer(&valid_text);
}

static void warn_of_memory(struct session *session)
{
	g_autofree char *text =
		g_strdup_printf("the engine needed more memory than MaxEngineBytes, %" PRIu64
				"; fewer processes or a lower frequency need less",
				ENGINE_MEMORY_BYTES);

	session->listener->warning(session, "engine-died", text, session->data);
}

/* Warns of an engine that ended without MESSAGE_FINISHED. */
static void warn_of_death(struct session *session, int wait_status)
{
	g_autofree char *text = NULL;

	if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == ENGINE_EXIT_NO_MEMORY) {
		warn_of_memory(session);
		return;
	}
	if (WIFSIGNALED(wait_status))
		text = g_strdup_printf("the engine was ended by signal %d (%s)",
				       WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)));
	else
		text = g_strdup_printf("the engine ended with status %d", WEXITSTATUS(wait_status));
	session->listener->warning(session, "engine-died", text, session->data);
}

static void receive_finished(struct session *session, const void *body, size_t bytes)
{
	const struct message_finished *finished = body;

	if (session->summary ||
	    bytes != sizeof(*finished) + (size_t)finished->n_loss * sizeof(finished->loss[0]))
		return;
	session->summary = g_variant_ref_sink(summary_new(finished));
	session->reason = summary_reason(finished->reason);
	session->ok = finished->ok;
	if (finished->error == ENOMEM)
		warn_of_memory(session);
	session->counters = (struct message_progress){
		.samples = finished->samples,
		.events = finished->events,
		.lost = finished->lost,
		.bytes = finished->bytes,
	};
	/* The engine has nothing left to do. */
	await_end(session);
	if (session->state != SESSION_STOPPING && session->state != SESSION_STARTING)
		set_state(session, SESSION_STOPPING);
}

static void on_message(uint32_t type, const void *body, size_t bytes, void *data)
{
	static const struct {
		uint32_t type;
		void (*receive)(struct session *session, const void *body, size_t bytes);
	} handlers[] = {
		{ MESSAGE_STARTED, receive_started },
		{ MESSAGE_OBEYED, receive_obeyed },
		{ MESSAGE_SNAPSHOT_REQUEST, receive_snapshot_request },
		{ MESSAGE_IMAGE_REQUEST, receive_image_request },
		{ MESSAGE_USAGE_REQUEST, receive_usage_request },
		{ MESSAGE_CPU_REQUEST, receive_cpu_request },
		{ MESSAGE_INTERPRETED, receive_interpreted },
		{ MESSAGE_PROGRESS, receive_progress },
		{ MESSAGE_WARNING, receive_warning },
		{ MESSAGE_FINISHED, receive_finished },
	};

	for (size_t i = 0; i < ARRAY_SIZE(handlers); i++)
		if (handlers[i].type == type)
			handlers[i].receive(data, body, bytes);
}

/* Warns if the session ended at a limit that the client did not request. */
static void warn_of_limit(struct session *session)
{
	const struct options *options = session->options;
	bool by_size = strcmp(session->reason, "size") == 0;
	bool by_time = strcmp(session->reason, "duration") == 0;

	if (!session->access.limited)
		return;
	if (by_size && options->max_bytes == LIMITS_CAPTURE_BYTES)
		session->listener->warning(session, "quota",
					   "the capture has the size of MaxCaptureBytes",
					   session->data);
	if (by_time && options->max_duration_ns == LIMITS_DURATION_NS)
		session->listener->warning(session, "quota",
					   "the recording has lasted for MaxDuration",
					   session->data);
}

static void end_session(struct session *session, const GError *error)
{
	bool was_starting = session->state == SESSION_STARTING;

	release(session);
	if (!session->summary)
		session->summary =
			g_variant_ref_sink(summary_unknown(&session->counters, session->start_ns,
							   session->start_ns ? clock_now() : 0));
	warn_of_limit(session);
	set_state(session, session->ok ? SESSION_FINISHED : SESSION_FAILED);
	if (was_starting)
		session->listener->started(session, error, session->data);
	session->listener->finished(session, session->ok, session->reason, session->summary,
				    session->data);
}

static void on_gone(int wait_status, void *data)
{
	struct session *session = data;
	g_autoptr(GError) error = NULL;

	if (!session->summary && !session->given_up)
		warn_of_death(session, wait_status);
	broker_fail(&error, BROKER_ERROR_FAILED,
		    "the engine ended before the recording began (reason \"%s\")%s%s",
		    session->reason, session->failure ? ": " : "",
		    session->failure ? session->failure : "");
	end_session(session, error);
}

/* ---- Start, stop, pause ---------------------------------------------------------------------- */

bool session_start(struct session *session, GError **error)
{
	static const struct engine_listener listener = { .message = on_message, .gone = on_gone };
	bool ok;

	if (session->state != SESSION_CREATED)
		return session_fail_state(session, "start", error);
	if (session->options->lifetime_fd >= 0 && !session->lifetime_watch)
		return broker_fail(error, BROKER_ERROR_INVALID_STATE,
				   "cannot start a session whose \"lifetime\" has hung up");
	/* profd-engine and profd-files start while the events are being opened. */
	session->engine = engine_new(&listener, session, session->options->max_bytes, error);
	ok = session->engine && hand_over(session, error);
	if (!ok) {
		release(session);
		set_state(session, SESSION_FAILED);
		return false;
	}
	set_state(session, SESSION_STARTING);
	return true;
}

bool session_stop(struct session *session, enum engine_reason reason, GError **error)
{
	struct message_stop body = { .reason = reason };

	if (session->state == SESSION_STOPPING)
		return true;
	if (!session->engine)
		return session_fail_state(session, "stop", error);
	if (session->opening) {
		session->stop_early = true;
		session->stop_reason = reason;
		perf_tasks_cancel(session->opening);
		return true;
	}
	/* Read the requests that a short command has sent, because it may already have recorded
	 * something. */
	if (session->sysprof)
		sysprof_receive_rest(session->sysprof);
	session_notify_refused(session);
	if (!engine_send(session->engine, MESSAGE_STOP, &body, sizeof(body), NULL, 0, error))
		return false;
	await_end(session);
	if (session->state != SESSION_STARTING)
		set_state(session, SESSION_STOPPING);
	return true;
}

bool session_pause(struct session *session, bool pause, uint64_t *ret_serial, GError **error)
{
	enum session_state from = pause ? SESSION_RUNNING : SESSION_PAUSED;

	if (session->state != from)
		return session_fail_state(session, pause ? "pause" : "resume", error);
	if (!engine_send(session->engine, pause ? MESSAGE_PAUSE : MESSAGE_RESUME, NULL, 0, NULL, 0,
			 error))
		return false;
	*ret_serial = ++session->n_pauses;
	set_state(session, pause ? SESSION_PAUSED : SESSION_RUNNING);
	return true;
}

bool session_open_image(struct session *session, uint64_t id, int *ret_fd, GError **error)
{
	return images_get(session->images, id, ret_fd, error);
}
