/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>
#include <stdbool.h>
#include <stdint.h>

/* One session of a profd, as its client sees it. */
struct client;

struct client_counters {
	uint64_t samples, events, lost, bytes;
};

/* All are called from the main loop; `failed` at most once, and nothing after it or after
 * `finished`. */
struct client_listener {
	void (*created)(void *data);
	void (*started)(void *data);
	void (*progress)(const struct client_counters *counters, void *data);
	void (*warning)(const char *code, const char *message, void *data);
	void (*finished)(bool ok, const char *reason, GVariant *summary, void *data);
	void (*failed)(const GError *error, void *data); /* a CLI_ERROR */
};

/* Connects to the system's profd, to one of our own, or CLIENT_ANY: where the system's is not
 * there, one of our own. `why`, or NULL: an error of the system's that led to this choice.
 * Unless `quiet`, a line on standard error says why it is one of our own. CLI_ERROR with
 * CLI_NO_DAEMON. */
enum client_bus { CLIENT_ANY, CLIENT_SYSTEM, CLIENT_PRIVATE };
struct client *client_open(enum client_bus bus, const GError *why, bool quiet,
			   const struct client_listener *listener, void *data, GError **error);
/* Whether after this answer of the system's one of our own may do it. */
bool client_may_fall_back(const struct client *client, enum client_bus bus, const GError *error);
/* Closes the connection; a session that still records is finished by profd. Not from within the
 * listener. */
void client_free(struct client *client);
bool client_is_system(const struct client *client);

/* Answered by `created` or `failed`; errors of profd come as CLI_ERROR, with the exit status
 * that fits. options: a{sv}. switch_fd: the second descriptor, or -1; then a program waits, and
 * nobody is asked for a password. */
bool client_create(struct client *client, GVariant *options, int capture_fd, int switch_fd,
		   GError **error);
void client_start(struct client *client); /* answered by `started` or `failed` */
/* The same, after asking where the collectors of a program that knows of us register, and
 * sysprof's too unless without_sysprof. */
void client_start_with_collectors(struct client *client, bool without_sysprof);
/* As for PROF_CONTROL; NULL: nowhere. */
const char *client_control(const struct client *client);
/* As for SYSPROF_CONTROL_FD; borrowed; -1: there is none. */
int client_sysprof(const struct client *client);
void client_stop(struct client *client); /* answered by `finished` */
void client_resume(struct client *client);
/* The file behind an image of the capture. */
bool client_open_image(struct client *client, uint64_t image, int *ret_fd, GError **error);
