/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/tasks.h"
#include "daemon/protocol.h"

struct heap_excluded {
	struct tasks *tasks; /* NULL: no allocations are expected of anybody */
	void (*want)(struct image *image, const struct mapping *mapping, int32_t pid,
		     void *data); /* as in struct samples */
	void *data;
	GQueue ended; /* struct process, by when they ended; referenced */
	uint64_t counts[ENGINE_EXCLUDED_KINDS];
};

/* Allocations are expected of these processes, which exist, and of their children. */
void heap_excluded_begin(struct heap_excluded *excluded, struct tasks *tasks, const int32_t *pids,
			 size_t n);
void heap_excluded_done(struct heap_excluded *excluded);
/* An exec has mapped its program there. */
void heap_excluded_program(struct heap_excluded *excluded, struct process *process,
			   const struct mapping *mapping);
/* Rows of table heap for those who ended a while before; no time in them is after reached_ns. */
void heap_excluded_run(struct heap_excluded *excluded, uint64_t now_ns, uint64_t reached_ns);
/* The program of somebody who ended is still being asked for. */
bool heap_excluded_waits(const struct heap_excluded *excluded);
/* For all who are left, those that still run too: nothing else will be in the table. */
void heap_excluded_finish(struct heap_excluded *excluded, uint64_t now_ns);
