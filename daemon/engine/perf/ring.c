/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ring - reads one perf_event ring in place
 *
 * The kernel writes records and advances data_head; the engine reads them in place and advances
 * data_tail. A record is copied if it wraps around the end or is not aligned: a copied stack that
 * ends with the address space has an unrounded length (kernel/events/core.c,
 * perf_sample_ustack_size), which misaligns all records after it until the next such stack. Half of
 * the stacks of 32-bit programs are like that. Although the kernel writes the ring, lengths are
 * checked, so that no contents can cause a read outside the ring.
 * Invariants: (1) released <= tail <= head                            [test-engine-ring: order]
 *             (2) a record lies within [tail, head)  [test-engine-ring: hostile, odd]
 *             (3) a bad length empties this ring and is reported once [test-engine-ring: hostile]
 * Runs on the drain thread only. Does not interpret records (record.c).
 */
#include "daemon/engine/perf/ring.h"

#include "arch/base.h"
#include "libcapture/prof-capture.h"

#include <errno.h>
#include <glib.h>
#include <string.h>
#include <sys/mman.h>

#define CACHE_LINE 64
#define PREFETCH_BYTES 1024

bool ring_init(struct ring *ring, int fd, unsigned int pages, GError **error)
{
	size_t page = sysconf(_SC_PAGESIZE);
	size_t bytes = page * (1 + (size_t)pages);
	void *memory;

	if (pages == 0 || (pages & (pages - 1)) != 0 || pages > (1u << 20)) {
		g_set_error(error, G_FILE_ERROR, G_FILE_ERROR_INVAL,
			    "A ring of %u pages is not possible", pages);
		return false;
	}
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED) {
		g_set_error(error, G_FILE_ERROR, g_file_error_from_errno(errno),
			    "Mapping a perf ring of %u pages failed: %s", pages,
			    prof_strerror(-errno));
		return false;
	}
	ring_init_memory(ring, memory, (uint8_t *)memory + page, page * (uint64_t)pages);
	ring->mapped_bytes = bytes;
	return true;
}

void ring_init_memory(struct ring *ring, struct perf_event_mmap_page *control, const void *data,
		      uint64_t size)
{
	*ring = (struct ring){
		.control = control,
		.data = data,
		.size = size,
		.tail = control->data_tail,
		.head = control->data_tail,
		.released = control->data_tail,
	};
}

void ring_done(struct ring *ring)
{
	if (ring->mapped_bytes)
		munmap(ring->control, ring->mapped_bytes);
	free(ring->wrapped);
	*ring = (struct ring){ 0 };
}

void ring_load(struct ring *ring)
{
	/* Pairs with the kernel's perf_output_put_handle(): records written before the head are
	 * visible. */
	ring->head = __atomic_load_n(&ring->control->data_head, __ATOMIC_ACQUIRE);
}

uint64_t ring_used(const struct ring *ring)
{
	return __atomic_load_n(&ring->control->data_head, __ATOMIC_RELAXED) - ring->released;
}

static enum ring_result drop_corrupt(struct ring *ring)
{
	ring->tail = ring->head;
	return RING_CORRUPT;
}

static bool ring_reserve_copy(struct ring *ring, size_t bytes)
{
	uint8_t *grown;

	if (bytes <= ring->wrapped_bytes)
		return true;
	grown = realloc(ring->wrapped, bytes);
	if (!grown)
		return false;
	ring->wrapped = grown;
	ring->wrapped_bytes = bytes;
	return true;
}

static void copy_out(const struct ring *ring, void *to, size_t bytes)
{
	uint64_t at = ring->tail & (ring->size - 1);
	size_t first = MIN_OF(bytes, ring->size - at);

	memcpy(to, ring->data + at, first);
	memcpy((uint8_t *)to + first, ring->data, bytes - first);
}

enum ring_result ring_peek(struct ring *ring, const struct perf_event_header **ret_record)
{
	uint64_t available = ring->head - ring->tail;
	uint64_t at = ring->tail & (ring->size - 1);
	const uint8_t *record = ring->data + at;
	struct perf_event_header header;

	if (available == 0)
		return RING_EMPTY;
	if (available > ring->size || available < sizeof(header))
		return drop_corrupt(ring);
	copy_out(ring, &header, sizeof(header));
	if (header.size < sizeof(header) || header.size > available)
		return drop_corrupt(ring);
	*ret_record = (const void *)record;
	if (at % 8 == 0 && header.size <= ring->size - at) {
		if (header.size <= PREFETCH_BYTES)
			return RING_RECORD;
		/* Prefetch what is read first of a record with a stack: its start, the innermost
		 * frames, and the length of the stack, at the record's end. Another CPU's record is
		 * handled meanwhile. */
		for (size_t i = CACHE_LINE; i < PREFETCH_BYTES; i += CACHE_LINE)
			prefetch_line(record + i);
		prefetch_line(record + header.size - 2 * sizeof(uint64_t));
		prefetch_line(record + header.size); /* the next record's header */
		return RING_RECORD;
	}
	if (!ring_reserve_copy(ring, header.size))
		return drop_corrupt(ring);
	copy_out(ring, ring->wrapped, header.size);
	*ret_record = (const void *)ring->wrapped;
	return RING_RECORD;
}

bool ring_skip(struct ring *ring, const struct perf_event_header *record)
{
	ring->tail += record->size;
	/* The buffer for copies holds one record, and a long drain must free room early. */
	return (const void *)record == ring->wrapped ||
	       ring->tail - ring->released >= ring->size / 8;
}

void ring_release_skipped(struct ring *ring)
{
	if (ring->tail == ring->released)
		return;
	/* Pairs with the kernel's READ_ONCE(data_tail) and its control dependency: all reads are
	 * complete. */
	__atomic_store_n(&ring->control->data_tail, ring->tail, __ATOMIC_RELEASE);
	ring->released = ring->tail;
}
