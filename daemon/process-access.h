/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Returns whether the process of this folder in /proc (O_PATH is enough) is alive and wholly the
 * user's: each thread has only that uid, one gid, no capability here, and may be traced. So it has
 * neither run a setuid program nor read what the user may not. The answer is about this moment
 * only: check again after the work that depends on it. Does not block, whatever the process does;
 * takes some 50 us a thread if it is the user's. */
bool process_access_all(int dir, uid_t uid);
/* The same for its first thread. That is enough before reading something that is passed on only if
 * process_access_all() agrees after it: a user who may trace one thread may see all of the
 * process's memory. */
bool process_access_first(int dir, uid_t uid);
