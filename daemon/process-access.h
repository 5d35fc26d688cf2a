/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Returns whether the process of this directory in /proc (O_PATH suffices) is alive and entirely
 * the user's: each thread has only that uid, one gid and (unless uid is 0) no capability in our
 * user namespace, and may be traced. A process in another user namespace is the user's only if the
 * user made it. So the process has neither run a setuid program nor read what the user may not.
 * The answer may be outdated at once: check again after the work that depends on it. Never blocks;
 * takes about 50 us per thread if the process is the user's. */
bool process_access_all(int dir, uid_t uid);
/* Like process_access_all(), but checks only the first thread, or all threads if the first one has
 * ended. This suffices before reading data that is passed on only if process_access_all() succeeds
 * afterwards: a user who may trace one thread may read all of the process's memory. */
bool process_access_first(int dir, uid_t uid);
