/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Service - the root object: makes sessions and lists them
 *
 * org.profd.Profiler1 and org.freedesktop.DBus.ObjectManager at /org/profd/Profiler1, on one connection. Knows its
 * session objects; what a session does is session.c's.
 * A session object is in `sessions` until Close, then in `closing` until its engine is gone.
 */
#include "config.h"

#include "daemon/broker/service.h"

#include "arch/base.h"
#include "daemon/broker/error.h"
#include "daemon/broker/options.h"
#include "daemon/broker/profiler1.h" /* generated from data/dbus */
#include "daemon/broker/session-object.h"

#define MAX_SESSIONS 64

struct service {
	GDBusConnection *connection;
	void (*idle)(void *data);
	void *data;
	GPtrArray *sessions; /* struct session_object, with an object on the connection */
	GPtrArray *closing;  /* without one, their engines still at work */
	guint registrations[2];
	uint32_t last_id;
};

bool service_is_idle(const struct service *service)
{
	for (guint i = 0; i < service->sessions->len; i++)
		if (session_object_is_active(service->sessions->pdata[i]))
			return false;
	return service->closing->len == 0;
}

void service_client_gone(struct service *service)
{
	for (guint i = 0; i < service->sessions->len; i++)
		session_object_client_gone(service->sessions->pdata[i]);
}

static gboolean on_idle(gpointer data)
{
	struct service *service = data;

	/* what is over and has no object left is freed outside of its own callbacks */
	for (guint i = 0; i < service->closing->len; i++)
		if (!session_object_is_active(service->closing->pdata[i]))
			g_ptr_array_remove_index_fast(service->closing, i--);
	if (service_is_idle(service))
		service->idle(service->data);
	return G_SOURCE_REMOVE;
}

static void check_idle_soon(struct service *service)
{
	g_idle_remove_by_data(service);
	g_idle_add(on_idle, service);
}

static void emit(struct service *service, const char *name, GVariant *arguments)
{
	g_dbus_connection_emit_signal(service->connection, NULL, SERVICE_PATH,
				      "org.freedesktop.DBus.ObjectManager", name, arguments, NULL);
}

static void on_engine_gone(struct session_object *object, void *data)
{
	check_idle_soon(data);
}

static void on_closed(struct session_object *object, void *data)
{
	static const char *const interfaces[] = { SESSION_INTERFACE, NULL };
	struct service *service = data;
	guint index;

	emit(service, "InterfacesRemoved",
	     g_variant_new("(o^as)", session_object_path(object), interfaces));
	if (g_ptr_array_find(service->sessions, object, &index))
		g_ptr_array_add(service->closing,
				g_ptr_array_steal_index_fast(service->sessions, index));
	check_idle_soon(service);
}

/* a{sa{sv}} of a session */
static GVariant *interfaces_of(const struct session_object *object)
{
	GVariantBuilder builder;

	g_variant_builder_init(&builder, G_VARIANT_TYPE("a{sa{sv}}"));
	g_variant_builder_add(&builder, "{s@a{sv}}", SESSION_INTERFACE,
			      session_object_properties(object));
	return g_variant_builder_end(&builder);
}

/* The descriptor of a handle, or -1: the client may name one that it did not send. */
static int take_fd(GUnixFDList *fds, int index)
{
	if (!fds || index < 0 || index >= g_unix_fd_list_get_length(fds))
		return -1;
	return g_unix_fd_list_get(fds, index, NULL);
}

static bool call_create_session(struct service *service, GDBusMethodInvocation *invocation,
				GError **error)
{
	static const struct session_object_listener listener = { .engine_gone = on_engine_gone,
								 .closed = on_closed };
	GDBusMessage *message = g_dbus_method_invocation_get_message(invocation);
	GUnixFDList *fds = g_dbus_message_get_unix_fd_list(message);
	g_autoptr(GVariant) dictionary = NULL;
	CLEANUP_CLOSE int capture = -1;
	struct session_object *object;
	struct options *options;
	int index;

	if (service->sessions->len + service->closing->len >= MAX_SESSIONS)
		return broker_fail(error, BROKER_ERROR_LIMIT_EXCEEDED,
				   "%d sessions are open; Close one", MAX_SESSIONS);
	g_variant_get(g_dbus_method_invocation_get_parameters(invocation), "(@a{sv}h)", &dictionary,
		      &index);
	capture = take_fd(fds, index);
	if (capture < 0)
		return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				   "\"capture\" names no descriptor of the message");
	if (!options_parse(dictionary, fds, &options, error) ||
	    !session_object_new(service->connection, service->last_id + 1, options,
				steal_fd(&capture), &listener, service, &object, error))
		return false;
	service->last_id++;
	g_ptr_array_add(service->sessions, object);
	g_dbus_method_invocation_return_value(invocation,
					      g_variant_new("(o)", session_object_path(object)));
	emit(service, "InterfacesAdded",
	     g_variant_new("(o@a{sa{sv}})", session_object_path(object), interfaces_of(object)));
	return true;
}

static bool call_get_capabilities(struct service *service, GDBusMethodInvocation *invocation,
				  GError **error)
{
	g_dbus_method_invocation_return_value(invocation,
					      g_variant_new("(@a{sv})", options_capabilities()));
	return true;
}

static bool call_get_managed_objects(struct service *service, GDBusMethodInvocation *invocation,
				     GError **error)
{
	GVariantBuilder builder;

	g_variant_builder_init(&builder, G_VARIANT_TYPE("a{oa{sa{sv}}}"));
	for (guint i = 0; i < service->sessions->len; i++)
		g_variant_builder_add(&builder, "{o@a{sa{sv}}}",
				      session_object_path(service->sessions->pdata[i]),
				      interfaces_of(service->sessions->pdata[i]));
	g_dbus_method_invocation_return_value(
		invocation, g_variant_new("(@a{oa{sa{sv}}})", g_variant_builder_end(&builder)));
	return true;
}

static void on_method(GDBusConnection *connection, const char *sender, const char *path,
		      const char *interface, const char *method, GVariant *arguments,
		      GDBusMethodInvocation *invocation, gpointer data)
{
	static const struct {
		const char *name;
		bool (*call)(struct service *service, GDBusMethodInvocation *invocation,
			     GError **error);
	} methods[] = {
		{ "CreateSession", call_create_session },
		{ "GetCapabilities", call_get_capabilities },
		{ "GetManagedObjects", call_get_managed_objects },
	};
	GError *error = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
		if (strcmp(methods[i].name, method) != 0)
			continue;
		if (!methods[i].call(data, invocation, &error))
			g_dbus_method_invocation_take_error(invocation, error);
		return;
	}
}

static GVariant *on_get_property(GDBusConnection *connection, const char *sender, const char *path,
				 const char *interface, const char *name, GError **error,
				 gpointer data)
{
	return g_variant_new_string(PROF_VERSION);
}

static void free_object(gpointer object)
{
	session_object_free(object);
}

struct service *service_new(GDBusConnection *connection, void (*idle)(void *data), void *data,
			    GError **error)
{
	static const GDBusInterfaceVTable vtable = { .method_call = on_method,
						     .get_property = on_get_property };
	const GDBusInterfaceInfo *const interfaces[] = {
		&org_profd_profiler1_interface, &org_freedesktop_dbus_object_manager_interface
	};
	struct service *service = g_new0(struct service, 1);

	service->connection = g_object_ref(connection);
	service->idle = idle;
	service->data = data;
	service->sessions = g_ptr_array_new_with_free_func(free_object);
	service->closing = g_ptr_array_new_with_free_func(free_object);
	for (size_t i = 0; i < ARRAY_SIZE(interfaces); i++) {
		service->registrations[i] = g_dbus_connection_register_object(
			connection, SERVICE_PATH, (GDBusInterfaceInfo *)interfaces[i], &vtable,
			service, NULL, error);
		if (service->registrations[i] == 0) {
			service_free(service);
			return NULL;
		}
	}
	return service;
}

void service_free(struct service *service)
{
	g_idle_remove_by_data(service);
	g_ptr_array_unref(service->sessions);
	g_ptr_array_unref(service->closing);
	for (size_t i = 0; i < ARRAY_SIZE(service->registrations); i++)
		if (service->registrations[i])
			g_dbus_connection_unregister_object(service->connection,
							    service->registrations[i]);
	g_object_unref(service->connection);
	g_free(service);
}
