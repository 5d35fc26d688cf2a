/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>
#include <sys/types.h>

/* Returns the pids (uint32_t) of processes that `command` started, directly or not, and that still
 * run. `fd`: the capture, readable. Empty if they cannot be determined: the capture is in a pipe,
 * or its pids are of another namespace. */
GArray *record_left_find(int fd, pid_t command);
