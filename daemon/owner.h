/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Whether the process whose folder in /proc that is (O_PATH will do) is alive and wholly the
 * user's: each of its threads has no other uid, one gid, no capability here, and may be traced,
 * so that it has neither run a setuid program nor read what the user may not. The answer is of
 * this moment: ask again after what it was asked for has been done. Does not block, whatever the
 * process does; takes some 50 us a thread where it is the user's. */
bool owner_is(int dir, uid_t uid);
/* The same of its first thread, which is enough before something is read that is only given away
 * if owner_is() says yes behind it: who may trace one thread may see all of the process's
 * memory. */
bool owner_leads(int dir, uid_t uid);
