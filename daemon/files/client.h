/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#define CLIENT_MAX_GROUPS 256

/* The rights of a session's user. */
struct client {
	uid_t uid;
	gid_t gid;
	size_t n_groups;
	gid_t groups[CLIENT_MAX_GROUPS];
	bool is_self; /* this process has only that user's rights */
};

/* Reads the groups directly from /etc/passwd and /etc/group. A user that is not there has only the
 * group 65534 (nogroup). */
void client_init(struct client *client, uid_t uid);
/* Returns whether the user may read the file of a descriptor (O_PATH suffices). */
bool client_may_read(const struct client *client, int fd);
/* Opens the file at a path below the root directory, with O_PATH, if the user may search the
 * directories on the way; otherwise returns -1. `careful`: see below_open(). */
int client_find(const struct client *client, const char *path, bool careful);
