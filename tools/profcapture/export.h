/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export - data shared by the formats of the verb `export`: samples, the tree of their stacks,
 * names
 *
 * A format is one function in a file export-NAME.c, which writes everything at once. Functions are
 * those of report, so that totals are the same; unlike report, export leaves nothing out. For a
 * format that has lines of frames, the entities of the tree are frames: places in functions, each
 * of which counts as its function (functions_whole()).
 */
#pragma once

#include "tools/profcapture/code-files.h"
#include "tools/profcapture/export-samples.h"
#include "tools/profcapture/html-waits.h"
#include "tools/profcapture/profile.h"

struct export
{
	struct reader reader;
	struct profile profile; /* by function, with the whole tree and each sample */
	struct frame_filters filters;
	struct own_weights own;        /* for the page's verdict */
	struct html_samples samples;   /* for the page, instead of profile.each */
	struct export_samples ordered; /* for firefox and chrome, instead of profile.each */
	/* The waits, with the functions of `profile`; without results if the capture has none, or
	 * if they are not wanted. */
	struct profile waits;
	struct wait_places waiting;   /* for the page's verdict */
	struct html_waits html_waits; /* for the page, instead of waits.each */
	/* by function, for a format that has lines of frames: the function's file, or NULL */
	const char **files;
	struct allocations *allocations; /* NULL if the format or the capture has none */
	bool wants_rows;                 /* the format must read allocations itself */
	/* the later capture, with which this one is compared; or NULL */
	struct export *compared;
	const char *file;    /* path as given; if redacted, capture->file is the path's last part */
	const char *compare; /* file of `compared` */
	int format;
	int value;          /* enum export_value, for a format with only one value */
	const char *output; /* NULL: `name`, made from the capture's name */
	char *name;
	const char *table; /* for row formats only: name of the table */
	bool force, is_quiet, wants_inline, no_inline;
	bool with_source; /* html: with source and assembly, from `code` */
	struct code_files code;
	GString *page;   /* html: the text of the page */
	unsigned merges; /* html: how often the page was too large; each time, more is merged */
};

/* Returns how many rows of a kind a page may have: `most`, divided by 4 each time that the page was
 * too large, but at least 2. */
static inline guint export_most(const struct export *export, guint most)
{
	return MAX_OF(most >> 2 * export->merges, 2u);
}

/* The value of a stack; all except samples have pprof's names. */
enum export_value {
	EXPORT_SAMPLES,
	EXPORT_ALLOC_OBJECTS,
	EXPORT_ALLOC_SPACE,
	EXPORT_INUSE_OBJECTS,
	EXPORT_INUSE_SPACE,
};

/* First members of items that belong to a thread. Items are ordered by thread and time. */
struct export_key {
	uint64_t thread; /* index in names; must be the first member, as the key of sorted.h */
	int64_t time_ns;
};
gint export_compare(gconstpointer left, gconstpointer right);
/* Returns the items of a thread, which begin with a struct export_key and are ordered by thread.
 * `all` may be NULL. */
const void *export_of_thread(const GArray *all, uint32_t thread, size_t *ret_n);

/* The self value, which is not 0, of a node in a thread. A value of allocations is in
 * amount.weight. */
struct export_stack {
	uint64_t thread; /* the first two members form a struct export_key */
	int64_t time_ns; /* time of a single sample */
	uint32_t node;
	struct amount amount;
	const char *name; /* the thread's name at that time; NULL only from export_samples() */
};

/* Returns all stacks, ordered by thread, name and node: struct export_stack. */
GArray *export_stacks(const struct export *export);
/* Returns each sample of a profile as a stack without a name, ordered by thread and time. */
GArray *export_samples(const struct profile *profile);
/* Returns the threads (uint32_t) that have an item, ordered by pid and tid. The items are ordered
 * by thread, their first member. */
GArray *export_threads(const struct export *export, const GArray *items);
/* Sets the items of `path` (uint32_t) to the frames from the root to a node; none for node 0. */
void export_path(const struct export *export, uint32_t node, GArray *path);
/* Return the function of a frame, and the frame's line in that function's file; 0: unknown. */
static inline uint32_t export_function(const struct export *export, uint32_t frame)
{
	return functions_whole(export->profile.functions, frame);
}
uint32_t export_line(const struct export *export, uint32_t frame);
/* Finds the file of each function: the file of its declaration or, if unknown (as for inlined
 * functions), of its first known place. Must be called before export_line(). */
void export_find_files(struct export *export);
/* The page has all waits. Other formats have all waits up to this number; if there are more, at
 * least this many of the longest ones are kept. */
#define EXPORT_MOST_WAITS 50000u
/* Returns whether waits were read and any of them has a stack. */
bool export_has_waits(const struct export *export);
/* Returns whether samples count nanoseconds. */
bool export_is_time(const struct export *export);
/* Returns whether samples, or some of them, are waits. */
static inline bool export_counts_waits(const struct export *export)
{
	return export->reader.metric != READER_CPU;
}
/* Returns what the weight of samples counts: the event; "off-cpu" for waits, "wall" for both. */
const char *export_weight_name(const struct export *export);
/* Returns what samples are: "samples", or "waits" if there is nothing else. */
const char *export_sample_name(const struct export *export);
/* Returns the value of a stack for a format with one value: the weight of allocations, or of
 * samples if profile_is_weighted(), else the number of samples. */
uint64_t export_value_of(const struct export *export, struct amount amount);
/* Returns a thread's name, or its process's program; never NULL. */
const char *export_thread_name(const struct export *export, uint32_t thread);
/* Returns the recorded command, or "profd". */
char *export_title(const struct export *export) MUST_CHECK;

/* A set of texts, in the order of their indexes. */
struct export_strings {
	GPtrArray *all;
	GHashTable *index; /* text → index */
};
void export_strings_init(struct export_strings *strings);
void export_strings_done(struct export_strings *strings);
/* Returns the index of a text (NULL: ""). Adds the text if it is new. */
uint32_t export_string(struct export_strings *strings, const char *text);

/* The formats. */
bool export_folded(struct export *export, struct out *out, GError **error);
bool export_pprof(struct export *export, struct out *out, GError **error);
bool export_speedscope(struct export *export, struct out *out, GError **error);
bool export_firefox(struct export *export, struct out *out, GError **error);
bool export_chrome(struct export *export, struct out *out, GError **error);
bool export_perf_script(struct export *export, struct out *out, GError **error);
bool export_callgrind(struct export *export, struct out *out, GError **error);
bool export_svg(struct export *export, struct out *out, GError **error);
bool export_html(struct export *export, struct out *out, GError **error);
/* Fills in export->page. */
bool export_html_make(struct export *export, GError **error);
bool export_heaptrack(struct export *export, struct out *out, GError **error);
bool export_massif(struct export *export, struct out *out, GError **error);
bool export_syscap(struct export *export, struct out *out, GError **error);
bool export_sqlite(struct export *export, struct out *out, GError **error);
/* Returns the step between the times at which the page's ranges can start and end. */
int64_t export_html_grid(const struct capture *capture);
