/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Critical-path - what a thread's time consisted of, through all threads that it waited for
 *
 * The path covers a range of time. While the thread ran, the thread is on the path. While it
 * waited, the path is that of the thread that woke it, during the same time. So one thread at a
 * time is on the path, and the times of the whole tree add up to the time of the path. A wait that
 * no thread ended, such as one for a disk or a timer, is a leaf. Before a thread was created, the
 * path is that of its creator.
 *
 * The functions that ran are estimated from the samples on the path.
 * [test_critical_path: *]
 */
#pragma once

#include "tools/common/cct.h"
#include "tools/profcapture/reader.h"
#include "tools/profcapture/stack-places.h"

enum path_kind {
	PATH_THREAD,   /* the root of a tree */
	PATH_RUN,      /* running; its children are the functions that samples hit */
	PATH_FUNCTION, /* a function of the program ran */
	PATH_READY,    /* ready, without a CPU */
	PATH_WAIT,     /* a wait at one place of the program */
	PATH_CREATED,  /* what the creator did before a thread began */
	PATH_UNKNOWN,  /* what the thread did was not recorded */
	PATH_KINDS
};

/* The identity of a node of the tree. Threads with equal names and executables share a label. */
struct path_label {
	enum path_kind kind;
	uint32_t place;        /* PATH_FUNCTION, PATH_WAIT: index in places.functions */
	enum wait_cause cause; /* PATH_WAIT */
	const char *call;      /* PATH_WAIT: a static string; NULL: unknown */
	uint32_t waker;        /* PATH_WAIT: enum prof_waker */
	/* index in names of the first thread with the name and executable of the thread
	 * (PATH_THREAD), the creator (PATH_CREATED) or the waker (PATH_WAIT; or NAMES_NONE) */
	uint32_t thread;
};

struct path_time {
	uint64_t run_ns, ready_ns, wait_ns, unknown_ns;
};

static inline uint64_t path_time_sum(const struct path_time *time)
{
	return time->run_ns + time->ready_ns + time->wait_ns + time->unknown_ns;
}

/* The time that all threads with one name spent on the path. */
struct path_thread {
	uint32_t thread; /* index in names of the first such thread */
	struct path_time time;
	uint64_t
		leaf_ns; /* part of time.wait_ns: parts of waits in which no waker is on the path */
};

enum path_part {
	PATH_OWN,     /* the node itself: part of a wait in which no waker is on the path */
	PATH_STATE,   /* a child of the node: ready, or waiting without a stack */
	PATH_RUNNING, /* the node's child "runs" */
	PATH_SEGMENT, /* the node's time without waits; unknown where no other part overlaps */
	PATH_SAMPLE,  /* a function that a sample hit: a child of "runs" */
};

/* A time during which a node was on the path. Steps that are cut to a time range add up to the path
 * of that range, because no step depends on the path outside of the range. */
struct path_step {
	int64_t from_ns, to_ns; /* PATH_SAMPLE: equal */
	enum path_part part;
	uint32_t node;  /* until critical_path_find() returns, an ancestor; PATH_OWN: the node */
	uint32_t label; /* PATH_STATE, PATH_SAMPLE: the child's label */
};

struct critical_path {
	/* options */
	guint most_steps; /* 0: keep no steps */
	const char *mark; /* find the path of each span with this name; NULL: of one thread */
	/* results */
	struct reader *reader;
	struct stack_places places;
	uint32_t thread; /* index in names; with `mark`, NAMES_NONE */
	uint64_t spans;  /* number of spans; 1 without `mark` */
	GArray *labels;  /* struct path_label */
	GArray *nodes;   /* struct cct_node: function = index in labels, weights in ns */
	GArray *threads; /* struct path_thread, longest first */
	GArray *steps;   /* struct path_step; NULL if there are more than most_steps */
	struct path_time all;
	uint64_t samples; /* on the path */
	bool is_deep;     /* the path was cut after MAX_WALK threads */
	/* the rest is private */
	bool is_too_large;
	uint64_t marks;             /* number of marks with the name `mark` */
	GHashTable *label_indexes;  /* struct path_label → index + 1 */
	GHashTable *firsts;         /* struct thread_name → index of its first thread */
	GArray *first_of;           /* uint32_t by thread: value from `firsts`, or 0 before use */
	struct number_map children; /* parent and label → node */
	struct number_map by_tid;   /* tid → index in names of the last thread with that tid */
	struct number_map hits;     /* node and function → number of samples */
	uint32_t event;             /* index of the event whose samples count */
	GPtrArray *waits;           /* by thread: GArray of struct path_wait by time, or NULL */
	GPtrArray *segments;        /* by thread: GArray of struct segment by time, or NULL */
	GArray *births;             /* struct birth by thread */
	GArray *spans_found;        /* struct path_span */
	GArray *sums;               /* struct node_sum by node */
	uint64_t n_segments;
};

/* Fills in the results for the reader's time range. The reader's filters select the thread, or the
 * spans. The caller sets the options and zeroes the rest. */
bool critical_path_find(struct critical_path *path, struct reader *reader, GError **error);
/* Converts a node's time, which is not exact above 2^53. */
static inline uint64_t critical_path_ns(double ns)
{
	return ns >= 0x1p63 ? INT64_MAX : ns > 0 ? (uint64_t)(ns + 0.5) : 0;
}
/* Returns the name of a thread; "-" if it is unknown. */
const char *critical_path_comm(const struct critical_path *path, uint32_t thread);
/* Return a label's text for people, and the place of its function (NULL: unknown). The caller frees
 * the string. */
char *critical_path_name(const struct critical_path *path, uint32_t label, bool full_names)
	MUST_CHECK;
char *critical_path_place(const struct critical_path *path, uint32_t label) MUST_CHECK;
void critical_path_done(struct critical_path *path);
