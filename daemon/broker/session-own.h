/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What the files of a session share. */
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
	struct perf_tasks *opening; /* while those are opened */
	struct perf_plan plan;
	struct requests *requests; /* as long as there is an engine */
	GVariant *summary;         /* what FINISHED said */
	const char *reason;
	char *failure; /* what the engine said of its end; NULL: nothing */
	struct message_progress counters;
	uint64_t start_ns;
	int64_t progress_us, stop_us,
		grown_us;    /* grown: when the capture was last seen to be longer */
	int64_t cpu_ns;      /* what the engine had used when it was last waited for */
	int64_t warnings_us; /* when the second began in which the engine sent n_warnings */
	unsigned n_warnings;
	uint64_t returned_bytes;
	int capture_fd;
	uint32_t id;
	uint8_t token[CONTROL_TOKEN_BYTES];
	struct sysprof *sysprof; /* NULL: nobody has asked for it */
	GArray *refused;         /* struct message_peer, of the last moment; NULL: none */
	guint n_told;            /* of them, to the engine */
	guint refused_watch;
	bool has_refused_many;
	struct statx capture; /* at CreateSession: which file it is */
	guint patience, lifetime_watch;
	enum session_state state;
	bool ok;
	uint64_t n_pauses, n_obeyed; /* sent to the engine, and answered by it */
	bool given_up;               /* the engine was killed, and why was said */
	bool reduced;                /* it has less than was asked for */
	bool stop_early;             /* and why: before the engine has been told to start */
	enum engine_reason stop_reason;
};

/* session.c */
void session_set_state(struct session *session, enum session_state state);
bool session_fail_state(const struct session *session, const char *act, GError **error);
/* Kills the engine, and says why. */
void session_give_up(struct session *session, const char *code, const char *text);
/* Lets go of all but what is known of it. */
void session_release(struct session *session);
/* The error: why a session that was starting does not. May free the session. */
void session_end(struct session *session, const GError *error);

/* session-collectors.c: the engine is told, now, of whom session_count_refused() knows. */
void session_tell_refused(struct session *session);

/* session-start.c: the engine is given all that it needs, and leads from then on. */
bool session_hand_over(struct session *session, GError **error);
/* A CPU that came back: its events died when it went. Those of tasks do not. */
void session_take_cpu_request(struct session *session, const void *body, size_t bytes);
