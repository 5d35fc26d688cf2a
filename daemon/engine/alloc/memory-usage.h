/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/model/tasks.h"
#include "daemon/protocol.h"

/* The values to record. */
struct memory_usage_options {
	bool memory;     /* memory of processes with expected allocations */
	bool counters;   /* counters of all processes in `tasks` */
	bool is_command; /* the targets were started for the recording */
};

/* The counters of processes, including the memory that they use. */
struct memory_usage {
	struct tasks *tasks; /* NULL: nothing is recorded */
	struct memory_usage_options options;
	uint32_t *last_counter; /* last id of a counter; shared with collector-rows.c */
	GHashTable *counters;   /* struct process_usage by struct process */
	GHashTable *sums;       /* struct pid_sums by pid */
	GArray *values;         /* struct usage_value; not rows yet */
	uint64_t begin_ns;
	uint32_t serial; /* serial number of the pending request; 0: none */
	uint64_t queried_ns, interval_ns;
	uint64_t whole_ns; /* when pss may be requested next */
	bool is_whole;     /* the last request includes pss */
	int32_t last_pid;  /* last pid of the last request; the next request continues after it */
};

void memory_usage_init(struct memory_usage *memory_usage, struct tasks *tasks,
		       uint32_t *last_counter, const struct memory_usage_options *options,
		       uint64_t now_ns);
void memory_usage_done(struct memory_usage *memory_usage);

/* Returns when the next request is due; UINT64_MAX: never. */
uint64_t memory_usage_due_ns(const struct memory_usage *memory_usage);
/* Prepares a request. Stores up to ENGINE_MAX_USAGE_PIDS pids in the request's format, and returns
 * their number. If it is not 0, the request is pending afterwards. */
uint32_t memory_usage_request(struct memory_usage *memory_usage, uint32_t serial, uint64_t now_ns,
			      int32_t *ret_pids);
/* Receives the answer, a snapshot (daemon/protocol.h). Ignores an answer that is no longer
 * expected. */
void memory_usage_receive(struct memory_usage *memory_usage, uint32_t serial, const void *bytes,
			  size_t length);
/* Returns the time of the first value that is not written yet; UINT64_MAX: none. */
uint64_t memory_usage_next_ns(const struct memory_usage *memory_usage);
/* Writes values up to reached_ns as rows. */
void memory_usage_write(struct memory_usage *memory_usage, uint64_t reached_ns);
