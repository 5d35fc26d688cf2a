/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Bus peers - identifies the clients that make calls, and reports when they leave
 *
 * On the bus a caller is identified by its unique name, which is never reused. The bus reports the
 * caller's user, as it was when the client connected. profd subscribes to the loss of the name
 * before it requests the credentials: if the client has left before the request, the request fails;
 * if it leaves later, the caller is `gone`. A struct bus_peer and its subscription exist only while
 * a call or a session refers to the peer, so other clients do not wake profd.
 * A private connection has one caller, this process's own user.
 * Main thread only.
 */
#include "config.h"

#include "daemon/broker/bus-peers.h"

#include "daemon/broker/error.h"

#define BUS_NAME "org.freedesktop.DBus"
#define BUS_PATH "/org/freedesktop/DBus"

struct bus_peers {
	GDBusConnection *connection;
	void (*gone)(struct bus_peer *caller, void *data);
	void *data;
	GHashTable *by_name;   /* struct bus_peer, not referenced */
	struct bus_peer *only; /* the caller on a private connection */
	GCancellable *ended;
};

struct waiting {
	void (*done)(struct bus_peer *caller, const GError *error, void *data);
	void *data;
};

struct bus_peer *bus_peer_ref(struct bus_peer *caller)
{
	caller->refs++;
	return caller;
}

void bus_peer_unref(struct bus_peer *caller)
{
	if (!caller || --caller->refs > 0)
		return;
	if (caller->watch)
		g_dbus_connection_signal_unsubscribe(caller->callers->connection, caller->watch);
	if (caller->name)
		g_hash_table_remove(caller->callers->by_name, caller->name);
	g_free(caller->name);
	g_free(caller);
}

static void on_name_owner_changed(GDBusConnection *connection, const char *sender, const char *path,
				  const char *interface, const char *name, GVariant *arguments,
				  gpointer data)
{
	struct bus_peer *caller = data;
	const char *owner;

	g_variant_get(arguments, "(&s&s&s)", NULL, NULL, &owner);
	if (*owner != '\0' || caller->gone)
		return;
	bus_peer_ref(caller);
	caller->gone = true;
	if (caller->known)
		caller->callers->gone(caller, caller->callers->data);
	bus_peer_unref(caller);
}

static void on_credentials(GObject *source, GAsyncResult *result, gpointer data)
{
	struct bus_peer *caller = data;
	g_autoptr(GError) error = NULL;
	g_autoptr(GVariant) dictionary = NULL;
	g_autoptr(GVariant)
		reply = g_dbus_connection_call_finish(G_DBUS_CONNECTION(source), result, &error);
	guint32 uid, pid = 0;
	GSList *waiting;

	if (reply) {
		dictionary = g_variant_get_child_value(reply, 0);
		g_variant_lookup(dictionary, "ProcessID", "u", &pid);
		if (!g_variant_lookup(dictionary, "UnixUserID", "u", &uid))
			broker_fail(&error, BROKER_ERROR_NOT_AUTHORIZED,
				    "the bus does not know whose client \"%s\" is", caller->name);
	} else if (g_cancellable_is_cancelled(caller->callers->ended)) {
		g_clear_error(&error);
		broker_fail(&error, BROKER_ERROR_FAILED, "profd ends");
	} else {
		g_dbus_error_strip_remote_error(error);
	}
	if (!error && caller->gone)
		broker_fail(&error, BROKER_ERROR_FAILED, "the caller left the bus");
	if (!error) {
		caller->uid = uid;
		caller->pid = (pid_t)pid;
		caller->known = true;
	}
	waiting = g_slist_reverse(g_steal_pointer(&caller->waiting));
	for (GSList *item = waiting; item; item = item->next) {
		const struct waiting *one = item->data;

		one->done(error ? NULL : caller, error, one->data);
	}
	g_slist_free_full(waiting, g_free);
	bus_peer_unref(caller); /* the reference that the waiting calls held */
}

static struct bus_peer *identify(struct bus_peers *callers, const char *sender)
{
	struct bus_peer *caller = g_new0(struct bus_peer, 1);

	caller->callers = callers;
	caller->name = g_strdup(sender);
	caller->uid = (uid_t)-1;
	caller->refs = 1;
	g_hash_table_insert(callers->by_name, caller->name, caller);
	caller->watch = g_dbus_connection_signal_subscribe(callers->connection, BUS_NAME, BUS_NAME,
							   "NameOwnerChanged", BUS_PATH,
							   caller->name, G_DBUS_SIGNAL_FLAGS_NONE,
							   on_name_owner_changed, caller, NULL);
	g_dbus_connection_call(callers->connection, BUS_NAME, BUS_PATH, BUS_NAME,
			       "GetConnectionCredentials", g_variant_new("(s)", sender),
			       G_VARIANT_TYPE("(a{sv})"), G_DBUS_CALL_FLAGS_NONE, -1,
			       callers->ended, on_credentials, caller);
	return caller;
}

void bus_peers_identify(struct bus_peers *callers, const char *sender,
			void (*done)(struct bus_peer *caller, const GError *error, void *data),
			void *data)
{
	struct bus_peer *caller = callers->only;
	struct waiting *waiting;

	if (!caller)
		caller = g_hash_table_lookup(callers->by_name, sender);
	if (caller && caller->known && !caller->gone) {
		done(caller, NULL, data);
		return;
	}
	if (!caller || caller->gone) {
		/* A caller that has left may still be referenced; its name never comes back. */
		if (caller) {
			g_autoptr(GError) error = NULL;

			broker_fail(&error, BROKER_ERROR_FAILED, "the caller left the bus");
			done(NULL, error, data);
			return;
		}
		caller = identify(callers, sender);
	}
	waiting = g_new(struct waiting, 1);
	*waiting = (struct waiting){ .done = done, .data = data };
	caller->waiting = g_slist_prepend(caller->waiting, waiting);
}

struct bus_peers *bus_peers_new(GDBusConnection *connection, bool bus,
				void (*gone)(struct bus_peer *caller, void *data), void *data)
{
	struct bus_peers *callers = g_new0(struct bus_peers, 1);

	callers->connection = g_object_ref(connection);
	callers->gone = gone;
	callers->data = data;
	callers->by_name = g_hash_table_new(g_str_hash, g_str_equal);
	callers->ended = g_cancellable_new();
	if (!bus) {
		callers->only = g_new0(struct bus_peer, 1);
		callers->only->callers = callers;
		callers->only->uid = geteuid();
		callers->only->pid = getpid();
		callers->only->refs = 1;
		callers->only->known = true;
	}
	return callers;
}

void bus_peers_end(struct bus_peers *callers)
{
	g_cancellable_cancel(callers->ended);
}

void bus_peers_free(struct bus_peers *callers)
{
	bus_peer_unref(g_steal_pointer(&callers->only));
	g_hash_table_unref(callers->by_name);
	g_object_unref(callers->ended);
	g_object_unref(callers->connection);
	g_free(callers);
}
