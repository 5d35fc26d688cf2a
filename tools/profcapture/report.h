/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Report - shared by the files of the verb `report`: report.c (the verb, and the sentences above
 * and below every answer), report-rows.c (rows, and the callers and callees of one function),
 * report-tree.c (the call tree) and report-states.c (the states of threads)
 */
#pragma once

#include "tools/profcapture/profile.h"
#include "tools/profcapture/run-times.h"
#include "tools/profcapture/summary.h"
#include "tools/profcapture/thread-starts.h"
#include "tools/profile/function-labels.h"

struct report {
	struct reader reader;
	struct profile profile;
	bool tree, inlined, not_inlined, no_children, full_names, no_fold;
	uint64_t tree_lines; /* --limit, if given: maximum lines of a tree in text; 0: no limit */
	struct frame_filters filters;
	const char *callers, *callees;
	char *focus_name;       /* name of the function that `callers` or `callees` selects */
	struct span_set inside; /* spans of --per-mark; name NULL: all samples */
	struct own_weights own;
	/* the waits by function, for the sentence about waiting; empty if none were recorded */
	struct profile waits;
	struct wait_places waiting;
	/* struct run_time by thread, for --by thread and for text reports of all CPU time */
	GArray *times;
	struct thread_starts starts;    /* for --by thread */
	GPtrArray *process_comms;       /* text by process index; NULL if no answer needs it */
	struct function_labels *labels; /* labels of a tree's functions, in text */
	struct json json;
};

/* JSON omits a tree branch with a smaller share of the weight, unless --limit 0 is given. */
#define REPORT_TREE_MIN_PCT 0.5

/* Shares are shown without decimals if there are fewer samples. */
#define REPORT_FINE_SAMPLES 1000

/* An entity with its sort keys. */
struct report_line {
	uint32_t entity;
	struct profile_count count;
	const char *name;
	const char *image; /* name of a function's image; rows of equal names are sorted by it */
	uint64_t offset;
};

double report_percent(const struct report *report, struct amount amount);
/* Returns whether the report covers all CPU time of the recording. */
bool report_is_all_cpu_time(const struct report *report);
/* Fills in the name, the image and the offset of line->entity. */
void report_describe(const struct report *report, struct report_line *line);
/* Sorts by self, then total, then name. No two entities compare equal. */
gint report_compare_lines(gconstpointer left, gconstpointer right);

/* Reads the waits, if the capture has any. */
bool report_read_waits(struct report *report, GError **error);
void report_done(struct report *report);

/* Returns the data for the sentences. */
struct summary report_summary(const struct report *report);
/* These write or print the head of every answer. */
void report_write_head(const struct report *report, struct json *json);
void report_print_head(const struct report *report, struct out *out);
/* Prints "Lost: nothing. Stacks cut short: 1.1 %.", or the losses. */
void report_print_losses(const struct report *report, struct out *out);
/* Returns the title of the column with the number of samples or waits. */
const char *report_count_title(const struct report *report);
/* These write the members of a row. */
void report_write_counts(const struct report *report, struct json *json,
			 struct profile_count count);
void report_write_entity(const struct report *report, struct json *json, uint32_t entity);

/* These show an answer in one of its forms. */
void report_show_rows(struct report *report, struct out *out);
int report_show_edges(struct report *report, struct out *out);
void report_show_states(struct report *report, struct out *out);
void report_print_states_head(const struct report *report, struct out *out);
void report_show_tree(struct report *report, struct out *out);
