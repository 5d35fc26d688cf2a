/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/access.h"
#include "daemon/broker/control.h"
#include "daemon/broker/options.h"

/* One recording: its events, engine and images. Independent of D-Bus. */
struct session;

enum session_state {
	SESSION_CREATED,
	SESSION_STARTING, /* shown as "created" */
	SESSION_RUNNING,
	SESSION_PAUSED,
	SESSION_STOPPING,
	SESSION_FINISHED,
	SESSION_FAILED,
};

struct session_listener {
	void (*state_changed)(struct session *session, void *data);
	/* Called once for each session_start() that returned true. `error` NULL: sampling is
	 * enabled. */
	void (*started)(struct session *session, const GError *error, void *data);
	/* The engine has obeyed each session_pause() up to `serial`. */
	void (*obeyed)(struct session *session, uint64_t serial, void *data);
	void (*progress)(struct session *session, void *data); /* at most once in 240 ms */
	void (*warning)(struct session *session, const char *code, const char *text, void *data);
	/* Called once for a session that left SESSION_CREATED, when the engine is gone. May free
	 * the session. */
	void (*finished)(struct session *session, bool ok, const char *reason, GVariant *summary,
			 void *data);
};

/* Takes ownership of the options and of the capture's descriptor. Checks the capture. */
bool session_new(const struct access *access, uint32_t id, struct options *options, int capture_fd,
		 const struct session_listener *listener, void *data, struct session **ret_session,
		 GError **error);
/* Kills everything that still runs. Leaves the file as it is. */
void session_free(struct session *session);

bool session_start(struct session *session, GError **error);
bool session_stop(struct session *session, enum engine_reason reason, GError **error);
/* The listener's obeyed() reports *ret_serial when the engine has obeyed, unless the session ends
 * first. */
bool session_pause(struct session *session, bool pause, uint64_t *ret_serial, GError **error);
bool session_open_image(struct session *session, uint64_t id, int *ret_fd, GError **error);

/* The secret with which a process finds its session. */
const uint8_t *session_token(const struct session *session);
/* *ret_socket: the socket for a command's SYSPROF_CONTROL_FD; borrowed, valid until the session
 * ends. */
bool session_open_sysprof(struct session *session, int *ret_socket, GError **error);
/* Returns how well the session fits a process that names no session; 0: not at all. */
unsigned session_fits(const struct session *session, const struct control_peer *peer);
/* Passes a peer to the engine, which accepts or refuses it. CONTROL_OK: the engine will answer. */
enum control_status session_receive_peer(struct session *session, const struct control_peer *peer);
/* Reports to the engine that a peer was refused. The engine counts the peer if its process is a
 * target. */
void session_count_refused(struct session *session, const struct control_peer *peer);

enum session_state session_state(const struct session *session);
const char *session_state_name(const struct session *session);
bool session_is_active(const struct session *session); /* whether the session has an engine */
bool session_shares_capture(const struct session *session, const struct session *other);
const struct access *session_access(const struct session *session);
const struct options *session_options(const struct session *session);
const struct message_progress *session_counters(const struct session *session);
uint64_t session_start_ns(const struct session *session);
