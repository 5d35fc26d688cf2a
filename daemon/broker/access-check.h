/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/target.h"

/* Checks, like targets_check(), whether all processes belong entirely to the user. Takes ownership
 * of the targets, and passes them to `answer`, which is called once, perhaps before this function
 * returns. If `owned` is true, the processes were the user's shortly before `answer` is called. If
 * no thread can be started, or if profd ends, `targets` is NULL and `error` is set. */
void access_check_request(struct targets *targets, uid_t uid,
			  void (*answer)(struct targets *targets, bool owned, const GError *error,
					 void *data),
			  void *data);

/* Returns the number of unanswered questions for this user. */
unsigned access_check_pending(uid_t uid);
/* Answers all open questions with an error. */
void access_check_end(void);
