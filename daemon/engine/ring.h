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
	size_t mapped_bytes; /* 0: memory of a test */
	uint64_t size;       /* of data, a power of two */
	uint64_t tail;       /* start of the next record */
	uint64_t head;       /* as last loaded */
	uint64_t released;   /* tail that the kernel sees */
	uint8_t *wrapped;    /* copy of a record that wraps or is not aligned */
	size_t wrapped_bytes;
};

/* Maps the ring of a perf event: one control page and `pages` of data. */
bool ring_init(struct ring *ring, int fd, unsigned int pages, GError **error);
/* The same with memory of the caller; size is a power of two. */
void ring_init_memory(struct ring *ring, struct perf_event_mmap_page *control, const void *data,
		      uint64_t size);
void ring_done(struct ring *ring);

/* Loads the kernel's head. */
void ring_load(struct ring *ring);

enum ring_result { RING_EMPTY, RING_RECORD, RING_CORRUPT };
/* Returns the next record below the loaded head, in one piece. It is valid until ring_skip, or
 * until ring_release_skipped if that returns false. RING_CORRUPT drops everything below the head.
 *  */
enum ring_result ring_peek(struct ring *ring, const struct perf_event_header **ret_record);
/* Skips the record that ring_peek returned, which stays valid until ring_release_skipped. Returns
 * whether the caller must finish with all pointers into records and call that before the next
 * ring_peek. */
bool ring_skip(struct ring *ring, const struct perf_event_header *record);
/* Releases the skipped records to the kernel. */
void ring_release_skipped(struct ring *ring);
