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
	void (*created)(void *data);
	void (*started)(void *data);
	void (*progress)(const struct client_counters *counters, void *data);
	void (*warning)(const char *code, const char *message, void *data);
	void (*finished)(bool ok, const char *reason, GVariant *summary, void *data);
	void (*failed)(const GError *error, void *data); /* a CLI_ERROR */
};

/* Connects to the system's profd, to one of our own, or CLIENT_ANY: to one of our own if the
 * system's is missing. `why`, or NULL: an error of the system's profd that led to this choice.
 * Unless `quiet`, a line on standard error says why it is one of our own. CLI_ERROR with
 * CLI_NO_DAEMON. */
enum client_bus { CLIENT_ANY, CLIENT_SYSTEM, CLIENT_PRIVATE };
struct client *client_open(enum client_bus bus, const GError *why, bool quiet,
			   const struct client_listener *listener, void *data, GError **error);
/* Returns whether one of our own may be tried after this error of the system's profd. */
bool client_may_fall_back(const struct client *client, enum client_bus bus, const GError *error);
/* Closes the connection; profd finishes a session that still records. Do not call it from within
 * the listener. */
void client_free(struct client *client);
bool client_is_system(const struct client *client);

/* Answered by `created` or `failed`; errors of profd come as CLI_ERROR, with a matching exit
 * status. options: a{sv}. switch_fd: the second descriptor, or -1; with a switch a program waits,
 * so the user is not asked for a password. */
bool client_create(struct client *client, GVariant *options, int capture_fd, int switch_fd,
		   GError **error);
void client_start(struct client *client); /* answered by `started` or `failed` */
/* Same, but first asks where the collectors of a program that supports profd register, and
 * sysprof's too unless without_sysprof. */
void client_start_with_collectors(struct client *client, bool without_sysprof);
/* The value for PROF_CONTROL; NULL: nowhere. */
const char *client_control(const struct client *client);
/* The descriptor for SYSPROF_CONTROL_FD; borrowed; -1: none. */
int client_sysprof(const struct client *client);
void client_stop(struct client *client); /* answered by `finished` */
void client_resume(struct client *client);
/* Opens the file of an image of the capture. */
bool client_open_image(struct client *client, uint64_t image, int *ret_fd, GError **error);
