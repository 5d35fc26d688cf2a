/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

/* The file of an absolute path below a folder, by O_PATH; 0 or an errno. Follows no link (ELOOP) and no ".." (EXDEV). */
int below_open(int root, const char *path, int *ret_handle);
