/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Lost - the list of chunks that were found unreadable, each once
 *
 * Damage in a payload is found when the payload is read: by any cursor, dictionary or check, in any
 * thread, often several times. Each of these records the damage here, so that a program can query
 * all losses in one place, including those of dictionaries.
 *
 * Invariants: (1) a chunk is counted once, however often it was found
 *                 [test-capture-damage: lost_once]
 *             (2) the slots take at most 64 bytes for each damaged chunk, but at least 256 bytes;
 *                 none are allocated for an intact capture
 */
#include "libcapture/lost.h"

#include "base/hash.h"

#include <errno.h>
#include <pthread.h>

struct lost_chunk {
	uint64_t offset; /* 0: the slot is free; no chunk has this offset */
	uint32_t rows;
	uint32_t table;
};

struct lost {
	pthread_mutex_t lock;
	struct lost_chunk *slots; /* open addressing by offset, at most half full */
	size_t capacity;          /* 0, or a power of two */
	size_t n;
};

int lost_new(struct lost **ret_lost)
{
	struct lost *lost = calloc(1, sizeof(*lost));

	if (!lost)
		return -ENOMEM;
	pthread_mutex_init(&lost->lock, NULL);
	*ret_lost = lost;
	return 0;
}

void lost_free(struct lost *lost)
{
	if (!lost)
		return;
	pthread_mutex_destroy(&lost->lock);
	free(lost->slots);
	free(lost);
}

/* Returns the chunk's slot, or a free one for it. */
static struct lost_chunk *find_slot(struct lost_chunk *slots, size_t capacity, uint64_t offset)
{
	size_t i = (size_t)(offset * HASH_ODD >> 32);

	while (slots[i & (capacity - 1)].offset != 0 && slots[i & (capacity - 1)].offset != offset)
		i++;
	return &slots[i & (capacity - 1)];
}

static int make_room(struct lost *lost)
{
	size_t capacity = MAX_OF((size_t)16, lost->capacity * 2);
	struct lost_chunk *slots;

	if (lost->n < lost->capacity / 2)
		return 0;
	slots = calloc(capacity, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	for (size_t i = 0; i < lost->capacity; i++)
		if (lost->slots[i].offset != 0)
			*find_slot(slots, capacity, lost->slots[i].offset) = lost->slots[i];
	free(lost->slots);
	lost->slots = slots;
	lost->capacity = capacity;
	return 0;
}

int lost_add(struct lost *lost, const struct prof_chunk *chunk, uint32_t rows)
{
	struct lost_chunk *slot;
	int r;

	pthread_mutex_lock(&lost->lock);
	r = make_room(lost);
	if (!r) {
		slot = find_slot(lost->slots, lost->capacity, chunk->offset);
		lost->n += slot->offset == 0;
		*slot = (struct lost_chunk){
			.offset = chunk->offset,
			.rows = MAX_OF(slot->rows, rows),
			.table = chunk->table,
		};
	}
	pthread_mutex_unlock(&lost->lock);
	return r;
}

void lost_sum(struct lost *lost, unsigned int table, struct prof_lost *sum)
{
	pthread_mutex_lock(&lost->lock);
	for (size_t i = 0; lost->n > 0 && i < lost->capacity; i++) {
		const struct lost_chunk *slot = &lost->slots[i];

		if (slot->offset == 0 || (table && slot->table != table))
			continue;
		sum->chunks += slot->rows > 0;
		sum->flawed += slot->rows == 0;
		sum->rows += slot->rows;
	}
	pthread_mutex_unlock(&lost->lock);
}
