/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/tasks.h"

#include <stdint.h>

/* Processes that have ended, as far as anybody knows, and whose status is still to be told. */
struct endings {
	struct tasks *tasks;
	GQueue waiting; /* struct ending */
};

void endings_init(struct endings *endings, struct tasks *tasks);
void endings_done(struct endings *endings);
/* Takes the pidfd of the process whose first thread that is. */
void endings_add(struct endings *endings, struct thread *leader, int pidfd);
/* Rows of task for those whose parents know by now. */
void endings_run(struct endings *endings);
/* The same at the end of the session, with a moment's patience for those that are over. */
void endings_finish(struct endings *endings);
