/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Profile - samples counted by the entity that they hit
 *
 * One pass over the samples of one event counts them by stack, thread and cgroup. Each epoch's
 * distinct stacks are then walked once. Every count is an amount: the number of samples and their
 * weight (amount.h).
 */
#pragma once

#include "tools/profcapture/reader.h"
#include "tools/profcapture/span-set.h"
#include "tools/profile/code-origin.h"
#include "tools/profile/frame-filters.h"
#include "tools/profile/function-names.h"
#include "tools/profile/profile-tree.h"

enum profile_by {
	PROFILE_FUNCTION,
	PROFILE_LINE,
	PROFILE_IMAGE,
	PROFILE_THREAD,
	PROFILE_PROCESS,
	PROFILE_CGROUP
};
extern const char *const profile_by_names[];
enum profile_mode { PROFILE_ANY_MODE, PROFILE_USER, PROFILE_KERNEL };
extern const char *const profile_modes[];

enum profile_unwind {
	UNWIND_COMPLETE,
	UNWIND_TRUNCATED,
	UNWIND_GUESSED,
	UNWIND_NONE,
	UNWIND_NO_MEMORY, /* the thread has no user stack that could be incomplete */
	UNWIND_KINDS
};

/* A sample, and the node of the tree that it ended in. */
struct profile_sample {
	int64_t time_ns; /* relative */
	uint32_t thread; /* index of names */
	uint32_t node;
	uint64_t weight;
	uint32_t cpu; /* PROFILE_NO_CPU: the capture does not have it */
};
#define PROFILE_NO_CPU UINT32_MAX

struct profile_entity {
	struct profile_count count;
	/* of a caller: how many frames are between it and what it calls */
	uint32_t least_skipped, most_skipped;
	/* the rest is private */
	uint32_t on_path;         /* its nodes between the root and the node that is visited */
	uint8_t is_focus, is_own; /* enum verdict */
};

/* The number of equal parts of the time range. */
#define PROFILE_BINS 24

struct profile_timeline {
	struct amount self[PROFILE_BINS];
};

struct profile {
	/* options */
	enum profile_by by;
	bool wants_tree;
	bool wants_samples;  /* with a whole tree: keep each sample; 32 bytes of memory each */
	bool wants_timeline; /* by function, line and image */
	/* Count the samples of all events, each with a weight of 1, because their units cannot be
	 * added. Otherwise, count those of the reader's event. */
	bool wants_all_events;
	bool inverted;                 /* the tree goes from the hit functions to their callers */
	struct frame_filters *filters; /* opened, or NULL */
	int mode;                      /* index of profile_modes */
	bool inlined;                  /* inlined functions count as functions; by function only */
	bool joins_inlined;            /* and are joined with the functions of their own code */
	bool places;    /* each place in the source of a function is an entity; by function only */
	bool addresses; /* and each address; with `places` */
	const char *focus;  /* the function whose callers and callees are wanted, or NULL */
	bool focus_is_part; /* or part of its name: function_name_match() */
	/* callers: the nearest own function of the program above each call, if there is one */
	bool own_callers;
	bool wants_threads;            /* also count by thread; without filters */
	const struct span_set *inside; /* only samples inside these spans, or NULL */
	struct own_weights *own;       /* also counted if functions are entities; or NULL */
	/* By image: returns the entity for a frame of the table instead of its image; or NULL. */
	uint32_t (*place_of)(struct names_epoch *epoch, size_t frame_row, void *data);
	void *place_data;
	/* results */
	struct reader *reader;
	struct functions *functions; /* by function or line, and for unresolved */
	/* struct profile_entity by entity: index of functions or names, or of cgroups. 0 and 1 are
	 * samples without a stack and those whose stack the capture does not have. */
	GArray *counts;
	GArray *timelines;    /* struct profile_timeline by entity, with wants_timeline */
	int64_t bins_from_ns; /* relative */
	uint64_t bin_ns;
	GPtrArray *cgroups;                /* interned paths; 0 is NULL: none */
	const struct sampled_event *event; /* NULL: the capture has none, or all are wanted */
	struct amount all; /* that pass the filters of event, time, threads, CPUs, spans and mode */
	struct amount filtered;             /* of them: removed by frame filters */
	struct amount kernel;               /* of them: taken in the kernel */
	uint64_t unresolved;                /* samples of them: the leaf has no name */
	uint64_t least_weight, most_weight; /* of a sample of them */
	uint64_t unwind[UNWIND_KINDS];
	uint64_t period_ns; /* of a clock; 0 = not a clock, or not the same for all */
	uint64_t bad_stacks;
	struct profile_tree tree; /* with wants_tree */
	GArray *each; /* struct profile_sample in the order of the capture, with wants_samples */
	struct profile_entity focus_entity; /* all functions that match `focus` */
	GArray *callers, *callees;          /* struct profile_entity by function; with `focus` */
	GArray *threads;                    /* struct amount by thread, with wants_threads */
	bool focus_found;
};

/* Fills in the results. `profile` holds the options and zeros. */
bool profile_run(struct profile *profile, struct reader *reader, GError **error);
void profile_done(struct profile *profile);
#define CLEANUP_PROFILE CLEANUP(profile_done)

static inline struct profile_count profile_count_at(const GArray *counts, uint32_t entity)
{
	return entity < counts->len ? g_array_index(counts, struct profile_entity, entity).count
				    : (struct profile_count){ 0 };
}

/* Returns the name of the counted event, or else the name in the capture's metadata. */
const char *profile_event_name(const struct profile *profile);
/* Returns "ns", "events", or "samples" if their unit is not known. */
const char *profile_unit(const struct profile *profile);
/* Returns whether weights say more than the number of samples. They do not for a clock with one
 * period, or for one sample for each event. */
bool profile_is_weighted(const struct profile *profile);
/* Prints ", which stand for 122,500 events" if profile_is_weighted(). */
void profile_print_sum(const struct profile *profile, struct out *out);
/* Prints "; also recorded: page-faults (--event NAME)" if there are other events. */
void profile_print_other_events(const struct profile *profile, struct out *out);
/* Writes the object UNWIND. */
void profile_write_unwind(const struct profile *profile, struct json *json, const char *key);
