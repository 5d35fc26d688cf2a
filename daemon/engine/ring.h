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
	uint64_t released;   /* tail that the kernel knows */
	uint8_t *wrapped;    /* copy of a record that wraps, or is at an odd place */
	size_t wrapped_bytes;
};

/* Maps the ring of a perf event: one control page and `pages` of data. */
bool ring_init(struct ring *ring, int fd, unsigned int pages, GError **error);
/* The same over memory of the caller; size is a power of two. */
void ring_init_memory(struct ring *ring, struct perf_event_mmap_page *control, const void *data,
		      uint64_t size);
void ring_done(struct ring *ring);

/* Loads how far the kernel has written. */
void ring_load(struct ring *ring);

enum ring_result { RING_EMPTY, RING_RECORD, RING_CORRUPT };
/* The next record below the loaded head, in one piece, valid until ring_skip, and longer where
 * that says so. After RING_CORRUPT everything below the head is gone. */
enum ring_result ring_peek(struct ring *ring, const struct perf_event_header **ret_record);
/* Goes past the record that ring_peek showed. False: it stays valid until ring_give_back. True:
 * before the next ring_peek, whatever leads into records has to be done with, and ring_give_back
 * called. */
bool ring_skip(struct ring *ring, const struct perf_event_header *record);
/* Gives what was skipped back to the kernel. */
void ring_give_back(struct ring *ring);
