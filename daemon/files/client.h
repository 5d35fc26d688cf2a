/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#define CLIENT_MAX_GROUPS 256

/* The rights of the user that a session is for. */
struct client {
	uid_t uid;
	gid_t gid;
	size_t n_groups;
	gid_t groups[CLIENT_MAX_GROUPS];
	bool is_self; /* we have only this user's rights */
};

/* Reads the groups from /etc/passwd and /etc/group themselves. A user that is not in there has
 * none. */
void client_init(struct client *client, uid_t uid);
/* Returns whether the user may read the file of a descriptor (O_PATH is enough). */
bool client_may_read(const struct client *client, int fd);
/* Opens the file at a path below the root folder, by O_PATH, if the user may search the folders on
 * the way; else returns -1. `careful`: see below_open(). */
int client_find(const struct client *client, const char *path, bool careful);
