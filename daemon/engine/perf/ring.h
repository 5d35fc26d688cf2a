/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>
#include <linux/perf_event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ring {
	struct perf_event_mmap_page *control; /* the first page of the mapping */
	const uint8_t *data;
	size_t mapped_bytes; /* 0: memory of the caller */
	uint64_t size;       /* size of data, a power of two */
	uint64_t tail;       /* start of the next record */
	uint64_t head;       /* data_head as last loaded */
	uint64_t released;   /* data_tail as last stored */
	uint8_t *wrapped;    /* copy of a record that wraps or is not aligned */
	size_t wrapped_bytes;
};

/* Maps the ring of a perf event: one control page and `pages` of data. */
bool ring_init(struct ring *ring, int fd, unsigned int pages, GError **error);
/* Like ring_init(), with memory of the caller. `size` must be a power of two. */
void ring_init_memory(struct ring *ring, struct perf_event_mmap_page *control, const void *data,
		      uint64_t size);
void ring_done(struct ring *ring);

/* Loads the kernel's data_head. */
void ring_load(struct ring *ring);

/* Returns how many bytes the kernel has written that are not released. */
uint64_t ring_used(const struct ring *ring);

enum ring_result { RING_EMPTY, RING_RECORD, RING_CORRUPT };
/* Returns the next loaded record in one piece. It is valid until ring_release_skipped(), which must
 * come before the next ring_peek() if ring_skip() returns true. RING_CORRUPT: all loaded records
 * were dropped. */
enum ring_result ring_peek(struct ring *ring, const struct perf_event_header **ret_record);
/* Skips the record that ring_peek() returned. Returns whether the caller must stop using pointers
 * into records and call ring_release_skipped() before the next ring_peek(). */
bool ring_skip(struct ring *ring, const struct perf_event_header *record);
void ring_release_skipped(struct ring *ring);
