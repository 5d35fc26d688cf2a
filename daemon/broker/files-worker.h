/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/files-protocol.h"

#include <gio/gio.h>
#include <stdbool.h>

/* One profd-files process. */
struct files_worker;

struct files_worker_listener {
	/* Called when files_worker_receive() may have an answer. */
	void (*input)(struct files_worker *worker, void *data);
	/* Called when the process has exited by itself. Earlier answers can still be received. */
	void (*ended)(struct files_worker *worker, void *data);
};

/* Returns NULL if the process cannot be started. */
struct files_worker *files_worker_new(const struct files_config *config,
				      const struct files_worker_listener *listener, void *data,
				      GError **error);
/* Ends the worker. `busy`: the worker may exit late, because it is reading a file or process of
 * user `uid`. The listener may call this function. */
void files_worker_free(struct files_worker *worker, bool busy, uid_t uid);
/* Ends a stuck worker, and charges it to the user whose process made it wait. */
void files_worker_give_up(struct files_worker *worker, uid_t uid);

/* Sends a request, or returns false if there is no room. `is_first`: the worker has no other
 * request, so its stall time starts now. */
bool files_worker_send(struct files_worker *worker, const struct files_request *message,
		       const char *path, int fd, bool is_first);
/* Receives an answer and checks only its form. Returns false if no answer is waiting, or if no more
 * will come. */
bool files_worker_receive(struct files_worker *worker, struct files_answer *ret_answer,
			  int *ret_fd);
/* Kills a worker that has sent an invalid answer. */
void files_worker_reject(struct files_worker *worker);

/* Returns whether the worker has begun to work. */
bool files_worker_has_begun(const struct files_worker *worker);
/* Returns whether `serial` was the current request when the worker last reported its status. */
bool files_worker_is_at(const struct files_worker *worker, uint32_t serial);
/* Makes the worker end after its current request. If `serial` is no longer the current request,
 * returns false, and the worker continues. */
bool files_worker_stop_behind(struct files_worker *worker, uint32_t serial);
/* Returns the process whose files are being read. */
pid_t files_worker_target(const struct files_worker *worker);
/* Returns the number of complete bytes of the current snapshot. */
uint64_t files_worker_bytes(const struct files_worker *worker);
/* Returns whether the worker has made no progress for patience_us; for 10 s if it is starting or
 * starved of CPU time. */
bool files_worker_is_stuck(struct files_worker *worker, int64_t patience_us);
