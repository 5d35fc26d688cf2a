/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Span-set - when the spans of one name were open, for each thread or process
 *
 * Memory: 16 bytes for each span while the marks are read; afterwards, overlapping spans are
 * merged.
 */
#pragma once

#include "tools/profcapture/reader.h"

enum span_scope { SPAN_OF_PROCESS, SPAN_OF_THREAD };
extern const char *const span_scope_names[];

struct span_set {
	/* options */
	const char *name;
	enum span_scope scope;
	/* results */
	const struct reader *reader;
	GPtrArray *stretches; /* by thread or process: GArray of struct stretch in order, or NULL */
	/* instants and spans with this name, including those outside the range */
	uint64_t marks;
	/* spans that overlap the reader's range: with both ends, without an end, without a begin */
	uint64_t spans, no_end, no_begin;
	/* sum of the whole durations of `spans`, which may extend beyond the range; saturates at
	 * UINT64_MAX */
	uint64_t total_ns;
};

/* The caller sets the options and zeroes the rest. */
bool span_set_read(struct span_set *set, const struct reader *reader, GError **error);
void span_set_done(struct span_set *set);
/* Returns whether this thread (index in names) or, depending on the scope, its process had an open
 * span at `time_ns`. Both ends of a span are included. */
bool span_set_has(const struct span_set *set, uint32_t thread, int64_t time_ns);
