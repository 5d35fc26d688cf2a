/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/access.h"
#include "daemon/broker/authority.h"
#include "daemon/broker/options.h"

/* The caller of a request, and the authority that decides about it. */
struct authorization {
	struct authority *authority; /* NULL: a private client, which has this process's rights */
	struct bus_peer *caller;
	bool interactive; /* the caller allows a password prompt */
};

/* Checks whether the caller may have a session with these options. Calls `done` once, perhaps
 * before this function returns, with the session's access, or with NULL and the error. Removes the
 * kernel from the options if it was neither requested explicitly nor allowed. */
void authorization_session(const struct authorization *authorization, struct options *options,
			   void (*done)(const struct access *access, const GError *error,
					void *data),
			   void *data);

/* Checks whether the caller may see and control the sessions of `owner`. Calls `done` at once if
 * the caller is `owner` or a private client. */
void authorization_manage(const struct authorization *authorization, uid_t owner,
			  void (*done)(bool allowed, const GError *error, void *data), void *data);

/* Reports what the caller may record, including what needs a password. Never asks for one. */
void authorization_capabilities(const struct authorization *authorization,
				void (*done)(struct client_rights rights, void *data), void *data);
