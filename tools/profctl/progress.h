/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "tools/profctl/client.h"

#include <stdbool.h>

/* The progress line on standard error. */
struct progress {
	bool shown, terminal;
	bool drawn;       /* the terminal shows a line without a newline */
	int64_t start_us; /* 0: not begun */
	int64_t last_us;
};

/* quiet: print nothing. shared: a command writes to the terminal too; do not break up its
 * output. */
void progress_init(struct progress *progress, bool quiet, bool shared);
void progress_begin(struct progress *progress);
void progress_update(struct progress *progress, const struct client_counters *counters);
/* Clears the line before other output. */
void progress_clear(struct progress *progress);
