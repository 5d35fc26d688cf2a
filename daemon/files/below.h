/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdbool.h>

/* Opens the file at an absolute path below a directory, with O_PATH. Returns 0 or an errno: ELOOP
 * for a symbolic link, EXDEV for "..". `careful`: fails with EACCES on filesystems with a
 * server. */
int below_open(int root, const char *path, bool careful, int *ret_handle);
