/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory - shared by the files of the verb `memory`: the verb (memory.c), the analysis
 * (memory-count.c, memory-find.c), and the output (memory-show.c, memory-stacks.c,
 * memory-call-tree.c)
 *
 * A view is a query: it defines what a row is, which blocks count, and which values are shown.
 *
 * Sums are doubles, because one block of a sampled capture represents several. Integers are exact
 * up to 2^53.
 */
#pragma once

#include "tools/profcapture/memory-replay.h"
#include "tools/profcapture/suppressions.h"
#include "tools/profile/function-names.h"

enum memory_view {
	MEMORY_SUMMARY,
	MEMORY_LEAKS,
	MEMORY_TEMPORARY,
	MEMORY_PEAK,
	MEMORY_AT,
	MEMORY_DIFF,
	MEMORY_SIZES,
	MEMORY_LIFETIMES,
	MEMORY_THREADS,
	MEMORY_CROSS_THREAD,
	MEMORY_REALLOCS,
	MEMORY_TIMELINE,
	MEMORY_VIEWS
};

/* The meaning of a view's rows. */
enum memory_key {
	MEMORY_BY_FUNCTION,
	MEMORY_BY_SIZE,
	MEMORY_BY_LIFETIME,
	MEMORY_BY_THREAD,
	MEMORY_BY_PAIR, /* the thread that allocated and the one that freed */
	MEMORY_BY_TIME,
};

/* The blocks that a view counts. Views with a filter up to MEMORY_MOVED read all rows of the time
 * range. */
enum memory_filter {
	MEMORY_ALLOCATED,
	MEMORY_FREED_AT_ONCE,
	MEMORY_FREED_ELSEWHERE, /* freed by another thread */
	MEMORY_MOVED,           /* moved by realloc */
	MEMORY_NOT_FREED,
	MEMORY_LIVE_AT_PEAK,
	MEMORY_LIVE_AT_TIME,
	MEMORY_LIVE_SINCE, /* live at a time, less those live at an earlier time */
	MEMORY_LIVE,       /* live at many points in time */
};

struct memory;

struct memory_query {
	const char *name; /* name of the option, and of the view in JSON */
	enum memory_key key;
	enum memory_filter filter;
	bool by_blocks;                     /* rows are sorted by blocks */
	unsigned measures;                  /* MEMORY_HAS_*: values that rows have */
	const struct table_column *columns; /* columns of the text; the last one has no format */
	const struct table_member *members;
};
extern const struct memory_query memory_queries[MEMORY_VIEWS];

/* Functions that allocate or free, the members of "calls" in JSON. */
enum {
	MEMORY_CALL_FREE = PROF_ALLOC_KINDS,
	MEMORY_CALL_FREE_NULL = MEMORY_CALL_FREE + PROF_FREE_KINDS,
	MEMORY_CALLS
};
extern const char *const memory_call_names[]; /* NULL: not a member of "calls" */

/* The values of one row, of any view. */
struct memory_counts {
	/* The fields before peak_bytes add up: the total is the sum over all processes. */
	double calls[MEMORY_CALLS];
	double failed, foreign, allocations, allocated_bytes, freed_bytes, temporary;
	double reallocs, grown_bytes, copied_bytes;
	double live_bytes, live_blocks, leaked_bytes, leaked_blocks;
	double peak_bytes; /* peak of a process; of other rows, the value at the overall peak */
	int64_t peak_ns;   /* set for processes and for the total */
	bool is_there, has_peak_time;
	uint32_t longest_chain; /* longest chain of reallocs; not known if sampled */
};

/* Flags for the values of struct memory_counts that a row has. The others are null. */
enum {
	MEMORY_HAS_CALLS =
		/* calls, failed, foreign, allocations, allocated_bytes, freed_bytes */
	1,
	MEMORY_HAS_LIVE = 2,
	MEMORY_HAS_LEAKED = 4,
	MEMORY_HAS_PEAK = 8,
	MEMORY_HAS_LOST = 16,
	MEMORY_HAS_TEMPORARY = 32,
};

struct memory_pair {               /* a row of --cross-thread */
	uint32_t allocator, freer; /* threads: indexes in names */
};

struct memory_warning {
	const char *text; /* interned; says what is not recorded */
	unsigned processes;
};

struct memory_about {         /* a process */
	const char *excluded; /* why it has no heap, or NULL */
	const char *comm;     /* or NULL */
	bool has_heap;
};

struct memory_line {
	uint32_t entity;
	const struct memory_counts *counts; /* NULL: only sums are known */
	struct memory_sum self, total, before;
	const char *name, *image;
	double key;    /* rows are sorted by key, greatest first */
	bool is_first; /* a pair of two different threads, which sorts before all others */
};

struct memory_point { /* a row of --timeline */
	int64_t time_ns;
	double bytes, blocks;
	double rss_bytes; /* resident memory of the processes; negative: unknown */
	/* function with the most live bytes at this time; FUNCTION_NO_STACK: nothing was live */
	uint32_t largest;
	double largest_bytes;
};

struct memory {
	struct reader reader;
	/* options */
	bool views[MEMORY_VIEWS]; /* requested views */
	uint64_t tree_lines;      /* --limit: maximum number of lines of a tree; 0: no maximum */
	bool is_tree, is_inverted, by_blocks, full_names, no_suppressions, no_inline, wants_inline,
		no_fold;
	struct units_time at;
	struct units_range diff;
	/* maximum number of other allocations during a temporary block's life */
	uint64_t threshold;
#define MEMORY_THRESHOLD 1
	uint64_t within_ns; /* UINT64_MAX: use the threshold */
	GPtrArray *suppression_files, *through;
	/* If memory_reads_all(), this is called for each counted allocation. NULL: no call. */
	void (*watch)(int64_t time_ns, const struct memory_block *block, double blocks, void *data);
	void *watch_data;
	enum memory_view view;
	bool inlined;            /* inlined functions count as functions */
	bool by_caller;          /* text: rows are sites (memory-tree.h) instead of functions */
	uint64_t most_stacks;    /* limit on the stacks that --leaks shows; 0: all */
	bool hides_runtime;      /* text: the runtimes' pools (suppressions.h) are not leaks */
	bool losses_are_printed; /* text: the losses have been printed before the sentences */
	int64_t at_ns, before_ns;
	/* mean bytes per sample, the largest of all segments; 0: every allocation was recorded */
	double sampled_bytes;
	bool is_sampled_alike;
	/* results */
	struct memory_tree tree;
	struct memory_heaps heaps;
	struct suppressions suppressions;
	GArray *entities;  /* struct memory_counts by row of the view */
	GArray *processes; /* struct memory_counts by process */
	GArray *about;     /* struct memory_about by process */
	GArray *pairs;     /* struct memory_pair by row of the view */
	GArray *sums;      /* struct memory_sum by node: the view's sums */
	GArray *before;    /* struct memory_sum by node at the first time of --diff */
	GArray *stacks;    /* struct memory_stack, with --leaks */
	GArray *points;    /* struct memory_point */
	GArray *warnings;  /* struct memory_warning */
	struct memory_counts all;
	unsigned has_all, has_processes;
	uint64_t lost, unknown;
	bool is_incomplete;
	/* output */
	GArray *lines;    /* struct memory_line */
	GPtrArray *texts; /* parts of sentences */
	struct json json;
};

static inline struct memory_counts *memory_counts_at(const GArray *all, uint32_t entity)
{
	return &((struct memory_counts *)(void *)all->data)[entity];
}

/* Returns the counts of an entity. Adds them if they do not exist. */
static inline struct memory_counts *memory_counts_of(GArray *all, uint32_t entity)
{
	if (entity >= all->len)
		g_array_set_size(all, entity + 1);
	memory_counts_at(all, entity)->is_there = true;
	return memory_counts_at(all, entity);
}

static inline const struct memory_line *memory_line_at(const struct memory *memory, uint32_t index)
{
	return &((const struct memory_line *)(void *)memory->lines->data)[index];
}

static inline const struct memory_pair *memory_pair_at(const struct memory *memory, uint32_t row)
{
	return &g_array_index(memory->pairs, struct memory_pair, row);
}

/* Returns whether temporary blocks can be recognized. A sampled recording lacks allocations, so
 * their number during a block's life is unknown; only the duration of that life is known. */
static inline bool memory_knows_temporary(const struct memory *memory)
{
	return memory->sampled_bytes <= 0 || memory->within_ns != UINT64_MAX;
}

/* Classes are the rows of --sizes (powers of two, in bytes) and --lifetimes (powers of ten, in ns).
 * The last lifetime class has the blocks that were never freed. */
uint32_t memory_size_class(uint64_t size);
void memory_size_range(uint32_t class, uint64_t *ret_from, uint64_t *ret_to);
#define MEMORY_NEVER_FREED 20u
uint32_t memory_lifetime_class(uint64_t ns);
void memory_lifetime_range(uint32_t class, uint64_t *ret_from, uint64_t *ret_to);

static inline const struct memory_query *memory_query_of(const struct memory *memory)
{
	return &memory_queries[memory->view];
}

/* Returns whether rows are functions. */
static inline bool memory_by_function(const struct memory *memory)
{
	return memory_query_of(memory)->key == MEMORY_BY_FUNCTION;
}

/* Returns whether the view needs all rows of the time range, not only what is live at one time. */
static inline bool memory_reads_all(const struct memory *memory)
{
	return memory_query_of(memory)->filter <= MEMORY_MOVED;
}

/* The caller sets the options and zeroes the rest. Zero is a valid value of within_ns and of the
 * reader's limit, so these must be set. Opens the file unless the reader has a capture. */
bool memory_run(struct memory *memory, const char *file, GError **error);
void memory_done(struct memory *memory);

/* Returns the row of the view to which an allocated block is charged; MEMORY_NOBODY if the row is
 * known only when the block is released. */
#define MEMORY_NOBODY UINT32_MAX
uint32_t memory_entity_of(const struct memory *memory, const struct memory_block *block);

/* The tables that the verb reads, NULL-terminated. */
extern const char *const memory_tables[];

/* These fill in the results. */
bool memory_find(struct memory *memory, GError **error);
bool memory_count(struct memory *memory, GError **error);
bool memory_find_leaks(struct memory *memory, GError **error);

/*
 * Returns a reader, which owns nothing, for the time range in which lost records make the view
 * wrong. A record lost before the view's range may be the allocation or the free of a counted
 * block. A record lost after the range may be the free of a block that is reported as leaked.
 */
struct reader memory_loss_reader(const struct memory *memory);

/* Appends to memory->warnings. */
bool memory_read_warnings(struct memory *memory, GError **error);

/* Fills in memory->about. Must be called after all rows are read. */
void memory_describe(struct memory *memory);
/* Return the reason why a process has no heap, and the process's name; NULL: none. */
static inline const char *memory_excluded(const struct memory *memory, uint32_t process)
{
	return g_array_index(memory->about, struct memory_about, process).excluded;
}

static inline const char *memory_comm(const struct memory *memory, uint32_t process)
{
	return g_array_index(memory->about, struct memory_about, process).comm;
}

/* Lists the rows of the answer, in order. */
void memory_list(struct memory *memory);
void memory_write(struct memory *memory);
void memory_print(struct memory *memory, struct out *out);
/* Prints the sentences above the rows. If no process could be recorded, prints the processes
 * instead, and returns false. */
bool memory_print_verdict(const struct memory *memory, struct out *out);
/* The parts of the text besides the rows (memory-sentences.c): the lost records, the sentences of
 * the view, and "Suppressed: 6 blocks, 76.2 KiB: stdio buffers (--no-suppressions)." */
void memory_print_warnings(const struct memory *memory, struct out *out);
void memory_append_sentences(const struct memory *memory, GString *text);
void memory_print_runtime(const struct memory *memory, struct out *out);
/* Return a number as text, which is kept until memory_done(); a share has no percent sign. */
const char *memory_count_text(const struct memory *memory, double count);
const char *memory_bytes_text(const struct memory *memory, double bytes);
const char *memory_blocks_text(const struct memory *memory, double blocks);
const char *memory_share_text(const struct memory *memory, double part, double whole);
/* Returns the text for a row, not escaped. */
char *memory_row_text(const struct memory *memory, uint32_t entity) MUST_CHECK;
/* Writes the sums over all processes as an object, including the runtimes' pools. */
void memory_write_summary(const struct memory *memory, struct json *json, const char *key);
/* Writes the array "runtime": the leaked bytes and blocks in each pool of the runtimes. */
void memory_write_runtime(const struct memory *memory, struct json *json);
/* Returns the sum of the runtimes' pools. */
struct memory_sum memory_runtime_sum(const struct memory *memory);
/* Returns the option of the view to suggest after the summary. */
const char *memory_next_view(const struct memory *memory);
/* Returns a name such as "shop::Cache::put", shortened unless --full-names is given, not
 * escaped. */
char *memory_name(const struct memory *memory, uint32_t function) MUST_CHECK;

/* Blocks that were not freed, grouped by stacks of the program (memory-stacks.c). The JSON members
 * are "stacks" and "stacks_total". */
GArray *memory_stacks_new(void) MUST_CHECK;
void memory_list_stacks(struct memory *memory);
void memory_print_stacks(struct memory *memory, struct out *out);
void memory_write_stacks(struct memory *memory, struct json *json);

/* Writes the members of a tree node, without its children. */
#define MEMORY_ROOT UINT32_MAX /* entity of the root, above all functions */
void memory_write_node(struct memory *memory, struct json *json, struct memory_line *line);
bool memory_tree_is_cut(struct memory *memory);
void memory_write_tree(struct memory *memory, struct json *json);
void memory_print_tree(struct memory *memory, struct out *out);
uint64_t memory_integer(double number);
/* Returns the value by which rows are sorted and the tree is pruned: bytes, or blocks if the view
 * or --by-blocks says so. */
double memory_key_of(const struct memory *memory, const struct memory_sum *sum);
