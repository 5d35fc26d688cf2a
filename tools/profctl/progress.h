/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "tools/profctl/client.h"

#include <stdbool.h>

/* The line on standard error that says how a recording goes. */
struct progress {
	bool shown, terminal;
	bool drawn;       /* a line without a newline stands on the terminal */
	int64_t start_us; /* 0: not begun */
	int64_t last_us;
};

/* quiet: nothing at all. shared: the terminal is a command's too, whose output must not be torn. */
void progress_init(struct progress *progress, bool quiet, bool shared);
void progress_begin(struct progress *progress);
void progress_update(struct progress *progress, const struct client_counters *counters);
/* Clears the line, so that something else can be printed. */
void progress_clear(struct progress *progress);
