/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Sampling - when the events of a session are enabled
 *
 * Two parties can disable sampling: the client, by Pause and Resume; and the peer at the other end
 * of the session's switch, which is initially off. Only the sampling events are disabled: the side
 * band stays enabled, so that later samples have names. A switch request is answered as soon as the
 * events are switched, before any other work, because a program waits for the answer. The peer is
 * not trusted: each wakeup reads one request, without waiting. If a request is invalid or its
 * answer cannot be sent, the switch is closed and stays off. Missed ticks are computed later, when
 * the rings have been drained up to the time at which sampling was disabled.
 * Invariants: (1) nothing is sampled unless both parties allow it  [test-engine-session: switch]
 *             (2) a switch that misbehaves costs only its own session's samples
 *                 [test-engine-session: switch_hostile]
 * Runs on the drain thread only.
 */
#include "daemon/engine/session/session.h"

#include "arch/base.h"
#include "arch/packet.h"
#include "daemon/deferred-close.h"
#include "daemon/stranger.h"
#include "libcollector/control.h"

#include <errno.h>
#include <glib.h>
#include <sys/socket.h>

#define TICKS_ACCURACY_NS UINT64_C(20000000) /* minimum interval for missed ticks */

/* Compares the ticks due in the last sampled interval with those taken, after it was drained. */
void session_compare_ticks(struct session *session, uint64_t limit_ns)
{
	if (session->off_ns == 0 || (limit_ns < session->off_ns && !session->behind))
		return;
	ticks_compare(&session->ticks, &session->cpus, &session->losses, session->off_ns);
	session->ticks.running = false;
	session->off_ns = 0;
}

/* Enables or disables the sampling events of all CPUs. */
static bool enable(struct session *session, bool on, GError **error)
{
	for (guint i = 0; i < session->cpus.all->len; i++)
		if (!cpu_enable_sampling(g_ptr_array_index(session->cpus.all, i), on, error))
			return false;
	session->is_sampling = on;
	/* Enable again later: a child that is being forked may inherit disabled per-task events. */
	session->enabled_again = false;
	return true;
}

/* Enables or disables events as needed. *ret_changed: the caller must call note_change(). */
static bool apply(struct session *session, bool *ret_changed, GError **error)
{
	bool on = !session->paused && !session->switched_off;

	*ret_changed = session->state == SESSION_RUNNING && on != session->is_sampling;
	return !*ret_changed || enable(session, on, error);
}

static void note_change(struct session *session)
{
	uint64_t now_ns = clock_now(), limit_ns = now_ns - RING_MERGE_SLACK_NS;

	if (session->is_sampling) {
		if (session->off_ns && session->off_ns <= limit_ns) {
			session_drain(session, limit_ns);
			session_compare_ticks(session, limit_ns);
		}
		session->off_ns = 0;
		session->on_ns = now_ns;
		ticks_begin(&session->ticks, &session->cpus, now_ns);
	} else if (now_ns - session->on_ns < TICKS_ACCURACY_NS) {
		session->ticks.running = false;
	} else {
		ticks_read(&session->ticks);
		session->off_ns = now_ns;
	}
}

bool session_begin_sampling(struct session *session, GError **error)
{
	session->enabled_again = false;
	if (session->paused || session->switched_off)
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
	all_heaps_pause(&session->collectors.rows->heaps, paused, clock_now());
	return apply_and_note(session, error);
}

/* ---- The switch ------------------------------------------------------------------------------ */

bool session_add_switch(struct session *session, struct channel_message *message, GError **error)
{
	if (session->switch_fd >= 0 || message->n_fds != 1) {
		g_set_error(error, G_FILE_ERROR, G_FILE_ERROR_INVAL,
			    "The broker sent an invalid switch message");
		return false;
	}
	session->switched_off = true;
	session->switch_fd = steal_fd(&message->fds[0]);
	return session_watch(session, session->switch_fd, "the switch", error);
}

static bool drop_switch(struct session *session, GError **error)
{
	deferred_close(steal_fd(&session->switch_fd));
	session->switched_off = true;
	return apply_and_note(session, error);
}

bool session_receive_switch(struct session *session, GError **error)
{
	struct control_switch request, answer = { .magic = CONTROL_SWITCH_MAGIC };
	const struct iovec part = { &answer, sizeof(answer) };
	bool ok, changed;
	ssize_t n = stranger_receive(session->switch_fd, &request, sizeof(request));

	if (n < 0 && errno == EAGAIN)
		return true;
	/* The switch may be closed, or its request invalid. */
	ok = n == (ssize_t)sizeof(request) && request.magic == CONTROL_SWITCH_MAGIC &&
	     request.on <= 1;
	session->switched_off = !ok || !request.on;
	if (!apply(session, &changed, error))
		return false;
	if (ok) {
		answer.serial = request.serial;
		answer.on = session->is_sampling;
		ok = packet_send(session->switch_fd, &part, 1, -1, MSG_DONTWAIT) ==
		     (ssize_t)sizeof(answer);
	}
	if (changed)
		note_change(session);
	return ok || drop_switch(session, error);
}
