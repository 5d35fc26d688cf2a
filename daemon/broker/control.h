/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "libcollector/control.h"

#include <gio/gio.h>
#include <stdbool.h>
#include <sys/types.h>

/* The socket at which processes register their collectors. */
struct control;

/* A process that has sent a hello or requested a ring. The descriptors are borrowed. */
struct control_peer {
	int connection, pidfd; /* pidfd -1: the process has exited; only with sysprof's protocol */
	pid_t pid;
	pid_t inner_pid; /* pid in its own PID namespace; 0: the process is in ours */
	uid_t uid;
	const struct control_hello *hello; /* NULL: a request in sysprof's protocol (sysprof.h) */
};

/* Returns CONTROL_OK if the connection was passed on and will be answered; otherwise the answer. */
typedef enum control_status (*control_receiver)(const struct control_peer *peer, void *data);

/* Reports a peer that was refused before it was passed to the receiver: because there are too many
 * connections, or because its process cannot be opened or has exited. `peer` has no descriptors,
 * and its `hello` may be NULL. */
typedef void (*control_refused)(const struct control_peer *peer, void *data);

/* Listens at an abstract name that cannot be guessed. Returns NULL on failure. Call this and
 * control_new_at() before sandbox_enter(). */
struct control *control_new_private(void);
/* Listens at `path`. Makes its directory if missing, and replaces the socket of an earlier profd.
 * Returns NULL on failure, or if another profd listens there. */
struct control *control_new_at(const char *path);
void control_free(struct control *control); /* NULL is allowed */
/* Returns the address, in the format of PROF_CONTROL. */
const char *control_address(const struct control *control);
/* Begins to serve from the main loop. */
void control_serve(struct control *control, control_receiver receive, control_refused refused,
		   void *data);
