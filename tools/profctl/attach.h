/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "arch/base.h"
#include "tools/profctl/preload.h"

#include <glib.h>
#include <stdbool.h>

/* A process whose dormant collector can be asked to record. */
struct attach_target {
	int32_t pid;
	int memory;         /* -1: none */
	uint64_t address;   /* of its struct attach_request */
	uint32_t requested; /* 0: no request */
};

/* CLI_ERROR, with the fix, if it has no collector or access is denied. `library`: the preload
 * library of such a process. */
bool attach_open(int32_t pid, const char *library, struct attach_target *ret_target,
		 GError **error);
void attach_close(struct attach_target *target);
/* Asks it: at its next allocation or free the process registers at `control`, and is recorded
 * according to `settings`. */
bool attach_request(struct attach_target *target, const char *control, const char *settings,
		    GError **error);
/* Returns the outcome; false: it does not record, and why. Withdraws an unanswered request. True if
 * the process has ended. */
bool attach_check(struct attach_target *target, GError **error);

/* The targets of a recording. */
struct attachments {
	struct attach_target *targets;
	size_t n;
};

/* Opens all of them, or CLI_ERROR; does nothing without --memory. Call attachments_done() in every
 * case. */
bool attachments_open(struct attachments *attachments, const GArray *pids,
		      const struct preload *preload, GError **error);
/* Both warn about each process that is not recorded. */
void attachments_request(struct attachments *attachments, const char *control,
			 const struct preload *preload);
void attachments_check(struct attachments *attachments);
void attachments_done(struct attachments *attachments);
