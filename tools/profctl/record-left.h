/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>
#include <sys/types.h>

/* The pids (uint32_t) of processes that `command` started, directly or not, and that still run.
 * `fd`: the capture, readable. Empty where that cannot be told: the capture is in a pipe, or
 * counts pids as another namespace does. */
GArray *record_left_find(int fd, pid_t command);
