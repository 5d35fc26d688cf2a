/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/events.h"
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
	/* Set by perf_open_all(): samples contain the fields of tracepoints. False if no event is a
	 * tracepoint, if fields may not be recorded, or without `kernel`. */
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
	/* Set by perf_open_all(): the ring sizes of a CPU. copy_bytes: maximum bytes copied of a
	 * stack. stack_bytes: copy_bytes if stacks are walked, else 0. perf_open_all() also clears
	 * `kernel` if per-task events may not record the kernel. */
	uint32_t side_band_pages, sample_pages, stack_bytes, copy_bytes;
	/* Pages of the separate ring for copies of the stacks of waits; 0: there is no such ring.
	 * It is separate because copies come in bursts, also from processes that are not recorded,
	 * and must not cost samples. */
	uint32_t copy_pages;
	/* Time at which perf_open_all() enabled the side bands of all CPUs; 0: not enabled.
	 * perf_open_all() calls `begun` each time that it enables them: again if it must open
	 * everything again, because the first rings' records are then lost. */
	uint64_t begin_ns;
	void (*begun)(void *data);
	void *data;
};

/* The events of one CPU. Descriptors exist until perf_cpu_close_fds(), mappings at most until
 * perf_cpu_unmap() (see perf_open_all()). With per-task events, the CPU has only events that
 * deliver nothing, one for each ring, and the per-task events write into these rings. */
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
/* Returns kernel.perf_event_max_sample_rate. */
uint32_t perf_max_frequency(void);
/* Finds the default event: cycles if it can actually be opened, else cpu-clock. */
bool perf_default_event(struct event *ret_event, GError **error);
/* Returns whether tracepoints can be recorded here: for a CPU, or at least for this process. */
bool perf_tracepoints_work(GError **error);
/* Returns whether the event can be opened here: for a CPU or, if that is not permitted, for this
 * process without the kernel. */
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
 * budget. If profd is root, or if several CPU-wide sources share a ring, mappings stay until
 * perf_cpu_unmap(); others end before the return. The sources are disabled; so are the side bands,
 * unless `begin_ns` is set. *ret_cpus: items are struct perf_cpu. */
bool perf_open_all(struct perf_plan *plan, GArray **ret_cpus, GError **error);
/* Like perf_open_all(), for one CPU that came online, with the sizes found by perf_open_all(). */
bool perf_cpu_open(const struct perf_plan *plan, unsigned cpu, struct perf_cpu *ret_cpu,
		   GError **error);
/* Sets the filter of an open event, if it has one that the kernel evaluates. */
bool perf_set_filter(int fd, const struct event *event, GError **error);
void perf_cpu_close_fds(struct perf_cpu *cpu);
void perf_cpu_unmap(struct perf_cpu *cpu);
void perf_cpu_done(struct perf_cpu *cpu);

/* For perf-tasks.c. */
struct perf_event_attr perf_side_band_attr(const struct perf_plan *plan);
struct perf_event_attr perf_source_attr(const struct perf_plan *plan, const struct event *event);
struct perf_event_attr perf_sleep_attr(const struct perf_plan *plan);
int perf_open_event(struct perf_event_attr *attr, pid_t pid, int cpu);
#define PERF_SLEEP_FILTER "prev_state & 15"       /* S, D, T, t; not preempted, exiting or parked */
#define PERF_WAKING_FILTER "!(common_flags & 24)" /* not in an interrupt */
bool perf_fail_open(const struct event *event, unsigned cpu, int failed, GError **error);
