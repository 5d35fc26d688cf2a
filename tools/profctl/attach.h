/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "tools/profctl/preload.h"

#include <glib.h>
#include <stdbool.h>

/* Running processes with an idle collector that is requested to record allocations. */
struct attachments {
	struct attach_target *targets;
	size_t n;
};

/* Opens the processes (uint32_t; NULL: none). Does nothing without --memory. Fails with CLI_ERROR
 * if access to a process is denied, or its collector is missing or cannot be used.
 * attachments_done() must always be called. */
bool attachments_open(struct attachments *attachments, const GArray *pids,
		      const struct preload *preload, GError **error);
/* Requests recording. At its next allocation or free, each process registers at `control` and is
 * recorded with the settings of `preload`. Warns about each process that cannot be reached. */
void attachments_request(struct attachments *attachments, const char *control,
			 const struct preload *preload);
/* Warns about each process that does not record, and withdraws unanswered requests. */
void attachments_check(struct attachments *attachments);
void attachments_done(struct attachments *attachments);
