/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>
#include <stdbool.h>

/* The root object on one connection, and its sessions. */
struct service;

/* `idle` is called each time the last engine is gone. */
struct service *service_new(GDBusConnection *connection, void (*idle)(void *data), void *data,
			    GError **error);
/* Ends what still runs, without waiting. */
void service_free(struct service *service);

/* The client is gone: every session is stopped, its file finished. */
void service_client_gone(struct service *service);
bool service_is_idle(const struct service *service); /* no engine runs */
