/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Span-set - when spans of one name were open, by who opened them
 *
 * Memory: 16 bytes a span while it is read, and then only for stretches that do not overlap.
 */
#pragma once

#include "tools/profcapture/reader.h"

enum span_scope { SPAN_OF_PROCESS, SPAN_OF_THREAD };
extern const char *const span_scope_names[];

struct span_set {
	/* what is wanted */
	const char *name;
	enum span_scope scope;
	/* the answer */
	const struct reader *reader;
	GPtrArray
		*stretches; /* of GArray of struct stretch, in order, or NULL; by index of names */
	uint64_t marks;     /* of that name, of every kind */
	/* of those that reach into the reader's range */
	uint64_t spans, no_end, no_begin;
	uint64_t total_ns; /* of whole spans; ends at UINT64_MAX */
};

/* `set` holds what is wanted and zeros. */
bool span_set_read(struct span_set *set, const struct reader *reader, GError **error);
void span_set_done(struct span_set *set);
/* Was one open then, of this thread (index of names) or of its process, as the scope is? Both
 * ends are inside. */
bool span_set_has(const struct span_set *set, uint32_t thread, int64_t time_ns);
