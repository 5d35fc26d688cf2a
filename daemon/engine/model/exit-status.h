/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/model/tasks.h"

#include <stdint.h>

/* Registered processes that ended, or outlived the recording, and whose status is unknown. */
struct exit_statuses {
	struct tasks *tasks;
	GQueue waiting; /* struct unknown_exit */
};

void exit_statuses_init(struct exit_statuses *statuses, struct tasks *tasks);
void exit_statuses_done(struct exit_statuses *statuses);
/* Takes ownership of pidfd, which refers to the process whose first thread is `leader`. */
void exit_statuses_add(struct exit_statuses *statuses, struct thread *leader, int pidfd);
/* Writes rows of table task for processes that have been waited for. */
void exit_statuses_run(struct exit_statuses *statuses);
/* Like exit_statuses_run(), at the end; waits up to 100 ms for processes that have ended. */
void exit_statuses_finish(struct exit_statuses *statuses);
