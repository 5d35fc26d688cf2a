/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Spans - the marks of a capture, with begins and ends put together
 *
 * docs/format.md, "mark", says which end belongs to which begin. Memory: one small block for each
 * span that is open at a time, and one for each name on each thread.
 */
#pragma once

#include "tools/profcapture/capture.h"

enum span_kind {
	SPAN_INSTANT,
	SPAN_WHOLE,
	SPAN_NO_END,   /* open when its segment ended */
	SPAN_NO_BEGIN, /* an end that ends nothing */
};

struct span {
	enum span_kind kind;
	uint32_t thread;          /* index of names: of the begin; of SPAN_NO_BEGIN the end's */
	const char *group, *name; /* interned; NULL = none */
	int64_t start_ns, end_ns; /* relative; the same but in SPAN_WHOLE */
};

/* Hands out all marks, each once: a span when its end is there. Filters of the reader are not
 * looked at, and what damage took is not noted: capture_check(). Threads stay valid until
 * names_forget(). */
bool spans_read(const struct capture *capture, void (*found)(const struct span *span, void *data),
		void *data, GError **error);
