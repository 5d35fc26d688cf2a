/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Live - the code that a running recording hit in its last seconds
 *
 * Reads the rows of a capture as they are written and keeps the samples of a time window and the
 * names that they need. Images, places of code, processes and threads have numbers that mean the
 * same in all epochs. The name of a place may be found later than its first hit: until then it
 * belongs to a function that has the name of its image. All texts are harmless to a terminal. For
 * one thread.
 */
#pragma once

#include "libcapture/prof-capture.h"
#include "tools/common/number-map.h"
#include "tools/profile/amount.h"

#include <glib.h>
#include <stdbool.h>

/* In each of these arrays number 0 is "none". */
struct live_image {
	const char *path; /* "" = none */
	GBytes *build_id;
	uint64_t size, dev, inode;
	uint64_t id;      /* in the latest epoch that had it */
	uint32_t kind;    /* enum prof_image_kind */
	uint32_t process; /* that owns the memory; 0 = a file, or unknown */
	uint32_t pending; /* the function of places without a name */
	GArray *symbols;  /* of struct live_symbol */
	bool sorted;
	bool lacks_lines; /* and so inlined calls */
};

struct live_symbol {
	uint64_t start, end;
	uint32_t function;
};

struct live_function {
	const char *name;
	const char *shown; /* the name without what says nothing, and without parameters */
	uint32_t image;
};

struct live_place {
	uint64_t offset; /* of the looked-up byte: for a return address the byte before it */
	uint32_t image, function;
	/* If the function is inlined there: index in `callers` of those that it is inlined into,
	 * innermost first, then 0. 0: it is not, or that is not known */
	uint32_t callers;
};

struct live_process {
	uint64_t pid, uid;
	uint64_t start_ns; /* by CLOCK_MONOTONIC; 0 = unknown */
	const char *comm;  /* of its main thread, else of the first thread seen */
};

struct live_thread {
	uint64_t tid;
	const char *comm;
	uint32_t process;
};

struct live_node {
	uint32_t parent; /* 0 = the outermost frame */
	uint32_t place;
};

/* The samples of a second; the key is node << 32 | thread. */
struct live_slice {
	uint64_t second;
	struct number_map counts; /* to an index + 1 */
	GArray *amounts;          /* struct amount */
};

enum live_ids {
	LIVE_STRINGS,
	LIVE_IMAGES,
	LIVE_FRAMES,
	LIVE_STACKS,
	LIVE_PROCESSES,
	LIVE_THREADS,
	LIVE_ID_KINDS
};

struct live {
	GArray *images, *functions, *places, *processes, *threads, *nodes;
	GArray *callers; /* numbers of functions, of inlined calls */
	struct live_slice *slices;
	unsigned n_slices;
	uint64_t samples,
		lost; /* since the beginning; lost: not counting ticks that the kernel missed */
	uint64_t last_second; /* of the latest sample */
	GArray *unnamed;      /* numbers of places, in the order of their first hits */
	GArray *plain;        /* of places of files that have a name; inlined calls are not known */
	uint32_t generation;  /* increases when all numbers are new */
	/* internal */
	uint32_t epoch;
	struct number_map ids[LIVE_ID_KINDS]; /* id in the epoch → number */
	GPtrArray *texts;                     /* by LIVE_STRINGS' numbers */
	GHashTable *keys;                     /* identity → number, of all kinds */
	GStringChunk *chunk;
	struct number_map place_numbers, node_numbers;
};

#define LIVE_AT(array, type, number) (&g_array_index((array), struct type, (number)))

/* window: the seconds whose samples are kept, at least 1. */
void live_init(struct live *live, unsigned window);
void live_done(struct live *live);
/* Returns the tables that it reads, for prof_stream_new(). */
uint64_t live_tables(void);
/* Takes rows as prof_stream_next() returns them. */
void live_add(struct live *live, unsigned table, const struct prof_batch *batch);

/* Adds a function of the image at [start, start + length); length 0: up to the next one. */
void live_add_symbol(struct live *live, uint32_t image, uint64_t start, uint64_t length,
		     const char *name, const char *raw_name);
/* Adds a function in which the place is, after those that are inlined into it. The first one
 * replaces the place's name. */
void live_add_inlined(struct live *live, uint32_t place, const char *name, const char *raw_name,
		      bool is_first);
/* Names the place by its offset, because no symbol was found. */
void live_name_by_offset(struct live *live, uint32_t place);
/* Names the place, if a symbol was added for it. */
bool live_name(struct live *live, uint32_t place);
/* Names all of `unnamed` if possible; those that stay in it have no name. */
void live_name_all(struct live *live);
