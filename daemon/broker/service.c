/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Service - the root object: makes sessions, lists them, and decides who may call what
 *
 * org.profd.Profiler1 and org.freedesktop.DBus.ObjectManager at /org/profd/Profiler1, on one
 * connection: a bus, or a private one. Owns the session objects; session.c runs a session.
 *
 *     a call ▶ identify the caller (bus-peers.c) ▶ authorize (authorization.c) ▶ execute ▶ answer
 *
 * Each step may take long; meanwhile other calls are served, and sessions may close. So a waiting
 * call stores the number of its session, and looks the session up when it continues.
 * Invariants: (1) nothing is done for a caller that is not identified or has left
 *                 [test_bus_polkit: caller who leaves]
 *             (2) without manage-others, a caller neither sees nor controls another user's session
 *                 [test_bus: foreign session]
 *             (3) signals go to the client that made the session  [test_bus: signals]
 *             (4) when that client leaves, its sessions end, and their files are finished
 *                 [test_bus: client gone]
 * A session object is in `sessions` until Close, then in `closing` until its engine is gone.
 */
#include "config.h"

#include "daemon/broker/service.h"

#include "arch/base.h"
#include "base/each.h"
#include "daemon/broker/authorization.h"
#include "daemon/broker/error.h"
#include "daemon/broker/limits.h"
#include "daemon/broker/options.h"
#include "daemon/broker/probes.h"
#include "daemon/broker/profiler1.h" /* generated from data/dbus */
#include "daemon/broker/session-object.h"
#include "daemon/broker/session.h"
#include "daemon/deferred-close.h"

struct service {
	GDBusConnection *connection;
	struct authority *authority; /* NULL: private connection */
	struct bus_peers *callers;
	void (*idle)(void *data);
	void *data;
	struct control *control; /* NULL: collectors cannot register */
	GPtrArray *sessions;     /* struct session_object, registered on the connection */
	GPtrArray *closing;      /* struct session_object, closed, whose engines still run */
	guint registrations[2];
	uint32_t last_id;
	unsigned n_calls; /* calls without an answer yet */
	bool ending;
};

/* A method call without an answer yet. */
struct call {
	struct service *service;
	GDBusMethodInvocation *invocation;
	struct bus_peer *caller;            /* NULL: not identified yet */
	void (*proceed)(struct call *call); /* called once the caller is identified */
	uint32_t session;                   /* 0: the root object */
	/* options of CreateSession, until passed to the session */
	struct options *options;
	int capture_fd;
	struct access access; /* access of the session, once CreateSession is admitted */
};

/* ---- Sessions -------------------------------------------------------------------------------- */

bool service_is_idle(const struct service *service)
{
	for (guint i = 0; i < service->sessions->len; i++)
		if (session_object_is_active(service->sessions->pdata[i]))
			return false;
	return service->closing->len == 0;
}

bool service_is_unused(const struct service *service)
{
	return service->sessions->len == 0 && service->closing->len == 0 && service->n_calls == 0;
}

void service_end(struct service *service)
{
	service->ending = true;
	for (guint i = 0; i < service->sessions->len; i++)
		session_object_client_gone(service->sessions->pdata[i]);
}

void service_end_calls(struct service *service)
{
	bus_peers_end(service->callers);
}

static gboolean on_idle(gpointer data)
{
	struct service *service = data;

	/* Free ended sessions here, because they cannot be freed in their own callbacks. */
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

static struct session_object *find_session(const struct service *service, uint32_t id)
{
	for (guint i = 0; i < service->sessions->len; i++)
		if (session_object_id(service->sessions->pdata[i]) == id)
			return service->sessions->pdata[i];
	return NULL;
}

static void emit(struct service *service, const struct session_object *object, const char *name,
		 GVariant *arguments)
{
	g_dbus_connection_emit_signal(service->connection, session_object_owner(object)->name,
				      SERVICE_PATH, "org.freedesktop.DBus.ObjectManager", name,
				      arguments, NULL);
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

	emit(service, object, "InterfacesRemoved",
	     g_variant_new("(o^as)", session_object_path(object), interfaces));
	if (g_ptr_array_find(service->sessions, object, &index))
		g_ptr_array_add(service->closing,
				g_ptr_array_steal_index_fast(service->sessions, index));
	check_idle_soon(service);
}

static void on_caller_gone(struct bus_peer *caller, void *data)
{
	struct service *service = data;

	if (service->authority)
		authority_forget(service->authority, caller);
	for (guint i = service->sessions->len; i > 0; i--) {
		struct session_object *object = service->sessions->pdata[i - 1];

		if (session_object_owner(object) != caller)
			continue;
		session_object_client_gone(object);
		session_object_close(object);
	}
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static void call_free(struct call *call)
{
	if (--call->service->n_calls == 0)
		check_idle_soon(call->service);
	bus_peer_unref(call->caller);
	options_free(call->options);
	deferred_close(call->capture_fd);
	g_free(call);
}

/* Answers with a copy of the error, and ends the call. */
static void call_fail(struct call *call, const GError *error)
{
	g_dbus_method_invocation_return_gerror(call->invocation, error);
	call_free(call);
}

/* Answers with a floating tuple, and ends the call. */
static void call_return(struct call *call, GVariant *value)
{
	g_dbus_method_invocation_return_value(call->invocation, value);
	call_free(call);
}

static struct authorization authorization_of(const struct call *call)
{
	GDBusMessage *message = g_dbus_method_invocation_get_message(call->invocation);

	return (struct authorization){
		.authority = call->service->authority,
		.caller = call->caller,
		.interactive = g_dbus_message_get_flags(message) &
			       G_DBUS_MESSAGE_FLAGS_ALLOW_INTERACTIVE_AUTHORIZATION,
	};
}

static void on_identified(struct bus_peer *caller, const GError *error, void *data)
{
	struct call *call = data;

	if (!caller) {
		call_fail(call, error);
		return;
	}
	call->caller = bus_peer_ref(caller);
	call->proceed(call);
}

static void call_begin(struct service *service, GDBusMethodInvocation *invocation, uint32_t session,
		       void (*proceed)(struct call *call))
{
	struct call *call = g_new0(struct call, 1);

	call->service = service;
	service->n_calls++;
	call->invocation = invocation;
	call->session = session;
	call->proceed = proceed;
	call->capture_fd = -1;
	bus_peers_identify(service->callers, g_dbus_method_invocation_get_sender(invocation),
			   on_identified, call);
}

/* ---- Room ------------------------------------------------------------------------------------ */

/* Returns the usage of one user; of all users if `uid` is NULL. */
static struct limits_usage usage_of(const struct service *service, const uid_t *uid)
{
	const GPtrArray *const lists[] = { service->sessions, service->closing };
	struct limits_usage usage = { 0 };

	for (size_t list = 0; list < ARRAY_SIZE(lists); list++)
		POINTER_EACH(const struct session_object, object, lists[list]) {
			if (uid && session_object_access(object)->uid != *uid)
				continue;
			/* Close was answered, and only the object is left: on_idle() frees it. */
			if (lists[list] == service->closing && !session_object_is_active(object))
				continue;
			usage.sessions++;
			usage.engines += session_object_is_active(object);
		}
	return usage;
}

/* Returns whether limits apply. They apply neither to root nor to a private client, which started
 * this process for itself. */
static bool is_limited(const struct call *call)
{
	return call->service->authority && call->caller->uid != 0;
}

/* Refuses new sessions while profd ends, because nothing would stop them. */
static bool check_ending(const struct service *service, GError **error)
{
	return !service->ending || broker_fail(error, BROKER_ERROR_FAILED, "profd ends");
}

static bool check_room(const struct call *call, GError **error)
{
	const struct access access = { .uid = call->caller->uid, .limited = is_limited(call) };
	const struct limits_usage all = usage_of(call->service, NULL);
	const struct limits_usage user = usage_of(call->service, &access.uid);

	return check_ending(call->service, error) && limits_check_new(&access, &all, &user, error);
}

/* Refuses a capture that another session writes to. The engines' locks cannot prevent this, because
 * they belong to the open file, which a client may send twice. */
static bool check_capture(const struct session_object *object, const GPtrArray *others,
			  GError **error)
{
	POINTER_EACH(const struct session_object, other, others)
		if (other != object && session_object_is_active(other) &&
		    session_object_shares_capture(object, other))
			return broker_fail(error, BROKER_ERROR_FAILED,
					   "session %u writes to the same capture",
					   session_object_id(other));
	return true;
}

static bool on_starting(struct session_object *object, void *data, GError **error)
{
	const struct access *access = session_object_access(object);
	const struct limits_usage user = usage_of(data, &access->uid);
	const struct service *service = data;

	return check_ending(service, error) && check_capture(object, service->sessions, error) &&
	       check_capture(object, service->closing, error) &&
	       limits_check_start(access, &user, error);
}

/* ---- Collectors ------------------------------------------------------------------------------ */

static const char *on_control_address(struct session_object *object, void *data)
{
	const struct service *service = data;

	return service->control ? control_address(service->control) : NULL;
}

/* Compares two tokens in constant time. */
static bool same_token(const uint8_t *a, const uint8_t *b)
{
	uint8_t differs = 0;

	for (size_t i = 0; i < CONTROL_TOKEN_BYTES; i++)
		differs |= a[i] ^ b[i];
	return differs == 0;
}

static enum control_status on_peer(const struct control_peer *peer, void *data)
{
	static const uint8_t none[CONTROL_TOKEN_BYTES];
	const struct service *service = data;
	const uint8_t *token = peer->hello->token;
	struct session *best = NULL;
	unsigned most = 0;

	for (guint i = 0; i < service->sessions->len; i++) {
		struct session *session = session_object_session(service->sessions->pdata[i]);
		unsigned fits = same_token(token, none) ? session_fits(session, peer)
							: same_token(token, session_token(session));

		if (fits > most)
			best = session;
		most = MAX_OF(most, fits);
	}
	return best ? session_receive_peer(best, peer) : CONTROL_NO_SESSION;
}

/* Called for a peer that was refused before its session was found. Each session to which it may
 * belong counts the peer, if it is a target. */
static void on_refused(const struct control_peer *peer, void *data)
{
	const struct service *service = data;

	for (guint i = 0; i < service->sessions->len; i++) {
		struct session *session = session_object_session(service->sessions->pdata[i]);

		if (session_fits(session, peer) > 0)
			session_count_refused(session, peer);
	}
}

/* ---- Methods of a session -------------------------------------------------------------------- */

static void on_manage(bool allowed, const GError *error, void *data)
{
	struct call *call = data;
	struct session_object *object = find_session(call->service, call->session);
	g_autoptr(GError) closed = NULL;

	if (!allowed) {
		call_fail(call, error);
		return;
	}
	if (!object) {
		g_set_error(&closed, G_DBUS_ERROR, G_DBUS_ERROR_UNKNOWN_OBJECT,
			    "session %u was closed", call->session);
		call_fail(call, closed);
		return;
	}
	session_object_handle(object, call->invocation,
			      session_object_access(object)->uid == call->caller->uid);
	call_free(call);
}

static void proceed_session(struct call *call)
{
	const struct session_object *object = find_session(call->service, call->session);
	const struct authorization authorization = authorization_of(call);

	/* A session that does not exist has no owner: on_manage() reports this. */
	authorization_manage(&authorization,
			     object ? session_object_access(object)->uid : call->caller->uid,
			     on_manage, call);
}

static void on_session_called(struct session_object *object, GDBusMethodInvocation *invocation,
			      void *data)
{
	call_begin(data, invocation, session_object_id(object), proceed_session);
}

/* ---- Methods of the root object -------------------------------------------------------------- */

/* Returns a session's interfaces and properties, a{sa{sv}}. */
static GVariant *interfaces_of(const struct session_object *object)
{
	GVariantBuilder builder;

	g_variant_builder_init(&builder, G_VARIANT_TYPE("a{sa{sv}}"));
	g_variant_builder_add(&builder, "{s@a{sv}}", SESSION_INTERFACE,
			      session_object_properties(object));
	return g_variant_builder_end(&builder);
}

/* Makes the session that a call requests. Moves the call's options and capture to the session. */
static bool create_session(struct call *call, const struct access *access,
			   struct session_object **ret_object, GError **error)
{
	static const struct session_object_listener listener = { .called = on_session_called,
								 .starting = on_starting,
								 .engine_gone = on_engine_gone,
								 .closed = on_closed,
								 .control_address =
									 on_control_address };
	struct service *service = call->service;
	struct access limited = *access;

	/* Other sessions may have been made while this call waited. */
	if (!check_room(call, error) || !options_find_events(call->options, error))
		return false;
	limited.limited = is_limited(call);
	return session_object_new(service->connection, service->last_id + 1, call->caller, &limited,
				  g_steal_pointer(&call->options), steal_fd(&call->capture_fd),
				  &listener, service, ret_object, error);
}

static void on_probes_found(const GError *failure, void *data)
{
	struct call *call = data;
	struct service *service = call->service;
	struct session_object *object;
	g_autoptr(GError) error = NULL;

	if (failure) {
		call_fail(call, failure);
	} else if (call->caller->gone) {
		broker_fail(&error, BROKER_ERROR_FAILED, "the caller left the bus");
		call_fail(call, error);
	} else if (!create_session(call, &call->access, &object, &error)) {
		call_fail(call, error);
	} else {
		service->last_id++;
		g_ptr_array_add(service->sessions, object);
		call_return(call, g_variant_new("(o)", session_object_path(object)));
		emit(service, object, "InterfacesAdded",
		     g_variant_new("(o@a{sa{sv}})", session_object_path(object),
				   interfaces_of(object)));
	}
}

static void on_admitted(const struct access *access, const GError *refusal, void *data)
{
	struct call *call = data;

	if (!access) {
		call_fail(call, refusal);
		return;
	}
	call->access = *access;
	probes_find(access, call->options, on_probes_found, call);
}

static bool parse_session(struct call *call, GError **error)
{
	GUnixFDList *fds = g_dbus_message_get_unix_fd_list(
		g_dbus_method_invocation_get_message(call->invocation));
	g_autoptr(GVariant) dictionary = NULL;
	int index;

	g_variant_get(g_dbus_method_invocation_get_parameters(call->invocation), "(@a{sv}h)",
		      &dictionary, &index);
	/* The client may name a descriptor that it did not send. */
	call->capture_fd = -1;
	if (fds && index >= 0 && index < g_unix_fd_list_get_length(fds))
		call->capture_fd = g_unix_fd_list_get(fds, index, NULL);
	if (call->capture_fd < 0)
		return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				   "\"capture\" names no descriptor of the message");
	return options_parse(dictionary, fds, &call->options, error);
}

static void proceed_create_session(struct call *call)
{
	const struct authorization authorization = authorization_of(call);
	g_autoptr(GError) error = NULL;

	if (!check_room(call, &error) || !parse_session(call, &error))
		call_fail(call, error);
	else
		authorization_session(&authorization, call->options, on_admitted, call);
}

static void on_capabilities(struct client_rights rights, void *data)
{
	struct call *call = data;

	call_return(call, g_variant_new("(@a{sv})", options_capabilities(rights)));
}

static void proceed_get_capabilities(struct call *call)
{
	const struct authorization authorization = authorization_of(call);

	authorization_capabilities(&authorization, on_capabilities, call);
}

static void list_sessions(struct call *call, bool all)
{
	const struct service *service = call->service;
	GVariantBuilder builder;

	g_variant_builder_init(&builder, G_VARIANT_TYPE("a{oa{sa{sv}}}"));
	POINTER_EACH(const struct session_object, object, service->sessions) {
		if (all || session_object_access(object)->uid == call->caller->uid)
			g_variant_builder_add(&builder, "{o@a{sa{sv}}}",
					      session_object_path(object), interfaces_of(object));
	}
	call_return(call, g_variant_new("(@a{oa{sa{sv}}})", g_variant_builder_end(&builder)));
}

static void on_list(bool allowed, const GError *error, void *data)
{
	list_sessions(data, allowed);
}

static void proceed_get_managed_objects(struct call *call)
{
	const struct service *service = call->service;
	struct authorization authorization = authorization_of(call);

	/* Never prompt for a list. */
	authorization.interactive = false;
	for (guint i = 0; i < service->sessions->len; i++) {
		uid_t uid = session_object_access(service->sessions->pdata[i])->uid;

		if (uid != call->caller->uid) {
			authorization_manage(&authorization, uid, on_list, call);
			return;
		}
	}
	list_sessions(call, true);
}

static void on_method(GDBusConnection *connection, const char *sender, const char *path,
		      const char *interface, const char *method, GVariant *arguments,
		      GDBusMethodInvocation *invocation, gpointer data)
{
	static const struct {
		const char *name;
		void (*proceed)(struct call *call);
	} methods[] = {
		{ "CreateSession", proceed_create_session },
		{ "GetCapabilities", proceed_get_capabilities },
		{ "GetManagedObjects", proceed_get_managed_objects },
	};

	for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
		if (strcmp(methods[i].name, method) == 0)
			call_begin(data, invocation, 0, methods[i].proceed);
}

static GVariant *on_get_property(GDBusConnection *connection, const char *sender, const char *path,
				 const char *interface, const char *name, GError **error,
				 gpointer data)
{
	GVariant *limit = limits_get_property(name);

	return limit ? limit : g_variant_new_string(PROF_VERSION);
}

/* ---- Making and freeing ---------------------------------------------------------------------- */

static void free_object(gpointer object)
{
	session_object_free(object);
}

struct service *service_new(GDBusConnection *connection, struct authority *authority,
			    struct control *control, void (*idle)(void *data), void *data,
			    GError **error)
{
	static const GDBusInterfaceVTable vtable = { .method_call = on_method,
						     .get_property = on_get_property };
	const GDBusInterfaceInfo *const interfaces[] = {
		&org_profd_profiler1_interface, &org_freedesktop_dbus_object_manager_interface
	};
	struct service *service = g_new0(struct service, 1);

	service->connection = g_object_ref(connection);
	service->authority = authority;
	service->control = control;
	service->callers = bus_peers_new(connection, authority != NULL, on_caller_gone, service);
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
	if (control)
		control_serve(control, on_peer, on_refused, service);
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
	bus_peers_free(service->callers);
	g_object_unref(service->connection);
	g_free(service);
}
