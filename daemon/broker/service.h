/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/authority.h"
#include "daemon/broker/control.h"

#include <gio/gio.h>
#include <stdbool.h>

/* The root object on one connection, and its sessions. */
struct service;

/*
 * With an authority the connection is a bus, and the authority decides about each client; it is
 * borrowed. Without one the connection is to one client, which has the rights of this process.
 * `control` is borrowed; collectors register there. NULL: they cannot.
 * `idle` is called each time the last engine is gone, and when the last call was answered while no
 * engine runs.
 */
struct service *service_new(GDBusConnection *connection, struct authority *authority,
			    struct control *control, void (*idle)(void *data), void *data,
			    GError **error);
/* Ends what still runs, without waiting. */
void service_free(struct service *service);

/* The connection is gone, or profd must end: stops every session and finishes its file. No session
 * is made or started after that. */
void service_end(struct service *service);
/* Call before service_free(). Calls of unidentified callers fail in the main loop's next turns;
 * calls that wait for the authority fail when it ends. */
void service_end_calls(struct service *service);
bool service_is_idle(const struct service *service); /* no engine runs */
/* True if there are no sessions, and no call waits for an answer. */
bool service_is_unused(const struct service *service);
