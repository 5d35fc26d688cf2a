/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/files-protocol.h"

#include <gio/gio.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define HUNG_NOBODY ((uid_t)-1) /* the process is gone */

/* Whom a process belongs to, or HUNG_NOBODY. Does not block, whatever the process does. */
uid_t hung_owner(pid_t pid);
/* A process of ours was stuck on something of this user's process, and has been killed; it is
 * reaped when the kernel lets it go. */
void hung_add(pid_t pid, uid_t uid, pid_t target);
/* Not stuck, only not wanted any more: reaped in the same way, and counted until then. */
void hung_reap(pid_t pid, uid_t uid, pid_t target);
/* Whether nothing of this process is worth waiting for now. */
bool hung_is_blocked(uid_t uid, pid_t target);
/* So many of ours are stuck that no more may be started. */
bool hung_is_full(void);
/* Who is blocked, at most max of them. */
unsigned hung_list_blocked(struct files_bare *ret_bare, unsigned max);

/* g_get_monotonic_time(), but for tests. */
extern int64_t (*hung_clock)(void);
