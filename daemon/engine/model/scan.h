/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/model/kernel.h"
#include "daemon/engine/model/tasks.h"

/* The tables that a snapshot is applied to. */
struct scan {
	struct tasks *tasks;
	struct images *images;
	struct kernel *kernel;
	uint64_t boot_offset_ns; /* CLOCK_BOOTTIME - CLOCK_MONOTONIC */
	uint64_t begin_ns;       /* start time of switch rows */
	bool is_command; /* the target waits for the recording before its exec; this wait is not
			  * counted */
};

/* Applies a snapshot of all processes (pid 0) or of one. `again`: a snapshot of all was applied
 * before, so a process that is missing from this one has exited. Returns false if the snapshot ends
 * within a record; the records before it were applied. */
bool scan_apply(const struct scan *scan, const void *bytes, size_t length, int32_t pid, bool again);
