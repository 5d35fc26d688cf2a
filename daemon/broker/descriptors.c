/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Descriptors - closes the descriptors of D-Bus messages without blocking
 *
 * GDBus closes the descriptors of a message when it frees the message, on any thread, unless their
 * list has another reference. So each list gets another reference here. This applies to every
 * message, including calls that are refused or unknown.
 * Invariants: (1) neither the main loop nor GDBus's thread closes a descriptor that a client sent
 *                 [test_attack_capture: server that hangs]
 */
#include "config.h"

#include "daemon/broker/descriptors.h"

#include "daemon/deferred-close.h"

#include <gio/gunixfdlist.h>

#define KEY "prof-descriptors"

static void close_all(gpointer data)
{
	g_autoptr(GUnixFDList) list = data;
	int n;
	g_autofree int *fds = g_unix_fd_list_steal_fds(list, &n);

	for (int i = 0; i < n; i++)
		deferred_close(fds[i]);
}

/* Runs on GDBus's thread. A message that is freed drops its own reference to the list before the
 * reference that is added here, so nobody else uses the list in close_all(). */
static GDBusMessage *on_message(GDBusConnection *connection, GDBusMessage *message,
				gboolean incoming, gpointer data)
{
	GUnixFDList *list = incoming ? g_dbus_message_get_unix_fd_list(message) : NULL;

	if (list)
		g_object_set_data_full(G_OBJECT(message), KEY, g_object_ref(list), close_all);
	return message;
}

void descriptors_watch(GDBusConnection *connection)
{
	g_dbus_connection_add_filter(connection, on_message, NULL, NULL);
}
