/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/kernel.h"
#include "daemon/engine/samples.h"
#include "daemon/engine/tasks.h"

/* Where a snapshot goes. */
struct scan {
	struct tasks *tasks;
	struct images *images;
	struct kernel *kernel;
	struct samples *samples;
	uint64_t boot_offset_ns; /* CLOCK_BOOTTIME - CLOCK_MONOTONIC */
	uint64_t begin_ns;       /* since when there are switch rows */
};

/* Applies a snapshot of all processes (pid 0) or of one. `again`: not the first of all
 * processes, so what it lacks has exited. False: it ends in the middle of a record; what came
 * before was applied. */
bool scan_apply(const struct scan *scan, const void *bytes, size_t length, int32_t pid, bool again);
