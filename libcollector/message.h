/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Message - a record with the strings that it names
 *
 *     struct message message = { .type = RING_MARK, .payload_bytes = …, .n_texts = 2, .fill = fill_mark, … };
 *
 *     intern_measure(group, &message.texts[0]);
 *     intern_measure(name, &message.texts[1]);
 *     message_write(&message, fill_mark, &mark);
 *
 * Where all strings have been sent, which is almost always, that is one record. Else they are sent before it. An id of 0 is a
 * string that there was no room for.
 */
#pragma once

#include "libcollector/register.h"

#define MESSAGE_TRIES 8 /* a handler got in between, or a ring was moved on from */

struct message {
	uint32_t type;
	size_t payload_bytes;
	size_t n_texts;
	struct text *texts;
};

/* What it has to say in its payload, with the ids of its texts. */
typedef void message_fill(void *payload, const struct message *message, const void *data);

bool message_write_slow(struct message *message, message_fill *fill, const void *data);
/* False: the thread has moved to a ring that n_bytes of text fit into. */
bool message_has_room(struct producer *producer, uint64_t n_bytes);
/* What was begun means nothing by now: makes a string of it that nobody names. */
void message_waste(struct producer *producer, void *payload, size_t payload_bytes);

static inline __attribute__((always_inline)) bool message_is_known(struct producer *producer,
								   struct message *message)
{
	bool is_known = true;

	for (size_t i = 0; i < message->n_texts; i++)
		is_known = intern_find(&producer->intern, &message->texts[i]) && is_known;
	return is_known;
}

/* Behind what was recorded. */
static inline __attribute__((always_inline)) bool message_done(struct producer *producer)
{
	if (__builtin_expect(__atomic_load_n(producer->ended, __ATOMIC_RELAXED) != 0, 0))
		register_ended(producer);
	return true;
}

/* Counted; before the strings are looked at. */
static inline __attribute__((always_inline)) bool message_is_lost(size_t payload_bytes)
{
	struct producer *producer = register_self.producer;

	if (__builtin_expect(!producer || !ring_is_full(producer->current, payload_bytes), 1))
		return false;
	message_done(producer);
	return true;
}

static inline __attribute__((always_inline)) bool message_write(struct message *message,
								message_fill *fill,
								const void *data)
{
	struct producer *producer = producer_get();
	struct ring *ring;
	uint32_t epoch;
	void *payload;

	if (__builtin_expect(!producer, 0))
		return false;
	epoch = producer->intern.epoch;
	if (__builtin_expect(!message_is_known(producer, message), 0))
		return message_write_slow(message, fill, data);
	ring = producer->current;
	payload = ring_begin(ring, message->type, message->payload_bytes);
	if (__builtin_expect(!payload, 0))
		return register_again(producer) && message_write_slow(message, fill, data);
	if (__builtin_expect(epoch != producer->intern.epoch || ring->bigger, 0)) {
		message_waste(producer, payload, message->payload_bytes);
		return message_write_slow(message, fill, data);
	}
	fill(payload, message, data);
	ring_end(ring, payload);
	return message_done(producer);
}
