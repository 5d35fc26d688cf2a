/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Message - a record with the strings that it refers to
 *
 *     struct message message = {
 *         .type = RING_MARK, .payload_bytes = …, .n_texts = 2, .texts = texts
 *     };
 *
 *     intern_measure(group, &texts[0]);
 *     intern_measure(name, &texts[1]);
 *     message_write(&message, fill_mark, &mark);
 *
 * If all strings have been sent, a message is one record; otherwise the strings are sent before it.
 * An id of 0 means an empty string, or one that did not fit into the ring. Almost always each name
 * has the same address as the last time, and message_try_write() suffices.
 */
#pragma once

#include "libcollector/hooks/stack.h"
#include "libcollector/register/register.h"

/* maximum tries for a message, if handlers interfere or the ring is replaced */
#define MESSAGE_TRIES 8
#define MESSAGE_MAX_TEXTS 66u

struct message {
	uint32_t type;
	size_t payload_bytes;
	size_t n_texts;
	struct text *texts;
	struct stack *stack; /* NULL: none */
};

enum message_outcome { MESSAGE_WRITTEN, MESSAGE_LOST, MESSAGE_AGAIN };

/* Fills the payload. ids: the ids of the message's texts. */
typedef void message_fill(void *payload, const uint32_t *ids, const void *data);

/* Writes the message and the strings that it needs. Returns false, and counts a loss, if the
 * message is lost. */
bool message_write(struct message *message, message_fill *fill, const void *data);
/* Tries to make room for n_bytes of text. Returns false if the thread has moved to a larger ring to
 * make room. */
bool message_has_room(struct producer *producer, uint64_t n_bytes);
/* Returns the epoch of the thread's current ring; restarts the ids if there are too many. */
uint32_t message_get_epoch(struct producer *producer);
/* Returns whether ids of `epoch` are no longer valid for the ring. */
static inline bool message_is_other(const struct producer *producer, uint32_t epoch)
{
	return producer->intern.epoch != epoch || producer->current->bigger;
}
/* Sends a string unless it was sent already. Sets its id; 0: there was no room for a part of the
 * string. */
enum message_outcome message_write_text(struct producer *producer, uint32_t epoch,
					struct text *text);
/* Uses the larger ring that the thread has moved to. Ids of the old ring become invalid. */
void message_follow_ring(struct producer *producer);
static inline __attribute__((always_inline)) void message_follow(struct producer *producer)
{
	if (__builtin_expect(producer->current->bigger != NULL, 0))
		message_follow_ring(producer);
}
/* Turns a begun record that is no longer valid into a string that no record uses. */
void message_waste(struct ring *ring, void *payload, size_t payload_bytes);

/* Finds the id of a name by its address, which is likely to be the same as before; NULL is "".
 * Returns false if the name is not found. */
static inline __attribute__((always_inline)) bool message_find_name(const struct producer *producer,
								    const char *name,
								    uint32_t *ret_id)
{
	*ret_id = name ? intern_find_place(&producer->intern, name) : 0;
	return __builtin_expect(*ret_id != 0, 1) || !name || !*name;
}

/* Returns the thread's producer, for functions that the program called. Returns NULL, and counts a
 * loss, if no producer is available. */
static inline __attribute__((always_inline)) struct producer *message_enter(void)
{
	struct producer *producer = producer_get();

	if (__builtin_expect(producer != NULL, 1))
		ring_enter(producer->current);
	return producer;
}

/* Must be called after a record: detects the end of the session. Returns true. */
static inline __attribute__((always_inline)) bool message_done(struct producer *producer)
{
	if (__builtin_expect(__atomic_load_n(producer->ended, __ATOMIC_RELAXED) != 0, 0))
		register_ended(producer);
	return true;
}

/* Returns whether a record is certain to be lost, and if so counts it. Functions that the program
 * calls use this before they examine the record's strings. */
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

/* Writes a record whose texts were sent in `epoch`. payload_bytes must fit into any ring. Returns
 * false if message_write() must be called; nothing was recorded then. */
static inline __attribute__((always_inline)) bool message_try_write(
	struct producer *producer, uint32_t epoch, uint32_t type, uint32_t payload_bytes,
	message_fill *fill, const uint32_t *ids, const void *data)
{
	struct ring *ring = producer->current;
	void *payload =
		ring_try_begin(ring, type, payload_bytes + sizeof(struct ring_record_header));

	if (__builtin_expect(!payload, 0))
		return false;
	/* A handler has begun a new epoch, or has moved to another ring. */
	if (__builtin_expect(epoch != producer->intern.epoch || ring->bigger, 0)) {
		message_waste(ring, payload, payload_bytes);
		return false;
	}
	fill(payload, ids, data);
	ring_end_first(ring);
	return message_done(producer);
}
