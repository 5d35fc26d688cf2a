/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * perf.data - the file of `perf record`, as far as unwinding needs it
 *
 * Mappings, names, forks, exits, and samples with registers and stack, ordered by time; everything
 * else is skipped. For files that perf has just written on this machine: x86_64, not compressed,
 * not read from a pipe.
 */
#pragma once

#include "tests/oracle/live.h"

#include <stdbool.h>

struct perf_data;

enum perf_data_kind {
	PERF_DATA_MAP,
	PERF_DATA_EXEC,
	PERF_DATA_FORK,
	PERF_DATA_EXIT,
	PERF_DATA_SAMPLE
};

struct perf_data_event {
	enum perf_data_kind kind;
	int32_t pid, tid;
	uint64_t time_ns;
	/* PERF_DATA_MAP, executable mappings only */
	uint64_t start, end, offset;
	const char *path;
	/* PERF_DATA_EXEC */
	const char *name; /* also if a process only changes its name */
	bool is_exec;
	/* PERF_DATA_FORK: pid is the child; for a thread, both are equal */
	int32_t parent_pid;
	/* PERF_DATA_SAMPLE */
	bool in_kernel;
	bool has_user; /* has a stack copy that is not empty */
	struct live_sample sample;
};

/* NULL if the file cannot be read. */
struct perf_data *perf_data_open(const char *path);
void perf_data_close(struct perf_data *data);
/* False at the end. Pointers in the event stay valid as long as `data`. */
bool perf_data_next(struct perf_data *data, struct perf_data_event *ret_event);
/* The number of samples that the kernel reported as dropped. */
uint64_t perf_data_lost(const struct perf_data *data);
