/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Says which data a session may show its client. Decided before anything is opened, and constant
 * during the session. */
struct access {
	uid_t uid;     /* the client's */
	bool own_only; /* no data of other users' processes may get into the session */
	/* OpenImage may return any file of the session, not only those that the user may read */
	bool any_image;
	/* the per-user limits (limits.c) apply: the user is not root, and the broker serves others,
	 * too */
	bool limited;
};
