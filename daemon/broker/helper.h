/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/files-protocol.h"

#include <gio/gio.h>
#include <stdbool.h>

/* One process profd-files. */
struct helper;

struct helper_listener {
	/* There is something for helper_receive(). */
	void (*input)(struct helper *helper, void *data);
	/* It has ended by itself; what it has sent before can be received. */
	void (*ended)(struct helper *helper, void *data);
};

/* NULL: none can be started. */
struct helper *helper_new(const struct files_config *config, const struct helper_listener *listener,
			  void *data, GError **error);
/* Ends it; `busy`: it may take long to go, at something of that user's. May be called by the
 * listener. */
void helper_free(struct helper *helper, bool busy, uid_t uid);
/* The same, because it is stuck: that is charged to whose process made it wait. */
void helper_give_up(struct helper *helper, uid_t uid);

/* Patience begins with the first of them. False: not now. */
bool helper_send(struct helper *helper, const struct files_request *message, const char *path,
		 int fd, bool is_first);
/* An answer, as far as the form goes. False: there is none now, or there will be none. */
bool helper_receive(struct helper *helper, struct files_answer *ret_answer, int *ret_fd);
/* It sends what none of ours would: it is killed, and ends. */
void helper_reject(struct helper *helper);

/* Whether it has come as far as to work. */
bool helper_has_begun(const struct helper *helper);
/* Whether it was at this request when it last said something. */
bool helper_is_at(const struct helper *helper, uint32_t serial);
/* It is to end behind the request that it is at, and to begin none that it was sent. False: it
 * is not at that one any more. */
bool helper_stop_behind(struct helper *helper, uint32_t serial);
/* Whose files it is at. */
pid_t helper_target(const struct helper *helper);
/* Up to where the snapshot that it is at is whole. */
uint64_t helper_bytes(const struct helper *helper);
/* Whether it has touched nothing new for so long, and is neither starting nor starved of CPU
 * time. */
bool helper_is_stuck(struct helper *helper, int64_t patience_us);
