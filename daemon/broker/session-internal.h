/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The structure that the files of a session share. */
#pragma once

#include "daemon/broker/engine.h"
#include "daemon/broker/images.h"
#include "daemon/broker/perf.h"
#include "daemon/broker/requests.h"
#include "daemon/broker/session.h"
#include "daemon/broker/sysprof.h"

#include <sys/stat.h>

struct session {
	const struct session_listener *listener;
	void *data;
	struct access access;
	struct options *options;
	struct engine *engine;
	struct images *images;
	GArray *cpus;   /* struct perf_cpu; mapped until the engine has mapped them too */
	GArray *events; /* struct perf_task_event, until they are sent; NULL: not by task */
	struct perf_tasks *opening; /* while these are opened */
	struct perf_plan plan;
	struct requests *requests; /* while there is an engine */
	GVariant *summary;         /* from MESSAGE_FINISHED */
	const char *reason;
	char *failure; /* the engine's own reason for its end; NULL: none */
	struct message_progress counters;
	uint64_t start_ns;
	int64_t progress_us, stop_us,
		grown_us;    /* grown: when the capture was last seen to have grown */
	int64_t cpu_ns;      /* the engine's CPU time at the last check of its progress */
	int64_t warnings_us; /* start of the second in which the engine sent n_warnings */
	unsigned n_warnings;
	uint64_t returned_bytes;
	int capture_fd;
	uint32_t id;
	uint8_t token[CONTROL_TOKEN_BYTES];
	struct sysprof *sysprof; /* NULL: not requested */
	GArray *refused;         /* struct message_peer, of the last REFUSED_MS; NULL: none */
	guint n_notified;        /* how many of them the engine has */
	guint refused_watch;
	bool has_refused_many;
	struct statx capture; /* at CreateSession: identifies the file */
	guint patience, lifetime_watch;
	enum session_state state;
	bool ok;
	uint64_t n_pauses, n_obeyed; /* sent to the engine, and obeyed by it */
	bool given_up;               /* the engine was killed, and the reason was reported */
	bool reduced;                /* it has less than requested */
	bool stop_early;             /* for stop_reason, before the engine has got its start */
	enum engine_reason stop_reason;
};

/* session.c */
void session_set_state(struct session *session, enum session_state state);
bool session_fail_state(const struct session *session, const char *act, GError **error);
/* Kills the engine, and reports the reason. */
void session_give_up(struct session *session, const char *code, const char *text);
/* Releases everything except the results. */
void session_release(struct session *session);
/* error: why a session does not start. May free the session. */
void session_end(struct session *session, const GError *error);

/* session-collectors.c: sends the engine, now, the peers of session_count_refused(). */
void session_notify_refused(struct session *session);

/* session-start.c: gives the engine all that it needs. From then on the engine leads. */
bool session_hand_over(struct session *session, GError **error);
/* Opens the events of a CPU that came back, because its old ones died with it. Those of tasks do
 * not. */
void session_receive_cpu_request(struct session *session, const void *body, size_t bytes);
