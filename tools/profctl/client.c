/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Client - profctl's side of a session
 *
 * The session is bound to the connection (transport.c): when this process ends, for any reason,
 * profd finishes the file.
 */
#include "config.h"

#include "tools/profctl/client.h"

#include "tools/common/cli.h"
#include "tools/profctl/transport.h"

#include <gio/gunixfdlist.h>
#include <glib/gi18n.h>
#include <stdio.h>
#include <unistd.h>

struct client {
	const struct client_listener *listener;
	void *data;
	struct transport transport;
	GCancellable *cancellable; /* of calls that have no answer yet */
	guint subscriptions[3];
	char *session; /* object path */
	char *control; /* where the command's collectors register; NULL: nowhere */
	int sysprof;   /* the same for sysprof's collectors; -1: nowhere */
	bool without_sysprof;
	bool over; /* finished or failed was called */
};

/* ---- The end of profd ------------------------------------------------------------------------ */

static void fail(struct client *client, const GError *error)
{
	if (client->over)
		return;
	client->over = true;
	client->listener->failed(error, client->data);
}

static void fail_gone(struct client *client)
{
	g_autoptr(GError) closed =
		g_error_new_literal(G_IO_ERROR, G_IO_ERROR_CLOSED, "the connection is closed");
	g_autoptr(GError) error = transport_translate(closed);

	fail(client, error);
}

static void on_closed(GDBusConnection *connection, gboolean remote_vanished, GError *error,
		      gpointer data)
{
	fail_gone(data);
}

/* profd's name on the bus. The only subscribed change is its loss. */
static void on_owner_changed(GDBusConnection *connection, const char *sender, const char *path,
			     const char *interface, const char *name, GVariant *arguments,
			     gpointer data)
{
	fail_gone(data);
}

/* Another client may Close the session; then no Finished follows. */
static void on_removed(GDBusConnection *connection, const char *sender, const char *path,
		       const char *interface, const char *name, GVariant *arguments, gpointer data)
{
	struct client *client = data;
	g_autoptr(GError) error = NULL;
	const char *session;

	if (!client->session || !g_variant_is_of_type(arguments, G_VARIANT_TYPE("(oas)")))
		return;
	g_variant_get(arguments, "(&oas)", &session, NULL);
	if (strcmp(session, client->session) != 0)
		return;
	error = g_error_new_literal(
		CLI_ERROR, CLI_FAILURE,
		_("somebody closed the session; the capture has what was recorded until then"));
	fail(client, error);
}

/* ---- Signals --------------------------------------------------------------------------------- */

static void read_counters(GVariant *dictionary, struct client_counters *counters)
{
	*counters = (struct client_counters){ 0 };
	g_variant_lookup(dictionary, "samples", "t", &counters->samples);
	g_variant_lookup(dictionary, "events", "t", &counters->events);
	g_variant_lookup(dictionary, "lost", "t", &counters->lost);
	g_variant_lookup(dictionary, "bytes", "t", &counters->bytes);
}

static void on_finished(struct client *client, GVariant *arguments)
{
	g_autoptr(GVariant) summary = NULL;
	const char *reason;
	gboolean ok;

	g_variant_get(arguments, "(b&s@a{sv})", &ok, &reason, &summary);
	client->over = true;
	client->listener->finished(ok, reason, summary, client->data);
}

static void on_signal(GDBusConnection *connection, const char *sender, const char *path,
		      const char *interface, const char *name, GVariant *arguments, gpointer data)
{
	struct client *client = data;

	if (client->over)
		return;
	if (strcmp(name, "Progress") == 0 &&
	    g_variant_is_of_type(arguments, G_VARIANT_TYPE("(a{sv})"))) {
		g_autoptr(GVariant) dictionary = g_variant_get_child_value(arguments, 0);
		struct client_counters counters;

		read_counters(dictionary, &counters);
		client->listener->progress(&counters, client->data);
	} else if (strcmp(name, "Warning") == 0 &&
		   g_variant_is_of_type(arguments, G_VARIANT_TYPE("(ss)"))) {
		const char *code, *message;

		g_variant_get(arguments, "(&s&s)", &code, &message);
		client->listener->warning(code, message, client->data);
	} else if (strcmp(name, "Finished") == 0 &&
		   g_variant_is_of_type(arguments, G_VARIANT_TYPE("(bsa{sv})"))) {
		on_finished(client, arguments);
	}
}

/* ---- Making and freeing ---------------------------------------------------------------------- */

static void listen(struct client *client)
{
	const struct transport *transport = &client->transport;

	/* profd sends signals only to its client, so the bus needs no rule for them */
	client->subscriptions[0] = g_dbus_connection_signal_subscribe(
		transport->connection, transport->destination, PROFD_SESSION_INTERFACE, NULL, NULL,
		NULL, G_DBUS_SIGNAL_FLAGS_NO_MATCH_RULE, on_signal, client, NULL);
	client->subscriptions[2] = g_dbus_connection_signal_subscribe(
		transport->connection, transport->destination, "org.freedesktop.DBus.ObjectManager",
		"InterfacesRemoved", NULL, NULL, G_DBUS_SIGNAL_FLAGS_NO_MATCH_RULE, on_removed,
		client, NULL);
	if (transport->destination)
		client->subscriptions[1] = g_dbus_connection_signal_subscribe(
			transport->connection, "org.freedesktop.DBus", "org.freedesktop.DBus",
			"NameOwnerChanged", "/org/freedesktop/DBus", transport->destination,
			G_DBUS_SIGNAL_FLAGS_NONE, on_owner_changed, client, NULL);
	g_signal_connect(transport->connection, "closed", G_CALLBACK(on_closed), client);
}

static struct client *client_new(bool system, const struct client_listener *listener, void *data,
				 GError **error)
{
	struct client *client = g_new0(struct client, 1);

	client->listener = listener;
	client->sysprof = -1;
	client->data = data;
	if (!(system ? transport_open_system : transport_open_private)(&client->transport, error)) {
		g_free(client);
		return NULL;
	}
	client->cancellable = g_cancellable_new();
	listen(client);
	return client;
}

bool client_is_system(const struct client *client)
{
	return client->transport.destination;
}

struct client *client_open(enum client_bus bus, const GError *why, bool quiet,
			   const struct client_listener *listener, void *data, GError **error)
{
	g_autoptr(GError) absent = NULL;
	struct client *client = NULL;

	if (bus != CLIENT_PRIVATE) {
		client = client_new(true, listener, data, &absent);
		if (client)
			return client;
		if (bus == CLIENT_SYSTEM || absent->code == CLI_INTERRUPTED) {
			g_propagate_error(error, g_steal_pointer(&absent));
			return NULL;
		}
		why = absent;
	}
	if (why && !quiet && geteuid() != 0) { /* root has the same rights as the service */
		g_autofree char *text = text_escape(why->message);

		fprintf(stderr, _("profctl: recording with a profd of its own, since %s\n"), text);
	}
	return client_new(false, listener, data, error);
}

bool client_may_fall_back(const struct client *client, enum client_bus bus, const GError *error)
{
	return bus == CLIENT_ANY && client_is_system(client) &&
	       (error->code == CLI_NOT_PERMITTED || error->code == CLI_NO_DAEMON);
}

void client_free(struct client *client)
{
	if (!client)
		return;
	client->over = true;
	/* pending answers find no client */
	g_cancellable_cancel(client->cancellable);
	g_object_unref(client->cancellable);
	g_signal_handlers_disconnect_by_data(client->transport.connection, client);
	for (size_t i = 0; i < ARRAY_SIZE(client->subscriptions); i++)
		if (client->subscriptions[i])
			g_dbus_connection_signal_unsubscribe(client->transport.connection,
							     client->subscriptions[i]);
	transport_close(&client->transport);
	g_free(client->session);
	g_free(client->control);
	if (client->sysprof >= 0)
		close(client->sysprof);
	g_free(client);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static bool was_cancelled(const GError *error)
{
	return g_error_matches(error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
}

static void fail_call(struct client *client, const GError *failure)
{
	g_autoptr(GError) error = transport_translate(failure);

	fail(client, error);
}

static void on_created(GObject *source, GAsyncResult *result, gpointer data)
{
	g_autoptr(GError) failure = NULL;
	g_autoptr(GVariant)
		reply = g_dbus_connection_call_with_unix_fd_list_finish(G_DBUS_CONNECTION(source),
									NULL, result, &failure);
	struct client *client = data;

	if (!reply && was_cancelled(failure))
		return;
	if (!reply) {
		fail_call(client, failure);
	} else if (!client->over) {
		g_variant_get(reply, "(o)", &client->session);
		client->listener->created(client->data);
	}
}

bool client_create(struct client *client, GVariant *options, int capture_fd, int switch_fd,
		   GError **error)
{
	g_autoptr(GVariant) owned = g_variant_ref_sink(options);
	g_autoptr(GUnixFDList) fds = g_unix_fd_list_new();
	g_autoptr(GError) failure = NULL;
	int index = g_unix_fd_list_append(fds, capture_fd, &failure);

	if (index < 0 || (switch_fd >= 0 && g_unix_fd_list_append(fds, switch_fd, &failure) < 0)) {
		g_propagate_error(error, transport_translate(failure));
		return false;
	}
	/* the user may have to type a password first */
	g_dbus_connection_call_with_unix_fd_list(
		client->transport.connection, client->transport.destination, PROFD_PATH,
		PROFD_INTERFACE, "CreateSession", g_variant_new("(@a{sv}h)", owned, index),
		G_VARIANT_TYPE("(o)"),
		switch_fd >= 0 ? G_DBUS_CALL_FLAGS_NONE
			       : G_DBUS_CALL_FLAGS_ALLOW_INTERACTIVE_AUTHORIZATION,
		G_MAXINT, fds, client->cancellable, on_created, client);
	return true;
}

static void on_start_reply(GObject *source, GAsyncResult *result, gpointer data)
{
	g_autoptr(GError) failure = NULL;
	g_autoptr(GVariant)
		reply = g_dbus_connection_call_finish(G_DBUS_CONNECTION(source), result, &failure);
	struct client *client = data;

	if (!reply && was_cancelled(failure))
		return;
	if (!reply)
		fail_call(client, failure);
	else if (!client->over)
		client->listener->started(client->data);
}

static void call(struct client *client, const char *method, GAsyncReadyCallback done)
{
	g_dbus_connection_call(client->transport.connection, client->transport.destination,
			       client->session, PROFD_SESSION_INTERFACE, method, NULL, NULL,
			       G_DBUS_CALL_FLAGS_NONE, G_MAXINT, done ? client->cancellable : NULL,
			       done, done ? client : NULL);
}

void client_start(struct client *client)
{
	call(client, "Start", on_start_reply);
}

static void on_sysprof(GObject *source, GAsyncResult *result, gpointer data)
{
	g_autoptr(GUnixFDList) fds = NULL;
	g_autoptr(GError) failure = NULL;
	g_autoptr(GVariant)
		reply = g_dbus_connection_call_with_unix_fd_list_finish(G_DBUS_CONNECTION(source),
									&fds, result, &failure);
	struct client *client = data;
	int index;

	if (!reply && was_cancelled(failure))
		return;
	if (client->over)
		return;
	if (reply && fds && g_variant_is_of_type(reply, G_VARIANT_TYPE("(h)"))) {
		g_variant_get(reply, "(h)", &index);
		client->sysprof = g_unix_fd_list_get(fds, index, NULL);
	}
	client_start(client);
}

/* An older profd does not have this method. */
static void open_sysprof(struct client *client)
{
	g_dbus_connection_call_with_unix_fd_list(client->transport.connection,
						 client->transport.destination, client->session,
						 PROFD_SESSION_INTERFACE, "OpenSysprof", NULL, NULL,
						 G_DBUS_CALL_FLAGS_NONE, G_MAXINT, NULL,
						 client->cancellable, on_sysprof, client);
}

/* A profd that is older or lacks this socket records anyway. */
static void on_control(GObject *source, GAsyncResult *result, gpointer data)
{
	g_autoptr(GError) failure = NULL;
	g_autoptr(GVariant)
		reply = g_dbus_connection_call_finish(G_DBUS_CONNECTION(source), result, &failure);
	struct client *client = data;

	if (!reply && was_cancelled(failure))
		return;
	if (client->over)
		return;
	if (reply && g_variant_is_of_type(reply, G_VARIANT_TYPE("(s)")))
		g_variant_get(reply, "(s)", &client->control);
	if (client->without_sysprof)
		client_start(client);
	else
		open_sysprof(client);
}

void client_start_with_collectors(struct client *client, bool without_sysprof)
{
	client->without_sysprof = without_sysprof;
	call(client, "OpenControl", on_control);
}

int client_sysprof(const struct client *client)
{
	return client->sysprof;
}

const char *client_control(const struct client *client)
{
	return client->control;
}

void client_stop(struct client *client)
{
	call(client, "Stop", NULL);
}

void client_resume(struct client *client)
{
	call(client, "Resume", NULL);
}

bool client_open_image(struct client *client, uint64_t image, int *ret_fd, GError **error)
{
	g_autoptr(GUnixFDList) fds = NULL;
	g_autoptr(GError) failure = NULL;
	g_autoptr(GVariant) reply = g_dbus_connection_call_with_unix_fd_list_sync(
		client->transport.connection, client->transport.destination, client->session,
		PROFD_SESSION_INTERFACE, "OpenImage", g_variant_new("(t)", (guint64)image),
		G_VARIANT_TYPE("(h)"), G_DBUS_CALL_FLAGS_NONE, -1, NULL, &fds, NULL, &failure);
	int index, fd = -1;

	if (reply && fds) {
		g_variant_get(reply, "(h)", &index);
		fd = g_unix_fd_list_get(fds, index, &failure);
	}
	if (fd < 0) {
		g_propagate_error(error, failure ? transport_translate(failure)
						 : g_error_new(CLI_ERROR, CLI_FAILURE,
							       "profd sent no descriptor"));
		return false;
	}
	*ret_fd = fd;
	return true;
}
