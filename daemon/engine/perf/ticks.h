/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/out/loss.h"
#include "daemon/engine/perf/cpus.h"

/* Compares the time that CPUs were busy with the time that samples represent. */
struct ticks {
	int stat_fd;
	uint64_t period_ns; /* 0: no source counts time */
	bool user_only;     /* samples are taken in user mode only */
	bool by_task;       /* events are per task */
	bool running;
	bool is_read;
	uint64_t busy_ns[ENGINE_MAX_CPUS]; /* busy time at the last ticks_read() */
};

/* Called when sampling starts or resumes. Busy time before now_ns is ignored. */
void ticks_begin(struct ticks *ticks, struct cpus *cpus, uint64_t now_ns);
/* Reads the busy time of each CPU. Call it before draining the rings, so that samples taken during
 * the drain do not count as missed. */
void ticks_read(struct ticks *ticks);
/* Discards the last reading, because the rings could not be drained completely: samples that are
 * still in them are not missed. */
void ticks_drop(struct ticks *ticks);
/* Adds the ticks missed between ticks_begin() and ticks_read(), unless already reported. */
void ticks_compare(struct ticks *ticks, struct cpus *cpus, struct loss_table *losses,
		   uint64_t now_ns);
/* Parses /proc/stat: the busy time without steal of each CPU below n. */
void ticks_parse(const char *text, bool user_only, uint64_t *busy_ns, size_t n);
