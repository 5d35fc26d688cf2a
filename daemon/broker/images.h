/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/files-protocol.h"

#include <gio/gio.h>
#include <stdbool.h>

/* The mapped files of one session, by image id. */
struct images;

struct images *images_new(void);
void images_free(struct images *images);

/* Takes ownership of the descriptor, and keeps it until images_free(). Returns 0 or an errno:
 * EEXIST if the image already has a file, EMFILE if there are too many files or bytes of copies. */
int images_add(struct images *images, const struct files_answer *answer, int fd);
/* Returns the maximum size of the next copy of a file. */
uint64_t images_copy_bytes(const struct images *images);
/* Opens a descriptor for a client, if possible with its own file position. Fails with
 * BROKER_ERROR_NO_SUCH_IMAGE, _NOT_AUTHORIZED or _FAILED. */
bool images_get(const struct images *images, uint64_t id, int *ret_fd, GError **error);
/* Returns whether the kernel reports build-ids of mappings (Linux 6.11). */
bool image_build_ids_known(void);

/* Raises RLIMIT_NOFILE to its hard limit. */
void images_raise_limit(void);
