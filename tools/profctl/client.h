/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>
#include <stdbool.h>
#include <stdint.h>

/* The client's side of one session of a profd. */
struct client;

struct client_counters {
	uint64_t samples, events, lost, bytes;
};

/* All functions are called from the main loop. At most one of `failed` and `finished` is called,
 * once and last. */
struct client_listener {
	/* The session has started. It takes samples unless paused. `control`: the value for
	 * PROF_CONTROL; NULL: none. `sysprof`: descriptor for SYSPROF_CONTROL_FD; -1: none. Both
	 * are borrowed. */
	void (*started)(const char *control, int sysprof, void *data);
	void (*progress)(const struct client_counters *counters, void *data); /* or NULL */
	void (*warning)(const char *message, void *data);
	void (*finished)(bool ok, const char *reason, GVariant *summary, void *data);
	/* a CLI_ERROR; errors from profd have a matching exit status */
	void (*failed)(const GError *error, void *data);
};

/* CLIENT_ANY: the system's profd, or a private one if the system's is missing, has another version
 * or denies access. */
enum client_bus { CLIENT_ANY, CLIENT_SYSTEM, CLIENT_PRIVATE };

struct client_request {
	enum client_bus bus;
	/* Probes of programs are recorded. Newer kernels demand a right for this that the service
	 * does not have, so root uses a private profd, unless the system's is demanded. */
	bool probes;
	bool quiet; /* do not print why a private profd is used */
	/* Open the sockets at which collectors and sysprof's collectors register. */
	bool wants_control, wants_sysprof;
	GVariant *options; /* a{sv}, floating */
	int capture_fd;    /* borrowed, like switch_fd, while the client exists */
	/* The session's second descriptor: one end of a switch (record-control.c); -1: none. With a
	 * switch, a program waits for the recording, so the user must not be prompted for a
	 * password. */
	int switch_fd;
};

/* Connects to a profd, and requests that it creates and starts a session. Fails with CLI_ERROR
 * (CLI_NO_DAEMON). */
struct client *client_open(const struct client_request *request,
			   const struct client_listener *listener, void *data, GError **error);
/* Closes the connection. profd finishes a session that is still recording. Must not be called from
 * the listener. */
void client_free(struct client *client);
bool client_is_system(const struct client *client);

/* Stops the session; `finished` follows. If the session has not started yet, the listener is not
 * called any more. */
void client_stop(struct client *client);
void client_resume(struct client *client);
/* Opens the file of one of the capture's images. Returns -1 if profd does not have it. */
int client_open_image(struct client *client, uint64_t image);
