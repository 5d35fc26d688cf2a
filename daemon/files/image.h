/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/files-protocol.h"
#include "daemon/files/client.h"

/* Opens the file that a process maps executably, for reading, and says what it is. 0 and a
 * descriptor, or an errno:
 *   ESTALE  another file than the request's inode is there now
 *   EFBIG   it is larger than anything that has unwind tables or symbols
 *   EACCES  the session may not see the process, or the file
 *   EINVAL  no regular file of a filesystem with files
 * `path` is what the mapping is called: the way in where map_files is closed to us, or the
 * mapping is gone. */
int image_open(const struct files_config *config, const struct client *client,
	       const struct files_image *request, const char *path, struct files_answer *answer,
	       int *ret_fd);
