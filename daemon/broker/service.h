/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/authority.h"
#include "daemon/broker/control.h"

#include <gio/gio.h>
#include <stdbool.h>

/* The root object on one connection, and its sessions. */
struct service;

/*
 * With an authority the connection is a bus's, and the authority is asked about each client; it is
 * borrowed. Without, the connection is to one client, who has the rights of this process.
 * `control` is borrowed, and where collectors register; NULL: they cannot.
 * `idle` is called each time the last engine is gone, and when the last call was answered while
 * none runs.
 */
struct service *service_new(GDBusConnection *connection, struct authority *authority,
			    struct control *control, void (*idle)(void *data), void *data,
			    GError **error);
/* Ends what still runs, without waiting. */
void service_free(struct service *service);

/* The connection is gone, or profd is to end: every session is stopped, its file finished; none
 * is made or started any more. */
void service_end(struct service *service);
/* Before service_free(): calls that still wait to know who called fail in the main loop's next
 * turns. Those that wait for the authority do at its end. */
void service_end_calls(struct service *service);
bool service_is_idle(const struct service *service); /* no engine runs */
/* Nobody has a session, and no call waits for an answer. */
bool service_is_unused(const struct service *service);
