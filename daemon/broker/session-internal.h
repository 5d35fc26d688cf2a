/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The structure that session.c and session-collectors.c share. */
#pragma once

#include "daemon/broker/engine.h"
#include "daemon/broker/images.h"
#include "daemon/broker/perf-tasks.h"
#include "daemon/broker/requests.h"
#include "daemon/broker/session-interpreters.h"
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
	GArray *cpus;   /* struct perf_cpu; mapped until the engine has mapped them, too */
	GArray *events; /* struct perf_task_event, until they are sent; NULL: no per-task events */
	struct perf_tasks *opening; /* not NULL while per-task events are being opened */
	struct perf_plan plan;
	struct requests *requests;                 /* NULL without an engine */
	struct session_interpreters *interpreters; /* NULL: the events are not open */
	GVariant *summary;                         /* from MESSAGE_FINISHED */
	const char *reason;
	char *failure; /* reason that the engine gave for its end; NULL: none */
	struct message_progress counters;
	uint64_t start_ns;
	/* grown_us: when the capture was last seen to grow */
	int64_t progress_us, stop_us, grown_us;
	int64_t cpu_ns;      /* the engine's CPU time at the last check of its progress */
	int64_t warnings_us; /* start of the second to which n_warnings applies */
	unsigned n_warnings;
	uint64_t returned_bytes;
	int capture_fd;
	uint32_t id;
	uint8_t token[CONTROL_TOKEN_BYTES];
	struct sysprof *sysprof; /* NULL: not requested */
	GArray *refused;         /* struct message_peer of the last REFUSED_MS; NULL: none */
	guint n_notified;        /* number of `refused` items that were sent to the engine */
	guint refused_watch;
	bool has_refused_many;
	struct statx capture; /* status at CreateSession; identifies the file */
	guint patience, lifetime_watch;
	enum session_state state;
	bool ok;
	uint64_t n_pauses, n_obeyed; /* pauses and resumes: requested; obeyed by the engine */
	bool given_up;               /* the engine was killed, and the reason reported */
	bool reduced;                /* the session records less than requested */
	/* stop, with stop_reason, once START has been sent to the engine */
	bool stop_early;
	enum engine_reason stop_reason;
};

/* session.c */
bool session_fail_state(const struct session *session, const char *act, GError **error);

/* session-collectors.c: sends the peers of session_count_refused() to the engine. */
void session_notify_refused(struct session *session);
