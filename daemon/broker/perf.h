/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/access.h"
#include "daemon/broker/events.h"
#include "daemon/broker/target.h"
#include "daemon/protocol.h"

#define PERF_RING_BUDGET (256ull << 20) /* all rings of a session */

/* The events to open on every CPU. */
struct perf_plan {
	bool by_task;  /* events of tasks, not of everything that runs on a CPU: perf-tasks.c */
	bool children; /* also of the processes that they start */
	const struct event *events;
	unsigned n_events;  /* 0: no sampling */
	uint32_t frequency; /* samples a second and CPU, for events without a period of their own */
	bool kernel;
	bool build_ids; /* request build-ids instead of device and inode */
	enum engine_call_graph call_graph;
	/* of the tracepoint sched_wakeup; 0: not available, so wake-ups are not recorded */
	uint64_t wakeup_id;
	uint64_t ring_bytes; /* all sample rings together; 0: automatic */
	/* Set by perf_open_all(), which also clears `kernel` if it is not permitted by task: the
	 * ring sizes of a CPU, and the most that a sample copies of a stack. */
	uint32_t side_band_pages, sample_pages, stack_bytes;
	/* When perf_open_all() enabled the side bands of all CPUs; 0: it did not. If it did, it
	 * calls `begun`, and again if everything was opened again with smaller rings; what the
	 * first ones recorded is lost. */
	uint64_t begin_ns;
	void (*begun)(void *data);
	void *data;
};

/* The events of one CPU. The descriptors exist until they are passed on, the mappings until
 * perf_cpu_done(). By task there are two events that deliver nothing, one for each ring, and the
 * events of the tasks write into these rings. */
struct perf_cpu {
	unsigned cpu;
	int fds[2 +
		/* side band, then the sources, then wake-ups where they are recorded */
		ENGINE_MAX_SOURCES];
	unsigned n_fds;
	uint64_t ids[2 + ENGINE_MAX_SOURCES];
	bool has_wakeups;
	void *maps[2]; /* side band, samples */
	size_t map_bytes[2];
};

/* Reads the CPU numbers (unsigned) of the kernel's list, in ascending order. */
bool perf_online_cpus(GArray **ret_cpus, GError **error);
/* kernel.perf_event_max_sample_rate */
uint32_t perf_max_frequency(void);
/* Returns cycles if it can really be opened, else cpu-clock. */
bool perf_default_event(struct event *ret_event, GError **error);
/* Returns whether the event can be opened here: on some CPU, or else for our own process. */
bool perf_event_works(const struct event *event);
/* Returns the number of the tracepoint that reports when a thread is woken, or 0 if it cannot be
 * recorded here. */
uint64_t perf_wakeup_id(void);
/* Reports whether this process may open events for everything that runs on a CPU, and see the
 * kernel's part. */
void perf_rights(bool *ret_system, bool *ret_kernel);

/* Opens everything on all online CPUs and maps the rings, which shrink until they fit the mlock
 * budget. Root's mappings stay until perf_cpu_done(), so that the engine's cost nothing. The
 * sources are disabled, and so are the side bands, unless `begin_ns` says when they were enabled.
 * *ret_cpus: of struct perf_cpu. */
bool perf_open_all(struct perf_plan *plan, GArray **ret_cpus, GError **error);
/* Does the same for one CPU that came online, with the sizes that perf_open_all() found. */
bool perf_cpu_open(const struct perf_plan *plan, unsigned cpu, struct perf_cpu *ret_cpu,
		   GError **error);
void perf_cpu_close_fds(struct perf_cpu *cpu);
void perf_cpu_done(struct perf_cpu *cpu);

/* An event of one thread on one CPU, disabled. */
struct perf_task_event {
	int fd;
	uint64_t id;
	uint32_t cpu, rank; /* rank: of its thread, in the order of opening */
	int32_t tid;
	uint32_t position; /* 0: the side band, else 1 + the position of the source */
};

/* Returns whether these processes need so few events by task that opening them takes no longer than
 * opening the CPUs' events, and that most descriptors stay free. */
bool perf_tasks_are_few(const struct perf_plan *plan, const int32_t *pids, unsigned n_pids);

/* Everything here must stay unchanged until perf_tasks_free(), except `pids`, which are copied. */
struct perf_tasks_options {
	const struct perf_plan *plan;
	const GArray *cpus; /* of perf_open_all(), whose plan is by task */
	const struct access *access;
	const struct targets *targets; /* NULL: nobody authorized them */
	const int32_t *pids;
	unsigned n_pids;
	void (*done)(void *data); /* once, from the main loop */
	void *data;
};

/* Opens the events of all threads of these processes, on a separate thread. With access->own_only
 * each process must be wholly the user's before and after that. */
struct perf_tasks;
struct perf_tasks *perf_tasks_new(const struct perf_tasks_options *options, GError **error);
/* Makes `done` come soon, and without events. */
void perf_tasks_cancel(struct perf_tasks *opening);
/* Takes the result, once, after `done`. Removes processes that have ended from `pids`; fails with
 * BROKER_ERROR_FAILED if none is left. *ret_events: of struct perf_task_event, closes what is left
 * in it. */
bool perf_tasks_steal(struct perf_tasks *opening, int32_t *pids, unsigned *n_pids,
		      GArray **ret_events, GError **error);
/* Waits at most for the events of one thread, or for one check of a process. */
void perf_tasks_free(struct perf_tasks *opening);

/* In perf.c, for perf_tasks_new(). */
struct perf_event_attr perf_side_band_attr(const struct perf_plan *plan);
struct perf_event_attr perf_source_attr(const struct perf_plan *plan, const struct event *event);
int perf_open_event(struct perf_event_attr *attr, pid_t pid, int cpu);
bool perf_fail_open(const struct event *event, unsigned cpu, int failed, GError **error);
