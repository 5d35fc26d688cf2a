/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Message - a record with the strings that it names
 *
 *     struct message message = {
 *         .type = RING_MARK, .payload_bytes = …, .n_texts = 2, .texts = texts
 *     };
 *
 *     intern_measure(group, &texts[0]);
 *     intern_measure(name, &texts[1]);
 *     message_write(&message, fill_mark, &mark);
 *
 * Where all strings have been sent, that is one record. Else they are sent before it. An id of 0 is
 * a string that there was no room for. Almost always each name stands where it stood the last time,
 * and message_try_write() is all that is done.
 */
#pragma once

#include "libcollector/register.h"
#include "libcollector/stack.h"

#define MESSAGE_TRIES 8 /* a handler got in between, or a ring was moved on from */
#define MESSAGE_MAX_TEXTS 66u

struct message {
	uint32_t type;
	size_t payload_bytes;
	size_t n_texts;
	struct text *texts;
	struct stack *stack; /* NULL: none */
};

enum message_outcome { MESSAGE_WRITTEN, MESSAGE_LOST, MESSAGE_AGAIN };

/* What it has to say in its payload, with the ids of its texts. */
typedef void message_fill(void *payload, const uint32_t *ids, const void *data);

/* Whatever it takes. False: it is lost, and counted. */
bool message_write(struct message *message, message_fill *fill, const void *data);
/* False: the thread has moved to a ring that n_bytes of text fit into. */
bool message_has_room(struct producer *producer, uint64_t n_bytes);
/* Of the ring that the thread writes into now, where its ids may be used from the beginning
 * again. */
uint32_t message_get_epoch(struct producer *producer);
/* Whether ids of that epoch are not those of the ring's owner any more. */
static inline bool message_is_other(const struct producer *producer, uint32_t epoch)
{
	return producer->intern.epoch != epoch || producer->current->bigger;
}
/* Sends a string, if it has not been sent; the id is 0 where a part found no room. */
enum message_outcome message_write_text(struct producer *producer, uint32_t epoch,
					struct text *text);
/* Where the thread's ring was left for a bigger one, whose owner has ids of its own: goes there. */
void message_follow_ring(struct producer *producer);
static inline __attribute__((always_inline)) void message_follow(struct producer *producer)
{
	if (__builtin_expect(producer->current->bigger != NULL, 0))
		message_follow_ring(producer);
}
/* What was begun means nothing by now: makes a string of it that nobody names. */
void message_waste(struct ring *ring, void *payload, size_t payload_bytes);

/* What most likely stands where it stood; NULL is "". False: it is not known, or not by that. */
static inline __attribute__((always_inline)) bool message_find_name(const struct producer *producer,
								    const char *name,
								    uint32_t *ret_id)
{
	*ret_id = name ? intern_find_place(&producer->intern, name) : 0;
	return __builtin_expect(*ret_id != 0, 1) || !name || !*name;
}

/* The thread's, of a function that the program called. NULL: counted. */
static inline __attribute__((always_inline)) struct producer *message_enter(void)
{
	struct producer *producer = producer_get();

	if (__builtin_expect(producer != NULL, 1))
		ring_enter(producer->current);
	return producer;
}

/* Behind what was recorded. */
static inline __attribute__((always_inline)) bool message_done(struct producer *producer)
{
	if (__builtin_expect(__atomic_load_n(producer->ended, __ATOMIC_RELAXED) != 0, 0))
		register_ended(producer);
	return true;
}

/* Counted; before the strings are looked at, by a function that the program called. */
static inline __attribute__((always_inline)) bool message_is_lost(size_t payload_bytes)
{
	struct producer *producer = register_self.producer;

	if (__builtin_expect(!producer, 0))
		return false;
	ring_enter(producer->current);
	if (__builtin_expect(!ring_is_full(producer->current, payload_bytes), 1))
		return false;
	message_done(producer);
	return true;
}

/*
 * A record whose texts are known, in the epoch in which they were. payload_bytes: fit into any
 * ring. False: nothing has happened, and message_write() is to be asked.
 */
static inline __attribute__((always_inline)) bool message_try_write(
	struct producer *producer, uint32_t epoch, uint32_t type, uint32_t payload_bytes,
	message_fill *fill, const uint32_t *ids, const void *data)
{
	struct ring *ring = producer->current;
	void *payload =
		ring_try_begin(ring, type, payload_bytes + sizeof(struct ring_record_header));

	if (__builtin_expect(!payload, 0))
		return false;
	/* A handler has begun a new epoch, or moved to another ring. */
	if (__builtin_expect(epoch != producer->intern.epoch || ring->bigger, 0)) {
		message_waste(ring, payload, payload_bytes);
		return false;
	}
	fill(payload, ids, data);
	ring_end_first(ring);
	return message_done(producer);
}
