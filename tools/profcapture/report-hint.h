/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Report-hint - the largest problem of a report, and what to do about it
 */
#pragma once

#include "tools/profcapture/profile.h"

struct report_hint {
	const char *problem; /* "lost", "truncated", "interpreted", "unresolved"; NULL = none */
	const char *advice;  /* name of the advice in report-hint.c, for programs */
	const char *subject; /* cause of the loss or lack, or path of the image; NULL = none */
	uint64_t count;      /* samples, or records that were lost */
	double percent;
	const char *file; /* the capture, for commands in the advice */
};

/* A problem with a smaller share is not reported. */
#define REPORT_HINT_MIN_PCT 1.0

struct report_hint report_hint_find(const struct profile *profile);
/* The first writes the object HINT or null, the second prints one line or nothing. */
void report_hint_write(const struct report_hint *hint, struct json *json, const char *key);
void report_hint_print(const struct report_hint *hint, struct out *out);
