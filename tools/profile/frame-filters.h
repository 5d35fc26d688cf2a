/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Frame-filters - select samples, and which of their frames are shown, by patterns
 *
 * The five options and their meaning are those of pprof (its doc/README.md, "Filtering"): a pattern
 * is a regular expression that may match anywhere in a frame's function, raw name, source file or
 * image. An inlined call is a frame here, even if it is not shown as one. A frame of the stack is
 * hidden if all of its inlined calls are.
 *
 *     --focus      only samples with a frame that matches
 *     --ignore     no samples with a frame that matches
 *     --hide       without the frames that match
 *     --show       without the frames that do not match
 *     --show-from  without the frames above the outermost one that matches; no samples without a
 *                  match
 *
 * The self samples of a hidden frame go to its nearest shown caller; a sample without a shown frame
 * is dropped. --focus and --ignore match all frames, --show-from only those that --hide and --show
 * keep.
 */
#pragma once

#include "tools/common/cli.h"
#include "tools/profile/stacks.h"

enum { FRAME_FOCUS, FRAME_IGNORE, FRAME_HIDE, FRAME_SHOW, FRAME_SHOW_FROM, FRAME_FILTERS };

struct frame_filters {
	const char *pattern[FRAME_FILTERS]; /* indexed by option; NULL = not given */
	GRegex *regex[FRAME_FILTERS];
	/* indexed by function: bits of the matching filters; 0: not matched yet */
	GByteArray *matches;
};

extern const struct cli_option frame_filter_options[];

/* Compiles the patterns. An invalid pattern is a command-line error. */
bool frame_filters_open(struct frame_filters *filters, GError **error);
void frame_filters_done(struct frame_filters *filters);

static inline bool frame_filters_any(const struct frame_filters *filters)
{
	for (size_t i = 0; i < FRAME_FILTERS; i++)
		if (filters->pattern[i])
			return true;
	return false;
}

/* Returns whether samples without frames can pass. */
bool frame_filters_want_bare(const struct frame_filters *filters);
/*
 * Filters an epoch's stacks, which must be settled with places as entities, and have nodes for
 * inlined calls. Links the shown nodes, and moves or drops samples. Returns the dropped samples.
 * Without `inlined`, the innermost shown node of a frame represents the whole frame. Stores for
 * each node, in ret_nodes: the node in which its samples end now, or STACKS_NO_ROW if they were
 * dropped; in ret_frames, for shown nodes: the outermost shown node of the same frame.
 */
struct amount frame_filters_apply(struct frame_filters *filters, struct stacks *stacks,
				  const struct functions *functions, bool inlined,
				  uint32_t *ret_nodes, uint32_t *ret_frames);
