/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "libcollector/control.h"

#include <gio/gio.h>
#include <stdbool.h>
#include <sys/types.h>

/* The socket at which processes register their collectors. */
struct control;

/* A process that has said hello, or asked. The descriptors are borrowed. */
struct control_peer {
	int connection, pidfd; /* pidfd -1: it is gone, which only hello NULL may be */
	pid_t pid;
	pid_t inner_pid; /* in its PID namespace; 0: that is ours */
	uid_t uid;
	const struct control_hello *hello; /* NULL: a request of sysprof's (sysprof.h) */
};

/* CONTROL_OK: the connection was passed on, and will be answered. Anything else is the answer. */
typedef enum control_status (*control_taker)(const struct control_peer *peer, void *data);

/* One that has been refused for want of room, before anybody was asked; without descriptors, and
 * hello may be NULL. */
typedef void (*control_refused)(const struct control_peer *peer, void *data);

/* An abstract name that nobody can guess. NULL: it cannot be made. Before the sandbox closes, as
 * the next one. */
struct control *control_new_private(void);
/*
 * At a path, whose folder is made where it is missing and can be. What a profd that is gone left
 * there is replaced. NULL: it cannot be made, or another profd listens there.
 */
struct control *control_new_at(const char *path);
void control_free(struct control *control); /* takes NULL */
/* As in PROF_CONTROL. */
const char *control_address(const struct control *control);
/* Serves from the main loop from now on. */
void control_serve(struct control *control, control_taker take, control_refused refused,
		   void *data);
