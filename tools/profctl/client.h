/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>
#include <stdbool.h>
#include <stdint.h>

/* One session of a profd, from its client's side. */
struct client;

struct client_counters {
	uint64_t samples, events, lost, bytes;
};

/* The main loop calls all of these; `failed` at most once, and nothing after it or after
 * `finished`. */
struct client_listener {
	/* The session samples, unless it is paused. control: the value for PROF_CONTROL; NULL:
	 * nowhere. sysprof: the descriptor for SYSPROF_CONTROL_FD; -1: none. Both are borrowed. */
	void (*started)(const char *control, int sysprof, void *data);
	void (*progress)(const struct client_counters *counters, void *data); /* NULL: ignored */
	void (*warning)(const char *message, void *data);
	void (*finished)(bool ok, const char *reason, GVariant *summary, void *data);
	/* a CLI_ERROR; errors of profd have a matching exit status */
	void (*failed)(const GError *error, void *data);
};

/* CLIENT_ANY: the system's profd, or one of our own if that is missing, has another version or
 * denies access. */
enum client_bus { CLIENT_ANY, CLIENT_SYSTEM, CLIENT_PRIVATE };

struct client_request {
	enum client_bus bus;
	bool quiet; /* else a line on standard error says why it is a profd of our own */
	/* Open the sockets at which collectors register, and those of sysprof. */
	bool wants_control, wants_sysprof;
	GVariant *options; /* a{sv}, floating */
	int capture_fd;    /* borrowed while the client exists, as the next one */
	/* The second descriptor, or -1. With a switch a program waits, so the user is not asked for
	 * a password. */
	int switch_fd;
};

/* Connects to a profd, which then creates and starts a session. CLI_ERROR with CLI_NO_DAEMON. */
struct client *client_open(const struct client_request *request,
			   const struct client_listener *listener, void *data, GError **error);
/* Closes the connection; profd finishes a session that still records. Do not call it from within
 * the listener. */
void client_free(struct client *client);
bool client_is_system(const struct client *client);

/* Answered by `finished`. Before `started`, the listener is no longer called instead. */
void client_stop(struct client *client);
void client_resume(struct client *client);
/* Opens the file of an image of the capture. Returns -1 if profd does not have it. */
int client_open_image(struct client *client, uint64_t image);
