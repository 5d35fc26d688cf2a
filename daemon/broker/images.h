/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/protocol.h"

#include <gio/gio.h>
#include <stdbool.h>

/* The mapped files of one session, by image id. */
struct images;

struct images *images_new(void);
void images_free(struct images *images);

/* Opens the file that a process maps, for reading; regular files only. 0 and a descriptor, or an errno. `path` is what
 * the mapping is called, the way in where map_files is closed to us or the process is gone: ESTALE where another file
 * than the request's inode is there now. Blocks; any thread. */
int image_open(const struct message_image_request *request, const char *path, int *ret_fd);

/* Keeps the descriptor (taken over) until images_free(). 0, or an errno: EMFILE when there are too many. */
int images_add(struct images *images, uint64_t id, int fd);
/* A descriptor that shares nothing but the file, for a client; BROKER_ERROR_NO_SUCH_IMAGE. */
bool images_get(const struct images *images, uint64_t id, int *ret_fd, GError **error);
/* Fills in what the engine wants to know about the file; the build-id as the kernel tells it of a mapping of ours. */
bool image_stat(int fd, struct message_image *image);
/* Whether image_stat() can tell build-ids: Linux 6.11 and newer. */
bool image_build_ids_known(void);

/* Raises RLIMIT_NOFILE to what is allowed. */
void images_raise_limit(void);
