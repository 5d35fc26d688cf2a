/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/access.h"
#include "daemon/broker/interpreters.h"
#include "daemon/broker/perf.h"
#include "daemon/broker/target.h"

/* An event of one thread on one CPU; disabled. */
struct perf_task_event {
	int fd;
	uint64_t id;
	uint32_t cpu, rank; /* rank: position of its thread in the order of opening */
	int32_t tid;
	uint32_t position; /* 0: side band; 1 + the source's position; ENGINE_POSITION_SLEEPS */
};

/* Returns whether these processes need so few per-task events that opening them takes about 20 ms
 * at most and leaves most descriptors free. */
bool perf_tasks_are_few(const struct perf_plan *plan, const int32_t *pids, unsigned n_pids);

/* The members and `pids` are copied. `plan`, `cpus`, `access` and `targets` must not change until
 * perf_tasks_free(). */
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
 * each process must be entirely the user's before and after its events are opened. */
struct perf_tasks;
struct perf_tasks *perf_tasks_new(const struct perf_tasks_options *options, GError **error);
/* Stops opening events, so that `done` is called soon. perf_tasks_steal() then stores no events. */
void perf_tasks_cancel(struct perf_tasks *opening);
/* Call at most once, after `done`. Removes processes that have ended from `pids`. Fails if the
 * events could not be opened; with BROKER_ERROR_FAILED if all processes have ended. *ret_events:
 * items are struct perf_task_event; freeing the array closes their descriptors. */
bool perf_tasks_steal(struct perf_tasks *opening, int32_t *pids, unsigned *n_pids,
		      GArray **ret_events, GError **error);
/* Call at most once, after a successful perf_tasks_steal(). Returns the programs that read the
 * frames of interpreters at the events; NULL: not requested, or failed because of *ret_reason. */
struct interpreters *perf_tasks_steal_interpreters(struct perf_tasks *opening, GError **ret_reason);
/* Waits at most for opening the events of one thread, for one check of a process, or for loading
 * the program that reads interpreters (0.1 s). */
void perf_tasks_free(struct perf_tasks *opening);
