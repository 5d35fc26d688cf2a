/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/target.h"

/* Checks whether all processes are entirely the user's, like targets_check(). Takes ownership of
 * the targets. The main loop calls `answer` once, which receives the targets; `owned` was true then
 * or shortly before. With an error there are no targets: the thread could not be started, or profd
 * ends. */
void access_check_request(struct targets *targets, uid_t uid,
			  void (*answer)(struct targets *targets, bool owned, const GError *error,
					 void *data),
			  void *data);

/* Returns the number of unanswered questions for this user. */
unsigned access_check_pending(uid_t uid);
/* Answers all open questions with an error. */
void access_check_end(void);
