/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* What a session may show its client. Decided before anything is opened, and the same as long as
 * the session lives. */
struct access {
	uid_t uid;     /* the client's */
	bool own_only; /* nothing of processes that are not this user's may get into the session */
	/* OpenImage gives every file of the session; else those that the user may read */
	bool any_image;
	/* by what one user may take (limits.c): not root, and others are served too */
	bool limited;
};
