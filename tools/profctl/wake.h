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
	uint32_t asked;   /* 0: it was not */
};

/* CLI_ERROR, with what to do: it has none, or may not be asked. `library`: what such a process
 * is started with. */
bool wake_open(int32_t pid, const char *library, struct wake_target *ret_target, GError **error);
void wake_close(struct wake_target *target);
/* Asks: the next allocation or free of the process registers it at `control`, and is recorded as
 * `settings` say. */
bool wake_ask(struct wake_target *target, const char *control, const char *settings,
	      GError **error);
/* What came of it; false: it does not record, and why. Withdraws what was not heard. True where
 * the process is gone. */
bool wake_check(struct wake_target *target, GError **error);

/* Those of a recording. */
struct wakes {
	struct wake_target *targets;
	size_t n;
};

/* All of them, or CLI_ERROR; nothing where no allocations are wanted. wakes_done() in every
 * case. */
bool wakes_open(struct wakes *wakes, const GArray *pids, const struct preload *preload,
		GError **error);
/* These two warn of each that is not recorded. */
void wakes_ask(struct wakes *wakes, const char *control, const struct preload *preload);
void wakes_check(struct wakes *wakes);
void wakes_done(struct wakes *wakes);
