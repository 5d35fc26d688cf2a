/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Limits on what a session shows its client. They are decided before anything is opened, and do not
 * change during the session. */
struct access {
	uid_t uid;     /* the client's */
	bool own_only; /* data of other users' processes must not get into the session */
	/* OpenImage returns every file of the session; otherwise only files that the user may
	 * read */
	bool any_image;
	/* the limits of one user (limits.c) apply: not root, and other users are served too */
	bool limited;
};
