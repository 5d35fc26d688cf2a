/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export - what the formats of the verb `export` share: the samples, the tree that they end in, and
 * what that is called
 *
 * A format is one function in a file export-NAME.c; it writes everything at once and only looks at
 * what is here. Functions are those of report, so that totals are the same; unlike there, nothing
 * is left out. For a format that has lines of frames the entities of the tree are frames: places in
 * functions, each of which counts as its function (functions_whole()).
 */
#pragma once

#include "tools/profcapture/tally.h"

struct export
{
	struct reader reader;
	struct tally tally; /* by function, with the whole tree and each sample */
	struct frame_filters filters;
	/* by function, for a format that has lines of frames: the file that they are of, or NULL */
	const char **files;
	struct allocations *allocations; /* where the format and the capture have any; else NULL */
	int format;
	int value; /* enum export_value, of a format that has one only */
	const char *output;
	bool force;
};

/* What a stack has so much of; the others are what pprof calls so. */
enum export_value {
	EXPORT_SAMPLES,
	EXPORT_ALLOC_OBJECTS,
	EXPORT_ALLOC_SPACE,
	EXPORT_INUSE_OBJECTS,
	EXPORT_INUSE_SPACE,
};

/* How much of the value ended in a node on a thread; not 0. Of allocations that is the weight. */
struct export_stack {
	uint32_t thread, node;
	struct amount amount;
	const char *name; /* what the thread was called then; never NULL */
};

/* All of them, ordered by thread, name and node: struct export_stack. */
GArray *export_stacks(const struct export *export);
/* Threads (index of names) that have any, in the order of their processes' and their own ids:
 * uint32_t. */
GArray *export_threads(const struct export *export);
/* The functions from the root to a node (0: none): `path`, of uint32_t, is emptied first. */
void export_path(const struct export *export, uint32_t node, GArray *path);
/* The function that a frame is of, and the line of that function's file that it is at; 0:
 * unknown. */
static inline uint32_t export_function(const struct export *export, uint32_t frame)
{
	return functions_whole(export->tally.functions, frame);
}
uint32_t export_line(const struct export *export, uint32_t frame);
/* Nanoseconds between two samples of a clock; 0: it is not one, or not known. */
uint64_t export_period(const struct export *export);
/* Do samples count nanoseconds? */
bool export_is_time(const struct export *export);
/* What a stack has of the value, for a format that has one: samples where their number says it all,
 * else what they stand for. */
uint64_t export_value_of(const struct export *export, struct amount amount);
/* A thread's name, or its process's program; never NULL. */
const char *export_thread_name(const struct export *export, uint32_t thread);
/* What was recorded: the command, or "profd". */
char *export_title(const struct export *export) MUST_CHECK;

/* The formats. */
bool export_folded(struct export *export, struct out *out, GError **error);
bool export_pprof(struct export *export, struct out *out, GError **error);
bool export_speedscope(struct export *export, struct out *out, GError **error);
bool export_firefox(struct export *export, struct out *out, GError **error);
