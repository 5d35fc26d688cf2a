/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/access.h"
#include "daemon/broker/events.h"
#include "daemon/broker/target.h"
#include "daemon/protocol.h"

#define PERF_RING_BUDGET (256ull << 20) /* all rings of a session */

/* What is opened on every CPU. */
struct perf_plan {
	bool by_task;  /* events of tasks, not of all that runs on a CPU: perf-tasks.c */
	bool children; /* and of the processes that they start */
	const struct event *events;
	unsigned n_events;  /* 0: no sampling */
	uint32_t frequency; /* samples a second and CPU, of events that are not fixed otherwise */
	bool kernel;
	bool build_ids; /* ask for build-ids in place of device and inode */
	enum engine_call_graph call_graph;
	/* of the tracepoint sched_wakeup; 0: it cannot be had, so when threads are woken is not
	 * recorded */
	uint64_t wakeup_id;
	uint64_t ring_bytes; /* all sample rings together; 0: by itself */
	/* Set by perf_open_all(): `kernel` is taken back where it is not permitted, by task; a
	 * CPU's rings, and how much of a stack a sample copies, at most. */
	uint32_t side_band_pages, sample_pages, stack_bytes;
	/* When perf_open_all() enabled the side bands of all CPUs; 0: it did not. Then `begun`
	 * is called, and once more if all was opened again with smaller rings; what the first
	 * one recorded is gone. */
	uint64_t begin_ns;
	void (*begun)(void *data);
	void *data;
};

/* The events of one CPU. The descriptors are there until they were passed on, the mappings until
 * perf_cpu_done(). By task there are two that deliver nothing: one for each ring, for the events
 * of the tasks to write into. */
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

/* CPU numbers (unsigned) from the kernel's list, rising. */
bool perf_online_cpus(GArray **ret_cpus, GError **error);
/* kernel.perf_event_max_sample_rate */
uint32_t perf_max_frequency(void);
/* Cycles where they really open, else cpu-clock. */
bool perf_default_event(struct event *ret_event, GError **error);
/* Whether the event opens here: on some CPU, or else for our own process. */
bool perf_event_works(const struct event *event);
/* The number of the tracepoint that says when a thread was woken, if that can be recorded here;
 * else 0. */
uint64_t perf_wakeup_id(void);
/* Whether this process may open events for all that runs on a CPU, and see the kernel's part. */
void perf_rights(bool *ret_system, bool *ret_kernel);

/* Opens everything on all CPUs that are online, and maps the rings, which shrink until they fit
 * the mlock budget; root's mappings stay until perf_cpu_done(), so that the engine's are free.
 * Sources are disabled; and so are the side bands, unless `begin_ns` says when that ended.
 * *ret_cpus: of struct perf_cpu. */
bool perf_open_all(struct perf_plan *plan, GArray **ret_cpus, GError **error);
/* The same for one CPU that came online, with the sizes that perf_open_all() found. */
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
	uint32_t position; /* 0: the side band, else 1 + that of the source */
};

/* Whether events by task of these processes are so few that opening them takes no longer than
 * the CPUs' events do, and descriptors suffice by far. */
bool perf_tasks_are_few(const struct perf_plan *plan, const int32_t *pids, unsigned n_pids);

/* All of these stay as they are until perf_tasks_free(), but for `pids`, which are copied. */
struct perf_tasks_options {
	const struct perf_plan *plan;
	const GArray *cpus; /* of perf_open_all(), whose plan is by task */
	const struct access *access;
	const struct targets *targets; /* NULL: nobody authorised them */
	const int32_t *pids;
	unsigned n_pids;
	void (*done)(void *data); /* once, from the main loop */
	void *data;
};

/* Opens the events of all threads of these processes, on a thread of its own. With
 * access->own_only each process has to be wholly the user's before and after. */
struct perf_tasks;
struct perf_tasks *perf_tasks_new(const struct perf_tasks_options *options, GError **error);
/* Soon `done`, and without events. */
void perf_tasks_cancel(struct perf_tasks *opening);
/* What came of it, once, after `done`. Processes that have ended meanwhile leave *n_pids and
 * `pids`; that none is left is BROKER_ERROR_FAILED. *ret_events: of struct perf_task_event,
 * closes what is left in it. */
bool perf_tasks_take(struct perf_tasks *opening, int32_t *pids, unsigned *n_pids,
		     GArray **ret_events, GError **error);
/* Waits no longer than for one thread's events, or one look at a process. */
void perf_tasks_free(struct perf_tasks *opening);

/* Of perf.c, for perf_tasks_new(). */
struct perf_event_attr perf_side_band_attr(const struct perf_plan *plan);
struct perf_event_attr perf_source_attr(const struct perf_plan *plan, const struct event *event);
int perf_open_event(struct perf_event_attr *attr, pid_t pid, int cpu);
bool perf_fail_open(const struct event *event, unsigned cpu, int failed, GError **error);
