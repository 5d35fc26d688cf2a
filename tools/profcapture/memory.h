/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory - shared by the files of the verb `memory`: the verb (memory.c), the analysis
 * (memory-count.c, memory-find.c), and the output (memory-show.c,
 * memory-stacks.c, memory-call-tree.c)
 *
 * A view is a query: what a row is, which blocks it counts, and what is shown of it.
 *
 * Sums are doubles, because one block of a sampled capture stands for several. Integers are exact
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

/* What a row of a view is. */
enum memory_key {
	MEMORY_BY_FUNCTION,
	MEMORY_BY_SIZE,
	MEMORY_BY_LIFETIME,
	MEMORY_BY_THREAD,
	MEMORY_BY_PAIR, /* of the threads that allocated and freed */
	MEMORY_BY_TIME,
};

/* The blocks that a view counts. For the first four, all rows of the range are read. */
enum memory_filter {
	MEMORY_ALLOCATED,
	MEMORY_FREED_AT_ONCE,
	MEMORY_FREED_ELSEWHERE, /* by another thread */
	MEMORY_MOVED,           /* by realloc */
	MEMORY_NOT_FREED,
	MEMORY_LIVE_AT_PEAK,
	MEMORY_LIVE_AT_TIME,
	MEMORY_LIVE_SINCE, /* the difference of two times */
	MEMORY_LIVE,       /* over time */
};

struct memory;

struct memory_query {
	const char *name; /* of the option and in JSON */
	enum memory_key key;
	enum memory_filter filter;
	bool by_blocks;    /* rows are sorted by blocks */
	unsigned measures; /* MEMORY_HAS_*: of rows */
	/* Output: what rows have in text, in order, and elsewhere. */
	const struct table_column *columns; /* one without a title ends them */
	const struct table_member *members;
	void (*describe)(const struct memory *memory, GString *text); /* appends sentences */
};
extern const struct memory_query memory_queries[MEMORY_VIEWS];

/* Entry points, as named in "calls". */
enum {
	MEMORY_CALL_FREE = PROF_ALLOC_KINDS,
	MEMORY_CALL_FREE_NULL = MEMORY_CALL_FREE + PROF_FREE_KINDS,
	MEMORY_CALLS
};
extern const char *const memory_call_names[]; /* NULL: counts as another entry point */

/* MEM of any kind of row. */
struct memory_counts {
	/* Doubles up to peak_bytes are sums, and those of all processes add up. */
	double calls[MEMORY_CALLS];
	double failed, foreign, allocations, allocated_bytes, freed_bytes, temporary;
	double reallocs, grown_bytes, copied_bytes;
	double live_bytes, live_blocks, leaked_bytes, leaked_blocks;
	double peak_bytes; /* of the process, or of the row at the peak of all */
	int64_t peak_ns;   /* of processes and of all */
	double now_bytes;  /* of heaps that have not ended; the peak is the maximum of it */
	bool is_there, has_peak_time, is_changed;
	uint32_t longest_chain; /* of reallocs; not known if sampled */
};

/* The parts of MEM that are known for a row. The rest is null. */
enum {
	MEMORY_HAS_CALLS =
		/* calls, failed, foreign_frees, allocations, allocated_bytes, freed_bytes,
		 * temporary */
	1,
	MEMORY_HAS_LIVE = 2,
	MEMORY_HAS_LEAKED = 4,
	MEMORY_HAS_PEAK = 8,
	MEMORY_HAS_LOST = 16,
	MEMORY_HAS_TEMPORARY = 32,
};

struct memory_pair {               /* --cross-thread */
	uint32_t allocator, freer; /* index of names */
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
	double key;    /* rows are sorted by it, the greatest first */
	bool is_first; /* before all others: of two different threads */
};

struct memory_point { /* of --timeline */
	int64_t time_ns;
	double bytes, blocks;
	/* the function with the most live bytes then; FUNCTION_NO_STACK: nothing lived */
	uint32_t largest;
	double largest_bytes;
};

struct memory {
	struct reader reader;
	/* options */
	bool views[MEMORY_VIEWS]; /* those that are chosen */
	bool is_tree, is_inverted, by_blocks, full_names, no_suppressions, no_inline, no_fold;
	struct units_time at;
	struct units_range diff;
	uint64_t threshold; /* other allocations of the thread */
	uint64_t within_ns; /* UINT64_MAX: use the threshold */
	GPtrArray *suppression_files, *through;
	/* In a summary, called for each counted allocation. May be NULL. */
	void (*watch)(int64_t time_ns, const struct memory_block *block, double blocks, void *data);
	void *watch_data;
	enum memory_view view;
	bool inlined;         /* inlined functions count as functions */
	bool by_caller;       /* rows of functions are sites (memory-tree.h), for text */
	uint64_t most_stacks; /* that --leaks shows; 0: all */
	bool hides_runtime;   /* pools of the runtime are not leaks, for text */
	int64_t at_ns, before_ns;
	/* the largest of all recordings in the file; 0: every allocation was recorded */
	double sampled_bytes;
	bool is_sampled_alike;
	/* results */
	struct memory_tree tree;
	struct memory_heaps heaps;
	struct suppressions suppressions;
	GArray *entities;  /* struct memory_counts by row of the view */
	GArray *processes; /* the same by index of names */
	GArray *about;     /* struct memory_about by index of names */
	GArray *pairs;     /* struct memory_pair by entity */
	GArray *sums;      /* struct memory_sum by node: the view's sums */
	GArray *before;    /* the same at the first time of --diff */
	GArray *stacks;    /* struct memory_stack, of --leaks */
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

/* Returns the counts of an entity; a new one is added. */
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

/* Returns whether temporary blocks are known. A sampled recording skips allocations, so block
 * numbers do not say how soon a block was freed. */
static inline bool memory_knows_temporary(const struct memory *memory)
{
	return memory->sampled_bytes <= 0 || memory->within_ns != UINT64_MAX;
}

/* Rows of --sizes and --lifetimes: powers of two of bytes, and of ten of nanoseconds. The last
 * lifetime row has the blocks that were never freed. */
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

/* Returns whether all rows of the range are read, not only what lives at a time. */
static inline bool memory_reads_all(const struct memory *memory)
{
	return memory_query_of(memory)->filter <= MEMORY_MOVED;
}

/* `memory` holds the options and zeros, except where 0 has a meaning (within_ns, the reader's
 * limit). */
bool memory_run(struct memory *memory, const char *file, GError **error);
void memory_done(struct memory *memory);

/* Returns the row of the view that an allocated block counts for, or MEMORY_NOBODY if that is not
 * known before its release. */
#define MEMORY_NOBODY UINT32_MAX
uint32_t memory_entity_of(const struct memory *memory, const struct memory_block *block);

/* The tables that it reads, NULL-terminated. */
extern const char *const memory_tables[];

/* These fill in the results. */
bool memory_find(struct memory *memory, GError **error);
bool memory_count(struct memory *memory, GError **error);
bool memory_find_leaks(struct memory *memory, GError **error);

/*
 * Returns the reader with the range in which losses make the view wrong. It owns nothing. A record
 * lost before the memory's own range may be the allocation or the free of a block that counts in
 * it. A record lost after the range may be the free of a block that is reported as leaked.
 */
struct reader memory_loss_reader(const struct memory *memory);

/* Appends to ->warnings. */
bool memory_read_warnings(struct memory *memory, GError **error);

/* Fills in ->about. Must be called after everything is read. */
void memory_describe(struct memory *memory);
/* Returns why a process has no heap, or NULL; and its name, or NULL. */
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
/* Returns "shop::Cache::put", shortened unless --full-names is given, not escaped. */
char *memory_name(const struct memory *memory, uint32_t function) MUST_CHECK;

/* The blocks that were not freed, by the program's stacks (memory-stacks.c): ->stacks. JSON: the
 * members "stacks" and "stacks_total". */
GArray *memory_stacks_new(void) MUST_CHECK;
void memory_list_stacks(struct memory *memory);
void memory_print_stacks(struct memory *memory, struct out *out);
void memory_write_stacks(struct memory *memory, struct json *json);

/* Writes the members of a node of the tree, except its children. */
#define MEMORY_ROOT UINT32_MAX /* entity: above all functions */
void memory_write_node(struct memory *memory, struct json *json, struct memory_line *line);
bool memory_tree_is_cut(struct memory *memory);
void memory_write_tree(struct memory *memory, struct json *json);
void memory_print_tree(struct memory *memory, struct out *out);
uint64_t memory_integer(double number);
/* Returns the key of a view's sums: bytes, or blocks in views of blocks. Rows are sorted and the
 * tree is cut by it. */
double memory_key_of(const struct memory *memory, const struct memory_sum *sum);
