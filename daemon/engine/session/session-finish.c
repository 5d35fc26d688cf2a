/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Session, its end - completes the file before FINISHED is sent
 *
 * Disables the events, reads all records in the rings, adds losses that can be computed only at the
 * end, writes the names of kernel code, closes the blocks and writes the index. The steps are the
 * same for every reason to end; if the disk is full, the writer selects what to omit. A client that
 * stops a session waits at most a second: each step has a deadline relative to the end, work that
 * is left then is counted as lost, and the file is complete. But a slow reader or disk gets the
 * whole capture as long as it makes progress.
 * Invariants: (1) samples are in the file or in its loss table, whichever step runs out of time
 *                 [test_stop]
 */
#include "daemon/engine/session/session.h"

#include "arch/base.h"

#include <errno.h>
#include <glib.h>
#include <poll.h>
#include <sys/epoll.h>

#define MS UINT64_C(1000000)
/* Deadlines, relative to end_ns: */
#define DRAIN_NS (300 * MS)  /* for reading samples from the rings */
#define TABLES_NS (450 * MS) /* for tables that samples wait for */
#define WALK_NS (600 * MS)   /* for walking samples with the available tables */
/* Time for turning allocation records into rows, as long as this makes progress, which is reported
 * to the broker. */
#define ALLOCATIONS_NS (20000 * MS)
#define PIECE_NS (50 * MS)
#define MAX_STILL 10 /* consecutive pieces without progress end the step */
/* Time for writing the queue, as long as this makes progress. The broker waits for a minute. */
#define WRITE_NS (50000 * MS)

#define ANSWER_WAIT_MS 20
#define WRITER_WAIT_MS 50
#define WRITER_PATIENCE_MS 1500
#define SEND_PATIENCE_MS 2000

/* The broker has the events open too, so closing a descriptor does not remove it from epoll. */
static void unwatch(struct session *session, int fd)
{
	(void)epoll_ctl(session->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

void session_close_cpu(struct session *session, struct cpu *cpu, uint64_t now_ns)
{
	if (!cpu->open)
		return;
	cpu_disable(cpu);
	cpu_add_lost(cpu, &session->losses, now_ns);
	if (cpu->throttled_ns)
		loss_add_cpu(&session->losses, cpu->number, false, PROF_LOSS_THROTTLED, 1,
			     cpu->throttled_ns, now_ns);
	if (session->state != SESSION_NEW)
		switches_end(&cpu->switches, &session->tasks, cpu->number, now_ns);
	ring_merge_remove_owner(&session->merge, cpu);
	unwatch(session, cpu->side_band_fd);
	if (cpu->n_sources)
		unwatch(session, cpu->source_fds[0]);
	cpu_close(cpu);
}

/* Adds rows that the writer could not write, which are in the file's loss table, to the summary. */
static void add_writer_losses(struct session *session)
{
	const GArray *losses = writer_losses(session->writer);

	for (guint i = 0; i < losses->len; i++) {
		const struct writer_loss *lost = &g_array_index(losses, struct writer_loss, i);
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

static void close_cpus(struct session *session)
{
	bool all_known = true;
	uint64_t now_ns;

	for (guint i = 0; i < session->cpus.all->len; i++)
		cpu_disable(g_ptr_array_index(session->cpus.all, i));
	session->stop_ns = now_ns = clock_now();
	if (session->state != SESSION_RUNNING)
		return;
	if (session->off_ns == 0)
		ticks_read(&session->ticks);
	session->events.until_ns = session->end_ns + DRAIN_NS;
	session_drain(session, UINT64_MAX);
	if (!session_apply_answers(session, UINT64_MAX,
				   session->failure ? NULL : &session->failure))
		session->reason = ENGINE_REASON_INTERNAL;
	for (guint i = 0; i < session->cpus.all->len; i++)
		cpu_add_lost(g_ptr_array_index(session->cpus.all, i), &session->losses, now_ns);
	ticks_compare(&session->ticks, &session->cpus, &session->losses, now_ns);
	for (guint i = 0; i < session->cpus.all->len; i++) {
		struct cpu *cpu = g_ptr_array_index(session->cpus.all, i);

		if (cpu->gone_ns)
			loss_add_cpu(&session->losses, cpu->number, false, PROF_LOSS_CPU_OFFLINE, 1,
				     cpu->gone_ns, now_ns);
		all_known = all_known && cpu->switches.tid != -1;
		session_close_cpu(session, cpu, now_ns);
	}
	switches_note_all(&session->tasks, all_known, now_ns);
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
		.samples = session->events.n_samples,
		.events = output_events(&session->output),
		.start_ns = session->start_ns,
		.stop_ns = session->stop_ns,
		.unwind_complete = session->samples.complete,
		.unwind_truncated = session->samples.truncated,
		.unwind_guessed = session->samples.guessed,
		.unwind_none = session->samples.none,
		.unwind_no_memory = session->samples.no_memory,
	};
	finished->bytes = writer_bytes(session->writer);
	memcpy(finished->excluded, session->excluded.counts, sizeof(finished->excluded));
	finished->n_loss = loss_export(&session->losses, finished->loss);
	loss_sum(&session->losses, &finished->lost, &finished->missed_ticks);
	channel_send(&session->channel, MESSAGE_FINISHED, finished,
		     sizeof(*finished) + finished->n_loss * sizeof(struct message_loss), NULL, 0);
	channel_end(&session->channel, SEND_PATIENCE_MS);
}

/* Chooses the reason for the end. An error of the file overrides any other reason. */
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

/* Receives answers that the last steps wait for. Returns false if the broker has closed the
 * channel. */
static bool receive_answers(struct session *session, int timeout_ms)
{
	struct pollfd wait[] = { { .fd = session->channel.fd, .events = POLLIN },
				 { .fd = unwind_tables_fd(session->tables), .events = POLLIN } };
	enum channel_result result = CHANNEL_EMPTY;
	struct channel_message message;

	channel_flush(&session->channel);
	if (poll(wait, ARRAY_SIZE(wait), timeout_ms) <= 0)
		return true;
	while ((result = channel_receive(&session->channel, &message)) == CHANNEL_MESSAGE) {
		if (message.type == MESSAGE_IMAGE)
			session_receive_image(session, &message, NULL);
		else if (message.type == MESSAGE_PEER && !session->collectors.is_finishing)
			session_add_peer(session, &message, NULL);
		channel_message_done(&message);
	}
	return result != CHANNEL_CLOSED;
}

static void lose_sample(const struct sample *sample, void *data)
{
	struct session *session = data;

	session->events.n_samples--;
	loss_add_cpu(&session->losses, sample->cpu, false, PROF_LOSS_UNWIND_BACKLOG, 1,
		     sample->time_ns, sample->time_ns);
}

/* Waits a limited time for tables that samples need, then walks the rest without them. */
static void finish_samples(struct session *session)
{
	bool answered = true;

	session->samples.queue.until_ns = session->end_ns + WALK_NS;
	sample_queue_run(&session->samples.queue, clock_now());
	while (sample_queue_delay_ns(&session->samples.queue) > 0 &&
	       clock_now() < session->end_ns + WALK_NS) {
		answered = answered && receive_answers(session, ANSWER_WAIT_MS) &&
			   clock_now() < session->end_ns + TABLES_NS;
		unwind_tables_receive(session->tables);
		sample_queue_run(&session->samples.queue, answered ? clock_now() : UINT64_MAX);
	}
	sample_queue_end(&session->samples.queue, lose_sample, session);
}

static void finish_allocations(struct session *session)
{
	uint64_t left, before = UINT64_MAX, now_ns = clock_now();
	unsigned int still = 0;

	while (now_ns < session->end_ns + ALLOCATIONS_NS && still < MAX_STILL) {
		left = collectors_finish_some(&session->collectors, now_ns + PIECE_NS);
		if (left == 0)
			break;
		still = left < before ? 0 : still + 1;
		if (still > 0)
			g_usleep(PIECE_NS / 1000 / MAX_STILL);
		before = left;
		now_ns = clock_now();
		output_tick(&session->output, now_ns);
		session_notify_progress(session);
	}
}

void session_finish(struct session *session)
{
	bool whole = false;

	if (session->output.writer) {
		close_cpus(session);
		/* Targets may have exited before the broker has read their requests. */
		while (collectors_miss_requests(&session->collectors) &&
		       clock_now() < session->end_ns + DRAIN_NS &&
		       receive_answers(session, ANSWER_WAIT_MS))
			continue;
		finish_allocations(session);
		collectors_finish(&session->collectors,
				  MAX_OF(session->end_ns + TABLES_NS, clock_now() + PIECE_NS));
		finish_samples(session);
		/* The last records may have requested program files. */
		while (heap_excluded_waits(&session->excluded) &&
		       clock_now() < session->end_ns + TABLES_NS &&
		       receive_answers(session, ANSWER_WAIT_MS))
			unwind_tables_receive(session->tables);
		heap_excluded_finish(&session->excluded, session->stop_ns);
		memory_usage_write(&session->memory_usage, UINT64_MAX);
		session_notify_progress(session);
		if (session->kallsyms_fd >= 0)
			kernel_write_symbols(&session->kernel, session->kallsyms_fd,
					     &session->output);
		loss_flush(&session->losses, &session->output);
		output_flush(&session->output);
		loss_flush(&session->losses, &session->output);
		output_flush(&session->output);
		whole = wait_for_writer(session);
		if (whole)
			add_writer_losses(session);
	}
	choose_reason(session);
	if (session->failure)
		session_warn(session, "failed", session->failure->message);
	send_finished(session, whole);
	session->state = SESSION_ENDED;
}
