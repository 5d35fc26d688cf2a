/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Sampling - when the events of a session are enabled
 *
 * Who may hold it back are two: the client, by Pause and Resume, and whoever has the other end of
 * the session's switch, which is off at first. Only the events that sample are concerned: the side
 * band goes on, so that what a later sample hits has its names. A switch is answered as soon as the
 * events are switched, before anything else is done, as a program waits for it. It may be
 * anybody's: it is read without waiting, one request a turn, and one that contradicts itself, or
 * whose answers nobody takes, is off for good.
 * A program that has a page (gate.c) is asked for nothing while events are enabled: they stay so
 * for a while after its last block, and what is sampled outside of its blocks is dropped. By task
 * they do nothing while it sleeps: so they are enabled from when it has the page, and the while is
 * of the time for which its threads ran. One that waits between its blocks never waits for us. How
 * many ticks were missed while sampling was enabled is reckoned later, when the rings have been
 * drained that far.
 * Invariants: (1) nothing is sampled unless both allow it  [test-engine-session: switch]
 *             (2) a switch that misbehaves costs its session's samples, no more
 *                 [test-engine-session: switch_hostile]
 *             (3) by task, events stay enabled while the targets sleep
 *                 [test-engine-session: switch_by_task]
 * Runs on the drain thread only.
 */
#include "daemon/engine/session.h"

#include "arch/base.h"
#include "arch/packet.h"
#include "daemon/closer.h"
#include "daemon/stranger.h"
#include "libcollector/control.h"

#include <errno.h>
#include <glib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define TICKS_ACCURACY_NS UINT64_C(20000000) /* of less time nothing is known of missed ticks */

bool session_samples(const struct session *session)
{
	return !session->paused && !session->switched_off;
}

/* What has been read at the end of the time before is only looked at when its samples are known. */
void session_compare_ticks(struct session *session, uint64_t limit_ns)
{
	if (session->off_ns == 0 || (limit_ns < session->off_ns && !session->behind))
		return;
	ticks_compare(&session->ticks, &session->cpus, &session->losses, session->off_ns);
	session->ticks.running = false;
	session->off_ns = 0;
}

/* The program may rely on them only while all are enabled. */
static bool enable(struct session *session, bool on, GError **error)
{
	if (!on)
		gate_set_on(&session->gate, false);
	for (guint i = 0; i < session->cpus.all->len; i++)
		if (!cpu_enable_sampling(g_ptr_array_index(session->cpus.all, i), on, error))
			return false;
	session->is_sampling = on;
	if (on)
		gate_set_on(&session->gate, true);
	/* by task somebody may be forked right now */
	session->enabled_again = false;
	return true;
}

static void begin_ticks(struct session *session)
{
	uint64_t now_ns = session_clock(), limit_ns = now_ns - ROUND_SLACK_NS;

	if (session->off_ns && session->off_ns <= limit_ns) {
		session_drain(session, limit_ns);
		session_compare_ticks(session, limit_ns);
	}
	session->off_ns = 0;
	session->on_ns = now_ns;
	ticks_begin(&session->ticks, &session->cpus, now_ns);
}

static void end_ticks(struct session *session)
{
	uint64_t now_ns = session_clock();

	if (now_ns - session->on_ns < TICKS_ACCURACY_NS) {
		session->ticks.running = false;
		return;
	}
	ticks_read(&session->ticks);
	session->off_ns = now_ns;
}

/* Whether there is something to be followed by note_change(). */
static bool apply(struct session *session, bool *ret_changed, GError **error)
{
	bool on = session_samples(session);

	*ret_changed = session->state == SESSION_RUNNING && on != session->is_sampling;
	return !*ret_changed || enable(session, on, error);
}

static void note_change(struct session *session)
{
	if (session->is_sampling)
		begin_ticks(session);
	else
		end_ticks(session);
}

bool session_begin_sampling(struct session *session, GError **error)
{
	session->enabled_again = false;
	if (!session_samples(session))
		return true;
	if (!enable(session, true, error))
		return false;
	session->on_ns = session->start_ns;
	ticks_begin(&session->ticks, &session->cpus, session->start_ns);
	return true;
}

static bool apply_and_note(struct session *session, GError **error)
{
	bool changed;

	if (!apply(session, &changed, error))
		return false;
	if (changed)
		note_change(session);
	return true;
}

bool session_set_paused(struct session *session, bool paused, GError **error)
{
	session->paused = paused;
	heap_merge_pause(&session->collectors.rows->heaps, paused, session_clock());
	return apply_and_note(session, error);
}

/* Of a thread that runs it is known up to now that it does: so this may go back a little. */
uint64_t session_gate_ns(const struct session *session, uint64_t now_ns)
{
	uint64_t ran_ns = 0;

	if (!session->config.by_task)
		return now_ns;
	for (guint i = 0; i < session->cpus.all->len; i++) {
		const struct cpu *cpu = g_ptr_array_index(session->cpus.all, i);

		ran_ns += switches_ran_ns(&cpu->switches, now_ns);
	}
	return ran_ns;
}

/* ---- The switch ------------------------------------------------------------------------------ */

bool session_add_switch(struct session *session, struct channel_message *message, GError **error)
{
	struct epoll_event event = { .events = EPOLLIN };

	if (session->state != SESSION_NEW || session->switch_fd >= 0 || message->n_fds != 1) {
		g_set_error(error, G_FILE_ERROR, G_FILE_ERROR_INVAL,
			    "The broker sent a switch that is none");
		return false;
	}
	session->switched_off = true;
	event.data.fd = session->switch_fd = steal_fd(&message->fds[0]);
	if (epoll_ctl(session->epoll_fd, EPOLL_CTL_ADD, session->switch_fd, &event) == 0)
		return true;
	g_set_error(error, G_FILE_ERROR, g_file_error_from_errno(errno),
		    "Waiting for the switch failed: %s", prof_strerror(-errno));
	return false;
}

/* False: it is not to be listened to any more. */
static bool read_switch(const struct session *session, struct control_switch *ret_request,
			bool *ret_there)
{
	ssize_t n = stranger_receive(session->switch_fd, ret_request, sizeof(*ret_request));

	*ret_there = n == (ssize_t)sizeof(*ret_request) &&
		     ret_request->magic == CONTROL_SWITCH_MAGIC && ret_request->on <= 1;
	return *ret_there || (n < 0 && errno == EAGAIN);
}

static bool answer(const struct session *session, const struct control_switch *request, int fd)
{
	const struct control_switch done = { .magic = CONTROL_SWITCH_MAGIC,
					     .serial = request->serial,
					     .on = session->is_sampling };
	const struct iovec part = { (void *)&done, sizeof(done) };

	return packet_send(session->switch_fd, &part, 1, fd, MSG_DONTWAIT) == (ssize_t)sizeof(done);
}

static bool give_up(struct session *session, GError **error)
{
	closer_close(steal_fd(&session->switch_fd));
	session->switched_off = true;
	return apply_and_note(session, error);
}

bool session_take_switch(struct session *session, GError **error)
{
	CLEANUP_CLOSE int page = -1;
	struct control_switch request;
	bool is_there, ok, changed;
	uint64_t now_ns;

	ok = read_switch(session, &request, &is_there);
	if (ok && !is_there)
		return true;
	session->switched_off = !ok || !request.on;
	if (!apply(session, &changed, error))
		return false;
	if (ok && (request.wants & CONTROL_WANTS_PAGE) && !gate_is_open(&session->gate) &&
	    gate_open(&session->gate, &page))
		gate_set_on(&session->gate, session->is_sampling);
	now_ns = session_gate_ns(session, session_clock());
	gate_take(&session->gate, now_ns);
	if (ok && (request.on || page >= 0))
		gate_use(&session->gate, now_ns, changed);
	ok = ok && answer(session, &request, page);
	if (changed)
		note_change(session);
	if (!ok)
		return give_up(session, error);
	if (page < 0 || !session->config.by_task)
		return true;
	session->switched_off = false;
	return apply_and_note(session, error);
}

bool session_look_at_gate(struct session *session, uint64_t now_ns, GError **error)
{
	struct gate *gate = &session->gate;

	if (gate->is_broken && session->switch_fd >= 0)
		return give_up(session, error);
	if (!gate_is_open(gate) || session->switched_off ||
	    !gate_is_over(gate, session_gate_ns(session, now_ns)))
		return true;
	session->switched_off = true;
	return apply_and_note(session, error);
}
