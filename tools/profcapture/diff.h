/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Diff - what the files of the verb `diff` share: the verb (diff.c), what one capture has
 * (diff-side.c), what of all is the same (diff-rows.c), how it is shown (diff-show.c)
 *
 * A side is one run or several of the same, each a capture. What a side has is the mean of its
 * runs. With several, noise is how much the runs of a side differ; with one run a side, it is what
 * the two runs show of themselves.
 *
 * A row is a function, or with --paths a function and who called it, that at least one of the
 * captures has. What it counts is what ended in it: a sample counts in
 * one row, and a block of memory in that of who allocated it.
 */
#pragma once

#include "tools/profcapture/block-noise.h"
#include "tools/profcapture/memory.h"
#include "tools/profcapture/tally.h"

enum { DIFF_A, DIFF_B, DIFF_SIDES };
enum diff_norm { DIFF_BY_SAMPLES, DIFF_BY_TIME, DIFF_BY_RUN, DIFF_BY_MARK };
enum diff_measure { DIFF_SAMPLES, DIFF_BYTES, DIFF_CALLS, DIFF_PEAK };

#define DIFF_NO_FUNCTION UINT32_MAX
/* A row that has fewer in both captures together is never called a change. */
#define DIFF_LEAST_EVENTS 20
/* Nor is any where a capture has fewer. */
#define DIFF_LEAST_ALL (4 * NOISE_BLOCKS)

/* What ended in one row of the side's own: by function, or by node of its tree. */
struct diff_count {
	double count;   /* what samples stand for, bytes, calls */
	double events;  /* samples, allocations */
	double squares; /* sum of those of what each event counts */
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
	GArray *buckets;    /* of memory: double, NOISE_BLOCKS by function or node */
	GArray *identities; /* uint32_t by function: index + 1 in diff->identities */
	GArray *rows;       /* uint32_t by function or node: index + 1 in diff->rows */
	GHashTable *builds; /* build-ids of its images */
	double weights[NOISE_BLOCKS];
	double blocks[NOISE_BLOCKS]; /* of all rows together */
	struct diff_count all;
	bool *is_interrupt; /* by node of samples, where they are apart */
	double interrupts;
	uint64_t marks;
	int64_t from_ns, to_ns; /* of the blocks */
};

/* What is the same in both captures, whatever they were built from. */
struct diff_identity {
	char *image, *name;
	bool is_inlined;
	bool has_name; /* false: all of the image that no symbol holds */
};

struct diff_row {
	uint32_t identity, parent;     /* parent: index + 1 of the caller's row, with --paths */
	uint32_t function[DIFF_SIDES]; /* DIFF_NO_FUNCTION: it is not there */
	guint run[DIFF_SIDES];         /* of the side, that the function is of */
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
	double fail_percent; /* < 0: without */
	double scale;        /* of a ratio to the unit */
	const char *unit;
	GPtrArray *runs[DIFF_SIDES]; /* struct diff_side */
	unsigned n_runs;             /* of both sides */
	GPtrArray *identities;       /* struct diff_identity */
	GHashTable *by_identity;     /* struct diff_identity → index + 1 */
	struct number_map by_path;   /* caller's row and identity → index + 1 of the row */
	GArray *rows;                /* struct diff_row, a caller before who it called */
	GArray *order;               /* uint32_t: rows that have something, as they are shown */
	GArray *blocks;              /* double: by slot, side and block; with one run a side */
	GArray *per_run;             /* double: counts by row and run */
	struct diff_row all;
	unsigned tests, significant;
	bool is_damaged;      /* a capture, or names in it: no change is judged */
	GPtrArray *processes; /* of memory: struct diff_process */
	GArray *notes;        /* struct diff_note */
	struct json json;
};

/* All processes of a name. */
struct diff_process {
	const char *comm;
	double of[DIFF_SIDES];
};

/* What the captures differ in that has nothing to do with the program. */
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

/* Of the first run; its options are those of all. */
static inline const struct reader *diff_reader(const struct diff *diff)
{
	return diff_run_reader(diff, diff_run(diff, DIFF_A, 0));
}

/* Of a row that the side has. */
static inline const struct functions *diff_functions(const struct diff *diff,
						     const struct diff_row *row, unsigned side)
{
	return diff_run(diff, side, row->run[side])->functions;
}

/*
 * How many samples of equal weight would be as much evidence (Kish's effective sample size). A few
 * heavy samples decide a sum of weights, so the number of samples would promise more certainty than
 * there is. Equal weights give the number itself.
 */
static inline double diff_evidence(const struct diff *diff, const struct diff_count *count)
{
	/* Rounding must not take a sample away. */
	return diff->measure == DIFF_SAMPLES && count->squares > 0
		       ? MIN_OF(count->events,
				count->count * count->count / count->squares * (1 + 1e-9))
		       : count->events;
}

/* Reads a capture. */
bool diff_side_read(struct diff *diff, struct diff_side *side, const char *file, GError **error);
void diff_side_done(struct diff_side *side);
/* The node's parent and function, with --paths. */
void diff_side_node(const struct diff *diff, const struct diff_side *side, uint32_t node,
		    uint32_t *ret_parent, uint32_t *ret_function);
/* By node, where interrupts are apart: is it the kernel's work for the machine, and not for who
 * was interrupted? */
bool diff_is_interrupt(const char *name);
/* Adds what ended in each block of the rows that have a slot. */
void diff_side_fill(struct diff *diff, struct diff_side *side);
static inline double *diff_blocks(const struct diff *diff, uint32_t slot, unsigned side)
{
	return &((double *)(void *)diff->blocks->data)[((slot - 1) * 2 + side) * NOISE_BLOCKS];
}

/* Image without its folder, and without the version of a library: "libc.so" for
 * /usr/lib/libc-2.36.so and /lib/libc.so.6. New. */
char *diff_image_name(const char *path, bool is_jit) MUST_CHECK;
void diff_rows_init(struct diff *diff);
void diff_rows_done(struct diff *diff);
/* Finds what is the same, compares it, and sorts it: what is significant first, then by how
 * much. */
void diff_rows_compare(struct diff *diff);
/* Change of a row in percent of what it was; false where it was nothing. */
bool diff_percent(const struct diff_row *row, double *ret_percent);

/* What stands in the way of comparing. False where that makes no sense at all. */
bool diff_note_all(struct diff *diff, GError **error);
void diff_notes_done(struct diff *diff);
/* Of memory: by name, those with the greatest change first. */
void diff_list_processes(struct diff *diff);

void diff_show(struct diff *diff, struct out *out);
/* On stderr, what grew by more than --fail-over, or why that cannot be said; an exit status. */
int diff_judge(const struct diff *diff);
