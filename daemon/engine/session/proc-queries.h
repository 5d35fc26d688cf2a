/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/alloc/memory-usage.h"
#include "daemon/engine/model/scan.h"
#include "daemon/engine/perf/waits.h"
#include "daemon/engine/session/channel.h"

/* The snapshots of /proc that were requested, and those that wait until the rings are drained past
 * their arrival. */
struct proc_queries {
	struct channel *channel;
	struct output *output;
	struct memory_usage *usage;
	struct waits *waits;    /* NULL: waits are not recorded */
	uint32_t stacks_serial; /* serial of the open request for stacks; 0: none */
	uint64_t stacks_ns;     /* when that request was sent */
	struct scan scan;
	uint32_t serial;      /* serial of the last request */
	uint32_t scan_serial; /* serial of the request for all processes; 0: answered */
	uint64_t scanned_ns;  /* when that request was sent */
	bool rescan;          /* another request for all processes is due */
	bool is_scanned;      /* the first snapshot of all processes was applied */
	unsigned int allowed; /* number of requests for single processes that may be sent now */
	GQueue answers;
};

/* The caller sets output, usage and scan. */
void proc_queries_init(struct proc_queries *queries, struct channel *channel);
void proc_queries_done(struct proc_queries *queries);
/* Requests all processes. */
void proc_queries_scan(struct proc_queries *queries);
/* Requests one process. Returns false if there were too many such requests. */
bool proc_queries_process(struct proc_queries *queries, struct process *process);
/* Allows more requests for single processes. Call it with each check of the CPUs. */
void proc_queries_allow(struct proc_queries *queries);
void proc_queries_usage(struct proc_queries *queries, uint64_t now_ns);
/* Requests the stacks of threads that have slept for threshold_ns: see waits_request(). */
void proc_queries_stacks(struct proc_queries *queries, uint64_t now_ns, uint64_t threshold_ns);
/* Returns when to request all processes again; UINT64_MAX: never. */
uint64_t proc_queries_due_ns(const struct proc_queries *queries);
/* Returns the arrival time of the first answer that is not applied yet; UINT64_MAX: none. */
uint64_t proc_queries_answered_ns(const struct proc_queries *queries);
bool proc_queries_are_quiet(const struct proc_queries *queries);
bool proc_queries_receive(struct proc_queries *queries, struct channel_message *message,
			  GError **error);
/* Applies the snapshots that arrived until drained_ns. */
bool proc_queries_apply(struct proc_queries *queries, uint64_t drained_ns, GError **error);
