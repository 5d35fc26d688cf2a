/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Session - one recording, from the broker's first message to FINISHED
 *
 * This is the main loop of the drain thread. A round drains the rings up to a millisecond ago; it
 * begins when a ring is a quarter full, or after 100 ms. In the first second a round begins after
 * 10 ms: a target that is recorded from its exec may exit soon and its file be deleted, and the
 * broker must open the file before. After a second without rows, messages or pending work the wait
 * is 1.2 s: this hardly delays the next row, because the round that writes the row also closes its
 * block. A message or table that arrives between two rounds starts no round, only the work that
 * waits for it. Blocks are closed every 850 ms, so that a killed engine leaves a file that lacks at
 * most the last second. CPUs are checked every 250 ms, and the broker receives the counters once a
 * second. If the broker exits, the session ends and its file is completed.
 * Invariants: (1) the loop sleeps unless there is work  [test-engine-session: idle]
 *             (2) an idle session wakes less than once a second  [test-engine-session: quiet]
 *             (3) every session ends through session_finish()  [test-engine-session: broker_gone]
 *             (4) an unexpected message ends the session and never crashes it
 *                 [test-engine-session: protocol]
 */
#include "daemon/engine/session/session.h"

#include "arch/base.h"

#include <errno.h>
#include <glib.h>
#include <stdio.h>
#include <sys/epoll.h>

#define SECOND_NS UINT64_C(1000000000)
#define ROUND_NS UINT64_C(100000000)
#define FIRST_ROUND_NS UINT64_C(10000000) /* ROUND_NS in the first second */
#define QUIET_ROUND_NS UINT64_C(1200000000)
#define ROUND_MAX_NS UINT64_C(100000000) /* ends a round, to read messages such as a Stop */
#define EMIT_MAX_NS \
	UINT64_C(2000000) /* limit for rows, after which rings are drained: producers wait 10 ms */
#define CLOSE_NS UINT64_C(850000000)
#define CHECK_NS UINT64_C(250000000)
#define PROGRESS_NS UINT64_C(850000000) /* each report wakes the broker, the bus and the client */
#define RESCAN_NS (2 * SECOND_NS)
#define MAX_QUERIES 64u /* snapshots of single processes that may be requested at once */
#define QUERIES_A_CHECK \
	6 /* requests added by each check: 24 a second cost the broker below 0.5 % of a core */
#define SIZE_RESERVE 65536 /* bytes for the end of a capture */

bool session_query_again(struct process *process, void *data)
{
	struct session *session = data;

	if (session->queries == 0)
		return false;
	session->queries--;
	process->queried = true;
	session_request_scan(session, process->pid, process->maps_known);
	return true;
}

void session_query(struct process *process, void *data)
{
	if (!process->queried && !process->kernel && (!process->cmdline || !process->maps_known))
		session_query_again(process, data);
}

static void request_rescan(void *data)
{
	((struct session *)data)->rescan = true;
}

static void on_over_rate(void *data)
{
	struct session *session = data;
	char text[128];

	if (session->warned_rate)
		return;
	session->warned_rate = true;
	snprintf(text, sizeof(text),
		 "more than %" G_GUINT64_FORMAT " samples a second: the others are counted as lost",
		 session->events.max_rate);
	session_warn(session, "quota", text);
}

void session_first_hit(struct image *image, const struct mapping *mapping, int32_t pid, void *data)
{
	struct session *session = data;
	struct message_image_request request = {
		.image_id = image->row.id,
		.start = mapping->start,
		.end = mapping->end,
		.inode = image->mapped.inode,
		.inode_generation = image->mapped.inode_generation,
		.pid = pid,
		.path_bytes = strlen(image->path),
	};

	channel_send(&session->channel, MESSAGE_IMAGE_REQUEST, &request, sizeof(request),
		     image->path, request.path_bytes);
}

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
		.switch_fd = -1,
		.epoll_fd = epoll_create1(EPOLL_CLOEXEC),
		.queries = MAX_QUERIES,
	};
	memcpy(session->boot_id, boot_id, sizeof(session->boot_id));
	session->events.query = session_query;
	session->events.rescan = request_rescan;
	session->events.over_rate = on_over_rate;
	session->events.data = session;
	channel_init(&session->channel, socket);
	loss_init(&session->losses);
}

void session_done(struct session *session)
{
	const int fds[] = { session->capture_fd,  session->stat_fd,   session->online_fd,
			    session->kallsyms_fd, session->switch_fd, session->epoll_fd };

	collectors_done(&session->collectors);
	heap_excluded_done(&session->excluded);
	memory_usage_done(&session->memory_usage);
	tick_clock_free(session->tick_clock);
	doorbells_free(session->doorbells);
	ring_merge_done(&session->merge);
	cpus_done(&session->cpus);
	samples_done(&session->samples);
	if (session->output.writer)
		output_done(&session->output);
	session_drop_answers(session);
	tasks_done(&session->tasks);
	unwind_tables_free(session->tables);
	kernel_done(&session->kernel);
	images_done(&session->images);
	loss_done(&session->losses);
	for (uint32_t i = 0; i < session->events.n_sources; i++)
		row_unref(&session->events.sources[i]->row);
	if (session->metadata)
		g_bytes_unref(session->metadata);
	g_clear_error(&session->failure);
	channel_done(&session->channel);
	writer_free(session->writer);
	for (uint32_t i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

void session_warn(struct session *session, const char *code, const char *text)
{
	struct message_warning warning = { 0 };

	g_strlcpy(warning.code, code, sizeof(warning.code));
	g_strlcpy(warning.text, text, sizeof(warning.text));
	channel_send(&session->channel, MESSAGE_WARNING, &warning, sizeof(warning), NULL, 0);
}

void session_request_scan(struct session *session, int32_t pid, bool maps_known)
{
	struct message_snapshot_request request = {
		.serial = ++session->serial,
		.pid = pid,
		.maps_known = maps_known,
	};

	if (pid == 0) {
		session->scan_serial = request.serial;
		session->scanned_ns = clock_now();
	}
	channel_send(&session->channel, MESSAGE_SNAPSHOT_REQUEST, &request, sizeof(request), NULL,
		     0);
}

void session_drain(struct session *session, uint64_t limit_ns)
{
	ring_merge_run(&session->merge, limit_ns);
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

static bool on_stop(struct session *session, struct channel_message *message, GError **error)
{
	struct message_stop stop = { .reason = ENGINE_REASON_STOPPED };

	if (message->length == sizeof(stop))
		memcpy(&stop, message->body, sizeof(stop));
	end(session, MIN_OF(stop.reason, (uint32_t)ENGINE_REASON_INTERNAL));
	return true;
}

/* Answers at once, even if a round is due, because the client waits. */
static bool on_pause(struct session *session, struct channel_message *message, GError **error)
{
	if (!session_set_paused(session, message->type == MESSAGE_PAUSE, error))
		return false;
	channel_send(&session->channel, MESSAGE_OBEYED, NULL, 0, NULL, 0);
	channel_flush(&session->channel);
	return true;
}

static bool on_start(struct session *session, struct channel_message *message, GError **error)
{
	return session_start(session, error);
}

static bool (*const message_handlers[])(struct session *, struct channel_message *, GError **) = {
	[MESSAGE_CONFIG] = session_configure,
	[MESSAGE_CPU] = session_add_cpu,
	[MESSAGE_START] = on_start,
	[MESSAGE_STOP] = on_stop,
	[MESSAGE_PAUSE] = on_pause,
	[MESSAGE_RESUME] = on_pause,
	[MESSAGE_SNAPSHOT] = session_receive_answer,
	[MESSAGE_IMAGE] = session_receive_image,
	[MESSAGE_EVENTS] = session_add_events,
	[MESSAGE_PEER] = session_add_peer,
	[MESSAGE_SWITCH] = session_add_switch,
};

static void fail(struct session *session)
{
	end(session, ENGINE_REASON_INTERNAL);
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
		if (message.type < ARRAY_SIZE(message_handlers) && message_handlers[message.type])
			ok = message_handlers[message.type](session, &message, &session->failure);
		channel_message_done(&message);
	}
	if (!ok)
		fail(session);
	if (result == CHANNEL_CLOSED)
		end(session, ENGINE_REASON_CLIENT_GONE);
}

static void lose_cpu(struct session *session, struct cpu *cpu, uint64_t now_ns)
{
	session_drain(session, now_ns - RING_MERGE_SLACK_NS);
	cpu->gone_ns = cpu->last_ns[1] ? cpu->last_ns[1] : now_ns;
	session_close_cpu(session, cpu, now_ns);
}

static void request_cpu(struct session *session, uint32_t number)
{
	struct message_cpu_request request = { .cpu = number };

	channel_send(&session->channel, MESSAGE_CPU_REQUEST, &request, sizeof(request), NULL, 0);
}

/* Closes the events of CPUs that went offline, and requests events for CPUs that came online.
 * Per-task events stay open when a CPU goes offline; a CPU that comes online later has none. */
static void check_online(struct session *session, uint64_t now_ns)
{
	uint8_t online[ENGINE_MAX_CPUS];
	char text[128];

	if (!cpus_read_online(&session->cpus, online))
		return;
	ticks_compare(&session->ticks, &session->cpus, &session->losses, now_ns);
	for (uint32_t i = 0; i < ENGINE_MAX_CPUS; i++) {
		struct cpu *cpu = session->cpus.by_number[i];

		if (!session->config.by_task && cpu && cpu->open && !online[i]) {
			lose_cpu(session, cpu, now_ns);
		} else if (!session->config.by_task && online[i] && (!cpu || !cpu->open)) {
			request_cpu(session, i);
		} else if (session->config.by_task && online[i] && !cpu) {
			snprintf(text, sizeof(text),
				 "CPU %u came online after the start: "
				 "what runs on it is not recorded",
				 i);
			session_warn(session, "cpu-online", text);
			cpus_add_missing(&session->cpus, i, now_ns);
		}
	}
}

static void check_limits(struct session *session, uint64_t now_ns)
{
	const struct message_config *config = &session->config;
	uint64_t reserve = MIN_OF((uint64_t)SIZE_RESERVE, config->max_bytes / 8);

	if (writer_error(session->writer))
		end(session, ENGINE_REASON_IO_ERROR);
	if (config->max_bytes && writer_bytes(session->writer) + reserve >= config->max_bytes)
		end(session, ENGINE_REASON_SIZE);
	if (config->max_duration_ns && now_ns - session->start_ns >= config->max_duration_ns)
		end(session, ENGINE_REASON_DURATION);
	if (!config->system && session->tasks.n_alive == 0)
		end(session, ENGINE_REASON_TARGET_EXITED);
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
	session->notified_ns = clock_now();
	channel_send(&session->channel, MESSAGE_PROGRESS, &progress, sizeof(progress), NULL, 0);
}

static void check(struct session *session, uint64_t now_ns)
{
	session->checked_ns = now_ns;
	session->queries = MIN_OF(session->queries + QUERIES_A_CHECK, MAX_QUERIES);
	check_online(session, now_ns);
	ticks_compare(&session->ticks, &session->cpus, &session->losses, now_ns);
	for (guint i = 0; !session->config.by_task && i < session->cpus.all->len; i++) {
		struct cpu *cpu = g_ptr_array_index(session->cpus.all, i);

		if (!cpu_is_silent(cpu))
			continue;
		lose_cpu(session, cpu, now_ns);
		request_cpu(session, cpu->number);
	}
	if (session->config.by_task && !session->enabled_again &&
	    !session_enable_again(session, &session->failure))
		fail(session);
	session->enabled_again = true;
	if (session->rescan && session->scan_serial == 0 &&
	    now_ns - session->scanned_ns >= RESCAN_NS) {
		session->rescan = false;
		session_request_scan(session, 0, false);
	}
	tasks_sweep(&session->tasks, session->merge.last_ns);
	if (session->is_read_live && session->kallsyms_fd >= 0)
		kernel_write_symbols_soon(&session->kernel, session->kallsyms_fd, &session->output,
					  now_ns);
	if (now_ns - session->notified_ns >= PROGRESS_NS)
		session_notify_progress(session);
}

/* Retries samples whose tables have arrived. */
static void resume(struct session *session, uint64_t now_ns)
{
	unwind_tables_receive(session->tables);
	sample_queue_run(&session->samples.queue, now_ns);
}

/* Returns the time up to which the collectors' rows have been written. Other parts that write rows
 * of the same tables must not go beyond it, because rows are in time order. */
static uint64_t reached_ns(const struct session *session, uint64_t limit_ns)
{
	const struct collectors *collectors = &session->collectors;

	return collectors->unfinished ? MIN_OF(collectors->emitted_ns, limit_ns)
				      : MIN_OF(collectors->bound_ns, limit_ns);
}

/* Returns whether no work is pending, so that the next round may be delayed. */
static bool is_quiet(const struct session *session, uint64_t now_ns)
{
	return !session->behind && !session->rescan && session->scan_serial == 0 &&
	       (session->enabled_again || !session->config.by_task) &&
	       g_queue_is_empty((GQueue *)&session->answers) &&
	       sample_queue_delay_ns(&session->samples.queue) == 0 &&
	       !heap_excluded_waits(&session->excluded) &&
	       collectors_are_quiet(&session->collectors, now_ns);
}

static void run_round(struct session *session, uint64_t now_ns)
{
	bool check_due = now_ns - session->checked_ns >= CHECK_NS, epoch_due;
	uint64_t limit_ns, rows;

	session->round_ns = now_ns;
	output_tick(&session->output, now_ns);
	collectors_drain(&session->collectors, now_ns);
	if (check_due && session->off_ns == 0)
		ticks_read(&session->ticks);
	session->behind = !ring_merge_run_until(&session->merge, now_ns - RING_MERGE_SLACK_NS,
						now_ns + ROUND_MAX_NS);
	if (session->behind)
		ticks_drop(&session->ticks);
	if (!session->behind &&
	    !session_apply_answers(session, now_ns - RING_MERGE_SLACK_NS, &session->failure))
		fail(session);
	/* The side band has been applied up to limit_ns. */
	limit_ns = session->behind ? session->merge.last_ns : now_ns - RING_MERGE_SLACK_NS;
	session_compare_ticks(session, limit_ns);
	collectors_serve(&session->collectors, limit_ns, now_ns);
	collectors_emit(&session->collectors, limit_ns, clock_now() + EMIT_MAX_NS);
	heap_excluded_run(&session->excluded, now_ns, reached_ns(session, limit_ns));
	memory_usage_write(&session->memory_usage, reached_ns(session, limit_ns));
	resume(session, now_ns);
	if (now_ns - session->closed_ns >=
	    CLOSE_NS - sample_queue_delay_ns(&session->samples.queue)) {
		session->closed_ns = now_ns;
		epoch_due = output_epoch_due(&session->output);
		loss_flush(&session->losses, &session->output);
		(epoch_due ? output_end_epoch : output_flush)(&session->output);
	}
	if (check_due)
		check(session, now_ns);
	rows = output_events(&session->output);
	if (rows != session->found_rows || !is_quiet(session, now_ns))
		session->found_ns = now_ns;
	session->found_rows = rows;
}

static void request_usage(struct session *session, uint64_t now_ns)
{
	struct message_usage_request request;
	int32_t pids[ENGINE_MAX_USAGE_PIDS];

	if (session->paused || now_ns < memory_usage_due_ns(&session->memory_usage))
		return;
	request.serial = ++session->serial;
	request.n = memory_usage_request(&session->memory_usage, request.serial, now_ns, pids);
	if (request.n > 0)
		channel_send(&session->channel, MESSAGE_USAGE_REQUEST, &request, sizeof(request),
			     pids, request.n * sizeof(pids[0]));
}

static uint64_t round_ns(const struct session *session, uint64_t now_ns)
{
	if (now_ns - session->start_ns < SECOND_NS)
		return FIRST_ROUND_NS;
	return now_ns - session->found_ns < SECOND_NS ? ROUND_NS : QUIET_ROUND_NS;
}

/* Runs a round if one is due or a ring cannot wait (`full`). */
static void work(struct session *session, bool full)
{
	uint64_t now_ns = clock_now();

	if (full || session->behind || now_ns - session->round_ns >= round_ns(session, now_ns) ||
	    session->collectors.due_ns <= now_ns) {
		run_round(session, now_ns);
	} else {
		output_tick(&session->output, now_ns);
		resume(session, now_ns);
	}
	request_usage(session, now_ns);
	check_limits(session, now_ns);
	channel_flush(&session->channel);
}

/* Returns the time until the next round, or until an earlier limit, memory reading or drain. */
static int timeout_ms(struct session *session)
{
	uint64_t now_ns = clock_now(), next_ns = session->round_ns + round_ns(session, now_ns);

	if (session->state != SESSION_RUNNING)
		return -1;
	if (session->config.max_duration_ns)
		next_ns = MIN_OF(next_ns, session->start_ns + session->config.max_duration_ns);
	if (!session->paused)
		next_ns = MIN_OF(next_ns, memory_usage_due_ns(&session->memory_usage));
	next_ns = MIN_OF(next_ns,
			 collectors_sleep(&session->collectors, now_ns, round_ns(session, now_ns)));
	if (session->behind || next_ns <= now_ns)
		return 0;
	return (next_ns - now_ns) / 1000000 + 1;
}

static bool watch(struct session *session, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	if (session->epoll_fd >= 0 && epoll_ctl(session->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0)
		return true;
	g_set_error(&session->failure, G_FILE_ERROR, g_file_error_from_errno(errno),
		    "Waiting for messages failed: %s", prof_strerror(-errno));
	return false;
}

/* Handles an epoll event. Returns whether a ring or a collector caused it. Removes a descriptor
 * whose event is gone, because it would wake the loop forever. */
static bool handle_wakeup(struct session *session, const struct epoll_event *event)
{
	if (event->data.fd == session->channel.fd) {
		receive(session);
	} else if (event->data.fd == session->switch_fd) {
		session->found_ns = clock_now();
		if (!session->ending && !session_receive_switch(session, &session->failure))
			fail(session);
	} else if (event->data.fd == writer_fd(session->writer))
		end(session, ENGINE_REASON_IO_ERROR);
	else if (collectors_wake(&session->collectors, event->data.fd))
		return true;
	else if (event->events & (EPOLLHUP | EPOLLERR))
		(void)epoll_ctl(session->epoll_fd, EPOLL_CTL_DEL, event->data.fd, NULL);
	else
		return event->data.fd != unwind_tables_fd(session->tables);
	return false;
}

bool session_run(struct session *session)
{
	struct epoll_event events[16];
	bool full;
	int n, i;

	if (!watch(session, session->channel.fd) || !watch(session, writer_fd(session->writer)) ||
	    !watch(session, unwind_tables_fd(session->tables)) ||
	    !watch(session, doorbells_fd(session->doorbells)))
		fail(session);
	while (!session->ending) {
		n = epoll_wait(session->epoll_fd, events, ARRAY_SIZE(events), timeout_ms(session));
		for (i = 0, full = false; i < n; i++)
			full = handle_wakeup(session, &events[i]) || full;
		if (session->state == SESSION_RUNNING && !session->ending)
			work(session, full);
	}
	session_finish(session);
	return session->failure == NULL;
}
