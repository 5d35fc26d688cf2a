/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Closer - closes what clients sent
 *
 * close() of a file of FUSE asks its server, which may never answer, and SIGKILL does not end that; a network's file
 * system is as bad. It does so for each descriptor, not only for the last one, so there is no way to be rid of it but to
 * wait, on a thread that nobody waits for. That goes for all descriptors in messages, also of calls that are refused or are
 * not there: GDBus closes them with the message, wherever that is, unless there is a reference to the list.
 * A process does not end before such a thread does: profd that has been told to end has no name on the bus by then, and a
 * connection that is shut down.
 * Invariants: (1) neither the main loop nor GDBus's thread closes what a client sent   [attack-capture: server that hangs]
 *             (2) no more than MAX_THREADS wait; what comes then stays open until one of them is done
 */
#include "config.h"

#include "daemon/broker/closer.h"

#include <gio/gunixfdlist.h>

#define MAX_THREADS 64
#define KEY "prof-descriptors"

static GMutex lock;
static GQueue waiting = G_QUEUE_INIT; /* GUnixFDList */
static unsigned n_threads;

/* Closes them; then the next ones that wait. */
static gpointer run(gpointer data)
{
	while (data) {
		g_object_unref(data);
		g_mutex_lock(&lock);
		data = g_queue_pop_head(&waiting);
		n_threads -= data == NULL;
		g_mutex_unlock(&lock);
	}
	return NULL;
}

/* Takes over the list. Any thread. */
static void hand_over(gpointer list)
{
	GThread *thread = NULL;

	g_mutex_lock(&lock);
	if (n_threads < MAX_THREADS)
		thread = g_thread_try_new("closer", run, list, NULL);
	if (thread)
		n_threads++;
	else
		g_queue_push_tail(&waiting, list);
	g_mutex_unlock(&lock);
	if (thread)
		g_thread_unref(thread);
}

/* On GDBus's thread. The message drops its reference to the list before this one goes. */
static GDBusMessage *on_message(GDBusConnection *connection, GDBusMessage *message,
				gboolean incoming, gpointer data)
{
	GUnixFDList *list = incoming ? g_dbus_message_get_unix_fd_list(message) : NULL;

	if (list)
		g_object_set_data_full(G_OBJECT(message), KEY, g_object_ref(list), hand_over);
	return message;
}

void closer_watch(GDBusConnection *connection)
{
	g_dbus_connection_add_filter(connection, on_message, NULL, NULL);
}

void closer_close(int fd)
{
	if (fd >= 0)
		hand_over(g_unix_fd_list_new_from_array(&fd, 1));
}
