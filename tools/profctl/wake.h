/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "arch/base.h"
#include "tools/profctl/preload.h"

#include <glib.h>
#include <stdbool.h>

/* A process whose dormant collector can be asked to record. */
struct wake_target {
	int32_t pid;
	int memory;       /* -1: none */
	uint64_t address; /* of its struct wake */
	uint32_t asked;   /* 0: not asked */
};

/* CLI_ERROR, with the fix, if it has no collector or access is denied. `library`: the preload
 * library of such a process. */
bool wake_open(int32_t pid, const char *library, struct wake_target *ret_target, GError **error);
void wake_close(struct wake_target *target);
/* Asks it: at its next allocation or free the process registers at `control`, and is recorded
 * according to `settings`. */
bool wake_ask(struct wake_target *target, const char *control, const char *settings,
	      GError **error);
/* Returns the outcome; false: it does not record, and why. Withdraws an unanswered request. True if
 * the process has ended. */
bool wake_check(struct wake_target *target, GError **error);

/* The targets of a recording. */
struct wakes {
	struct wake_target *targets;
	size_t n;
};

/* Opens all of them, or CLI_ERROR; does nothing without --memory. Call wakes_done() in every
 * case. */
bool wakes_open(struct wakes *wakes, const GArray *pids, const struct preload *preload,
		GError **error);
/* Both warn about each process that is not recorded. */
void wakes_ask(struct wakes *wakes, const char *control, const struct preload *preload);
void wakes_check(struct wakes *wakes);
void wakes_done(struct wakes *wakes);
