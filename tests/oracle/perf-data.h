/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * perf-data - reads a file of `perf record`, as far as unwinding needs it
 *
 * Returns mappings, names, forks, exits, and samples with registers and stack, in time order; skips
 * all other records. Only for files that perf has written on this machine: x86_64, not compressed,
 * not from a pipe.
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
	const char *name; /* also set if a process only changes its name */
	bool is_exec;
	/* PERF_DATA_FORK: pid is the child; for a thread, pid and parent_pid are equal */
	int32_t parent_pid;
	/* PERF_DATA_SAMPLE */
	bool in_kernel;
	bool has_user; /* has a non-empty copy of the stack */
	struct live_sample sample;
};

/* Returns NULL if the file cannot be read. */
struct perf_data *perf_data_open(const char *path);
void perf_data_close(struct perf_data *data);
/* Returns false at the end. Pointers in the event are valid as long as `data`. */
bool perf_data_next(struct perf_data *data, struct perf_data_event *ret_event);
/* Returns the number of records that the kernel reported as lost. */
uint64_t perf_data_lost(const struct perf_data *data);
