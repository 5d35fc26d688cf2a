/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/files-protocol.h"

#include <gio/gio.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define STALL_QUOTA_NOBODY ((uid_t)-1) /* the process is gone */

/* Returns the user of a process, or STALL_QUOTA_NOBODY. Does not block, whatever the process does.
 *  */
uid_t stall_quota_owner(pid_t pid);
/* A process of ours was stuck on something of this user's process, and was killed. Reaps it when
 * the kernel lets it exit. */
void stall_quota_add(pid_t pid, uid_t uid, pid_t target);
/* The same for a process that was not stuck, but is not needed any more. It counts until it
 * exits. */
void stall_quota_reap(pid_t pid, uid_t uid, pid_t target);
/* Returns whether nothing of this process may be waited for now. */
bool stall_quota_is_blocked(uid_t uid, pid_t target);
/* True if so many of our processes are stuck that no more may be started. */
bool stall_quota_is_full(void);
/* Lists who is blocked, at most `max` of them. */
unsigned stall_quota_list_blocked(struct files_bare *ret_bare, unsigned max);

/* g_get_monotonic_time(); tests replace it. */
extern int64_t (*stall_quota_clock)(void);
