/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * perf.data - what `perf record` wrote, as far as unwinding needs it
 *
 * Mappings, names, forks, exits, and samples with registers and stack, in the order of their times;
 * everything else is passed over. For files that this machine's own perf has just written: x86_64,
 * not compressed, not a pipe's.
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
	/* PERF_DATA_MAP, executable ones */
	uint64_t start, end, offset;
	const char *path;
	/* PERF_DATA_EXEC */
	const char *name; /* also where a process only changes its name */
	bool is_exec;
	/* PERF_DATA_FORK: pid is the child; of a thread, both are the same */
	int32_t parent_pid;
	/* PERF_DATA_SAMPLE */
	bool in_kernel;
	bool has_user; /* a copy that is not empty; else there is no stack */
	struct live_sample sample;
};

/* NULL where the file cannot be read. */
struct perf_data *perf_data_open(const char *path);
void perf_data_close(struct perf_data *data);
/* False at the end. What it points at lives as long as `data`. */
bool perf_data_next(struct perf_data *data, struct perf_data_event *ret_event);
/* Samples that the kernel said it dropped. */
uint64_t perf_data_lost(const struct perf_data *data);
