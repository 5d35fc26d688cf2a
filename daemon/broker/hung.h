/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define HUNG_NOBODY ((uid_t)-1) /* the process is gone */

/* Whom a process belongs to, or HUNG_NOBODY. Does not block, whatever the process does. */
uid_t hung_owner(pid_t pid);
/* A process of ours was stuck on something of this user's, and has been killed; it is reaped when the kernel lets it go. */
void hung_add(pid_t pid, uid_t uid);
/* Not stuck, only not wanted any more: reaped in the same way, and counted until then. */
void hung_reap(pid_t pid, uid_t uid);
/* Whether nothing of this user's is worth waiting for now. */
bool hung_is_blocked(uid_t uid);
/* So many of ours are stuck that no more may be started. */
bool hung_is_full(void);
/* The users that are blocked, at most max. */
unsigned hung_list_blocked(uint32_t *ret_uids, unsigned max);
