/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "tools/profctl/client.h"
#include "tools/profctl/record-options.h"

#include <stdbool.h>

/* The progress line on standard error. */
struct progress {
	bool shown, terminal;
	char *target;
	bool drawn;       /* the terminal shows a line without a newline */
	int64_t start_us; /* 0: not begun */
	int64_t last_us;
};

void progress_init(struct progress *progress, const struct record_options *options);
void progress_begin(struct progress *progress);
void progress_update(struct progress *progress, const struct client_counters *counters);
/* Clears the line before other output. */
void progress_clear(struct progress *progress);
/* Clears it for the last time. */
void progress_done(struct progress *progress);
