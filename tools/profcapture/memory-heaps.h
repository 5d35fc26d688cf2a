/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-heaps - what a capture says of each process's heap from time to time
 *
 * A heap is a process in one segment: what it allocated is not known from one segment to the next.
 * Its rows of the table `heap` say where to begin reading: at some of them the table `live` has all
 * of its blocks.
 */
#pragma once

#include "tools/profcapture/memory-blocks.h"
#include "tools/profcapture/memory-tree.h"

struct memory_mark { /* a row of heap */
	uint64_t time;
	uint64_t live_bytes, live_blocks, peak_bytes, peak_time, inherited;
	uint32_t segment;
	uint32_t heap;   /* index */
	uint32_t before; /* index + 1 of the heap's mark before, 0: none */
	uint32_t event;  /* enum prof_heap_event */
	bool is_broken;  /* its blocks are not all in the capture */
};

struct memory_heap {
	uint32_t segment, process; /* process: index of names */
	uint32_t first, last;      /* index + 1 of its marks */
	uint32_t end;              /* index + 1 of the mark with which it ended, 0: it has none */
	uint32_t excluded;         /* enum prof_heap_event, or 0 */
	uint64_t inherited;        /* blocks up to this number are those of who forked it */
	/* between how many bytes one block is recorded, on average; 0: each is */
	double sampled_bytes;
	bool has_ended; /* its process ended, and not only the recording: where it has an end */
};

struct memory_heaps {
	struct reader *reader;
	struct memory_tree *tree;
	GArray *marks;           /* struct memory_mark, in the file's order */
	GArray *heaps;           /* struct memory_heap */
	struct number_map index; /* segment and process → index + 1 */
	GByteArray *ends;        /* enum memory_end by process */
	uint64_t n_rows;         /* of alloc, free and live, that were read until now */
};

bool memory_heaps_init(struct memory_heaps *heaps, struct memory_tree *tree, GError **error);
void memory_heaps_done(struct memory_heaps *heaps);

static inline struct memory_mark *memory_mark_at(const struct memory_heaps *heaps, uint32_t index)
{
	return &((struct memory_mark *)(void *)heaps->marks->data)[index];
}

static inline struct memory_heap *memory_heap_at(const struct memory_heaps *heaps, uint32_t index)
{
	return &((struct memory_heap *)(void *)heaps->heaps->data)[index];
}

/*
 * A number that the recording of a segment says of how it chose allocations; 0: it does not. One
 * that says nothing of them has none, or lost its metadata, for which what the file says last is
 * taken.
 */
#define MEMORY_SAMPLE_BYTES "memory.sample_bytes"
#define MEMORY_MIN_BYTES "memory.min_bytes"
uint64_t memory_setting(const struct capture *capture, uint32_t segment, const char *key);
/* The most that a segment says, and whether all say so. */
uint64_t memory_most_setting(const struct capture *capture, const char *key, bool *ret_by_all);

/* How many blocks one stands for. */
double memory_weight(const struct memory_heap *heap, const struct memory_block *block);

/* How each process ended: by index of names, and whether it did. */
enum memory_end { MEMORY_RUNNING, MEMORY_EXIT, MEMORY_KILLED, MEMORY_EXEC };
extern const char *const memory_end_names[];
static inline enum memory_end memory_heaps_end(const struct memory_heaps *heaps, uint32_t process)
{
	return process < heaps->ends->len ? (enum memory_end)heaps->ends->data[process]
					  : MEMORY_RUNNING;
}

/* Index of the heap of a process in a segment; made where there was none. */
uint32_t memory_heaps_get(struct memory_heaps *heaps, uint32_t segment, uint32_t process);
/* Has the mark blocks in the table `live`? */
bool memory_mark_has_blocks(const struct memory_mark *mark);
/* Index + 1 of the heap's last mark with blocks, not broken and not after that time; 0: none. */
uint32_t memory_heaps_before(const struct memory_heaps *heaps, uint32_t heap, uint64_t time);

struct memory_live {
	uint32_t heap;
	struct memory_block block;
	struct memory_block_more more; /* order and chain are 0 */
};

/*
 * Hands out the blocks of some marks. What has fewer of them than it says is marked as broken, and
 * *ret_broken set: then what was handed out is worth nothing.
 */
bool memory_heaps_read_live(struct memory_heaps *heaps, const uint32_t *marks, size_t n,
			    void (*live)(const struct memory_live *live, void *data), void *data,
			    bool *ret_broken, GError **error);
