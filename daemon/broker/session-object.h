/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/access.h"
#include "daemon/broker/bus-peers.h"
#include "daemon/broker/options.h"

#include <gio/gio.h>
#include <stdbool.h>

#define SERVICE_PATH "/org/profd/Profiler1"
#define SESSION_INTERFACE "org.profd.Profiler1.Session"

/* A session as an object on a D-Bus connection. */
struct session_object;
struct session;

struct session_object_listener {
	/* A method was called. Pass it to session_object_handle() once it is authorized. */
	void (*called)(struct session_object *object, GDBusMethodInvocation *invocation,
		       void *data);
	/* Returns false if the session may not be started now. */
	bool (*starting)(struct session_object *object, void *data, GError **error);
	void (*engine_gone)(struct session_object *object, void *data);
	/* Returns the address at which collectors register, or NULL. */
	const char *(*control_address)(struct session_object *object, void *data);
	void (*closed)(struct session_object *object,
		       void *data); /* the object is unregistered: free it */
};

/* Takes ownership of the options and the capture. Signals go only to the owner. */
bool session_object_new(GDBusConnection *connection, uint32_t id, struct bus_peer *owner,
			const struct access *access, struct options *options, int capture_fd,
			const struct session_object_listener *listener, void *data,
			struct session_object **ret_object, GError **error);
void session_object_free(struct session_object *object);

const char *session_object_path(const struct session_object *object);
GVariant *session_object_properties(const struct session_object *object); /* a{sv}, floating */
bool session_object_is_active(const struct session_object *object);
bool session_object_shares_capture(const struct session_object *object,
				   const struct session_object *other);
uint32_t session_object_id(const struct session_object *object);
const struct bus_peer *session_object_owner(const struct session_object *object);
struct session *session_object_session(struct session_object *object);
const struct access *session_object_access(const struct session_object *object);

/* Answers now or later. `own`: the caller is the session's user, not a user who manages others'
 * sessions. */
void session_object_handle(struct session_object *object, GDBusMethodInvocation *invocation,
			   bool own);
/* Stops a recording because its client has left. */
void session_object_client_gone(struct session_object *object);
/* Unregisters the object. Stops a recording and finishes its file. */
void session_object_close(struct session_object *object);
