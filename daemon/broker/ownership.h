/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* A descriptor that stands for the process: as long as target_is_alive(), its number is nobody else's, and what was read
 * or opened by that number since then was this process's. -1 with errno. */
int target_open(pid_t pid);
/* It has not ended. One that has, but was not waited for yet, counts as ended. */
bool target_is_alive(int pidfd);
/* Whether the process is alive and wholly the user's: each of its threads has no other uid, one gid, no capability,
 * and may be traced, so that it has neither run a setuid program nor read what the user may not. `pid` is what
 * target_open() got. The answer is of this moment: ask again after what it was asked for has been done. */
bool target_is_owned(int pidfd, pid_t pid, uid_t uid);
