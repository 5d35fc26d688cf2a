/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ring - creates an arena whose producer and consumer are the same process, for tests
 */
#pragma once

#include "libcollector/ring/ring-reader.h"
#include "libcollector/ring/ring.h"
#include "tests/unit/test.h"

#define PAIR_BUFFER (1u << 20)
#define MARK_BYTES (sizeof(struct ring_record_header) + sizeof(struct ring_mark))

struct pair {
	struct ring_arena_memory memory;
	struct ring_arena *arena;
	struct ring *ring;          /* the first ring, claimed */
	struct ring_reader reader;  /* reads `ring` */
	struct ring_header *header; /* in the consumer's mapping */
	uint8_t *data;
	int fd;
	_Alignas(8) uint8_t buffer[PAIR_BUFFER];
};

static inline bool pair_init(struct pair *pair, uint64_t bytes, uint32_t n, enum ring_policy policy)
{
	const struct ring_arena_sizes sizes = { { { bytes, n, policy } } };

	memset(pair, 0, offsetof(struct pair, buffer));
	if (!CHECK_INT(ring_arena_make(&sizes, &pair->memory, &pair->fd), 0) ||
	    !CHECK_INT(ring_arena_map(pair->fd, &pair->arena), 0))
		return false;
	ring_reader_init(&pair->reader, &pair->memory, 0);
	pair->header = pair->reader.shared;
	pair->data = (uint8_t *)pair->reader.data;
	pair->ring = ring_claim(pair->arena, 1, 0, 0);
	return CHECK(pair->ring != NULL);
}

static inline void pair_done(struct pair *pair)
{
	ring_arena_unmap(pair->arena);
	ring_arena_memory_done(&pair->memory);
	close(pair->fd);
}

static inline bool write_mark(struct ring *ring, uint64_t id)
{
	struct ring_mark *mark = ring_begin(ring, RING_MARK, sizeof(*mark));

	if (!mark)
		return false;
	*mark = (struct ring_mark){ .group = 1, .name = 2, .id = id, .duration_ns = ~id };
	ring_end(ring, mark);
	return true;
}

/* Checks that the batch has only marks, with ids that ascend from *last_id. Returns the number of
 * marks, and updates *last_id. */
static inline uint64_t check_marks(struct ring_batch *batch, uint64_t *last_id)
{
	struct ring_record record;
	uint64_t n = 0, before = 0;

	for (; ring_batch_next(batch, &record); n++) {
		const struct ring_mark *mark = record.payload;

		if (!CHECK_INT(record.type, RING_MARK) ||
		    !CHECK_INT(record.n_bytes, sizeof(*mark)) || !CHECK(record.time_ns >= before) ||
		    !CHECK(mark->id > *last_id && mark->duration_ns == ~mark->id &&
			   mark->group == 1 && mark->name == 2))
			return n;
		*last_id = mark->id;
		before = record.time_ns;
	}
	return n;
}

static inline uint64_t lost_of(const struct ring_totals *totals)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < RING_N_LOST; i++)
		sum += totals->lost[i];
	return sum;
}

static inline bool check_law(const struct ring_totals *totals)
{
	return CHECK_INT(totals->attempted, totals->records + totals->abandoned +
						    totals->unpublished + lost_of(totals));
}
