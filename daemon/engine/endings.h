/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/tasks.h"

#include <stdint.h>

/* Processes that are known to have ended, and whose status is still unknown. */
struct endings {
	struct tasks *tasks;
	GQueue waiting; /* struct ending */
};

void endings_init(struct endings *endings, struct tasks *tasks);
void endings_done(struct endings *endings);
/* Takes the pidfd of the process whose first thread is `leader`. */
void endings_add(struct endings *endings, struct thread *leader, int pidfd);
/* Adds rows of task for processes that have been waited for. */
void endings_run(struct endings *endings);
/* The same at the end of the session; waits a little for processes that have ended. */
void endings_finish(struct endings *endings);
