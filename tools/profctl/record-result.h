/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "tools/profctl/record-capture.h"
#include "tools/profctl/record-options.h"

#include <gio/gio.h>

/* The outcome of a recording, for people and for programs. Strings are borrowed. */
struct record_result {
	const char *target; /* "./shop 40000", "the system" */
	const char *file;
	const char *reason;
	GVariant *summary; /* of Finished; NULL if profd sent none */
	pid_t command_pid; /* 0: none ran */
	int wait_status;
	const GArray *left; /* pids (uint32_t) of descendants that still run; NULL: none ran */
	uint64_t bytes;     /* of the capture after all steps */
	bool system;        /* the system's profd recorded it */
	bool kept;          /* the capture is in a file */
	bool is_lost;       /* the recording ended early and nothing of it is readable */
	bool memory;        /* allocations were recorded */
	bool symbols;       /* names were added, and the next one is known */
	struct record_samples samples;
	bool has_allocations; /* the next one is known */
	struct record_allocations allocations;
	bool is_sampled; /* only some allocations were recorded */
};

uint64_t record_result_number(const struct record_result *result, const char *key);
/* Prints to standard error. */
void record_result_print(const struct record_result *result);
/* Prints one line to standard output. */
void record_result_print_json(const struct record_result *result);

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
