/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/access.h"
#include "daemon/broker/events.h"
#include "daemon/broker/target.h"
#include "daemon/protocol.h"

#define PERF_RING_BUDGET (256ull << 20) /* for all rings of a session */

/* The events to open on every CPU. */
struct perf_plan {
	bool by_task;  /* per-task events instead of CPU-wide ones: perf-tasks.c */
	bool children; /* whether processes that the targets start are recorded, too */
	const struct event *events;
	unsigned n_events;  /* 0: no sampling */
	uint32_t frequency; /* samples per second on each CPU, for events without a fixed period */
	bool kernel;
	bool build_ids; /* request build-ids instead of device and inode */
	enum engine_call_graph call_graph;
	/* Set by perf_open_all(): samples contain the fields of tracepoints. False if there are
	 * none, if they may not be recorded, or without `kernel`. */
	bool fields;
	/* id of tracepoint sched_wakeup; 0: not available, so wake-ups are not recorded */
	uint64_t wakeup_id;
	/* id of tracepoint sched_switch; 0: sleeps are not recorded; else the plan's last event, or
	 * the one before the wakers' event, copies the stacks */
	uint64_t sleep_id;
	/* id of tracepoint sched_waking; 0: wakers are not recorded; else the last event copies
	 * their stacks */
	uint64_t waking_id;
	/* size of all sample rings together, without the rings of copies; 0: automatic */
	uint64_t ring_bytes;
	/* Set by perf_open_all(): the ring sizes of a CPU, the maximum bytes copied of a stack
	 * (copy_bytes), and the same if stacks are walked, else 0 (stack_bytes). It also clears
	 * `kernel` if per-task events may not record the kernel. */
	uint32_t side_band_pages, sample_pages, stack_bytes, copy_bytes;
	/* Pages of the separate ring for copies of the stacks of waits; 0: there is no such ring.
	 * It is separate because copies come in bursts, also from processes that are not recorded,
	 * and must not cost samples. */
	uint32_t copy_pages;
	/* When perf_open_all() enabled the side bands of all CPUs; 0: it did not. When it does, it
	 * calls `begun`; and again if it must open everything with smaller rings, because the
	 * records in the first rings are then lost. */
	uint64_t begin_ns;
	void (*begun)(void *data);
	void *data;
};

/* The events of one CPU. Descriptors exist until perf_cpu_close_fds(), mappings until
 * perf_cpu_unmap(). With per-task events, there are events that deliver nothing, one for each ring,
 * and the per-task events write into these rings. */
struct perf_cpu {
	unsigned cpu;
	int fds[4 +
		/* side band, sources, then wake-ups, sleeps, wakers if recorded */
		ENGINE_MAX_SOURCES];
	unsigned n_fds;
	uint64_t ids[4 + ENGINE_MAX_SOURCES];
	bool has_wakeups, has_sleeps, has_wakings;
	void *maps[3]; /* side band, samples, copies of stacks */
	size_t map_bytes[3];
};

/* Reads the kernel's list of online CPUs, as ascending unsigned numbers. */
bool perf_online_cpus(GArray **ret_cpus, GError **error);
/* kernel.perf_event_max_sample_rate */
uint32_t perf_max_frequency(void);
/* Returns cycles if it can actually be opened, else cpu-clock. */
bool perf_default_event(struct event *ret_event, GError **error);
/* Returns whether tracepoints can be recorded here: on all CPUs, or at least of own processes. */
bool perf_tracepoints_work(GError **error);
/* Returns whether the event can be opened here: on some CPU, or at least for this process. */
bool perf_event_works(const struct event *event);
/* Returns the id of the tracepoint that reports wake-ups of threads; 0 if it cannot be recorded
 * here. */
uint64_t perf_wakeup_id(void);
/* Finds the tracepoint that reports sleeps. *ret_event: its event, to append to the plan's events.
 * Returns the tracepoint's id; 0 if it cannot be recorded here. */
uint64_t perf_sleep_id(struct event *ret_event);
/* Like perf_sleep_id(), for the tracepoint that reports which threads wake others. */
uint64_t perf_waking_id(struct event *ret_event);
#define PERF_NO_SLEEPS \
	"the tracepoint sched:sched_switch needs root or the system service, and tracefs"
/* Reports whether this process may open CPU-wide events, and whether it may record the kernel. */
void perf_rights(bool *ret_system, bool *ret_kernel);

/* Opens all events on all online CPUs and maps the rings, which shrink until they fit the mlock
 * budget. Root's mappings stay until perf_cpu_done(), so that the engine's mappings are not
 * charged. The sources are disabled; so are the side bands, unless `begin_ns` is set. *ret_cpus:
 * items are struct perf_cpu. */
bool perf_open_all(struct perf_plan *plan, GArray **ret_cpus, GError **error);
/* Like perf_open_all(), for one CPU that came online, with the sizes found by perf_open_all(). */
bool perf_cpu_open(const struct perf_plan *plan, unsigned cpu, struct perf_cpu *ret_cpu,
		   GError **error);
/* Gives an open event its filter, if it has one. */
bool perf_set_filter(int fd, const struct event *event, GError **error);
void perf_cpu_close_fds(struct perf_cpu *cpu);
void perf_cpu_unmap(struct perf_cpu *cpu);
void perf_cpu_done(struct perf_cpu *cpu);

/* An event of one thread on one CPU; disabled. */
struct perf_task_event {
	int fd;
	uint64_t id;
	uint32_t cpu, rank; /* rank: position of its thread in the order of opening */
	int32_t tid;
	uint32_t position; /* 0: side band; else 1 + the source's position */
};

/* Returns whether these processes need so few per-task events that opening them takes no longer
 * than opening the CPUs' events and leaves most descriptors free. */
bool perf_tasks_are_few(const struct perf_plan *plan, const int32_t *pids, unsigned n_pids);

/* All members must stay unchanged until perf_tasks_free(), except `pids`, which are copied. */
struct perf_tasks_options {
	const struct perf_plan *plan;
	const GArray *cpus; /* from perf_open_all() with by_task */
	const struct access *access;
	const struct targets *targets; /* NULL: no check is needed */
	const int32_t *pids;
	unsigned n_pids;
	bool interpreters;        /* attach the programs that read interpreters' frames */
	void (*done)(void *data); /* called once, from the main loop */
	void *data;
};

/* Opens the events of all threads of these processes, in a separate thread. With access->own_only,
 * each process must be entirely the user's before and afterwards. */
struct perf_tasks;
struct perf_tasks *perf_tasks_new(const struct perf_tasks_options *options, GError **error);
/* Stops opening events, so that `done` is called soon. perf_tasks_steal() then stores no events. */
void perf_tasks_cancel(struct perf_tasks *opening);
/* Gets the result, once, after `done`. Removes processes that have ended from `pids`; fails with
 * BROKER_ERROR_FAILED if none is left. *ret_events: items are struct perf_task_event; freeing the
 * array closes their descriptors. */
bool perf_tasks_steal(struct perf_tasks *opening, int32_t *pids, unsigned *n_pids,
		      GArray **ret_events, GError **error);
/* Call once, after a successful perf_tasks_steal(). Returns the programs that read the frames of
 * interpreters at the events; NULL: none do, because of *ret_reason. */
struct interpreters *perf_tasks_steal_interpreters(struct perf_tasks *opening, GError **ret_reason);
/* Waits at most for opening the events of one thread, for one check of a process, or for loading
 * the program that reads interpreters (0.1 s). */
void perf_tasks_free(struct perf_tasks *opening);

/* For perf_tasks_new(), in perf.c. */
struct perf_event_attr perf_side_band_attr(const struct perf_plan *plan);
struct perf_event_attr perf_source_attr(const struct perf_plan *plan, const struct event *event);
struct perf_event_attr perf_sleep_attr(const struct perf_plan *plan);
int perf_open_event(struct perf_event_attr *attr, pid_t pid, int cpu);
#define PERF_SLEEP_FILTER "prev_state & 15"       /* S, D, T, t; not preempted, exiting or parked */
#define PERF_WAKING_FILTER "!(common_flags & 24)" /* not in an interrupt */
bool perf_fail_open(const struct event *event, unsigned cpu, int failed, GError **error);
