/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Diff - compares recordings, and separates changes from noise
 *
 * A side is one or several runs of the same program, each a capture. The value of a side is the
 * mean of its runs. Noise is the variation between the runs of a side. If each side has one run,
 * noise is estimated from the variation within the runs.
 *
 * A row is a function that occurs in at least one capture; with `paths`, a function and its
 * callers. The counts of a row are self counts: a sample counts in one row. With memory, a row is a
 * function of the program together with the library function through which it allocated. A function
 * of the program that allocates without a library function in between is a row of its own
 * (memory-tree.h).
 */
#pragma once

#include "tools/profcapture/block-noise.h"
#include "tools/profcapture/memory.h"
#include "tools/profcapture/profile.h"

/* The name of the row for all functions that run in interrupts. */
#define DIFF_INTERRUPTS "<interrupts>"
#define DIFF_KERNEL "[kernel]"
/* The name of the row for all of an image's code that has no symbol. */
#define DIFF_NO_NAME "<no name>"

enum { DIFF_A, DIFF_B, DIFF_SIDES };
enum diff_norm { DIFF_BY_SAMPLES, DIFF_BY_TIME, DIFF_BY_RUN, DIFF_BY_MARK };
enum diff_measure { DIFF_SAMPLES, DIFF_BYTES, DIFF_CALLS, DIFF_PEAK };

enum diff_verdict {
	DIFF_NO_VERDICT, /* a note prevents verdicts, or the row is not judged (is_unjudged) */
	DIFF_SLOWER,
	DIFF_FASTER,
	DIFF_MORE, /* memory views use MORE and LESS instead of SLOWER and FASTER */
	DIFF_LESS,
	DIFF_NEW,
	DIFF_GONE,
	DIFF_SAME,    /* within noise */
	DIFF_UNCLEAR, /* too few samples */
	DIFF_VERDICTS
};

/* To be tested, a row needs evidence of at least this many events (diff_evidence_of()) in both
 * sides together. */
#define DIFF_LEAST_EVENTS 20
/* Each capture needs evidence of at least this many events, or no row is tested. */
#define DIFF_LEAST_ALL (4 * NOISE_BLOCKS)

/* Self counts of one row in one run. */
struct diff_count {
	double count;   /* weight of samples, bytes or calls */
	double events;  /* number of samples or allocations */
	double squares; /* sum of the squares of each event's count */
};

struct diff_run {
	const struct diff *diff;
	unsigned side;
	struct reader *reader; /* &samples or &memory.reader */
	struct reader samples;
	struct profile profile;
	struct memory memory;
	struct frame_filters filters;
	const struct functions *functions;
	/* struct diff_count, by function or, with memory, by site; with `paths`, by node */
	GArray *counts;
	GArray *buckets;    /* with memory: NOISE_BLOCKS doubles for each item of counts */
	GArray *rows;       /* uint32_t for each item of counts: index + 1 in diff->rows */
	GHashTable *builds; /* set of the build-ids of the run's images */
	double weights[NOISE_BLOCKS], weight; /* denominators, by block; and their sum */
	double blocks[NOISE_BLOCKS];          /* counts of all rows together, by block */
	struct diff_count all;
	double interrupts; /* weight of samples in interrupts, which is in no other count */
	uint64_t marks;
	int64_t from_ns, to_ns; /* time range that the blocks divide */
};

/* A function, identified across captures and builds. */
struct diff_identity {
	uint32_t number;
	const char *image, *name; /* interned */
	bool is_inlined;
	bool has_name; /* false: the row has all of the image's code without a symbol */
};

struct diff_row {
	const struct diff_identity *id;
	const char *comm; /* rows of processes: the name that the row's processes share */
	uint32_t parent;  /* index + 1 of the caller's row; 0: no caller is compared */
	/* A function with this identity, from B if B has one; NULL: the row is not a function. */
	const struct functions *functions;
	uint32_t function;
	uint32_t place; /* with memory: index of the line that allocates; 0: several, or unknown */
	unsigned side;  /* side of `function` and `place` */
	struct diff_count counts[DIFF_SIDES];
	/* counts by block; in diff->rows, set only for tested rows, with one run per side */
	double *blocks[DIFF_SIDES];
	double a, b, noise;
	bool is_tested, has_noise, is_significant;
	bool is_unjudged; /* shown, but without a verdict on the program */
};

/* Damage, missing data, or a difference that the rows do not show (diff-notes.c). */
struct diff_note {
	const char *code;
	char *text;
	bool prevents_verdict;
};

struct diff {
	/* options */
	struct reader options;
	struct frame_filters filters;
	int mode;
	bool inlined, paths;
	enum diff_norm norm;
	/* compare totals if all captures are whole runs that sampled the same event, else shares */
	bool chooses_norm;
	const char *mark;
	enum diff_measure measure;
	/* results */
	double scale; /* converts a ratio to the displayed unit */
	char *unit;
	const char *total_unit; /* unit of the totals of a run */
	GPtrArray *runs;        /* struct diff_run: those of A, then those of B */
	guint n_runs[DIFF_SIDES];
	GHashTable *identities;    /* text → struct diff_identity */
	struct number_map by_path; /* caller's row and identity → index + 1 of the row */
	GArray *rows;              /* struct diff_row, a caller before its callees */
	GPtrArray *order;          /* diff_row with data: significant first, then by change */
	GArray *per_run;           /* double: counts by row and run */
	struct diff_row all;
	double most; /* largest total of a run */
	unsigned tests, significant;
	bool is_damaged; /* a capture or its names are damaged, so no change is reported */
	bool is_unfinished;
	bool is_few;           /* a capture has too few events or names, not due to a filter */
	bool prevents_verdict; /* a note prevents a verdict */
	bool has_events;       /* all captures sampled the same event */
	GPtrArray *processes;  /* with memory: struct diff_row, greatest change first */
	GPtrArray *notes;      /* struct diff_note */
};

static inline const struct diff_row *diff_row_at(const struct diff *diff, uint32_t index)
{
	return &((const struct diff_row *)(void *)diff->rows->data)[index];
}

static inline struct diff_run *diff_run_at(const struct diff *diff, guint index)
{
	return diff->runs->pdata[index];
}

/* Returns the first run of a side. */
static inline struct diff_run *diff_first(const struct diff *diff, unsigned side)
{
	return diff_run_at(diff, side == DIFF_A ? 0 : diff->n_runs[DIFF_A]);
}

static inline bool diff_has_one_run(const struct diff *diff)
{
	return diff->runs->len == DIFF_SIDES;
}

/* Reads and compares captures. The first n_a files are side A. */
bool diff_compare(struct diff *diff, const GPtrArray *files, guint n_a, GError **error);
void diff_done(struct diff *diff);

/* Adds the notes on all captures, which must have been read (diff-notes.c). */
void diff_add_notes(struct diff *diff);
void diff_note_free(gpointer note);
/*
 * Returns how many samples of equal weight would be evidence as good as `count` (Kish's effective
 * sample size). A few heavy samples can dominate a sum of weights, so the number of samples would
 * overstate the evidence. If all weights are equal, the result is the number of samples. With
 * memory, the result is the number of allocations.
 */
double diff_evidence_of(const struct diff *diff, const struct diff_count *count);

enum diff_verdict diff_verdict_of(const struct diff *diff, const struct diff_row *row);
/* Returns the change of a row in percent of its value in A; INFINITY if that value is 0. */
double diff_percent(const struct diff_row *row);
/* Returns about how many samples each capture needs for the change of a row to exceed its noise.
 * Returns 0 if the change already does, or if no number is known to be enough, as for memory. */
uint64_t diff_samples_needed(const struct diff *diff, const struct diff_row *row);

/* A sentence on what changed. */
struct diff_sentence {
	enum diff_verdict verdict; /* DIFF_NO_VERDICT: not about functions */
	/* label: a verdict, "No verdict", the change of the run or "Note"; or NULL */
	const char *figure;
	const char *text;
};
/* Compares two captures as the verb does by default, and passes the sentences of its summary and
 * its notes, except those on lost samples, to take(). Uses only the selection and `redacts` of
 * `select`. */
bool diff_each_sentence(const struct reader *select, const struct frame_filters *filters,
			const char *a, const char *b,
			void (*take)(const struct diff_sentence *sentence, void *data), void *data,
			GError **error);

/*
 * Returns a text that identifies a function across captures and builds; free it.
 * `has_build`: the other captures have the same build of the function's image, so that an offset
 * identifies code. Stores the identity, without a number.
 */
char *diff_identify(const struct functions *functions, uint32_t index, bool has_build,
		    struct diff_identity *ret_id) MUST_CHECK;
/* Returns the set of the build-ids of all images; free it. */
GHashTable *diff_builds(const struct names *names);
/* Returns whether a function, with all that it calls, handles interrupts. */
bool diff_is_interrupt(const struct function *function);
/* Returns the name of an image without folder and, for a library, without version: "libc.so" for
 * /usr/lib/libc-2.36.so and /lib/libc.so.6. Free the result. */
char *diff_image_name(const char *path, bool is_jit) MUST_CHECK;
