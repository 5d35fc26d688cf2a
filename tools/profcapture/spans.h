/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Spans - the marks of a capture, with begin marks and end marks paired
 *
 * docs/format.md, "mark", defines which end mark belongs to which begin mark. Memory: a small block
 * for each open span, and one for each name of each thread.
 */
#pragma once

#include "tools/profcapture/capture.h"

enum span_kind {
	SPAN_INSTANT,
	SPAN_WHOLE,
	SPAN_NO_END,   /* still open when its segment ended */
	SPAN_NO_BEGIN, /* an end mark without a begin mark */
};

struct span {
	enum span_kind kind;
	/* index in names of the thread that began the span (SPAN_NO_BEGIN: that ended it) */
	uint32_t thread;
	const char *group, *name; /* interned; NULL = none */
	int64_t start_ns, end_ns; /* since the capture's start; equal except in SPAN_WHOLE */
};

/* Calls `found` once for each instant and span; for a span, when its end is read. Applies no
 * filters and does not report damage: see capture_check(). Thread indexes are valid until
 * names_forget(). */
bool spans_read(const struct capture *capture, void (*found)(const struct span *span, void *data),
		void *data, GError **error);
