/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/target.h"

/*
 * Whether all of them are wholly the user's, as targets_check() says. Takes over the targets;
 * `answer` has them again, from the main loop, once: `owned` is of that moment or a little before.
 * With an error there are none: there is no thread, or profd ends.
 */
void ownership_ask(struct targets *targets, uid_t uid,
		   void (*answer)(struct targets *targets, bool owned, const GError *error,
				  void *data),
		   void *data);

/* How many questions for this user are not answered yet. */
unsigned ownership_pending(uid_t uid);
/* Answers all that wait, with an error. */
void ownership_end(void);
