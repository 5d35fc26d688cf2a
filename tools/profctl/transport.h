/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>
#include <stdbool.h>

#define PROFD_NAME "org.profd.Profiler1"
#define PROFD_PATH "/org/profd/Profiler1"
#define PROFD_INTERFACE "org.profd.Profiler1"
#define PROFD_SESSION_INTERFACE "org.profd.Profiler1.Session"

/* A connection to a profd. All errors are CLI_ERROR. */
struct transport {
	GDBusConnection *connection; /* NULL: not open */
	char *destination; /* unique bus name of profd; NULL: private, profd is the peer */
	pid_t pid;         /* pid of a private profd, else 0 */
	bool is_absent;    /* not opened, because there is no bus or no profd on it */
};

enum transport_kind {
	TRANSPORT_PRIVATE, /* a private profd, which is started */
	TRANSPORT_PROBES,  /* a private profd with the right to place probes in programs */
	TRANSPORT_SYSTEM,  /* the system's profd, which is started if needed */
	/* The system's profd, if it is running already. It gets no request, not even for its
	 * version. */
	TRANSPORT_RUNNING,
};

/* Opens a connection. Waits at most ten seconds, or until SIGINT or SIGTERM (CLI_INTERRUPTED).
 * CLI_NO_DAEMON: profd is missing or has an incompatible version. */
bool transport_open(struct transport *transport, enum transport_kind kind, GError **error);
/* Closes the connection. Waits briefly for a private profd to end. */
void transport_close(struct transport *transport);

/* Returns 1 if the system bus has the name or can start its service, 0 if not, -ENOTCONN if there
 * is no bus. Starts nothing. */
int transport_bus_has(const char *name);

/* Returns the error of a call for the user: without the D-Bus error name, and with a matching exit
 * status. */
GError *transport_translate(const GError *error);
