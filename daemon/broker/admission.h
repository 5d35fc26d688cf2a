/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/access.h"
#include "daemon/broker/authority.h"
#include "daemon/broker/options.h"

/* Who asks, and of whom it is asked. */
struct admission {
	struct authority
		*authority; /* NULL: a private client, who has the rights of this process */
	struct caller *caller;
	bool interactive; /* the caller allows that somebody is asked for a password */
};

/*
 * May the caller have a session with these options? `done` comes once, maybe before this returns,
 * with what the session may show, or with NULL and the error. Takes the kernel out of the options
 * where it is neither asked for nor allowed.
 */
void admission_session(const struct admission *admission, struct options *options,
		       void (*done)(const struct access *access, const GError *error, void *data),
		       void *data);

/* May the caller see and control the sessions of that user? Its own: at once. */
void admission_manage(const struct admission *admission, uid_t owner,
		      void (*done)(bool allowed, const GError *error, void *data), void *data);

/* What of "system" and "kernel" the caller can have, if need be with a password. Nobody is asked
 * for one. */
void admission_capabilities(const struct admission *admission,
			    void (*done)(bool system, bool kernel, void *data), void *data);
