/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/files-protocol.h"
#include "daemon/files/client.h"

/* Opens the file that a process maps executably, for reading, and describes it. Returns 0 and a
 * descriptor, or an errno:
 *   ESTALE  another file than the request's inode is there now
 *   EFBIG   the file is larger than anything that has unwind tables or symbols
 *   EACCES  the session may not see the process, or the file
 *   EINVAL  it is not a regular file of a filesystem with files
 * `path` is the name of the mapping. It is used if map_files is closed to us, or the mapping is
 * gone. */
int image_open(const struct files_config *config, const struct client *client,
	       const struct files_image *request, const char *path, struct files_answer *answer,
	       int *ret_fd);
