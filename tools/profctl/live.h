/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Live - the samples of the last seconds of a running recording
 *
 * Reads the rows of a capture as they are written. Keeps the samples of a time window and the names
 * that they need. Images, places (code addresses), processes and threads have numbers that do not
 * depend on the epoch. A place may get its name after its first hit. Until then, it belongs to a
 * function with the name of its image. All texts are escaped for terminals. Not thread-safe.
 */
#pragma once

#include "libcapture/prof-capture.h"
#include "tools/common/cct.h"
#include "tools/profile/amount.h"

#include <glib.h>
#include <stdbool.h>

/* An image. Numbers of images and the items below are indexes in the arrays of struct live; 0 means
 * "none". */
struct live_image {
	const char *path; /* "" = none */
	GBytes *build_id;
	uint64_t size, dev, inode;
	uint64_t id;      /* id in the latest epoch that had the image */
	uint32_t kind;    /* enum prof_image_kind */
	uint32_t process; /* process with this memory; 0 = a file, or unknown */
	uint32_t pending; /* function that represents all places whose names are not known yet */
	GArray *symbols;  /* struct live_symbol */
	bool sorted;
	bool lacks_lines; /* no line tables were found, so inlined calls are unknown */
};

struct live_symbol {
	uint64_t start, end;
	uint32_t function;
};

struct live_function {
	const char *name;
	const char *shown; /* without parameters and other details */
	uint32_t image;
};

struct live_place {
	uint64_t offset; /* offset in the image; for a return address, the byte before it */
	uint32_t image, function;
	/* Index in `callers` of a list of the functions that `function` is inlined into, innermost
	 * first; the list ends with 0. 0: not inlined, or not known. */
	uint32_t callers;
};

struct live_process {
	uint64_t pid, uid;
	uint64_t start_ns; /* CLOCK_MONOTONIC; 0 = unknown */
	const char *comm;  /* name of the main thread, else of the first thread seen */
};

struct live_thread {
	uint64_t tid;
	const char *comm;
	uint32_t process;
};

struct live_node {
	uint32_t parent; /* 0 = this is the outermost frame */
	uint32_t place;
};

/* The samples of one second, by node << 32 | thread. */
struct live_slice {
	uint64_t second;
	struct number_map counts; /* key → index + 1 in amounts */
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
	GArray *callers; /* function numbers: lists that end with 0, see live_place */
	struct live_slice *slices;
	unsigned n_slices;
	uint64_t samples, lost; /* since the start; `lost` excludes ticks that the kernel missed */
	uint64_t last_second;   /* second of the latest sample */
	GArray *unnamed; /* numbers of places without a name, in the order of their first hits */
	GArray *plain; /* numbers of named places in files whose inlined calls are not known yet */
	uint32_t generation; /* changes when all numbers become invalid */
	uint32_t pending;    /* function that represents the pending functions of all images */
	bool no_inline;      /* do not look for inlined calls */
	/* internal */
	uint32_t epoch;
	struct number_map ids[LIVE_ID_KINDS]; /* id in the epoch → number */
	GPtrArray *texts;                     /* strings by number */
	GHashTable *keys;                     /* identity → number, for all kinds */
	GStringChunk *chunk;
	struct number_map place_numbers, node_numbers;
};

#define LIVE_AT(array, type, number) (&g_array_index((array), struct type, (number)))

/* `window`: number of seconds whose samples are kept, at least 1. */
void live_init(struct live *live, unsigned window);
void live_done(struct live *live);
/* Returns the tables that live_add() needs, for prof_stream_new(). */
uint64_t live_tables(void);
/* Adds rows as prof_stream_next() returns them. */
void live_add(struct live *live, unsigned table, const struct prof_batch *batch);

/* Adds a function of the image at [start, start + length). Length 0: the function extends to the
 * next one. */
void live_add_symbol(struct live *live, uint32_t image, uint64_t start, uint64_t length,
		     const char *name, const char *raw_name);
/* Adds a function that contains the place. Must be called for the innermost inlined function first
 * (`is_first`), which replaces the place's name, then for each outer function, from the inside
 * out. */
void live_add_inlined(struct live *live, uint32_t place, const char *name, const char *raw_name,
		      bool is_first);
/* Names the place by its offset, for a place without a symbol. */
void live_name_by_offset(struct live *live, uint32_t place);
/* Names the place if a symbol contains it. Returns whether a symbol does. */
bool live_name(struct live *live, uint32_t place);
/* Names the places in `unnamed` if possible, and removes the named ones from it. */
void live_name_all(struct live *live);
