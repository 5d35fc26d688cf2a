/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Session object - implements org.profd.Profiler1.Session on D-Bus
 *
 * Translates method calls to session.c, and its events to signals. GDBus checks the types of all
 * arguments against the introspection data; service.c decides who may call methods and read
 * properties. Signals go only to the owner. An owner that does not read them must not make profd's
 * memory grow: while the socket is full, Progress and Warning are dropped; other signals are few.
 * Close stops a session that still records. The object leaves the bus at once, but its session is
 * freed only when the file is complete.
 */
#include "config.h"

#include "arch/errno-text.h"
#include "daemon/broker/session-object.h"

#include "arch/base.h"
#include "arch/packet.h"
#include "daemon/broker/error.h"
#include "daemon/broker/profiler1.h" /* generated from data/dbus */
#include "daemon/broker/session.h"
#include "daemon/broker/summary.h"

#include <errno.h>

#define OBEY_MS 2000 /* after this, the engine is reported as not answering */

#define PROPERTIES_INTERFACE "org.freedesktop.DBus.Properties"

struct session_object {
	GDBusConnection *connection;
	struct bus_peer *owner;
	const struct session_object_listener *listener;
	void *data;
	struct session *session;
	GDBusMethodInvocation *start; /* pending Start; waits for the engine */
	GQueue pauses;                /* struct pause; they wait for the engine */
	char *path;
	uint32_t id;
	guint registration; /* 0: closed */
};

/* A pending Pause or Resume. */
struct pause {
	struct session_object *object;
	GDBusMethodInvocation *invocation;
	uint64_t serial;
	guint patience;
};

const char *session_object_path(const struct session_object *object)
{
	return object->path;
}

uint32_t session_object_id(const struct session_object *object)
{
	return object->id;
}

const struct bus_peer *session_object_owner(const struct session_object *object)
{
	return object->owner;
}

struct session *session_object_session(struct session_object *object)
{
	return object->session;
}

const struct access *session_object_access(const struct session_object *object)
{
	return session_access(object->session);
}

bool session_object_is_active(const struct session_object *object)
{
	return session_is_active(object->session);
}

bool session_object_shares_capture(const struct session_object *object,
				   const struct session_object *other)
{
	return session_shares_capture(object->session, other->session);
}

void session_object_client_gone(struct session_object *object)
{
	if (session_is_active(object->session))
		session_stop(object->session, ENGINE_REASON_CLIENT_GONE, NULL);
}

/* ---- Properties and signals ------------------------------------------------------------------ */

/* Returns a floating or a full reference; GDBus accepts both. */
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
		return g_variant_new_uint32(session_access(object->session)->uid);
	if (strcmp(name, "State") == 0)
		return g_variant_new_string(session_state_name(object->session));
	return g_variant_ref(session_options(object->session)->given);
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
	g_dbus_connection_emit_signal(object->connection, object->owner->name, object->path,
				      interface, name, arguments, NULL);
}

/* Emits a signal, or drops it if earlier messages to the client are still queued. */
static void emit_if_read(struct session_object *object, const char *name, GVariant *arguments)
{
	GIOStream *stream = g_dbus_connection_get_stream(object->connection);
	GSocket *socket = g_socket_connection_get_socket(G_SOCKET_CONNECTION(stream));

	/* If the socket has room, all earlier messages have left this process. */
	if (g_socket_condition_check(socket, G_IO_OUT) & G_IO_OUT)
		emit(object, SESSION_INTERFACE, name, arguments);
	else
		g_variant_unref(g_variant_ref_sink(arguments));
}

static void on_state_changed(struct session *session, void *data)
{
	struct session_object *object = data;
	GVariantDict changed;

	g_variant_dict_init(&changed, NULL);
	g_variant_dict_insert(&changed, "State", "s", session_state_name(session));
	g_variant_dict_insert(&changed, "StartTime", "t", (guint64)session_start_ns(session));
	/* Start may have added "reduced" to the options. */
	g_variant_dict_insert_value(&changed, "Options", session_options(session)->given);
	emit(object, PROPERTIES_INTERFACE, "PropertiesChanged",
	     g_variant_new("(s@a{sv}as)", SESSION_INTERFACE, g_variant_dict_end(&changed), NULL));
}

static void on_started(struct session *session, const GError *error, void *data)
{
	struct session_object *object = data;
	GDBusMethodInvocation *start = g_steal_pointer(&object->start);

	if (!start)
		return;
	if (error) {
		g_dbus_method_invocation_return_gerror(start, error);
		return;
	}
	g_dbus_method_invocation_return_value(start, NULL);
	if (session_options(session)->kernel_denied)
		emit_if_read(object, "Warning",
			     g_variant_new(
				     "(ss)", "no-kernel",
				     "functions of the kernel are left out: "
				     "\"org.profd.kernel-addresses\" is not allowed to this user"));
}

/* Answers a Pause or Resume. `failure`: why it failed, or NULL. */
static void answer_pause(struct pause *pause, const char *failure)
{
	g_queue_remove(&pause->object->pauses, pause);
	g_clear_handle_id(&pause->patience, g_source_remove);
	if (failure)
		g_dbus_method_invocation_return_error(pause->invocation, BROKER_ERROR,
						      BROKER_ERROR_FAILED, "%s", failure);
	else
		g_dbus_method_invocation_return_value(pause->invocation, NULL);
	g_free(pause);
}

static void answer_pauses(struct session_object *object, uint64_t serial, const char *failure)
{
	struct pause *pause;

	while ((pause = g_queue_peek_head(&object->pauses)) && pause->serial <= serial)
		answer_pause(pause, failure);
}

static void on_obeyed(struct session *session, uint64_t serial, void *data)
{
	answer_pauses(data, serial, NULL);
}

static gboolean on_not_obeyed(gpointer data)
{
	struct pause *pause = data;

	pause->patience = 0;
	answer_pause(pause, "the engine does not answer; it pauses or resumes as soon as it does");
	return G_SOURCE_REMOVE;
}

static void on_progress(struct session *session, void *data)
{
	GVariantDict dict;

	g_variant_dict_init(&dict, NULL);
	summary_add_counters(&dict, session_counters(session));
	emit_if_read(data, "Progress", g_variant_new("(@a{sv})", g_variant_dict_end(&dict)));
}

static void on_warning(struct session *session, const char *code, const char *text, void *data)
{
	emit_if_read(data, "Warning", g_variant_new("(ss)", code, text));
}

static void on_finished(struct session *session, bool ok, const char *reason, GVariant *summary,
			void *data)
{
	struct session_object *object = data;

	answer_pauses(object, UINT64_MAX, "the session ended before that");
	emit(object, SESSION_INTERFACE, "Finished",
	     g_variant_new("(bs@a{sv})", ok, reason, summary));
	object->listener->engine_gone(object, object->data);
}

/* ---- Methods --------------------------------------------------------------------------------- */

/* Each function returns true if it has answered, or will answer later. */
static bool call_start(struct session_object *object, GDBusMethodInvocation *invocation,
		       GError **error)
{
	if (!object->listener->starting(object, object->data, error) ||
	    !session_start(object->session, error))
		return false;
	object->start = invocation;
	return true;
}

static bool call_stop(struct session_object *object, GDBusMethodInvocation *invocation,
		      GError **error)
{
	if (!session_stop(object->session, ENGINE_REASON_STOPPED, error))
		return false;
	g_dbus_method_invocation_return_value(invocation, NULL);
	return true;
}

/* Answers when the engine has obeyed, so that the client's next call finds the session paused or
 * resumed. */
static bool pause_or_resume(struct session_object *object, GDBusMethodInvocation *invocation,
			    bool pauses, GError **error)
{
	struct pause *pause;
	uint64_t serial;

	if (!session_pause(object->session, pauses, &serial, error))
		return false;
	pause = g_new0(struct pause, 1);
	*pause = (struct pause){ .object = object, .invocation = invocation, .serial = serial };
	pause->patience = g_timeout_add(OBEY_MS, on_not_obeyed, pause);
	g_queue_push_tail(&object->pauses, pause);
	return true;
}

static bool call_pause(struct session_object *object, GDBusMethodInvocation *invocation,
		       GError **error)
{
	return pause_or_resume(object, invocation, true, error);
}

static bool call_resume(struct session_object *object, GDBusMethodInvocation *invocation,
			GError **error)
{
	return pause_or_resume(object, invocation, false, error);
}

/* Checks whether a descriptor can be passed on. All processes of a user share a limit of
 * descriptors in flight, and GDBus ends the connection if a reply exceeds it. Nothing signals when
 * there is room again. */
static bool can_pass(int fd, GError **error)
{
	char byte = 0;
	const struct iovec part = { &byte, 1 };
	int sockets[2], failed;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
		return broker_fail(error, BROKER_ERROR_FAILED, "making a socket failed: %s",
				   ERRNO_TEXT(errno));
	failed = packet_send(sockets[0], &part, 1, fd, MSG_DONTWAIT) < 0 ? errno : 0;
	close(sockets[0]);
	close(sockets[1]);
	return failed == 0 ||
	       broker_fail(
		       error, BROKER_ERROR_LIMIT_EXCEEDED,
		       "passing the descriptor on failed: %s; too many of this user's are on their way "
		       "between processes: try again, or raise `ulimit -n`",
		       ERRNO_TEXT(failed));
}

static bool return_fd(GDBusMethodInvocation *invocation, int fd, GError **error)
{
	g_autoptr(GUnixFDList) list = g_unix_fd_list_new();
	int index;

	if (!can_pass(fd, error))
		return false;
	index = g_unix_fd_list_append(list, fd, error);
	if (index < 0)
		return false;
	g_dbus_method_invocation_return_value_with_unix_fd_list(invocation,
								g_variant_new("(h)", index), list);
	return true;
}

static bool call_open_image(struct session_object *object, GDBusMethodInvocation *invocation,
			    GError **error)
{
	CLEANUP_CLOSE int fd = -1;
	guint64 id;

	g_variant_get(g_dbus_method_invocation_get_parameters(invocation), "(t)", &id);
	return session_open_image(object->session, id, &fd, error) &&
	       return_fd(invocation, fd, error);
}

static bool call_open_sysprof(struct session_object *object, GDBusMethodInvocation *invocation,
			      GError **error)
{
	int fd;

	return session_open_sysprof(object->session, &fd, error) &&
	       return_fd(invocation, fd, error);
}

static bool call_open_control(struct session_object *object, GDBusMethodInvocation *invocation,
			      GError **error)
{
	const char *address = object->listener->control_address(object, object->data);
	const uint8_t *token = session_token(object->session);
	g_autoptr(GString) text = NULL;

	if (!address)
		return broker_fail(error, BROKER_ERROR_NOT_SUPPORTED,
				   "this profd has no control socket for collectors");
	text = g_string_new(address);
	g_string_append(text, ",token:");
	for (size_t i = 0; i < CONTROL_TOKEN_BYTES; i++)
		g_string_append_printf(text, "%02x", token[i]);
	g_dbus_method_invocation_return_value(invocation, g_variant_new("(s)", text->str));
	return true;
}

static bool call_close(struct session_object *object, GDBusMethodInvocation *invocation,
		       GError **error)
{
	g_dbus_method_invocation_return_value(invocation, NULL);
	session_object_close(object);
	return true;
}

/* Get of org.freedesktop.DBus.Properties. GDBus has checked that the property exists and is
 * readable. */
static bool call_get(struct session_object *object, GDBusMethodInvocation *invocation,
		     GError **error)
{
	g_autoptr(GVariant) value = NULL;
	const char *name;

	g_variant_get(g_dbus_method_invocation_get_parameters(invocation), "(&s&s)", NULL, &name);
	value = g_variant_take_ref(get_property(object, name));
	g_dbus_method_invocation_return_value(invocation, g_variant_new("(v)", value));
	return true;
}

static bool call_get_all(struct session_object *object, GDBusMethodInvocation *invocation,
			 GError **error)
{
	g_dbus_method_invocation_return_value(
		invocation, g_variant_new("(@a{sv})", session_object_properties(object)));
	return true;
}

void session_object_handle(struct session_object *object, GDBusMethodInvocation *invocation,
			   bool own)
{
	static const struct {
		const char *interface, *name;
		bool (*call)(struct session_object *object, GDBusMethodInvocation *invocation,
			     GError **error);
		bool own_only; /* not for users who may manage other users' sessions */
	} methods[] = {
		{ SESSION_INTERFACE, "Start", call_start, false },
		{ SESSION_INTERFACE, "Stop", call_stop, false },
		{ SESSION_INTERFACE, "Pause", call_pause, false },
		{ SESSION_INTERFACE, "Resume", call_resume, false },
		{ SESSION_INTERFACE, "OpenImage", call_open_image, true },
		{ SESSION_INTERFACE, "OpenControl", call_open_control, true },
		{ SESSION_INTERFACE, "OpenSysprof", call_open_sysprof, true },
		{ SESSION_INTERFACE, "Close", call_close, false },
		{ PROPERTIES_INTERFACE, "Get", call_get, false },
		{ PROPERTIES_INTERFACE, "GetAll", call_get_all, false },
	};
	const char *interface = g_dbus_method_invocation_get_interface_name(invocation);
	const char *method = g_dbus_method_invocation_get_method_name(invocation);
	GError *error = NULL;
	bool ok = false;

	for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
		if (strcmp(methods[i].interface, interface) != 0 ||
		    strcmp(methods[i].name, method) != 0)
			continue;
		if (methods[i].own_only && !own)
			broker_fail(&error, BROKER_ERROR_NOT_AUTHORIZED,
				    "%s may only be called by the owner of the session", method);
		else
			ok = methods[i].call(object, invocation, &error);
		break;
	}
	if (!ok && !error)
		broker_fail(&error, BROKER_ERROR_FAILED, "%s cannot be called", method);
	if (!ok)
		g_dbus_method_invocation_take_error(invocation, error);
}

static void on_method(GDBusConnection *connection, const char *sender, const char *path,
		      const char *interface, const char *method, GVariant *arguments,
		      GDBusMethodInvocation *invocation, gpointer data)
{
	struct session_object *object = data;

	object->listener->called(object, invocation, object->data);
}

/* ---- Making and freeing ---------------------------------------------------------------------- */

void session_object_close(struct session_object *object)
{
	if (object->registration == 0)
		return;
	if (session_is_active(object->session))
		session_stop(object->session, ENGINE_REASON_STOPPED, NULL);
	g_dbus_connection_unregister_object(object->connection, object->registration);
	object->registration = 0;
	object->listener->closed(object, object->data);
}

bool session_object_new(GDBusConnection *connection, uint32_t id, struct bus_peer *owner,
			const struct access *access, struct options *options, int capture_fd,
			const struct session_object_listener *listener, void *data,
			struct session_object **ret_object, GError **error)
{
	/* No get_property: Get and GetAll are handled as methods, because authorization takes
	 * time. */
	static const GDBusInterfaceVTable vtable = { .method_call = on_method };
	static const struct session_listener session_listener = {
		.state_changed = on_state_changed,
		.started = on_started,
		.obeyed = on_obeyed,
		.progress = on_progress,
		.warning = on_warning,
		.finished = on_finished,
	};
	struct session_object *object = g_new0(struct session_object, 1);

	if (!session_new(access, id, options, capture_fd, &session_listener, object,
			 &object->session, error)) {
		g_free(object);
		return false;
	}
	object->connection = g_object_ref(connection);
	object->owner = bus_peer_ref(owner);
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
	answer_pauses(object, UINT64_MAX, "the session was closed");
	if (object->start)
		g_dbus_method_invocation_return_error(
			object->start, BROKER_ERROR, BROKER_ERROR_FAILED, "the session was closed");
	if (object->registration)
		g_dbus_connection_unregister_object(object->connection, object->registration);
	bus_peer_unref(object->owner);
	g_object_unref(object->connection);
	g_free(object->path);
	g_free(object);
}
