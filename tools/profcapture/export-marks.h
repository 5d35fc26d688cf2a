/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-marks - marks of threads and the times when they were on no CPU, for timelines
 *
 * Only the longest waits are kept (EXPORT_MOST_WAITS), because viewers cannot open millions. An
 * export says how many are left out.
 */
#pragma once

#include "tools/profcapture/export.h"
#include "tools/profcapture/spans.h"

struct export_mark {
	uint64_t thread; /* the first two members form a struct export_key */
	int64_t time_ns; /* time of the end; INT64_MAX: none */
	struct span span;
	bool is_wait;
};

struct export_marks {
	struct export *export;
	GArray *all;               /* struct export_mark, by thread and end */
	GArray *waits;             /* struct export_mark, before they are added to `all` */
	GArray *sleeps;            /* struct export_stack: waits with stacks; NULL: none */
	struct wait_place *places; /* by node of the tree of waits */
	uint64_t left_out, left_out_ns, longest_left_out_ns;
};

/* The caller frees the result with export_marks_done(), also after an error. */
bool export_marks_read(struct export_marks *marks, struct export *export, GError **error);
void export_marks_done(struct export_marks *marks);
/* Returns a text on the waits that were left out; NULL if no wait was. */
char *export_marks_left_out(const struct export_marks *marks) MUST_CHECK;
/* Writes what a thread waited for and, if its stack is known, the program's function that waited,
 * as members of an object: "cause", "call" and "function". Writes nothing if the mark is not a
 * wait, or its cause is unknown. */
void export_marks_write_cause(const struct export_marks *marks, const struct export_mark *mark,
			      struct json *json);
