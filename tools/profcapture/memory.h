/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory - what the files of the verb `memory` share: the verb (memory.c), what it finds
 * (memory-count.c, memory-find.c), and how that is shown (memory-rows.c, memory-text.c,
 * memory-json.c)
 *
 * Sums are doubles, since one block of a sampled capture stands for several: integers are exact up
 * to 2^53.
 */
#pragma once

#include "tools/profcapture/memory-replay.h"
#include "tools/profcapture/suppressions.h"

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
	MEMORY_VIEWS
};
extern const char *const memory_view_names[];

/* Entry points, as they are called in "calls". */
enum {
	MEMORY_CALL_FREE = PROF_ALLOC_KINDS,
	MEMORY_CALL_FREE_NULL = MEMORY_CALL_FREE + PROF_FREE_KINDS,
	MEMORY_CALLS
};
extern const char *const memory_call_names[]; /* NULL: counts as another one */

/* MEM, of whatever is a row. */
struct memory_counts {
	double calls[MEMORY_CALLS];
	double failed, foreign, allocations, allocated_bytes, freed_bytes, freed_blocks, temporary;
	double live_bytes, live_blocks, leaked_bytes, leaked_blocks;
	double peak_bytes; /* of the process, or what there was of the row at the peak of all */
	int64_t peak_ns;   /* of processes and of all */
	double now_bytes;  /* of what is not ended: what the peak is taken of */
	bool is_there, has_peak_time, is_changed;
	/* of realloc */
	double reallocs, grown_bytes, copied_bytes;
	uint32_t longest_chain; /* of a sample it is not known */
};

/* What of MEM is known of a row; the rest is null. */
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
	const char *text; /* interned: what is not recorded */
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
	double key; /* sorted by, the greatest first */
};

struct memory {
	struct reader reader;
	/* what is wanted */
	bool leaks, temporary, peak, sizes, lifetimes, threads, cross_thread, reallocs, is_tree,
		is_inverted, by_blocks, full_names;
	struct units_time at;
	struct units_range diff;
	uint64_t threshold; /* other allocations of the thread */
	uint64_t within_ns; /* UINT64_MAX: by the threshold */
	GPtrArray *suppression_files, *through;
	/* Of a summary: told of each allocation that is counted. NULL: nobody is. */
	void (*watch)(int64_t time_ns, const struct memory_block *block, double blocks, void *data);
	void *watch_data;
	enum memory_view view;
	int64_t at_ns, before_ns;
	/* the most of any recording in the file; 0: each allocation is in it */
	double sampled_bytes;
	bool is_sampled_alike;
	/* what was found */
	struct memory_tree tree;
	struct memory_heaps heaps;
	struct suppressions suppressions;
	GArray *entities;  /* struct memory_counts by what the view's rows are */
	GArray *processes; /* the same by index of names */
	GArray *about;     /* struct memory_about by index of names */
	GArray *pairs;     /* struct memory_pair by entity */
	GArray *sums;      /* struct memory_sum by node: what the view is about */
	GArray *before;    /* the same, of the first time of --diff */
	GArray *warnings;  /* struct memory_warning */
	struct memory_counts all;
	unsigned has_all, has_processes, has_rows;
	uint64_t lost, unknown;
	bool is_incomplete;
	/* the answer */
	GArray *lines; /* struct memory_line */
	struct json json;
};

static inline struct memory_counts *memory_counts_of(GArray *all, uint32_t entity)
{
	struct memory_counts *counts;

	if (entity >= all->len)
		g_array_set_size(all, entity + 1);
	counts = &((struct memory_counts *)(void *)all->data)[entity];
	counts->is_there = true;
	return counts;
}

/* Between two allocations of a sampled recording there were others, so nobody knows which were
 * freed soon by their number. */
static inline bool memory_knows_temporary(const struct memory *memory)
{
	return memory->sampled_bytes <= 0 || memory->within_ns != UINT64_MAX;
}

/* Rows of --sizes and --lifetimes: powers of two of bytes, and of ten of nanoseconds; the last
 * one was never freed. */
uint32_t memory_size_class(uint64_t size);
void memory_size_range(uint32_t class, uint64_t *ret_from, uint64_t *ret_to);
#define MEMORY_NEVER_FREED 20u
uint32_t memory_lifetime_class(uint64_t ns);
void memory_lifetime_range(uint32_t class, uint64_t *ret_from, uint64_t *ret_to);

/* Are rows functions? */
static inline bool memory_by_function(const struct memory *memory)
{
	return memory->view <= MEMORY_DIFF || memory->view == MEMORY_REALLOCS;
}

/* `memory` holds what is wanted and zeros, but for what no number means (within_ns, the reader's
 * limit). */
int memory_choose_view(struct memory *memory);
bool memory_run(struct memory *memory, const char *file, GError **error);
void memory_done(struct memory *memory);

/* Does --pid let it pass? */
bool memory_wants_heap(const struct memory *memory, uint32_t heap);

/* Fills in what was found. */
bool memory_find(struct memory *memory, GError **error);
bool memory_count(struct memory *memory, GError **error);
bool memory_find_leaks(struct memory *memory, GError **error);

/*
 * The reader with the range in which losses make the view wrong; owns nothing. What was lost before
 * the memory's own range may be a block that is there in it, or its end, and what was lost behind
 * it the end of what is said to be leaked.
 */
struct reader memory_loss_reader(const struct memory *memory);

/* Appends to ->warnings. */
bool memory_read_warnings(struct memory *memory, GError **error);
void memory_print_warnings(const struct memory *memory, struct out *out);
void memory_write_warnings(const struct memory *memory, struct json *json);

/* Fills in ->about, once all that there is to read is read. */
void memory_describe(struct memory *memory);
/* What there is to say of a process: why it has no heap, or NULL; its name, or NULL; what it
 * lost. */
const char *memory_excluded(const struct memory *memory, uint32_t process);
const char *memory_comm(const struct memory *memory, uint32_t process);
uint64_t memory_lost_of(const struct memory *memory, uint32_t process);

/* Rows of the answer, in order. */
void memory_list(struct memory *memory);
guint memory_shown(const struct memory *memory);
void memory_write(struct memory *memory);
void memory_print(struct memory *memory, struct out *out);
/* The members of a node but its children. */
void memory_write_node(struct memory *memory, struct json *json, uint32_t function, bool is_root,
		       const struct memory_sum *self, const struct memory_sum *total,
		       const struct memory_sum *before);
bool memory_tree_is_cut(struct memory *memory);
void memory_write_tree(struct memory *memory, struct json *json);
void memory_print_tree(struct memory *memory, struct out *out);
uint64_t memory_integer(double number);
/* Sums of a view that its rows are sorted and its tree is cut by: bytes, or blocks where these
 * are what is asked for. */
double memory_key_of(const struct memory *memory, const struct memory_sum *sum);
