/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>
#include <stdbool.h>

#define PROFD_NAME "org.profd.Profiler1"
#define PROFD_PATH "/org/profd/Profiler1"
#define PROFD_INTERFACE "org.profd.Profiler1"
#define PROFD_SESSION_INTERFACE "org.profd.Profiler1.Session"

/* A way to a profd. Errors are CLI_ERROR. */
struct transport {
	GDBusConnection *connection; /* NULL: not open */
	char *destination; /* profd's unique name on the bus; NULL: private, profd is the peer */
	pid_t pid;         /* of a private profd, else 0 */
};

/* What opens one waits ten seconds or less, and no longer where SIGINT or SIGTERM comes
 * (CLI_INTERRUPTED). */

/* Starts a profd of our own and connects to it. CLI_NO_DAEMON. */
bool transport_open_private(struct transport *transport, GError **error);
/* The system's, which is started if need be. CLI_NO_DAEMON: there is none, or none of a version
 * that we understand. */
bool transport_open_system(struct transport *transport, GError **error);
/* The same, where it runs already. Nothing is asked of it, not even its version. */
bool transport_open_running(struct transport *transport, GError **error);
/* Waits a moment for a private profd to end. */
void transport_close(struct transport *transport);

/* 1: the system bus has that name, or can start its service; 0: not; -ENOTCONN: there is no bus.
 * Starts nothing. */
int transport_bus_has(const char *name);

/* An error of a call, as the user reads it: without the name that D-Bus gives it, and with the
 * exit status that fits. */
GError *transport_translate(const GError *error);
