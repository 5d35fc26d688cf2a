/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "libcollector/control.h"

#include <gio/gio.h>
#include <stdbool.h>
#include <sys/types.h>

/* The socket at which processes register their collectors. */
struct control;

/* A process that has sent a hello, or asked for a ring. The descriptors are borrowed. */
struct control_peer {
	int connection, pidfd; /* pidfd -1: it is gone; only if hello is NULL */
	pid_t pid;
	pid_t inner_pid; /* in its PID namespace; 0: it is in ours */
	uid_t uid;
	const struct control_hello *hello; /* NULL: a request of sysprof's (sysprof.h) */
};

/* CONTROL_OK: the connection was passed on and will be answered. Any other status is the answer. */
typedef enum control_status (*control_receiver)(const struct control_peer *peer, void *data);

/* Reports a peer that was refused for lack of room before it was checked. It has no descriptors,
 * and hello may be NULL. */
typedef void (*control_refused)(const struct control_peer *peer, void *data);

/* Listens at an abstract name that nobody can guess. Returns NULL on failure. Call this and
 * control_new_at() before the sandbox closes. */
struct control *control_new_private(void);
/*
 * Listens at `path`. Makes its folder if it is missing, and replaces the socket of an earlier
 * profd. Returns NULL on failure, or if another profd listens there.
 */
struct control *control_new_at(const char *path);
void control_free(struct control *control); /* takes NULL */
/* Returns the address in the form of PROF_CONTROL. */
const char *control_address(const struct control *control);
/* Serves from the main loop from now on. */
void control_serve(struct control *control, control_receiver receive, control_refused refused,
		   void *data);
