/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Name - requests and releases a name on the bus without waiting for the bus
 *
 * GLib's g_bus_unown_name() waits for the answer, so a bus that does not answer would prevent profd
 * from finishing files. When a connection ends, the bus releases its names itself.
 * Invariants: (1) no call waits  [test_bus: bus that hangs]
 *             (2) `lost` is not called after the name was released
 * Main thread only.
 */
#include "config.h"

#include "daemon/broker/name.h"

#define RELEASE_PATIENCE_MS 2000
#define DO_NOT_QUEUE 4u /* D-Bus's flag: fail if another client has the name */
#define PRIMARY_OWNER 1u
#define BUS "org.freedesktop.DBus"
#define BUS_PATH "/org/freedesktop/DBus"

struct name {
	GDBusConnection *connection;
	GCancellable *cancellable; /* cancels unanswered calls */
	char *text;
	void (*lost)(void *data);
	void (*released)(void *data);
	void *data;
	guint subscription;
};

static void call(struct name *name, const char *method, GVariant *arguments, int timeout_ms,
		 GAsyncReadyCallback answered)
{
	g_dbus_connection_call(name->connection, BUS, BUS_PATH, BUS, method, arguments,
			       G_VARIANT_TYPE("(u)"), G_DBUS_CALL_FLAGS_NONE, timeout_ms,
			       name->cancellable, answered, name);
}

static void unsubscribe(struct name *name)
{
	if (name->subscription)
		g_dbus_connection_signal_unsubscribe(name->connection, name->subscription);
	name->subscription = 0;
}

static void on_lost(GDBusConnection *connection, const char *sender, const char *path,
		    const char *interface, const char *signal, GVariant *arguments, gpointer data)
{
	struct name *name = data;

	name->lost(name->data);
}

static void on_requested(GObject *source, GAsyncResult *result, gpointer data)
{
	g_autoptr(GError) error = NULL;
	g_autoptr(GVariant)
		reply = g_dbus_connection_call_finish(G_DBUS_CONNECTION(source), result, &error);
	struct name *name = data;
	guint32 owner = 0;

	if (g_error_matches(error, G_IO_ERROR, G_IO_ERROR_CANCELLED)) /* the name was freed */
		return;
	if (reply)
		g_variant_get(reply, "(u)", &owner);
	if (owner != PRIMARY_OWNER && name->subscription)
		name->lost(name->data);
}

static void on_released(GObject *source, GAsyncResult *result, gpointer data)
{
	g_autoptr(GError) error = NULL;
	g_autoptr(GVariant) reply = NULL;
	struct name *name = data;

	reply = g_dbus_connection_call_finish(G_DBUS_CONNECTION(source), result, &error);
	if (g_error_matches(error, G_IO_ERROR, G_IO_ERROR_CANCELLED))
		return;
	if (name->released)
		name->released(name->data);
}

struct name *name_new(GDBusConnection *connection, const char *text, void (*lost)(void *data),
		      void *data)
{
	struct name *name = g_new0(struct name, 1);

	name->connection = g_object_ref(connection);
	name->cancellable = g_cancellable_new();
	name->text = g_strdup(text);
	name->lost = lost;
	name->data = data;
	name->subscription =
		g_dbus_connection_signal_subscribe(connection, BUS, BUS, "NameLost", BUS_PATH, text,
						   G_DBUS_SIGNAL_FLAGS_NONE, on_lost, name, NULL);
	call(name, "RequestName", g_variant_new("(su)", text, DO_NOT_QUEUE), -1, on_requested);
	return name;
}

void name_release(struct name *name, void (*done)(void *data))
{
	unsubscribe(name);
	name->released = done;
	call(name, "ReleaseName", g_variant_new("(s)", name->text), RELEASE_PATIENCE_MS,
	     on_released);
}

void name_free(struct name *name)
{
	if (!name)
		return;
	unsubscribe(name);
	g_cancellable_cancel(name->cancellable);
	g_object_unref(name->cancellable);
	g_object_unref(name->connection);
	g_free(name->text);
	g_free(name);
}
