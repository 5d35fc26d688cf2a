/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Session, collectors - which processes may hand a session what they record themselves
 *
 * Whom the kernel says it is, and whose; the engine knows whether it is a target, and has the last word.
 * Main thread only.
 */
#include "daemon/broker/session-own.h"

#include "daemon/broker/error.h"
#include "daemon/broker/target.h"

#define MAX_CHECKED_THREADS 2000

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
	/* it may be a child of one: the engine knows */
	return options->children;
}

/* Whose a process is takes long where it has thousands of threads, and all clients wait. */
static bool has_many_threads(pid_t pid)
{
	g_autofree char *path = g_strdup_printf("/proc/%d/task", (int)pid);
	struct stat folder;

	return stat(path, &folder) < 0 || folder.st_nlink > 2 + MAX_CHECKED_THREADS;
}

enum control_status session_take_peer(struct session *session, const struct control_peer *peer)
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
	/* Of a process that is gone there is no more to ask; the socket that it used is one that the user gave it. */
	if (session->access.own_only && is_there) {
		if (has_many_threads(peer->pid))
			return CONTROL_LIMIT;
		if (!target_is_owned(peer->pidfd, peer->pid, session->access.uid))
			return CONTROL_NOT_AUTHORISED;
	}
	return engine_send(session->engine, MESSAGE_PEER, &body, sizeof(body), fds,
			   peer->pidfd >= 0 ? 2 : 1, NULL)
		       ? CONTROL_OK
		       : CONTROL_FAILED;
}

static enum control_status on_sysprof_peer(const struct control_peer *peer, void *data)
{
	return session_take_peer(data, peer);
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
