/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Session, collectors - decides which processes may register their collectors
 *
 * The kernel identifies a process and its user. This file checks limits and access; the engine
 * checks whether the process is a target. A process that is refused for lack of room is reported to
 * the engine, which counts the process if it is a target. Only a few such processes are reported at
 * a time, and each once, because any process may connect any number of times. Main thread only.
 */
#include "daemon/broker/session-internal.h"

#include "daemon/broker/target.h"

#define MAX_CHECKED_THREADS 2000
#define MAX_REFUSED 64 /* maximum number of peers reported to the engine per REFUSED_MS */
#define REFUSED_MS 20  /* short, because an engine drops processes that have ended */

const uint8_t *session_token(const struct session *session)
{
	return session->token;
}

static bool is_recording(const struct session *session)
{
	return session->state == SESSION_STARTING || session->state == SESSION_RUNNING ||
	       session->state == SESSION_PAUSED;
}

unsigned session_fits(const struct session *session, const struct control_peer *peer)
{
	const struct options *options = session->options;

	if (!is_recording(session) ||
	    (session->access.own_only && peer->uid != session->access.uid))
		return 0;
	for (unsigned i = 0; i < options->n_pids; i++)
		if (options->pids[i] == peer->pid)
			return 3;
	if (options->system)
		return 2;
	/* The process may be a child of a target: the engine decides. */
	return options->children;
}

/* ---- Refused peers --------------------------------------------------------------------------- */

void session_notify_refused(struct session *session)
{
	for (; session->refused && session->n_notified < session->refused->len;
	     session->n_notified++)
		/* On failure the engine has ended, which is reported elsewhere. */
		(void)engine_send(session->engine, MESSAGE_PEER,
				  &g_array_index(session->refused, struct message_peer,
						 session->n_notified),
				  sizeof(struct message_peer), NULL, 0, NULL);
}

static bool can_be_notified(const struct session *session)
{
	return session->engine && !session->opening && !engine_is_behind(session->engine);
}

static gboolean on_refused(gpointer data)
{
	struct session *session = data;

	if (!can_be_notified(session))
		return G_SOURCE_CONTINUE;
	session_notify_refused(session);
	g_clear_pointer(&session->refused, g_array_unref);
	session->refused_watch = 0;
	return G_SOURCE_REMOVE;
}

void session_count_refused(struct session *session, const struct control_peer *peer)
{
	const struct message_peer body = {
		.pid = peer->pid,
		.inner_pid = (uint32_t)peer->inner_pid,
		.wants = peer->hello ? peer->hello->wants : 0,
		.protocol = PEER_REFUSED,
	};

	if (!session->refused) {
		session->refused = g_array_new(FALSE, FALSE, sizeof(body));
		session->n_notified = 0;
		session->refused_watch = g_timeout_add(REFUSED_MS, on_refused, session);
	}
	for (guint i = 0; i < session->refused->len; i++)
		if (g_array_index(session->refused, struct message_peer, i).pid == peer->pid)
			return;
	if (session->refused->len == MAX_REFUSED) {
		if (!session->has_refused_many)
			session->listener->warning(
				session, "collectors-refused",
				"More processes asked to record from inside than there is time for: some record nothing, which is not counted",
				session->data);
		session->has_refused_many = true;
		return;
	}
	g_array_append_val(session->refused, body);
	/* Report at once, because the engine may be about to end with its targets. */
	if (can_be_notified(session))
		session_notify_refused(session);
}

/* ---- Accepted peers -------------------------------------------------------------------------- */

static enum control_status hand_peer_over(struct session *session, const struct control_peer *peer)
{
	const struct message_peer body = {
		.pid = peer->pid,
		.inner_pid = (uint32_t)peer->inner_pid,
		.wants = peer->hello ? peer->hello->wants : 0,
		.protocol = peer->hello ? PEER_OWN : PEER_SYSPROF,
	};
	const int fds[] = { peer->connection, peer->pidfd };
	bool is_there = peer->hello || (peer->pidfd >= 0 && target_is_alive(peer->pidfd));

	if (!is_recording(session))
		return CONTROL_NO_SESSION;
	if (session->opening || engine_is_behind(session->engine))
		return CONTROL_LIMIT;
	if (session->access.own_only && peer->uid != session->access.uid)
		return CONTROL_NOT_AUTHORISED;
	/* Accept a process that has exited: it cannot be checked any more, but the socket that it
	 * used came from the user. */
	if (session->access.own_only && is_there) {
		g_autofree char *path = g_strdup_printf("/proc/%d/task", (int)peer->pid);
		struct stat threads;

		/* The check takes long for thousands of threads, and all clients wait. */
		if (stat(path, &threads) < 0 || threads.st_nlink > 2 + MAX_CHECKED_THREADS)
			return CONTROL_LIMIT;
		if (!target_is_owned(peer->pidfd, peer->pid, session->access.uid))
			return CONTROL_NOT_AUTHORISED;
	}
	return engine_send(session->engine, MESSAGE_PEER, &body, sizeof(body), fds,
			   peer->pidfd >= 0 ? 2 : 1, NULL)
		       ? CONTROL_OK
		       : CONTROL_FAILED;
}

enum control_status session_receive_peer(struct session *session, const struct control_peer *peer)
{
	enum control_status status = hand_peer_over(session, peer);

	if (status == CONTROL_LIMIT || status == CONTROL_FAILED)
		session_count_refused(session, peer);
	return status;
}

static enum control_status on_sysprof_peer(const struct control_peer *peer, void *data)
{
	return session_receive_peer(data, peer);
}

bool session_open_sysprof(struct session *session, int *ret_socket, GError **error)
{
	if (session->state >= SESSION_STOPPING)
		return session_fail_state(session, "open its collectors' socket for", error);
	if (!session->sysprof && !sysprof_new(on_sysprof_peer, session, &session->sysprof, error))
		return false;
	*ret_socket = sysprof_target_socket(session->sysprof);
	return true;
}
