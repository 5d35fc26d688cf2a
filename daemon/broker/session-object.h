/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/options.h"

#include <gio/gio.h>
#include <stdbool.h>

#define SERVICE_PATH "/org/profd/Profiler1"
#define SESSION_INTERFACE "org.profd.Profiler1.Session"

/* A session as an object on a connection. */
struct session_object;

struct session_object_listener {
	void (*engine_gone)(struct session_object *object, void *data);
	void (*closed)(struct session_object *object, void *data); /* Close was called: free it */
};

/* Takes over the options and the capture. */
bool session_object_new(GDBusConnection *connection, uint32_t id, struct options *options,
			int capture_fd, const struct session_object_listener *listener, void *data,
			struct session_object **ret_object, GError **error);
void session_object_free(struct session_object *object);

const char *session_object_path(const struct session_object *object);
GVariant *session_object_properties(const struct session_object *object); /* a{sv}, floating */
bool session_object_is_active(const struct session_object *object);
/* Stops a recording because its client is gone. */
void session_object_client_gone(struct session_object *object);
