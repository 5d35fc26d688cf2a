/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>
#include <stdbool.h>

#define PROFD_NAME "org.profd.Profiler1"
#define PROFD_PATH "/org/profd/Profiler1"
#define PROFD_INTERFACE "org.profd.Profiler1"
#define PROFD_SESSION_INTERFACE "org.profd.Profiler1.Session"

/* A connection to a profd. Errors are CLI_ERROR. */
struct transport {
	GDBusConnection *connection; /* NULL: not open */
	char *destination; /* profd's unique name on the bus; NULL: private, profd is the peer */
	pid_t pid;         /* of a private profd, else 0 */
	bool is_absent;    /* it was not opened, because there is no bus or no profd on it */
};

enum transport_kind {
	TRANSPORT_PRIVATE, /* a profd of our own, which is started */
	TRANSPORT_SYSTEM,  /* the system's profd, which is started if necessary */
	/* Same, but only if it runs already. Sends it no query, not even for its version. */
	TRANSPORT_RUNNING,
};

/* Waits at most ten seconds, or until SIGINT or SIGTERM (CLI_INTERRUPTED). CLI_NO_DAEMON: that
 * profd is missing or has an incompatible version. */
bool transport_open(struct transport *transport, enum transport_kind kind, GError **error);
/* Waits briefly for a private profd to end. */
void transport_close(struct transport *transport);

/* Returns 1: the system bus has that name, or can start its service; 0: it does not; -ENOTCONN: no
 * bus. Starts nothing. */
int transport_bus_has(const char *name);

/* Returns the error of a call as the user should see it: without the D-Bus error name, and with the
 * matching exit status. */
GError *transport_translate(const GError *error);
