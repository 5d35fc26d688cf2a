/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Session - one recording, from the broker's first message to FINISHED
 *
 * This is the main loop of the drain thread. A round drains the rings up to a millisecond ago; it
 * begins after 100 ms, or when a quarter of a ring was written, unless all rings were drained
 * meanwhile. In the first second a round begins after 10 ms, because a target may exit soon after
 * its exec and its file may be deleted, and the broker must open the file before that. After a
 * second without rows, messages or pending work a round begins after 1.2 s (but see reads_waits()).
 * This hardly delays the next row, because the round that writes the row also closes its block. A
 * message or table that arrives between two rounds starts no round, only the work that waits for
 * it. Rounds close blocks every 850 ms, so that the file of a killed engine lacks little more than
 * the last second; check CPUs every 250 ms; and report to the broker about once a second. The table
 * `jobs` has these times, `messages` has the messages that a state allows, and session_sources has
 * what is recorded. If the broker exits, the session ends and its file is completed.
 * Invariants: (1) the loop sleeps unless there is work  [test-engine-session: idle]
 *             (2) an idle session wakes less than once a second  [test-engine-session: quiet]
 *             (3) every session ends through finish()  [test-engine-session: broker_gone]
 *             (4) an unexpected message ends the session and never crashes it
 *                 [test-engine-session: protocol]
 */
#include "daemon/engine/session/session.h"

#include "arch/base.h"
#include "base/each.h"

#include <errno.h>
#include <glib.h>
#include <poll.h>
#include <sys/epoll.h>

#define SECOND_NS UINT64_C(1000000000)
#define ROUND_NS UINT64_C(100000000)
#define FIRST_ROUND_NS UINT64_C(10000000) /* ROUND_NS in the first second */
#define QUIET_ROUND_NS UINT64_C(1200000000)
#define USAGE_SLACK_NS UINT64_C(50000000)
#define CLOSE_NS UINT64_C(850000000)
#define CHECK_NS UINT64_C(250000000)
#define PROGRESS_NS UINT64_C(850000000) /* each report wakes the broker, the bus and the client */
#define SIZE_RESERVE 65536              /* bytes for the end of a capture */
/* Maximum time for writing the queue; without progress, the wait ends earlier. The broker waits for
 * a minute. */
#define WRITE_NS (50 * SECOND_NS)
#define ANSWER_WAIT_MS 20
#define WRITER_WAIT_MS 50
#define WRITER_PATIENCE_MS 1500
#define SEND_PATIENCE_MS 2000

void session_threads_free(struct session_threads *threads)
{
	tick_clock_free(threads->tick_clock);
	doorbells_free(threads->doorbells);
	unwind_tables_free(threads->tables);
	writer_free(threads->writer);
	*threads = (struct session_threads){ 0 };
}

bool session_threads_new(struct session_threads *ret_threads, GError **error)
{
	struct session_threads threads = { .writer = writer_new(error) };

	if (threads.writer)
		threads.tables = unwind_tables_new(error);
	if (threads.tables)
		threads.doorbells = doorbells_new(error);
	if (!threads.doorbells) {
		session_threads_free(&threads);
		return false;
	}
	threads.tick_clock = tick_clock_new();
	*ret_threads = threads;
	return true;
}

void session_init(struct session *session, int socket, const struct session_threads *threads,
		  const uint8_t *boot_id)
{
	*session = (struct session){
		.writer = threads->writer,
		.tables = threads->tables,
		.doorbells = threads->doorbells,
		.tick_clock = threads->tick_clock,
		.capture_fd = -1,
		.stat_fd = -1,
		.online_fd = -1,
		.kallsyms_fd = -1,
		.epoll_fd = epoll_create1(EPOLL_CLOEXEC),
	};
	memcpy(session->boot_id, boot_id, sizeof(session->boot_id));
	channel_init(&session->channel, socket);
	proc_queries_init(&session->queries, &session->channel);
	session->sampling.switch_fd = -1;
	session->unread = g_ptr_array_new_with_free_func(g_free);
	g_ptr_array_add(session->unread, NULL);
	loss_init(&session->losses);
}

void session_done(struct session *session)
{
	const int fds[] = { session->capture_fd,         session->stat_fd,
			    session->online_fd,          session->kallsyms_fd,
			    session->sampling.switch_fd, session->epoll_fd };

	collectors_done(&session->collectors);
	heap_excluded_done(&session->excluded);
	memory_usage_done(&session->memory_usage);
	machine_counters_done(&session->machine);
	tick_clock_free(session->tick_clock);
	doorbells_free(session->doorbells);
	ring_merge_done(&session->merge);
	cpus_done(&session->cpus);
	waits_done(&session->waits);
	samples_done(&session->samples);
	g_free(session->interpreted);
	g_ptr_array_unref(session->unread);
	interpreted_code_done(&session->interpreted_code);
	if (session->output.writer)
		output_done(&session->output);
	proc_queries_done(&session->queries);
	tasks_done(&session->tasks);
	unwind_tables_free(session->tables);
	kernel_done(&session->kernel);
	images_done(&session->images);
	loss_done(&session->losses);
	for (uint32_t i = 0; i < session->events.n_sources; i++)
		row_unref(&session->events.sources[i]->row);
	g_clear_pointer(&session->metadata, g_bytes_unref);
	g_clear_error(&session->failure);
	channel_done(&session->channel);
	writer_free(session->writer);
	for (uint32_t i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

/* Ends the session. Only the first reason counts. */
static void end(struct session *session, enum engine_reason reason)
{
	if (!session->ending) {
		session->reason = reason;
		session->end_ns = clock_now();
	}
	session->ending = true;
}

void session_fail(struct session *session)
{
	end(session, ENGINE_REASON_INTERNAL);
}

static bool on_stop(struct session *session, struct channel_message *message, GError **error)
{
	struct message_stop stop = { .reason = ENGINE_REASON_STOPPED };

	if (message->length == sizeof(stop))
		memcpy(&stop, message->body, sizeof(stop));
	end(session, MIN_OF(stop.reason, (uint32_t)ENGINE_REASON_INTERNAL));
	return true;
}

static bool on_switch(struct session *session, struct channel_message *message, GError **error)
{
	return sampling_add_switch(&session->sampling, message, error) &&
	       session_watch(session, session->sampling.switch_fd, "the switch", error);
}

bool session_apply_answers(struct session *session, uint64_t drained_ns, GError **error)
{
	return proc_queries_apply(&session->queries, drained_ns, error) &&
	       (session->state != SESSION_SCANNING || !session->queries.is_scanned ||
		session_start_sampling(session, error));
}

static bool on_snapshot(struct session *session, struct channel_message *message, GError **error)
{
	/* The first snapshot is applied at once, because nothing is drained before it. */
	return proc_queries_receive(&session->queries, message, error) &&
	       (session->state != SESSION_SCANNING ||
		session_apply_answers(session, UINT64_MAX, error));
}

/* Answers at once, even if a round is due, because the client waits. */
static bool on_pause(struct session *session, struct channel_message *message, GError **error)
{
	bool paused = message->type == MESSAGE_PAUSE;

	all_heaps_pause(&session->collectors.rows->heaps, paused, clock_now());
	if (!sampling_set_paused(&session->sampling, paused, error))
		return false;
	channel_send(&session->channel, MESSAGE_OBEYED, NULL, 0, NULL, 0);
	channel_flush(&session->channel);
	return true;
}

void session_notify_progress(struct session *session)
{
	struct message_progress progress = {
		.samples = session->events.n_samples,
		.events = output_events(&session->output),
		.bytes = writer_bytes(session->writer),
	};
	uint64_t missed_ticks;

	loss_sum(&session->losses, &progress.lost, &missed_ticks);
	if (memcmp(&progress, &session->notified, sizeof(progress)) == 0)
		return;
	session->notified = progress;
	channel_send(&session->channel, MESSAGE_PROGRESS, &progress, sizeof(progress), NULL, 0);
}

#define IN(state) (1u << SESSION_##state)
/* while the recording is being completed; invalid messages are then ignored */
#define AT_END (1u << 31)

static const struct {
	const char *name;
	unsigned int states; /* states in which the broker may send the message */
	bool (*handle)(struct session *session, struct channel_message *message, GError **error);
} messages[] = {
	[MESSAGE_CONFIG] = { "CONFIG", IN(NEW), session_configure },
	[MESSAGE_CPU] = { "CPU", IN(CONFIGURED) | IN(SCANNING) | IN(RUNNING), session_add_cpu },
	[MESSAGE_EVENTS] = { "EVENTS", IN(CONFIGURED), session_add_events },
	[MESSAGE_COUNTERS] = { "COUNTERS", IN(CONFIGURED), session_add_counters },
	[MESSAGE_FIELDS] = { "FIELDS", IN(CONFIGURED), session_add_fields },
	[MESSAGE_ARGUMENTS] = { "ARGUMENTS", IN(CONFIGURED), session_add_arguments },
	[MESSAGE_OUTPUTS] = { "OUTPUTS", IN(CONFIGURED) | IN(SCANNING) | IN(RUNNING),
			      session_add_outputs },
	[MESSAGE_NO_OUTPUTS] = { "NO_OUTPUTS", IN(SCANNING) | IN(RUNNING),
				 session_receive_no_outputs },
	[MESSAGE_SWITCH] = { "SWITCH", IN(NEW) | IN(CONFIGURED), on_switch },
	[MESSAGE_START] = { "START", IN(CONFIGURED), session_start },
	[MESSAGE_SNAPSHOT] = { "SNAPSHOT", IN(SCANNING) | IN(RUNNING), on_snapshot },
	[MESSAGE_IMAGE] = { "IMAGE", IN(SCANNING) | IN(RUNNING) | AT_END, session_receive_image },
	[MESSAGE_PEER] = { "PEER", IN(SCANNING) | IN(RUNNING) | AT_END, session_add_peer },
	[MESSAGE_PAUSE] = { "PAUSE", IN(CONFIGURED) | IN(SCANNING) | IN(RUNNING), on_pause },
	[MESSAGE_RESUME] = { "RESUME", IN(CONFIGURED) | IN(SCANNING) | IN(RUNNING), on_pause },
	[MESSAGE_STOP] = { "STOP", ~AT_END, on_stop },
};

static bool handle(struct session *session, struct channel_message *message, GError **error)
{
	if (message->type >= ARRAY_SIZE(messages) || !messages[message->type].handle)
		return true;
	if (messages[message->type].states & 1u << session->state)
		return messages[message->type].handle(session, message, error);
	g_set_error(error, G_FILE_ERROR, G_FILE_ERROR_INVAL,
		    "The broker sent an unexpected message: %s", messages[message->type].name);
	return false;
}

static void receive(struct session *session)
{
	struct channel_message message;
	enum channel_result result = CHANNEL_EMPTY;
	bool ok = true;

	session->found_ns = clock_now();
	while (ok && !session->ending) {
		result = channel_receive(&session->channel, &message);
		if (result != CHANNEL_MESSAGE)
			break;
		ok = handle(session, &message, &session->failure);
		channel_message_done(&message);
	}
	if (!ok)
		session_fail(session);
	if (result == CHANNEL_CLOSED)
		end(session, ENGINE_REASON_CLIENT_GONE);
}

/* ---- Jobs ------------------------------------------------------------------------------------ */

static bool is_quiet(const struct session *session, uint64_t now_ns)
{
	for (size_t i = 0; i < SESSION_SOURCES; i++)
		if (session_sources[i].is_quiet && !session_sources[i].is_quiet(session, now_ns))
			return false;
	return proc_queries_are_quiet(&session->queries);
}

/* Returns whether stacks of waits are only read, not copied. Rounds must then be frequent, because
 * a stack must be read before its wait ends. */
static bool reads_waits(const struct session *session)
{
	for (uint32_t i = 0; i < session->config.n_sources; i++)
		if (session->config.sources[i].off_cpu)
			return false;
	return session->config.off_cpu && session->config.off_cpu_threshold_ns;
}

static uint64_t round_period(const struct session *session, uint64_t now_ns)
{
	if (now_ns - session->start_ns < SECOND_NS)
		return FIRST_ROUND_NS;
	return now_ns - session->found_ns < SECOND_NS || reads_waits(session) ? ROUND_NS
									      : QUIET_ROUND_NS;
}

static uint64_t next_round(const struct session *session, uint64_t now_ns)
{
	if (session->is_round_due || session->behind)
		return 0;
	return MIN_OF(session->ran_ns[JOB_ROUND] + round_period(session, now_ns),
		      session->collectors.due_ns);
}

static uint64_t next_usage(const struct session *session, uint64_t now_ns)
{
	return session->sampling.paused ? UINT64_MAX : memory_usage_due_ns(&session->memory_usage);
}

static uint64_t next_counters(const struct session *session, uint64_t now_ns)
{
	return session->sampling.paused ? UINT64_MAX : machine_counters_due_ns(&session->machine);
}

static void read_counters(struct session *session, uint64_t now_ns)
{
	machine_counters_read(&session->machine, now_ns);
}

static void request_usage(struct session *session, uint64_t now_ns)
{
	/* Also read the counters if they are due soon, so that the engine wakes up only once. */
	if (next_counters(session, now_ns) <= now_ns + USAGE_SLACK_NS)
		read_counters(session, now_ns);
	proc_queries_usage(&session->queries, now_ns);
}

static uint64_t next_duration(const struct session *session, uint64_t now_ns)
{
	uint64_t duration_ns = session->config.max_duration_ns;

	return duration_ns ? session->start_ns + MIN_OF(duration_ns, UINT64_MAX - session->start_ns)
			   : UINT64_MAX;
}

static void end_duration(struct session *session, uint64_t now_ns)
{
	end(session, ENGINE_REASON_DURATION);
}

static uint64_t next_close(const struct session *session, uint64_t now_ns)
{
	return session->ran_ns[JOB_CLOSE] + CLOSE_NS -
	       sample_queue_delay_ns(&session->samples.queue);
}

static void close_blocks(struct session *session, uint64_t now_ns)
{
	bool epoch_due = output_epoch_due(&session->output);

	loss_flush(&session->losses, &session->output);
	/* Write all ended waits, because the ids of their stacks end with the epoch. */
	if (epoch_due && session->events.waits)
		waits_write(&session->waits, UINT64_MAX);
	(epoch_due ? output_end_epoch : output_flush)(&session->output);
}

static void check(struct session *session, uint64_t now_ns)
{
	const struct collectors *collectors = &session->collectors;

	proc_queries_allow(&session->queries);
	session_check_cpus(session, now_ns);
	if (session->config.by_task && !session->sampling.is_repeated &&
	    !sampling_repeat(&session->sampling, &session->failure))
		session_fail(session);
	/* The collectors' records name threads by tid, and may be far behind perf's. */
	tasks_sweep(&session->tasks,
		    MIN_OF(session->merge.last_ns,
			   MAX_OF(collectors->reached_ns, collectors->emitted_ns)));
	if (session->kallsyms_fd >= 0)
		kernel_write_symbols_soon(&session->kernel, session->kallsyms_fd, &session->output,
					  session->is_read_live, now_ns);
}

static uint64_t next_rescan(const struct session *session, uint64_t now_ns)
{
	return proc_queries_due_ns(&session->queries);
}

static void rescan(struct session *session, uint64_t now_ns)
{
	proc_queries_scan(&session->queries);
}

static void report_progress(struct session *session, uint64_t now_ns)
{
	session_notify_progress(session);
}

static void run_round(struct session *session, uint64_t now_ns);

/* A job is due at due_ns() or, if that is NULL, period_ns after its last run. */
static const struct {
	uint64_t period_ns;
	uint64_t (*due_ns)(const struct session *session, uint64_t now_ns);
	void (*run)(struct session *session, uint64_t now_ns);
} jobs[SESSION_JOBS] = {
	[JOB_ROUND] = { 0, next_round, run_round },
	[JOB_USAGE] = { 0, next_usage, request_usage },
	[JOB_COUNTERS] = { 0, next_counters, read_counters },
	[JOB_DURATION] = { 0, next_duration, end_duration },
	[JOB_CLOSE] = { CLOSE_NS, next_close, close_blocks },
	[JOB_CHECK] = { CHECK_NS, NULL, check },
	[JOB_RESCAN] = { 0, next_rescan, rescan },
	[JOB_PROGRESS] = { PROGRESS_NS, NULL, report_progress },
};

static uint64_t job_due_ns(const struct session *session, enum session_job job, uint64_t now_ns)
{
	return jobs[job].due_ns ? jobs[job].due_ns(session, now_ns)
				: session->ran_ns[job] + jobs[job].period_ns;
}

/* Runs the jobs from `first` to `last` that are due. */
static void run_jobs(struct session *session, enum session_job first, enum session_job last,
		     uint64_t now_ns)
{
	for (enum session_job job = first; job <= last; job++)
		if (job_due_ns(session, job, now_ns) <= now_ns) {
			session->ran_ns[job] = now_ns;
			jobs[job].run(session, now_ns);
		}
}

static void run_round(struct session *session, uint64_t now_ns)
{
	uint64_t limit_ns = now_ns - RING_MERGE_SLACK_NS, rows;

	session->is_round_due = false;
	for (size_t i = 0; i < SESSION_SOURCES; i++)
		if (session_sources[i].load)
			session_sources[i].load(session, now_ns);
	if (job_due_ns(session, JOB_CHECK, now_ns) <= now_ns)
		sampling_read_ticks(&session->sampling);
	for (size_t i = 0; i < SESSION_SOURCES; i++)
		limit_ns = session_sources[i].drain(session, limit_ns, now_ns);
	run_jobs(session, JOB_CLOSE, JOB_PROGRESS, now_ns);
	/* Rows of the machine's counters can wait, so they do not keep rounds frequent. */
	rows = output_events(&session->output) - session->machine.n_rows;
	if (rows != session->found_rows || !is_quiet(session, now_ns))
		session->found_ns = now_ns;
	session->found_rows = rows;
}

/* Runs the jobs that are due, and the work that waits for a message or a table. */
static void work(struct session *session)
{
	const struct message_config *config = &session->config;
	uint64_t reserve = MIN_OF((uint64_t)SIZE_RESERVE, config->max_bytes / 8);
	uint64_t now_ns = clock_now();

	output_tick(&session->output, now_ns);
	run_jobs(session, JOB_ROUND, JOB_DURATION, now_ns);
	if (session->ran_ns[JOB_ROUND] != now_ns) {
		session_receive_tables(session);
		sample_queue_run(&session->samples.queue, now_ns);
	}
	if (writer_error(session->writer))
		end(session, ENGINE_REASON_IO_ERROR);
	if (config->max_bytes && writer_bytes(session->writer) + reserve >= config->max_bytes)
		end(session, ENGINE_REASON_SIZE);
	if (!config->system && session->tasks.n_alive == 0)
		end(session, ENGINE_REASON_TARGET_EXITED);
	channel_flush(&session->channel);
}

/* Returns the time in ms until the next job or drain; -1: no limit. */
static int timeout_ms(struct session *session)
{
	uint64_t now_ns = clock_now(), next_ns;

	if (session->state != SESSION_RUNNING)
		return -1;
	next_ns = collectors_sleep(&session->collectors, now_ns, round_period(session, now_ns));
	for (enum session_job job = JOB_ROUND; job <= JOB_DURATION; job++)
		next_ns = MIN_OF(next_ns, job_due_ns(session, job, now_ns));
	return next_ns <= now_ns ? 0 : (next_ns - now_ns) / 1000000 + 1;
}

/* ---- The end --------------------------------------------------------------------------------- */

/* Adds to the summary the rows that the writer could not write. The file's loss table already has
 * them. */
static void add_writer_losses(struct session *session)
{
	const GArray *losses = writer_losses(session->writer);

	ARRAY_EACH(const struct writer_loss, lost, losses) {
		struct loss loss = {
			.key.cause = writer_loss_cause(session->writer),
			.count = lost->rows,
			.bytes = lost->bytes,
			.from_ns = lost->from_ns,
			.to_ns = lost->to_ns,
		};

		g_strlcpy(loss.key.stream, prof_table_v1(lost->table)->name,
			  sizeof(loss.key.stream));
		loss_add(&session->losses, &loss);
	}
}

static void send_finished(struct session *session, bool whole)
{
	g_autofree struct message_finished *finished =
		g_malloc0(sizeof(*finished) + MESSAGE_MAX_LOSS * sizeof(struct message_loss));
	int error = writer_error(session->writer);

	*finished = (struct message_finished){
		.ok = whole && !session->failure && error == 0,
		.reason = session->reason,
		.error = error,
		.events = output_events(&session->output),
		.start_ns = session->start_ns,
		.stop_ns = session->stop_ns,
	};
	finished->bytes = writer_bytes(session->writer);
	for (size_t i = 0; i < SESSION_SOURCES; i++)
		if (session_sources[i].stats)
			session_sources[i].stats(session, finished);
	finished->n_loss = loss_export(&session->losses, finished->loss);
	loss_sum(&session->losses, &finished->lost, &finished->missed_ticks);
	channel_send(&session->channel, MESSAGE_FINISHED, finished,
		     sizeof(*finished) + finished->n_loss * sizeof(struct message_loss), NULL, 0);
	channel_end(&session->channel, SEND_PATIENCE_MS);
}

/* Chooses the reason for the end: a writer error; without one, an internal failure; otherwise the
 * reason that was given. */
static void choose_reason(struct session *session)
{
	int error = writer_error(session->writer);

	if (error == ENOSPC || error == EDQUOT || error == EFBIG)
		session->reason = ENGINE_REASON_DISK_FULL;
	else if (error == ENOMEM) /* the engine's failure, not the file's */
		session->reason = ENGINE_REASON_INTERNAL;
	else if (error)
		session->reason = ENGINE_REASON_IO_ERROR;
	else if (session->failure)
		session->reason = ENGINE_REASON_INTERNAL;
}

/* Waits as long as the writer makes progress, which is reported to the broker. After WRITE_NS, lets
 * the writer drop its queue, because the broker does not wait longer. Returns false if progress
 * stops. */
static bool wait_for_writer(struct session *session)
{
	uint64_t bytes = writer_bytes(session->writer);
	unsigned int still_ms = 0;

	while (still_ms < WRITER_PATIENCE_MS) {
		if (writer_finish(session->writer, WRITER_WAIT_MS))
			return true;
		if (clock_now() >= session->end_ns + WRITE_NS)
			writer_hurry(session->writer);
		still_ms = bytes == writer_bytes(session->writer) ? still_ms + WRITER_WAIT_MS : 0;
		bytes = writer_bytes(session->writer);
		session_notify_progress(session);
	}
	return false;
}

bool session_receive_answers(struct session *session)
{
	struct pollfd wait[] = { { .fd = session->channel.fd, .events = POLLIN },
				 { .fd = unwind_tables_fd(session->tables), .events = POLLIN } };
	enum channel_result result = CHANNEL_EMPTY;
	struct channel_message message;

	channel_flush(&session->channel);
	if (poll(wait, ARRAY_SIZE(wait), ANSWER_WAIT_MS) <= 0)
		return true;
	while ((result = channel_receive(&session->channel, &message)) == CHANNEL_MESSAGE) {
		if (message.type < ARRAY_SIZE(messages) && messages[message.type].states & AT_END)
			messages[message.type].handle(session, &message, NULL);
		channel_message_done(&message);
	}
	return result != CHANNEL_CLOSED;
}

/* Completes the file, then sends FINISHED. The steps are the same for every reason to end; if the
 * disk is full, the writer selects what to omit. */
static void finish(struct session *session)
{
	bool whole = false;

	if (session->output.writer) {
		for (size_t i = 0; i < SESSION_SOURCES; i++)
			if (session_sources[i].close)
				session_sources[i].close(session);
		session_notify_progress(session);
		if (session->kallsyms_fd >= 0)
			kernel_write_symbols(&session->kernel, session->kallsyms_fd,
					     &session->output);
		/* The first flush may drop rows, which the second one counts as lost. */
		for (int i = 0; i < 2; i++) {
			loss_flush(&session->losses, &session->output);
			output_flush(&session->output);
		}
		whole = wait_for_writer(session);
		if (whole)
			add_writer_losses(session);
	}
	choose_reason(session);
	if (session->failure)
		channel_warn(&session->channel, "failed", session->failure->message);
	send_finished(session, whole);
	session->state = SESSION_ENDED;
}

/* ---- The loop -------------------------------------------------------------------------------- */

bool session_watch(struct session *session, int fd, const char *what, GError **error)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	if (session->epoll_fd >= 0 && epoll_ctl(session->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0)
		return true;
	g_set_error(error, G_FILE_ERROR, g_file_error_from_errno(errno),
		    "Waiting for %s failed: %s", what, prof_strerror(-errno));
	return false;
}

/* Handles an epoll event. Returns whether a round is due, because of a collector or of a filled
 * ring. Removes a descriptor whose event is gone, because it would wake the loop forever. */
static bool handle_wakeup(struct session *session, const struct epoll_event *event)
{
	uint64_t now_ns = clock_now();

	if (event->data.fd == session->channel.fd) {
		receive(session);
	} else if (event->data.fd == session->sampling.switch_fd) {
		/* A round may take longer than the time between switching on and off. So delay the
		 * round that is due after a quiet time, or switching off would have to wait for
		 * it. */
		if (now_ns - session->found_ns >= SECOND_NS)
			session->ran_ns[JOB_ROUND] = now_ns;
		session->found_ns = now_ns;
		if (!session->ending &&
		    !sampling_receive_switch(&session->sampling, &session->failure))
			session_fail(session);
	} else if (event->data.fd == writer_fd(session->writer))
		end(session, ENGINE_REASON_IO_ERROR);
	else if (collectors_wake(&session->collectors, event->data.fd))
		return true;
	else if (event->events & (EPOLLHUP | EPOLLERR))
		(void)epoll_ctl(session->epoll_fd, EPOLL_CTL_DEL, event->data.fd, NULL);
	else if (event->data.fd != unwind_tables_fd(session->tables))
		/* The round for another ring may have drained this one. */
		return ring_merge_is_filled(&session->merge);
	return false;
}

bool session_run(struct session *session)
{
	const int fds[] = { session->channel.fd, writer_fd(session->writer),
			    unwind_tables_fd(session->tables), doorbells_fd(session->doorbells) };
	struct epoll_event events[16];
	int n;

	for (size_t i = 0; i < ARRAY_SIZE(fds) && !session->ending; i++)
		if (!session_watch(session, fds[i], "messages", &session->failure))
			session_fail(session);
	while (!session->ending) {
		n = epoll_wait(session->epoll_fd, events, ARRAY_SIZE(events), timeout_ms(session));
		for (int i = 0; i < n; i++)
			if (handle_wakeup(session, &events[i]))
				session->is_round_due = true;
		if (session->state == SESSION_RUNNING && !session->ending)
			work(session);
	}
	finish(session);
	return session->failure == NULL;
}
