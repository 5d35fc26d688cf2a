/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdbool.h>

/* Opens the file of an absolute path below a folder, by O_PATH. Returns 0 or an errno. Follows no
 * link (ELOOP) and no ".." (EXDEV). `careful`: stays on filesystems without a server (EACCES). */
int below_open(int root, const char *path, bool careful, int *ret_handle);
