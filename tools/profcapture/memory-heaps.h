/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-heaps - the state of each process's heap over time, from the rows of the table `heap`
 *
 * A heap is a process in one segment, because allocations are not tracked across segments. Each row
 * of the table `heap` is a heap mark, which has the heap's size at one time, or the reason why the
 * process was not tracked. For some heap marks, the table `live` lists all live blocks, so that
 * reading can start there.
 */
#pragma once

#include "tools/profcapture/memory-blocks.h"
#include "tools/profcapture/memory-tree.h"

struct memory_mark { /* a row of the table `heap` */
	uint64_t time;
	uint64_t live_bytes, live_blocks, peak_bytes, peak_time, inherited;
	uint32_t segment;
	uint32_t heap;   /* index of the heap */
	uint32_t before; /* index + 1 of the previous mark of this heap; 0: none */
	uint32_t event;  /* enum prof_heap_event */
	bool is_broken;  /* some of its blocks are not in the capture */
};

struct memory_heap {
	uint32_t segment, process; /* process: index in names */
	uint32_t first, last;      /* index + 1 of its first and last mark; 0: none */
	uint32_t end;              /* index + 1 of the mark at which the heap ended; 0: none */
	uint32_t excluded;         /* reason for not tracking: enum prof_heap_event, or 0 */
	uint64_t inherited;        /* blocks up to this number were inherited at fork */
	/* mean bytes between two recorded blocks; 0: every block is recorded */
	double sampled_bytes;
	bool has_ended; /* the process ended; otherwise `end` is only the end of the recording */
};

struct memory_heaps {
	struct reader *reader;
	struct memory_tree *tree;
	GArray *marks;           /* struct memory_mark, in file order */
	GArray *heaps;           /* struct memory_heap */
	struct number_map index; /* segment and process → index in `heaps` + 1 */
	GByteArray *ends;        /* enum memory_end by process */
	uint64_t n_rows;         /* rows of alloc, free and live read so far */
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
 * Settings that control which allocations a segment's recording keeps; 0: not set. If a segment has
 * no memory settings (memory was not recorded, or the metadata is lost), the last value in the file
 * is used.
 */
#define MEMORY_SAMPLE_BYTES "memory.sample_bytes"
#define MEMORY_MIN_BYTES "memory.min_bytes"
uint64_t memory_setting(const struct capture *capture, uint32_t segment, const char *key);
/* Returns the maximum over all segments. Sets *ret_by_all to whether all have this value. */
uint64_t memory_most_setting(const struct capture *capture, const char *key, bool *ret_by_all);

/* A live block of a heap, with the number of blocks and bytes that it represents. */
struct memory_live {
	uint32_t heap;
	struct memory_block block;
	struct memory_block_more more; /* order and chain are 0 in blocks of a mark */
	double blocks, bytes;
};

/* Returns how many blocks one recorded block represents. */
double memory_weight(const struct memory_heap *heap, const struct memory_block *block);
/* Sets live->blocks and live->bytes. */
void memory_weigh(const struct memory_heaps *heaps, struct memory_live *live);

/* Returns whether --pid selects the heap's process, or is not given. */
bool memory_heaps_wants(const struct memory_heaps *heaps, uint32_t heap);

/* How a process ended. memory_heaps_end() takes the process's index in names. */
enum memory_end { MEMORY_RUNNING, MEMORY_EXIT, MEMORY_KILLED, MEMORY_EXEC };
extern const char *const memory_end_names[];
static inline enum memory_end memory_heaps_end(const struct memory_heaps *heaps, uint32_t process)
{
	return process < heaps->ends->len ? (enum memory_end)heaps->ends->data[process]
					  : MEMORY_RUNNING;
}

/* Returns the index of a process's heap in a segment. Creates the heap if needed. */
uint32_t memory_heaps_get(struct memory_heaps *heaps, uint32_t segment, uint32_t process);
/* Returns whether the table `live` has the blocks of the mark. */
bool memory_mark_has_blocks(const struct memory_mark *mark);
/* Returns 1 + the index of the heap's last unbroken mark that has blocks and is not later than
 * `time`; 0: none. */
uint32_t memory_heaps_before(const struct memory_heaps *heaps, uint32_t heap, uint64_t time);

/*
 * Calls `live` for each block of the given marks (index + 1). If a mark has fewer blocks than its
 * row says, sets the mark's is_broken and *ret_broken. The caller must then discard all received
 * blocks.
 */
bool memory_heaps_read_live(struct memory_heaps *heaps, const uint32_t *marks, size_t n,
			    void (*live)(const struct memory_live *live, void *data), void *data,
			    bool *ret_broken, GError **error);
