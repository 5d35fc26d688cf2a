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
#include "daemon/engine/session/sampling.h"

#include "arch/base.h"
#include "arch/packet.h"
#include "base/clock.h"
#include "daemon/deferred-close.h"
#include "daemon/stranger.h"
#include "libcollector/control.h"

#include <errno.h>
#include <glib.h>
#include <sys/socket.h>

/* Missed ticks are not counted if the events were enabled for a shorter time. */
#define TICKS_ACCURACY_NS UINT64_C(20000000)

void sampling_read_ticks(struct sampling *sampling)
{
	if (sampling->off_ns == 0)
		ticks_read(&sampling->ticks);
}

void sampling_add_missed(struct sampling *sampling, uint64_t now_ns)
{
	ticks_compare(&sampling->ticks, sampling->cpus, sampling->losses, now_ns);
}

void sampling_compare_ticks(struct sampling *sampling, uint64_t drained_ns)
{
	if (sampling->off_ns == 0 || drained_ns < sampling->off_ns)
		return;
	sampling_add_missed(sampling, sampling->off_ns);
	sampling->ticks.running = false;
	sampling->off_ns = 0;
}

/* Enables or disables the sampling events of all CPUs. */
static bool enable(struct sampling *sampling, bool on, GError **error)
{
	for (guint i = 0; i < sampling->cpus->all->len; i++)
		if (!cpu_enable_sampling(g_ptr_array_index(sampling->cpus->all, i), on, error))
			return false;
	sampling->is_on = on;
	/* A child that is being forked may inherit disabled per-task events: see
	 * sampling_repeat(). */
	sampling->is_repeated = false;
	return true;
}

bool sampling_add_cpu(const struct sampling *sampling, struct cpu *cpu, GError **error)
{
	return !sampling->is_on || cpu_enable_sampling(cpu, true, error);
}

bool sampling_repeat(struct sampling *sampling, GError **error)
{
	for (guint i = 0; i < sampling->cpus->all->len; i++)
		if (!cpu_enable_side_band(g_ptr_array_index(sampling->cpus->all, i), error))
			return false;
	if (!enable(sampling, sampling->is_on, error))
		return false;
	sampling->is_repeated = true;
	return true;
}

/* Enables or disables events as needed. *ret_changed: the caller must call note_change(). */
static bool apply(struct sampling *sampling, bool *ret_changed, GError **error)
{
	bool on = !sampling->paused && !sampling->switched_off;

	*ret_changed = sampling->has_begun && on != sampling->is_on;
	return !*ret_changed || enable(sampling, on, error);
}

static void note_change(struct sampling *sampling)
{
	uint64_t now_ns = clock_now(), limit_ns = now_ns - RING_MERGE_SLACK_NS;

	if (sampling->is_on) {
		if (sampling->off_ns && sampling->off_ns <= limit_ns) {
			ring_merge_run(sampling->merge, limit_ns);
			sampling_compare_ticks(sampling, limit_ns);
		}
		sampling->off_ns = 0;
		sampling->on_ns = now_ns;
		ticks_begin(&sampling->ticks, sampling->cpus, now_ns);
	} else if (now_ns - sampling->on_ns < TICKS_ACCURACY_NS) {
		sampling->ticks.running = false;
	} else {
		ticks_read(&sampling->ticks);
		sampling->off_ns = now_ns;
	}
}

static bool apply_and_note(struct sampling *sampling, GError **error)
{
	bool changed;

	if (!apply(sampling, &changed, error))
		return false;
	if (changed)
		note_change(sampling);
	return true;
}

bool sampling_begin(struct sampling *sampling, GError **error)
{
	sampling->has_begun = true;
	return apply_and_note(sampling, error);
}

bool sampling_set_paused(struct sampling *sampling, bool paused, GError **error)
{
	sampling->paused = paused;
	return apply_and_note(sampling, error);
}

/* ---- The switch ------------------------------------------------------------------------------ */

bool sampling_add_switch(struct sampling *sampling, struct channel_message *message, GError **error)
{
	if (sampling->switch_fd >= 0 || message->n_fds != 1) {
		g_set_error(error, G_FILE_ERROR, G_FILE_ERROR_INVAL,
			    "The broker sent an invalid switch message");
		return false;
	}
	sampling->switched_off = true;
	sampling->switch_fd = steal_fd(&message->fds[0]);
	return true;
}

static bool drop_switch(struct sampling *sampling, GError **error)
{
	deferred_close(steal_fd(&sampling->switch_fd));
	sampling->switched_off = true;
	return apply_and_note(sampling, error);
}

bool sampling_receive_switch(struct sampling *sampling, GError **error)
{
	struct control_switch request, answer = { .magic = CONTROL_SWITCH_MAGIC };
	const struct iovec part = { &answer, sizeof(answer) };
	bool ok, changed;
	ssize_t n = stranger_receive(sampling->switch_fd, &request, sizeof(request));

	if (n < 0 && errno == EAGAIN)
		return true;
	/* The switch may be closed, or its request invalid. */
	ok = n == (ssize_t)sizeof(request) && request.magic == CONTROL_SWITCH_MAGIC &&
	     request.on <= 1;
	sampling->switched_off = !ok || !request.on;
	if (!apply(sampling, &changed, error))
		return false;
	if (ok) {
		answer.serial = request.serial;
		answer.on = sampling->is_on;
		ok = packet_send(sampling->switch_fd, &part, 1, -1, MSG_DONTWAIT) ==
		     (ssize_t)sizeof(answer);
	}
	if (changed)
		note_change(sampling);
	return ok || drop_switch(sampling, error);
}
