/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "tools/common/json.h"

#include <gio/gio.h>

/* What a recording came to, for people and for programs. Strings are borrowed. */
struct record_result {
	const char *file;
	const char *reason;
	GVariant *summary; /* of Finished; NULL where profd could not tell */
	pid_t command_pid; /* 0: none ran */
	int wait_status;
	const GArray *left; /* pids (uint32_t) of what it started and still runs; NULL: none ran */
	uint64_t bytes;     /* of the capture as it is now */
	bool system;        /* the system's profd made it */
	bool kept;          /* it is in a file */
	bool is_lost;       /* it ended early, and nothing of it can be read */
	bool symbols;       /* names were added */
	bool memory;        /* allocations were recorded */
	bool has_unresolved;
	uint64_t unresolved_samples; /* where known */
};

uint64_t record_result_number(const struct record_result *result, const char *key);
/* Loss first, on standard error. */
void record_result_print(const struct record_result *result);
/* The whole envelope, one line. */
void record_result_write_json(const struct record_result *result, struct json *json);
