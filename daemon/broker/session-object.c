/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Session object - org.profd.Profiler1.Session on D-Bus
 *
 * Translates between method calls and session.c, and its events into signals. GDBus has checked the types of all
 * arguments against the introspection data before a method gets here.
 * Close on a session that still records stops it; the object goes at once, the recording when its file is whole.
 */
#include "config.h"

#include "daemon/broker/session-object.h"

#include "arch/base.h"
#include "daemon/broker/error.h"
#include "daemon/broker/profiler1.h" /* generated from data/dbus */
#include "daemon/broker/session.h"

struct session_object {
	GDBusConnection *connection;
	const struct session_object_listener *listener;
	void *data;
	struct session *session;
	GDBusMethodInvocation *start; /* waits for the engine */
	char *path;
	uint32_t id;
	guint registration; /* 0: closed */
};

const char *session_object_path(const struct session_object *object)
{
	return object->path;
}

bool session_object_is_active(const struct session_object *object)
{
	return session_is_active(object->session);
}

void session_object_client_gone(struct session_object *object)
{
	if (session_is_active(object->session))
		session_stop(object->session, ENGINE_REASON_CLIENT_GONE, NULL);
}

/* ---- Properties and signals --------------------------------------------------------------------- */

/* A floating or a full reference, as GDBus takes both. */
static GVariant *get_property(const struct session_object *object, const char *name)
{
	const struct message_progress *counters = session_counters(object->session);
	const struct {
		const char *name;
		uint64_t value;
	} numbers[] = {
		{ "StartTime", session_start_ns(object->session) },
		{ "Samples", counters->samples },
		{ "Events", counters->events },
		{ "Lost", counters->lost },
		{ "Bytes", counters->bytes },
	};

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		if (strcmp(name, numbers[i].name) == 0)
			return g_variant_new_uint64(numbers[i].value);
	if (strcmp(name, "Id") == 0)
		return g_variant_new_uint32(object->id);
	if (strcmp(name, "Uid") == 0)
		return g_variant_new_uint32(geteuid());
	if (strcmp(name, "State") == 0)
		return g_variant_new_string(session_state_name(object->session));
	return g_variant_ref(session_options(object->session)->given);
}

static GVariant *on_get_property(GDBusConnection *connection, const char *sender, const char *path,
				 const char *interface, const char *name, GError **error,
				 gpointer data)
{
	return get_property(data, name);
}

GVariant *session_object_properties(const struct session_object *object)
{
	GDBusPropertyInfo *const *property = org_profd_profiler1_session_interface.properties;
	GVariantDict dict;

	g_variant_dict_init(&dict, NULL);
	for (; *property; property++) {
		g_autoptr(GVariant)
			value = g_variant_take_ref(get_property(object, (*property)->name));

		g_variant_dict_insert_value(&dict, (*property)->name, value);
	}
	return g_variant_dict_end(&dict);
}

static void emit(struct session_object *object, const char *interface, const char *name,
		 GVariant *arguments)
{
	if (object->registration == 0) {
		g_variant_unref(g_variant_ref_sink(arguments));
		return;
	}
	g_dbus_connection_emit_signal(object->connection, NULL, object->path, interface, name,
				      arguments, NULL);
}

static void on_state_changed(struct session *session, void *data)
{
	struct session_object *object = data;
	GVariantDict changed;

	g_variant_dict_init(&changed, NULL);
	g_variant_dict_insert(&changed, "State", "s", session_state_name(session));
	g_variant_dict_insert(&changed, "StartTime", "t", (guint64)session_start_ns(session));
	emit(object, "org.freedesktop.DBus.Properties", "PropertiesChanged",
	     g_variant_new("(s@a{sv}as)", SESSION_INTERFACE, g_variant_dict_end(&changed), NULL));
}

static void on_started(struct session *session, const GError *error, void *data)
{
	struct session_object *object = data;
	GDBusMethodInvocation *start = g_steal_pointer(&object->start);

	if (!start)
		return;
	if (error)
		g_dbus_method_invocation_return_gerror(start, error);
	else
		g_dbus_method_invocation_return_value(start, NULL);
}

static void on_progress(struct session *session, void *data)
{
	const struct message_progress *counters = session_counters(session);
	GVariantDict dict;

	g_variant_dict_init(&dict, NULL);
	g_variant_dict_insert(&dict, "samples", "t", (guint64)counters->samples);
	g_variant_dict_insert(&dict, "events", "t", (guint64)counters->events);
	g_variant_dict_insert(&dict, "lost", "t", (guint64)counters->lost);
	g_variant_dict_insert(&dict, "bytes", "t", (guint64)counters->bytes);
	emit(data, SESSION_INTERFACE, "Progress",
	     g_variant_new("(@a{sv})", g_variant_dict_end(&dict)));
}

static void on_warning(struct session *session, const char *code, const char *text, void *data)
{
	emit(data, SESSION_INTERFACE, "Warning", g_variant_new("(ss)", code, text));
}

static void on_finished(struct session *session, bool ok, const char *reason, GVariant *summary,
			void *data)
{
	struct session_object *object = data;

	emit(object, SESSION_INTERFACE, "Finished",
	     g_variant_new("(bs@a{sv})", ok, reason, summary));
	object->listener->engine_gone(object, object->data);
}

/* ---- Methods ------------------------------------------------------------------------------------ */

static bool call_start(struct session_object *object, GDBusMethodInvocation *invocation,
		       GError **error)
{
	if (!session_start(object->session, error))
		return false;
	object->start = invocation;
	return true;
}

static bool return_nothing(GDBusMethodInvocation *invocation, bool ok)
{
	if (ok)
		g_dbus_method_invocation_return_value(invocation, NULL);
	return ok;
}

static bool call_stop(struct session_object *object, GDBusMethodInvocation *invocation,
		      GError **error)
{
	return return_nothing(invocation,
			      session_stop(object->session, ENGINE_REASON_STOPPED, error));
}

static bool call_pause(struct session_object *object, GDBusMethodInvocation *invocation,
		       GError **error)
{
	return return_nothing(invocation, session_pause(object->session, true, error));
}

static bool call_resume(struct session_object *object, GDBusMethodInvocation *invocation,
			GError **error)
{
	return return_nothing(invocation, session_pause(object->session, false, error));
}

static bool call_open_image(struct session_object *object, GDBusMethodInvocation *invocation,
			    GError **error)
{
	g_autoptr(GUnixFDList) list = NULL;
	CLEANUP_CLOSE int fd = -1;
	guint64 id;
	int index;

	g_variant_get(g_dbus_method_invocation_get_parameters(invocation), "(t)", &id);
	if (!session_open_image(object->session, id, &fd, error))
		return false;
	list = g_unix_fd_list_new();
	index = g_unix_fd_list_append(list, fd, error);
	if (index < 0)
		return false;
	g_dbus_method_invocation_return_value_with_unix_fd_list(invocation,
								g_variant_new("(h)", index), list);
	return true;
}

static bool call_open_control(struct session_object *object, GDBusMethodInvocation *invocation,
			      GError **error)
{
	return broker_fail(error, BROKER_ERROR_NOT_SUPPORTED,
			   "this profd has no control socket for collectors");
}

static bool call_close(struct session_object *object, GDBusMethodInvocation *invocation,
		       GError **error)
{
	g_dbus_method_invocation_return_value(invocation, NULL);
	if (session_is_active(object->session))
		session_stop(object->session, ENGINE_REASON_STOPPED, NULL);
	g_dbus_connection_unregister_object(object->connection, object->registration);
	object->registration = 0;
	object->listener->closed(object, object->data);
	return true;
}

static void on_method(GDBusConnection *connection, const char *sender, const char *path,
		      const char *interface, const char *method, GVariant *arguments,
		      GDBusMethodInvocation *invocation, gpointer data)
{
	static const struct {
		const char *name;
		/* true: it has answered, or will */
		bool (*call)(struct session_object *object, GDBusMethodInvocation *invocation,
			     GError **error);
	} methods[] = {
		{ "Start", call_start },          { "Stop", call_stop },
		{ "Pause", call_pause },          { "Resume", call_resume },
		{ "OpenImage", call_open_image }, { "OpenControl", call_open_control },
		{ "Close", call_close },
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

/* ---- Making and freeing ------------------------------------------------------------------------- */

bool session_object_new(GDBusConnection *connection, uint32_t id, struct options *options,
			int capture_fd, const struct session_object_listener *listener, void *data,
			struct session_object **ret_object, GError **error)
{
	static const GDBusInterfaceVTable vtable = { .method_call = on_method,
						     .get_property = on_get_property };
	static const struct session_listener session_listener = {
		.state_changed = on_state_changed,
		.started = on_started,
		.progress = on_progress,
		.warning = on_warning,
		.finished = on_finished,
	};
	struct session_object *object = g_new0(struct session_object, 1);

	if (!session_new(options, capture_fd, &session_listener, object, &object->session, error)) {
		g_free(object);
		return false;
	}
	object->connection = g_object_ref(connection);
	object->listener = listener;
	object->data = data;
	object->id = id;
	object->path = g_strdup_printf(SERVICE_PATH "/session/%u", id);
	object->registration = g_dbus_connection_register_object(
		connection, object->path,
		(GDBusInterfaceInfo *)&org_profd_profiler1_session_interface, &vtable, object, NULL,
		error);
	if (object->registration == 0) {
		session_object_free(object);
		return false;
	}
	*ret_object = object;
	return true;
}

void session_object_free(struct session_object *object)
{
	if (!object)
		return;
	session_free(object->session);
	if (object->start)
		g_dbus_method_invocation_return_error(
			object->start, BROKER_ERROR, BROKER_ERROR_FAILED, "the session was closed");
	if (object->registration)
		g_dbus_connection_unregister_object(object->connection, object->registration);
	g_object_unref(object->connection);
	g_free(object->path);
	g_free(object);
}
