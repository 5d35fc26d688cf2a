/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/authority.h"
#include "daemon/broker/control.h"

#include <gio/gio.h>
#include <stdbool.h>

/* The root object on a connection, and its sessions. */
struct service;

/* With an authority, which is borrowed, the connection is a bus, and the authority decides about
 * each client. Without one, the connection is to one client, which has this process's rights.
 * `control` is the socket at which collectors register; borrowed; NULL: none. Calls `idle` when the
 * last engine is gone. While no engine runs, also calls it when a session is closed or the last
 * call is answered. */
struct service *service_new(GDBusConnection *connection, struct authority *authority,
			    struct control *control, void (*idle)(void *data), void *data,
			    GError **error);
/* Ends everything that still runs, without waiting. */
void service_free(struct service *service);

/* Called when the connection is closed, or profd must end. Stops every session and finishes its
 * file. No session can be made or started afterwards. */
void service_end(struct service *service);
/* Must be called before service_free(). Calls of unidentified callers fail in the next iterations
 * of the main loop; calls that wait for polkit fail in authority_end(). */
void service_end_calls(struct service *service);
bool service_is_idle(const struct service *service); /* no engine runs */
/* Returns whether there are no sessions and no unanswered calls. */
bool service_is_unused(const struct service *service);
