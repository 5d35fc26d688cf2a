/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "tools/profctl/record-capture.h"
#include "tools/profctl/record-options.h"

#include <gio/gio.h>

/* The outcome of a recording, for text and JSON. Strings are borrowed. */
struct record_result {
	const char *target; /* "./shop 40000", "the system" */
	const char *file;
	const char *reason;
	GVariant *summary; /* summary of the signal Finished; NULL if profd sent none */
	pid_t command_pid; /* 0: no command ran */
	int wait_status;
	const GArray *left; /* pids (uint32_t) of descendants still running; NULL: no command ran */
	uint64_t bytes;     /* size of the capture after all steps */
	bool system;        /* recorded by the system's profd */
	bool kept;          /* the capture is in a file */
	bool is_lost;       /* the recording ended early and no data of it is readable */
	bool memory;        /* allocations were recorded */
	bool no_off_cpu;    /* the user declined the recording of waits (--no-off-cpu) */
	bool symbols;       /* names were added, and `samples` is set */
	struct record_samples samples;
	uint64_t length_ns;   /* from the capture; 0: unknown */
	bool has_allocations; /* `allocations` is set */
	struct record_allocations allocations;
	bool is_sampled; /* only some allocations were recorded */
};

uint64_t record_result_number(const struct record_result *result, const char *key);
/* Returns how long threads waited; 0 if that was not recorded. */
uint64_t record_result_waited_ns(const struct record_result *result);
void record_result_print(const struct record_result *result);
void record_result_print_json(const struct record_result *result);

/* A progress line on standard error. */
struct progress {
	bool shown, terminal;
	char *target;
	bool drawn;       /* the terminal shows a line without newline */
	int64_t start_us; /* 0: not started */
	int64_t last_us;
};

void progress_init(struct progress *progress, const struct record_options *options);
void progress_begin(struct progress *progress);
void progress_update(struct progress *progress, const struct client_counters *counters);
/* Clears the line before other output. */
void progress_clear(struct progress *progress);
/* Clears the line. No more updates may follow. */
void progress_done(struct progress *progress);
