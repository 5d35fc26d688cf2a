/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Client - profctl's side of a session
 *
 *     CreateSession ▶ OpenControl, OpenSysprof (if wanted) ▶ Start
 *
 * The session ends with the connection (transport.c): when profctl ends for any reason, profd
 * finishes the file. With CLIENT_ANY, if the system's profd refuses CreateSession, the client
 * starts a private profd and retries.
 */
#include "config.h"

#include "tools/profctl/client.h"

#include "tools/common/cli.h"
#include "tools/profctl/transport.h"

#include <gio/gunixfdlist.h>
#include <glib/gi18n.h>
#include <stdio.h>
#include <unistd.h>

enum step { STEP_CREATE, STEP_CONTROL, STEP_SYSPROF, STEP_START, STEP_STARTED };

struct client {
	struct client_request request;
	const struct client_listener *listener;
	void *data;
	struct transport transport;
	GCancellable *cancellable; /* cancels pending calls */
	guint subscriptions[3];
	enum step step;
	char *session; /* object path */
	char *control; /* address at which the command's collectors register; NULL: none */
	int sysprof;   /* socket at which sysprof's collectors register; -1: none */
	bool over;     /* the listener is no longer called */
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

/* Called when profd loses its name on the bus; other changes are not subscribed to. */
static void on_owner_changed(GDBusConnection *connection, const char *sender, const char *path,
			     const char *interface, const char *name, GVariant *arguments,
			     gpointer data)
{
	fail_gone(data);
}

/* Called when profd removes a session. If another client closed our session, Finished is never
 * sent. */
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
	cli_set_error(
		&error, CLI_FAILURE,
		_("somebody closed the session; the capture has what was recorded until then"));
	fail(client, error);
}

/* ---- Signals --------------------------------------------------------------------------------- */

static void on_signal(GDBusConnection *connection, const char *sender, const char *path,
		      const char *interface, const char *name, GVariant *arguments, gpointer data)
{
	struct client *client = data;
	const struct client_listener *listener = client->listener;
	struct client_counters counters = { 0 };
	g_autoptr(GVariant) dictionary = NULL;
	const char *text;
	gboolean ok;

	if (client->over)
		return;
	if (strcmp(name, "Progress") == 0 && listener->progress &&
	    g_variant_is_of_type(arguments, G_VARIANT_TYPE("(a{sv})"))) {
		dictionary = g_variant_get_child_value(arguments, 0);
		g_variant_lookup(dictionary, "samples", "t", &counters.samples);
		g_variant_lookup(dictionary, "events", "t", &counters.events);
		g_variant_lookup(dictionary, "lost", "t", &counters.lost);
		g_variant_lookup(dictionary, "bytes", "t", &counters.bytes);
		listener->progress(&counters, client->data);
	} else if (strcmp(name, "Warning") == 0 &&
		   g_variant_is_of_type(arguments, G_VARIANT_TYPE("(ss)"))) {
		g_variant_get(arguments, "(&s&s)", NULL, &text);
		listener->warning(text, client->data);
	} else if (strcmp(name, "Finished") == 0 &&
		   g_variant_is_of_type(arguments, G_VARIANT_TYPE("(bsa{sv})"))) {
		g_variant_get(arguments, "(b&s@a{sv})", &ok, &text, &dictionary);
		client->over = true;
		listener->finished(ok, text, dictionary, client->data);
	}
}

/* ---- Connecting ------------------------------------------------------------------------------ */

static bool connect_to(struct client *client, enum transport_kind kind, GError **error)
{
	const struct transport *transport = &client->transport;

	if (!transport_open(&client->transport, kind, error))
		return false;
	/* profd sends signals directly to its client, so no match rule is needed */
	client->subscriptions[0] = g_dbus_connection_signal_subscribe(
		transport->connection, transport->destination, PROFD_SESSION_INTERFACE, NULL, NULL,
		NULL, G_DBUS_SIGNAL_FLAGS_NO_MATCH_RULE, on_signal, client, NULL);
	client->subscriptions[1] = g_dbus_connection_signal_subscribe(
		transport->connection, transport->destination, "org.freedesktop.DBus.ObjectManager",
		"InterfacesRemoved", NULL, NULL, G_DBUS_SIGNAL_FLAGS_NO_MATCH_RULE, on_removed,
		client, NULL);
	if (transport->destination)
		client->subscriptions[2] = g_dbus_connection_signal_subscribe(
			transport->connection, "org.freedesktop.DBus", "org.freedesktop.DBus",
			"NameOwnerChanged", "/org/freedesktop/DBus", transport->destination,
			G_DBUS_SIGNAL_FLAGS_NONE, on_owner_changed, client, NULL);
	g_signal_connect(transport->connection, "closed", G_CALLBACK(on_closed), client);
	return true;
}

static void disconnect(struct client *client)
{
	if (client->transport.connection)
		g_signal_handlers_disconnect_by_data(client->transport.connection, client);
	for (size_t i = 0; i < ARRAY_SIZE(client->subscriptions); i++) {
		if (client->subscriptions[i])
			g_dbus_connection_signal_unsubscribe(client->transport.connection,
							     client->subscriptions[i]);
		client->subscriptions[i] = 0;
	}
	transport_close(&client->transport);
}

/* Starts a private profd. `why`: error of the system's profd; NULL: no error, it was not tried. */
static bool connect_private(struct client *client, const GError *why, GError **error)
{
	if (why && !client->request.quiet && geteuid() != 0) { /* root has the same privileges */
		g_autofree char *text = text_escape(why->message);

		fprintf(stderr, _("profctl: recording with a profd of its own, because %s\n"),
			text);
	}
	return connect_to(client, client->request.probes ? TRANSPORT_PROBES : TRANSPORT_PRIVATE,
			  error);
}

/* ---- Creating and starting the session ------------------------------------------------------- */

static void call(struct client *client, const char *method, GAsyncReadyCallback done)
{
	g_dbus_connection_call_with_unix_fd_list(
		client->transport.connection, client->transport.destination, client->session,
		PROFD_SESSION_INTERFACE, method, NULL, NULL, G_DBUS_CALL_FLAGS_NONE, G_MAXINT, NULL,
		done ? client->cancellable : NULL, done, done ? client : NULL);
}

static void on_reply(GObject *source, GAsyncResult *result, gpointer data);

static bool create(struct client *client, GError **error)
{
	const struct client_request *request = &client->request;
	g_autoptr(GUnixFDList) fds = g_unix_fd_list_new();
	g_autoptr(GError) failure = NULL;
	int index = g_unix_fd_list_append(fds, request->capture_fd, &failure);

	if (index < 0 || (request->switch_fd >= 0 &&
			  g_unix_fd_list_append(fds, request->switch_fd, &failure) < 0)) {
		g_propagate_error(error, transport_translate(failure));
		return false;
	}
	/* no timeout: the user may have to type a password first */
	g_dbus_connection_call_with_unix_fd_list(
		client->transport.connection, client->transport.destination, PROFD_PATH,
		PROFD_INTERFACE, "CreateSession",
		g_variant_new("(@a{sv}h)", request->options, index), G_VARIANT_TYPE("(o)"),
		request->switch_fd >= 0 ? G_DBUS_CALL_FLAGS_NONE
					: G_DBUS_CALL_FLAGS_ALLOW_INTERACTIVE_AUTHORIZATION,
		G_MAXINT, fds, client->cancellable, on_reply, client);
	return true;
}

static void on_refused(struct client *client, const GError *failure)
{
	g_autoptr(GError) why = transport_translate(failure);
	g_autoptr(GError) error = NULL;

	if (client->step > STEP_CREATE || client->request.bus != CLIENT_ANY ||
	    !client_is_system(client) ||
	    (why->code != CLI_NOT_PERMITTED && why->code != CLI_NO_DAEMON)) {
		fail(client, why);
		return;
	}
	disconnect(client);
	if (!connect_private(client, why, &error) || !create(client, &error))
		fail(client, error);
}

static void on_reply(GObject *source, GAsyncResult *result, gpointer data)
{
	static const char *const methods[] = { [STEP_CONTROL] = "OpenControl",
					       [STEP_SYSPROF] = "OpenSysprof",
					       [STEP_START] = "Start" };
	g_autoptr(GUnixFDList) fds = NULL;
	g_autoptr(GError) failure = NULL;
	g_autoptr(GVariant)
		reply = g_dbus_connection_call_with_unix_fd_list_finish(G_DBUS_CONNECTION(source),
									&fds, result, &failure);
	struct client *client = data;
	int index;

	if (g_error_matches(failure, G_IO_ERROR, G_IO_ERROR_CANCELLED) || client->over)
		return;
	/* If profd does not open a socket, for example because it is older than profctl, continue:
	 * it can still record. */
	if (client->step == STEP_CREATE && reply) {
		g_variant_get(reply, "(o)", &client->session);
	} else if (client->step == STEP_CONTROL && reply &&
		   g_variant_is_of_type(reply, G_VARIANT_TYPE("(s)"))) {
		g_variant_get(reply, "(s)", &client->control);
	} else if (client->step == STEP_SYSPROF && reply && fds &&
		   g_variant_is_of_type(reply, G_VARIANT_TYPE("(h)"))) {
		g_variant_get(reply, "(h)", &index);
		client->sysprof = g_unix_fd_list_get(fds, index, NULL);
	} else if (!reply && (client->step == STEP_CREATE || client->step == STEP_START)) {
		on_refused(client, failure);
		return;
	}
	client->step++;
	if (client->step == STEP_CONTROL && !client->request.wants_control)
		client->step++;
	if (client->step == STEP_SYSPROF && !client->request.wants_sysprof)
		client->step++;
	if (client->step == STEP_STARTED)
		client->listener->started(client->control, client->sysprof, client->data);
	else
		call(client, methods[client->step], on_reply);
}

struct client *client_open(const struct client_request *request,
			   const struct client_listener *listener, void *data, GError **error)
{
	struct client *client = g_new0(struct client, 1);
	g_autoptr(GError) absent = NULL;
	bool ok = false;

	client->request = *request;
	client->request.options = g_variant_ref_sink(request->options);
	client->listener = listener;
	client->data = data;
	client->cancellable = g_cancellable_new();
	client->sysprof = -1;
	if (request->bus == CLIENT_SYSTEM ||
	    (request->bus == CLIENT_ANY && !(request->probes && geteuid() == 0)))
		ok = connect_to(client, TRANSPORT_SYSTEM, &absent);
	if (!ok && (request->bus == CLIENT_SYSTEM || (absent && absent->code == CLI_INTERRUPTED)))
		g_propagate_error(error, g_steal_pointer(&absent));
	else if (!ok)
		ok = connect_private(client, absent, error);
	if (ok && create(client, error))
		return client;
	client_free(client);
	return NULL;
}

void client_free(struct client *client)
{
	if (!client)
		return;
	client->over = true;
	/* pending calls must no longer use the client */
	g_cancellable_cancel(client->cancellable);
	g_object_unref(client->cancellable);
	disconnect(client);
	g_variant_unref(client->request.options);
	g_free(client->session);
	g_free(client->control);
	if (client->sysprof >= 0)
		close(client->sysprof);
	g_free(client);
}

/* ---- A session that exists ------------------------------------------------------------------- */

bool client_is_system(const struct client *client)
{
	return client->transport.destination;
}

void client_stop(struct client *client)
{
	if (client->step == STEP_STARTED)
		call(client, "Stop", NULL);
	else
		client->over = true;
}

void client_resume(struct client *client)
{
	call(client, "Resume", NULL);
}

int client_open_image(struct client *client, uint64_t image)
{
	g_autoptr(GUnixFDList) fds = NULL;
	g_autoptr(GVariant) reply = g_dbus_connection_call_with_unix_fd_list_sync(
		client->transport.connection, client->transport.destination, client->session,
		PROFD_SESSION_INTERFACE, "OpenImage", g_variant_new("(t)", (guint64)image),
		G_VARIANT_TYPE("(h)"), G_DBUS_CALL_FLAGS_NONE, -1, NULL, &fds, NULL, NULL);
	int index;

	if (!reply || !fds)
		return -1;
	g_variant_get(reply, "(h)", &index);
	return g_unix_fd_list_get(fds, index, NULL);
}
