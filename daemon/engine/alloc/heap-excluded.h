/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/model/tasks.h"
#include "daemon/protocol.h"

struct heap_excluded {
	struct tasks *tasks; /* NULL: no allocations are expected */
	void (*request_image)(struct image *image, const struct mapping *mapping, int32_t pid,
			      void *data); /* see struct samples, first_hit */
	void *data;
	GQueue ended; /* struct process, referenced, in order of end time */
	uint64_t counts[ENGINE_EXCLUDED_KINDS];
};

/* Expects allocations of these existing processes and their descendants. */
void heap_excluded_begin(struct heap_excluded *excluded, struct tasks *tasks, const int32_t *pids,
			 size_t n);
void heap_excluded_done(struct heap_excluded *excluded);
/* Called when an exec has mapped its program. */
void heap_excluded_program(struct heap_excluded *excluded, struct process *process,
			   const struct mapping *mapping);
/* Writes rows of table heap for processes that ended by reached_ns, once enough time has passed for
 * a registration and the program's file to arrive. */
void heap_excluded_run(struct heap_excluded *excluded, uint64_t now_ns, uint64_t reached_ns);
/* Returns whether a request for the program of an ended process is still unanswered. */
bool heap_excluded_waits(const struct heap_excluded *excluded);
/* Writes the remaining rows, including those of running processes. No row may follow. */
void heap_excluded_finish(struct heap_excluded *excluded, uint64_t now_ns);
