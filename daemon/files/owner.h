/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Whether the process whose folder in /proc that is belongs to this user, and may be looked into by it: one that runs a
 * set-uid or unreadable program, or has made itself undumpable, is root's. */
bool owner_is(int dir, uid_t uid);
/* Who that is; false: the process is gone. */
bool owner_get(int dir, uid_t *ret_uid);
