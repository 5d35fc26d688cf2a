/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Diff - what the files of the verb `diff` share: the verb (diff.c), the data of one capture
 * (diff-side.c), matching and judging (diff-rows.c), how it is shown (diff-show.c)
 *
 * A side is one or several runs of the same program, each a capture. The value of a side is the
 * mean of its runs. With several runs, noise is how much the runs of a side differ; with one run a
 * side, it is estimated from within the two runs.
 *
 * A row is a function, or with --paths a function and its callers, that occurs in at least one of
 * the captures. Its counts are self counts: a sample counts in one row, and a block of memory in
 * the row of its allocator.
 */
#pragma once

#include "tools/profcapture/block-noise.h"
#include "tools/profcapture/memory.h"
#include "tools/profcapture/tally.h"

enum { DIFF_A, DIFF_B, DIFF_SIDES };
enum diff_norm { DIFF_BY_SAMPLES, DIFF_BY_TIME, DIFF_BY_RUN, DIFF_BY_MARK };
enum diff_measure { DIFF_SAMPLES, DIFF_BYTES, DIFF_CALLS, DIFF_PEAK };

#define DIFF_NO_FUNCTION UINT32_MAX
/* A row with fewer events in both captures together is never reported as a change. */
#define DIFF_LEAST_EVENTS 20
/* Neither is any row if a capture has fewer events. */
#define DIFF_LEAST_ALL (4 * NOISE_BLOCKS)

/* Self counts of one row of the side: by function, or by node of its tree. */
struct diff_count {
	double count;   /* weight of samples, bytes or calls */
	double events;  /* samples, allocations */
	double squares; /* sum of the squares of each event's count */
};

/* One run of a side. */
struct diff_side {
	unsigned side, position; /* position: among all runs */
	struct reader reader;    /* of samples; memory has its own */
	struct tally tally;
	struct memory memory;
	struct frame_filters filters;
	const struct functions *functions;
	GArray *counts;     /* struct diff_count by function or node */
	GArray *buckets;    /* for memory: double, NOISE_BLOCKS by function or node */
	GArray *identities; /* uint32_t by function: index + 1 in diff->identities */
	GArray *rows;       /* uint32_t by function or node: index + 1 in diff->rows */
	GHashTable *builds; /* build-ids of its images */
	double weights[NOISE_BLOCKS];
	double blocks[NOISE_BLOCKS]; /* of all rows together */
	struct diff_count all;
	bool *is_interrupt; /* by node of samples: interrupts are counted separately */
	double interrupts;
	uint64_t marks;
	int64_t from_ns, to_ns; /* range of the blocks */
};

/* Identifies a function across captures, whatever build it is from. */
struct diff_identity {
	char *image, *name;
	bool is_inlined;
	bool has_name; /* false: all code of the image without a symbol */
};

struct diff_row {
	uint32_t identity, parent;     /* parent: index + 1 of the caller's row, with --paths */
	uint32_t function[DIFF_SIDES]; /* DIFF_NO_FUNCTION: not on that side */
	guint run[DIFF_SIDES];         /* index of the side's run that the function is from */
	struct diff_count counts[DIFF_SIDES];
	uint32_t slot; /* index + 1 of its blocks */
	double a, b, noise;
	bool has_noise, is_significant;
};

struct diff {
	struct reader options;
	struct frame_filters filters;
	int mode;
	bool inlined, paths;
	const char *normalise, *memory, *fail_over;
	enum diff_norm norm;
	enum diff_measure measure;
	const char *mark;
	double fail_percent; /* < 0: no --fail-over */
	double scale;        /* from a ratio to the unit */
	const char *unit;
	GPtrArray *runs[DIFF_SIDES]; /* struct diff_side */
	unsigned n_runs;             /* of both sides */
	GPtrArray *identities;       /* struct diff_identity */
	GHashTable *by_identity;     /* struct diff_identity → index + 1 */
	struct number_map by_path;   /* caller's row and identity → index + 1 of the row */
	GArray *rows;                /* struct diff_row, a caller before its callees */
	GArray *order;               /* uint32_t: rows with data, in the displayed order */
	GArray *blocks;              /* double: by slot, side and block; with one run a side */
	GArray *per_run;             /* double: counts by row and run */
	struct diff_row all;
	unsigned tests, significant;
	bool is_damaged;      /* a capture or its names are damaged: no change is judged */
	GPtrArray *processes; /* for memory: struct diff_process */
	GArray *notes;        /* struct diff_note */
	struct json json;
};

/* All processes of the same name. */
struct diff_process {
	const char *comm;
	double of[DIFF_SIDES];
};

/* A difference between the captures that is not a change of the program. */
struct diff_note {
	const char *code;
	char *text;
};

static inline const struct diff_row *diff_row_at(const struct diff *diff, uint32_t index)
{
	return &((const struct diff_row *)(void *)diff->rows->data)[index];
}

static inline const struct diff_identity *diff_identity_at(const struct diff *diff,
							   const struct diff_row *row)
{
	return diff->identities->pdata[row->identity];
}

static inline struct diff_side *diff_run(const struct diff *diff, unsigned side, guint run)
{
	return diff->runs[side]->pdata[run];
}

static inline bool diff_has_one_run(const struct diff *diff)
{
	return diff->n_runs == DIFF_SIDES;
}

static inline const struct reader *diff_run_reader(const struct diff *diff,
						   const struct diff_side *run)
{
	return diff->measure == DIFF_SAMPLES ? &run->reader : &run->memory.reader;
}

/* Returns the reader of the first run; its options are those of all runs. */
static inline const struct reader *diff_reader(const struct diff *diff)
{
	return diff_run_reader(diff, diff_run(diff, DIFF_A, 0));
}

/* Returns the functions of a row that occurs on the side. */
static inline const struct functions *diff_functions(const struct diff *diff,
						     const struct diff_row *row, unsigned side)
{
	return diff_run(diff, side, row->run[side])->functions;
}

/*
 * Returns how many samples of equal weight would be as much evidence (Kish's effective sample
 * size). A few heavy samples dominate a sum of weights, so the number of samples would promise too
 * much certainty. With equal weights, the result is that number.
 */
static inline double diff_evidence(const struct diff *diff, const struct diff_count *count)
{
	/* Rounding must not lose a sample. */
	return diff->measure == DIFF_SAMPLES && count->squares > 0
		       ? MIN_OF(count->events,
				count->count * count->count / count->squares * (1 + 1e-9))
		       : count->events;
}

/* Reads a capture. */
bool diff_side_read(struct diff *diff, struct diff_side *side, const char *file, GError **error);
void diff_side_done(struct diff_side *side);
/* Returns the node's parent and function, with --paths. */
void diff_side_node(const struct diff *diff, const struct diff_side *side, uint32_t node,
		    uint32_t *ret_parent, uint32_t *ret_function);
/* Returns whether a kernel function does work for the machine instead of for the interrupted
 * program. */
bool diff_is_interrupt(const char *name);
/* Adds the self counts of each block, for the rows that have a slot. */
void diff_side_fill(struct diff *diff, struct diff_side *side);
static inline double *diff_blocks(const struct diff *diff, uint32_t slot, unsigned side)
{
	return &((double *)(void *)diff->blocks->data)[((slot - 1) * 2 + side) * NOISE_BLOCKS];
}

/* Returns an image's name without its folder, and without the version of a library: "libc.so" for
 * /usr/lib/libc-2.36.so and /lib/libc.so.6. Free it. */
char *diff_image_name(const char *path, bool is_jit) MUST_CHECK;
void diff_rows_init(struct diff *diff);
void diff_rows_done(struct diff *diff);
/* Matches, compares and sorts the rows: significant ones first, then by the size of the change. */
void diff_rows_compare(struct diff *diff);
/* Returns the change of a row in percent of its value in A; false if that is 0. */
bool diff_percent(const struct diff_row *row, double *ret_percent);

/* Adds notes on what limits the comparison. Returns false if comparing makes no sense at all. */
bool diff_note_all(struct diff *diff, GError **error);
void diff_notes_done(struct diff *diff);
/* Lists memory by process name, the greatest change first. */
void diff_list_processes(struct diff *diff);

void diff_show(struct diff *diff, struct out *out);
/* Reports on stderr what grew by more than --fail-over, or why there is no verdict. Returns an exit
 * status. */
int diff_judge(const struct diff *diff);
