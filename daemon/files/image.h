/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/files-protocol.h"
#include "daemon/files/client.h"

/* Opens for reading the file that a process maps executably, and describes it. Returns 0 and a
 * descriptor, or an errno, such as:
 *   ENOENT neither the mapping nor the path leads to a file
 *   ESTALE the path leads to another file than the request's inode
 *   EFBIG the file, or a copy of it, would be too large
 *   EACCES the mapping is not executable, or the session may not see the process or the file
 *   EINVAL it is not a regular file, or is in /proc or the like
 *   ESRCH the process has ended
 * `path`: the name of the mapping. This path is opened if request->careful is set, or if the
 * mapping's entry in map_files does not lead to the file. */
int image_open(const struct files_config *config, const struct client *client,
	       const struct files_image *request, const char *path, struct files_answer *answer,
	       int *ret_fd);
