/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Span-set - when spans of one name were open, by thread or process
 *
 * Memory: 16 bytes for each span while the marks are read, then only for stretches that do not
 * overlap.
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
	GPtrArray
		*stretches; /* of GArray of struct stretch, in order, or NULL; by index of names */
	uint64_t marks;     /* of that name, of every kind */
	/* of those that overlap the reader's range */
	uint64_t spans, no_end, no_begin;
	uint64_t total_ns; /* of whole spans; saturates at UINT64_MAX */
};

/* `set` holds the options and zeros. */
bool span_set_read(struct span_set *set, const struct reader *reader, GError **error);
void span_set_done(struct span_set *set);
/* Returns whether a span was open at that time in this thread (index of names) or in its process,
 * depending on the scope. Both ends are included. */
bool span_set_has(const struct span_set *set, uint32_t thread, int64_t time_ns);
