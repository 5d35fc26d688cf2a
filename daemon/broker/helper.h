/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/files-protocol.h"

#include <gio/gio.h>
#include <stdbool.h>

/* One profd-files process. */
struct helper;

struct helper_listener {
	/* helper_receive() has something to receive. */
	void (*input)(struct helper *helper, void *data);
	/* It has exited by itself. Answers that it sent before can still be received. */
	void (*ended)(struct helper *helper, void *data);
};

/* Returns NULL if the process cannot be started. */
struct helper *helper_new(const struct files_config *config, const struct helper_listener *listener,
			  void *data, GError **error);
/* Ends the process. `busy`: it may exit late, because of a file or process of that user's. The
 * listener may call this. */
void helper_free(struct helper *helper, bool busy, uid_t uid);
/* Ends a stuck process, and charges it to the owner of the process that made it wait. */
void helper_give_up(struct helper *helper, uid_t uid);

/* `is_first`: the stall time begins now. Returns false if the request cannot be sent now. */
bool helper_send(struct helper *helper, const struct files_request *message, const char *path,
		 int fd, bool is_first);
/* Receives an answer and checks only its form. Returns false if there is none now, or if none will
 * come. */
bool helper_receive(struct helper *helper, struct files_answer *ret_answer, int *ret_fd);
/* Kills a process that has sent something invalid. */
void helper_reject(struct helper *helper);

/* True once it has begun to work. */
bool helper_has_begun(const struct helper *helper);
/* True if this was its current request when it last reported its status. */
bool helper_is_at(const struct helper *helper, uint32_t serial);
/* Makes it end after its current request, without beginning another. Returns false if `serial` is
 * not its current request any more. */
bool helper_stop_behind(struct helper *helper, uint32_t serial);
/* Returns the process whose files it reads now. */
pid_t helper_target(const struct helper *helper);
/* Returns the number of bytes of the current snapshot that are complete. */
uint64_t helper_bytes(const struct helper *helper);
/* True if it has touched nothing new for patience_us, and is neither starting nor starved of CPU
 * time. */
bool helper_is_stuck(struct helper *helper, int64_t patience_us);
