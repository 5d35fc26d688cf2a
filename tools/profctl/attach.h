/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "tools/profctl/preload.h"

#include <glib.h>
#include <stdbool.h>

/* Running processes whose dormant collectors are asked to record their allocations. */
struct attachments {
	struct attach_target *targets;
	size_t n;
};

/* Opens the processes (uint32_t; NULL: none), or CLI_ERROR, with the fix, if one has no collector
 * or access is denied. Does nothing without --memory. Call attachments_done() in every case. */
bool attachments_open(struct attachments *attachments, const GArray *pids,
		      const struct preload *preload, GError **error);
/* Requests them: at its next allocation or free a process registers at `control`, and is recorded
 * as `preload` says. Warns about each that cannot be asked. */
void attachments_request(struct attachments *attachments, const char *control,
			 const struct preload *preload);
/* Warns about each process that does not record, and withdraws unanswered requests. */
void attachments_check(struct attachments *attachments);
void attachments_done(struct attachments *attachments);
