/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "base/clock.h"
#include "daemon/engine/alloc/heap-excluded.h"
#include "daemon/engine/model/machine-counters.h"
#include "daemon/engine/out/writer.h"
#include "daemon/engine/peers/collectors.h"
#include "daemon/engine/perf/cpus.h"
#include "daemon/engine/perf/events.h"
#include "daemon/engine/session/proc-queries.h"
#include "daemon/engine/session/sampling.h"

enum session_state {
	SESSION_NEW,        /* waits for CONFIG */
	SESSION_CONFIGURED, /* receives CPU, EVENTS and the like until START */
	SESSION_SCANNING,   /* the side band is enabled, /proc is being read */
	SESSION_RUNNING,
	SESSION_ENDED,
};

/* The timed work of a session (session.c). */
enum session_job {
	JOB_ROUND,
	JOB_USAGE,
	JOB_COUNTERS,
	JOB_DURATION,
	/* The following jobs run at the end of a round. */
	JOB_CLOSE,
	JOB_CHECK,
	JOB_RESCAN,
	JOB_PROGRESS,
	SESSION_JOBS,
};

struct session;

/* Something that is recorded (session-sources.c). Rows are in time order, because each source
 * writes its rows up to the time that the sources before it have reached. All functions but drain()
 * may be NULL. */
struct source {
	const char *name;
	/* Called when the CONFIG message arrives. */
	void (*open)(struct session *session);
	/* Called when the first /proc snapshot has been applied. */
	bool (*enable)(struct session *session, GError **error);
	/* Moves records out of the memory that is shared with producers. */
	void (*load)(struct session *session, uint64_t now_ns);
	/* Writes rows up to limit_ns. Returns the time up to which all rows are written. */
	uint64_t (*drain)(struct session *session, uint64_t limit_ns, uint64_t now_ns);
	/* Returns whether no work is pending, so that the next round may be delayed. */
	bool (*is_quiet)(const struct session *session, uint64_t now_ns);
	/* Adds to the summary of a finished session. */
	void (*stats)(const struct session *session, struct message_finished *finished);
	/* Called at the end: stops the producers, and writes the rest or counts it as lost. */
	void (*close)(struct session *session);
};

/* The state of one recording. */
struct session {
	struct channel channel;
	struct sampling sampling;
	struct proc_queries queries;
	struct writer *writer;
	struct message_config config;
	GBytes *metadata;
	int capture_fd, stat_fd, online_fd, kallsyms_fd;
	int epoll_fd;
	uint8_t boot_id[16];
	enum session_state state;
	bool is_read_live; /* the capture is a pipe or the like */

	struct output output;
	struct tasks tasks;
	struct images images;
	struct kernel kernel;
	struct samples samples;
	struct waits waits;
	struct interpreted_code interpreted_code;
	struct interpreted *interpreted; /* NULL: interpreters are not read */
	GPtrArray *unread; /* reasons why interpreters are not read; NULL-terminated */
	struct loss_table losses;
	struct cpus cpus;
	struct events events;
	struct ring_merge merge;
	struct unwind_tables *tables;
	struct doorbells *doorbells;
	struct tick_clock *tick_clock;
	struct collectors collectors;
	struct heap_excluded excluded;
	struct memory_usage memory_usage;
	struct machine_counters machine;

	uint64_t begin_ns;             /* start of the segment */
	uint64_t start_ns, stop_ns;    /* when sampling was first enabled and finally disabled */
	uint64_t ran_ns[SESSION_JOBS]; /* last run of each job */
	bool is_round_due;             /* run a round at once, because a ring fills up */
	uint64_t found_ns, found_rows; /* last time with rows or work; rows after the last round */
	struct message_progress notified;

	bool behind; /* the last round ran out of time */
	bool ending;
	bool warned_rate;    /* the warning about max_rate was sent */
	bool checked_sleeps; /* the rate of sleeps was compared with off_cpu_max_rate */
	bool stopped_sleeps; /* the rate was too high, so sleeps are not recorded any more */
	uint64_t end_ns;     /* when the end was decided */
	enum engine_reason reason;
	GError *failure; /* the error that ended the session; NULL: none */
};

/* All threads of a session except the drain thread. They must be created before
 * sandbox_filter(). */
struct session_threads {
	struct writer *writer;
	struct unwind_tables *tables;
	struct doorbells *doorbells;
	struct tick_clock *tick_clock; /* not a thread, but opens a file; NULL: unavailable */
};
bool session_threads_new(struct session_threads *ret_threads, GError **error);
void session_threads_free(struct session_threads *threads);

/* Takes ownership of the threads. The caller keeps the socket. */
void session_init(struct session *session, int socket, const struct session_threads *threads,
		  const uint8_t *boot_id);
void session_done(struct session *session);
/* Returns after the session has ended and FINISHED has been sent: false if the session failed. */
bool session_run(struct session *session);

/* session.c */
/* Ends the session because of session->failure. */
void session_fail(struct session *session);
/* Waits briefly for answers from the broker and for unwind tables; the last steps of a session need
 * both. Returns false if the broker has closed the channel. */
bool session_receive_answers(struct session *session);
/* Applies the snapshots that arrived until drained_ns. The first snapshot of the whole /proc starts
 * sampling. */
bool session_apply_answers(struct session *session, uint64_t drained_ns, GError **error);
/* Sends the counters to the broker if they have changed. */
void session_notify_progress(struct session *session);
bool session_watch(struct session *session, int fd, const char *what, GError **error);

/* session-start.c: handlers of messages, and the start of sampling */
bool session_configure(struct session *session, struct channel_message *message, GError **error);
bool session_add_cpu(struct session *session, struct channel_message *message, GError **error);
bool session_add_fields(struct session *session, struct channel_message *message, GError **error);
bool session_add_arguments(struct session *session, struct channel_message *message,
			   GError **error);
bool session_add_events(struct session *session, struct channel_message *message, GError **error);
bool session_add_counters(struct session *session, struct channel_message *message, GError **error);
bool session_add_outputs(struct session *session, struct channel_message *message, GError **error);
bool session_receive_no_outputs(struct session *session, struct channel_message *message,
				GError **error);
bool session_start(struct session *session, struct channel_message *message, GError **error);
/* Adds a reason why an interpreter is not read, unless the capture already has it or 16 others. */
void session_add_unread(struct session *session, const char *text);
bool session_start_sampling(struct session *session, GError **error);

/* session-sources.c */
#define SESSION_SOURCES 6u
extern const struct source session_sources[SESSION_SOURCES];
/* Finds CPUs that went offline, came online or fell silent. */
void session_check_cpus(struct session *session, uint64_t now_ns);
void session_close_cpu(struct session *session, struct cpu *cpu, uint64_t now_ns);
bool session_receive_image(struct session *session, struct channel_message *message,
			   GError **error);
/* Assigns finished unwind tables to their images. */
void session_receive_tables(struct session *session);
bool session_add_peer(struct session *session, struct channel_message *message, GError **error);
