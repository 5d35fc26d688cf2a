/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Frame-filters - which samples count and which of their frames are shown, by patterns
 *
 * The five options and their meaning are those of pprof (its doc/README.md, "Filtering"): a pattern
 * is a regular expression that may match anywhere in a frame's function, raw name, source file or
 * image. A call that is inlined into another is a frame here, whether or not it is shown as one: a
 * frame of the stack is hidden if all of them are.
 *
 *     --focus      only samples with a frame that matches
 *     --ignore     no samples with a frame that matches
 *     --hide       without the frames that match
 *     --show       without the frames that do not match
 *     --show-from  without the frames that called the outermost one that matches; no sample
 *                  without one
 *
 * What a hidden frame did itself is its nearest caller's that is shown; a sample of which no frame
 * is left is none. Focus and ignore look at all frames, show-from at those that hide and show
 * leave.
 */
#pragma once

#include "tools/common/cli.h"
#include "tools/profcapture/stacks.h"

enum { FRAME_FOCUS, FRAME_IGNORE, FRAME_HIDE, FRAME_SHOW, FRAME_SHOW_FROM, FRAME_FILTERS };

struct frame_filters {
	const char *pattern[FRAME_FILTERS]; /* by the options; NULL = without */
	GRegex *regex[FRAME_FILTERS];
	GByteArray *matches; /* by function: which of them match, 0: not asked yet */
};

extern const struct cli_option frame_filter_options[];

/* Compiles the patterns. One that cannot be is an error of the command line. */
bool frame_filters_open(struct frame_filters *filters, GError **error);
void frame_filters_done(struct frame_filters *filters);

static inline bool frame_filters_any(const struct frame_filters *filters)
{
	for (size_t i = 0; i < FRAME_FILTERS; i++)
		if (filters->pattern[i])
			return true;
	return false;
}

/* Can a sample without any frame pass? */
bool frame_filters_want_bare(const struct frame_filters *filters);
/*
 * Filters an epoch's stacks, settled by place with inlined calls: links the nodes that are shown,
 * and moves or takes away samples. Returns how many it took. Without `inlined` the innermost node
 * that is shown of a frame stands for all of it. By node, ret_nodes: the one that a sample which
 * ended there ends in now, or STACKS_NO_ROW where it was taken; ret_frames, of those that are
 * shown: the outermost one of the same frame that is.
 */
struct amount frame_filters_apply(struct frame_filters *filters, struct stacks *stacks,
				  const struct functions *functions, bool inlined,
				  uint32_t *ret_nodes, uint32_t *ret_frames);
