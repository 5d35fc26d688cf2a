/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Profile - counts samples by function, line, image, thread, process or cgroup (the entities)
 *
 * With the reader's metric off-cpu, waits of threads count instead of samples; with wall, both
 * waits and the samples of a clock. A wait counts as a sample at its start; the sample's weight is
 * the part of the wait in the reader's range. One pass over the samples of an event counts them by
 * stack, thread and cgroup. Then the distinct stacks of each epoch are walked once. Every count is
 * an amount: the number of samples and the sum of their weights (amount.h).
 */
#pragma once

#include "tools/profcapture/reader.h"
#include "tools/profcapture/span-set.h"
#include "tools/profile/code-origin.h"
#include "tools/profile/frame-filters.h"
#include "tools/profile/function-names.h"
#include "tools/profile/profile-tree.h"
#include "tools/profile/wait-causes.h"

enum profile_by {
	PROFILE_FUNCTION,
	PROFILE_LINE,
	PROFILE_IMAGE,
	PROFILE_THREAD,
	PROFILE_PROCESS,
	PROFILE_CGROUP,
	PROFILE_STATE, /* only for report-states.c */
};
extern const char *const profile_by_names[];
enum profile_mode { PROFILE_ANY_MODE, PROFILE_USER, PROFILE_KERNEL };
extern const char *const profile_modes[];

enum profile_unwind {
	UNWIND_COMPLETE,
	UNWIND_TRUNCATED,
	UNWIND_GUESSED,
	UNWIND_NONE,
	UNWIND_NO_MEMORY, /* the task was exiting or in exec; not counted as incomplete */
	UNWIND_KINDS
};

/* A sample, and the tree node or entity of its innermost frame. */
struct profile_sample {
	int64_t time_ns; /* since the capture's start */
	uint32_t thread; /* index in names */
	uint32_t node;
	uint64_t weight;
	uint32_t cpu; /* PROFILE_NO_CPU: the capture does not have it */
};
#define PROFILE_NO_CPU UINT32_MAX

struct profile_entity {
	struct profile_count count;
	/* for a caller: number of frames skipped between it and the function that it calls */
	uint32_t least_skipped, most_skipped;
	/* the rest is private */
	uint32_t on_path; /* number of the entity's nodes from the root to the visited node */
	uint8_t is_focus, is_own; /* enum verdict */
};

/* The number of equal bins that the time range is divided into. */
#define PROFILE_BINS 24

struct profile_timeline {
	struct amount self[PROFILE_BINS];
};

struct profile {
	/* options */
	enum profile_by by;
	bool wants_tree;
	/* Keep each sample, in 32 bytes of memory. Its `node` is a node of the whole tree or,
	 * without wants_tree, an entity. */
	bool wants_samples;
	/* With wants_samples: receives the samples of each epoch, which are not kept; or NULL. */
	void (*take)(const struct profile_sample *each, size_t n, void *taker);
	void *taker;
	bool wants_timeline; /* only by function, line or image */
	/* Count the samples of all events, each with weight 1, because weights of different units
	 * cannot be added. Otherwise, count only the samples of the reader's event. */
	bool wants_all_events;
	bool inverted; /* bottom-up tree: from the sampled functions to their callers */
	struct frame_filters *filters; /* opened, or NULL */
	int mode;                      /* index in profile_modes */
	bool inlined;                  /* inlined functions count as functions; by function only */
	bool joins_inlined; /* inlined copies are counted together with the function itself */
	bool places;        /* each source line of a function is an entity; by function only */
	bool addresses;     /* each address of a place is an entity; needs `places` */
	const char *focus;  /* the function whose callers and callees are wanted, or NULL */
	bool focus_is_part; /* `focus` may be part of the name: function_name_match() */
	/* count as a function's caller the nearest caller in the program's own code, if any */
	bool own_callers;
	bool wants_threads;            /* also count by thread, before frame filters */
	const struct span_set *inside; /* only samples inside these spans, or NULL */
	/* receives the weights of own functions (code-origin.h); entities must be functions; or
	 * NULL */
	struct own_weights *own;
	struct wait_places *waiting; /* like `own`, for waits */
	struct functions *shared;    /* functions of a profile that outlives this one; or NULL */
	/* With PROFILE_IMAGE: returns the entity of a row of the frame table, to count instead of
	 * the row's image; or NULL. */
	uint32_t (*place_of)(struct names_epoch *epoch, size_t frame_row, void *data);
	void *place_data;
	/* results */
	struct reader *reader;
	struct functions *functions; /* functions or lines; also needed for `unresolved` */
	/* struct profile_entity by entity, which is an index in functions, names or cgroups. By
	 * function, line or image, entity 0 counts samples without a stack, entity 1 those whose
	 * stack the capture lost. */
	GArray *counts;
	GArray *timelines;    /* struct profile_timeline by entity, with wants_timeline */
	int64_t bins_from_ns; /* since the capture's start */
	uint64_t bin_ns;
	GPtrArray *cgroups;                /* interned paths; 0 is NULL: none */
	const struct sampled_event *event; /* NULL: the capture has none, or all events count */
	struct amount all;                 /* samples that pass all filters except frame filters */
	struct amount filtered;            /* part of `all`: removed by frame filters */
	struct amount kernel;              /* part of `all`: taken in the kernel */
	uint64_t wait_ns[PROF_WAIT_TRACED + 1]; /* waits by enum prof_wait_state */
	uint64_t stack_ns[PROF_STACK_SOURCES];  /* waits by enum prof_stack_source */
	uint64_t unresolved;                    /* part of `all`: samples whose leaf has no name */
	uint64_t least_weight, most_weight;     /* of a sample in `all` */
	uint64_t unwind[UNWIND_KINDS];
	uint64_t interpreter[PROF_INTERPRETERS]; /* samples by enum prof_sample_interpreter */
	uint64_t period_ns; /* period of a clock event; 0: no clock, or different periods */
	uint64_t bad_stacks;
	struct profile_tree tree; /* with wants_tree */
	GArray *each; /* struct profile_sample in the order of the capture, with wants_samples */
	struct profile_entity focus_entity; /* sum over all functions that match `focus` */
	GArray *callers, *callees;          /* struct profile_entity by function; with `focus` */
	GArray *threads;                    /* struct amount by thread, with wants_threads */
	bool focus_found;
};

/* Fills in the results. The caller sets the options and zeroes the rest. */
bool profile_run(struct profile *profile, struct reader *reader, GError **error);
void profile_done(struct profile *profile);
#define CLEANUP_PROFILE CLEANUP(profile_done)

static inline struct profile_count profile_count_at(const GArray *counts, uint32_t entity)
{
	return entity < counts->len ? g_array_index(counts, struct profile_entity, entity).count
				    : (struct profile_count){ 0 };
}

/* Returns the name of the counted event, else the name in the capture's metadata, else "-". */
const char *profile_event_name(const struct profile *profile);
/* Returns "ns", "events", or "samples" if the unit of weights is unknown. */
const char *profile_unit(const struct profile *profile);
/* Returns whether weights add information to the number of samples. They do not if all samples of a
 * clock have one period, or if every event is a sample. */
bool profile_is_weighted(const struct profile *profile);
/* Prints ", which stand for 122,500 events" if profile_is_weighted(). */
void profile_print_sum(const struct profile *profile, struct out *out);
/* Prints "; also recorded: page-faults (--event NAME)" if there are other events. */
void profile_print_other_events(const struct profile *profile, struct out *out);
/* Prints the share of the waiting time whose stacks are known, unless all are known. */
void profile_print_wait_stacks(const struct profile *profile, struct out *out);
/* Returns the number of samples in threads whose interpreted functions were to be recorded. */
uint64_t profile_interpreted(const struct profile *profile);
/* Writes the object INTERPRETER, or null if no interpreted function was to be recorded. */
void profile_write_interpreter(const struct profile *profile, struct json *json, const char *key);
/* Writes the object UNWIND. */
void profile_write_unwind(const struct profile *profile, struct json *json, const char *key);
