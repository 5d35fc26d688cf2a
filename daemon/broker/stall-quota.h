/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/files-protocol.h"

#include <gio/gio.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define STALL_QUOTA_NOBODY ((uid_t)-1) /* the process has exited */

/* Returns the user of a process, or STALL_QUOTA_NOBODY. Never blocks. */
uid_t stall_quota_owner(pid_t pid);
/* Charges the user for a process of profd's that was stuck because of the user's process `target`,
 * and was killed. Reaps it when the kernel lets it exit. */
void stall_quota_add(pid_t pid, uid_t uid, pid_t target);
/* Like stall_quota_add(), for a process that was not stuck, but is no longer needed. It counts as
 * stuck until it exits. */
void stall_quota_reap(pid_t pid, uid_t uid, pid_t target);
/* Returns whether profd must not wait for this process now. */
bool stall_quota_is_blocked(uid_t uid, pid_t target);
/* Returns whether so many of profd's processes are stuck that no more may be started. */
bool stall_quota_is_full(void);
/* Lists at most `max` blocked users and processes. Returns their number. */
unsigned stall_quota_list_blocked(struct files_bare *ret_bare, unsigned max);

/* g_get_monotonic_time(); tests replace it. */
extern int64_t (*stall_quota_clock)(void);
