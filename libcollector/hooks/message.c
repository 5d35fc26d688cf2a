/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Message - sends a record, preceded by the strings in it that have not been sent
 *
 * Each string is sent before the record, in as many parts as needed. Strings and record are not
 * published together, because a siglongjmp() from a handler would leave a record without its
 * strings. Between two steps a handler may begin a new epoch of ids, or move to another ring. Then
 * the next record is wasted (message_waste()), and the message starts again.
 *
 * Invariants: (1) an id in a record is 0, or the id of a string that was sent [test_collector:
 *                 names, siglongjmp, strings]
 *             (2) losses are counted                                     [test_collector: zoo]
 */
#include "libcollector/hooks/message.h"

/* limit for ids, after which they restart at 1, because the consumer keeps all strings */
#define MAX_IDS 4096u
#define MAX_PART (UINT32_C(1) << 15)

void message_waste(struct ring *ring, void *payload, size_t payload_bytes)
{
	struct ring_string *string = payload;

	((struct ring_record_header *)payload)[-1].type = RING_STRING;
	*string = (struct ring_string){ .n_bytes = (uint32_t)(payload_bytes - sizeof(*string)) };
	ring_end(ring, payload);
}

void message_follow_ring(struct producer *producer)
{
	struct ring *ring = producer->current;

	while (ring->bigger)
		ring = ring->bigger;
	intern_reset(&producer->intern);
	producer->current = ring;
}

uint32_t message_get_epoch(struct producer *producer)
{
	message_follow(producer);
	if (producer->intern.last_id >= MAX_IDS)
		intern_restart(&producer->intern);
	return producer->intern.epoch;
}

/* Returns the maximum size of a part. */
static uint32_t most_bytes(const struct producer *producer)
{
	const struct ring *ring = producer->current;
	uint64_t most = MIN_OF(ring->size / 16, (uint64_t)MAX_PART);

	return (uint32_t)MIN_OF(most, (uint64_t)ring->most_bytes) -
	       (uint32_t)sizeof(struct ring_string);
}

bool message_has_room(struct producer *producer, uint64_t n_bytes)
{
	uint64_t size = RING_MIN_BYTES;

	if (n_bytes <= producer->current->size / 2)
		return true;
	while (size < 2 * n_bytes)
		size *= 2;
	return register_bigger(producer, size) == producer;
}

static enum message_outcome write_part(struct producer *producer, uint32_t epoch, uint32_t id,
				       const struct text *text, uint32_t at, uint32_t n)
{
	size_t bytes = sizeof(struct ring_string) + n;
	struct ring *ring = producer->current;
	struct ring_string *string = ring_begin(ring, RING_STRING, bytes);

	if (!string)
		return register_again(producer) ? MESSAGE_AGAIN : MESSAGE_LOST;
	if (message_is_other(producer, epoch)) {
		message_waste(ring, string, bytes);
		return MESSAGE_AGAIN;
	}
	*string = (struct ring_string){ .id = id, .n_bytes = n };
	memcpy(string + 1, text->bytes + at, n);
	if (at + n < text->n_bytes)
		ring_set_flags(string, RING_FLAG_MORE);
	ring_end(ring, string);
	return MESSAGE_WRITTEN;
}

/* Sends a string in parts. If a part finds no room, the id stays 0. */
static enum message_outcome write_text(struct producer *producer, uint32_t epoch, struct text *text)
{
	uint32_t most = most_bytes(producer), id = intern_new_id(&producer->intern);
	enum message_outcome outcome = MESSAGE_WRITTEN;

	for (uint32_t at = 0; at < text->n_bytes && outcome == MESSAGE_WRITTEN; at += most)
		outcome =
			write_part(producer, epoch, id, text, at, MIN_OF(most, text->n_bytes - at));
	if (outcome == MESSAGE_WRITTEN) {
		text->id = id;
		intern_add(&producer->intern, text, epoch);
	}
	return outcome;
}

enum message_outcome message_write_text(struct producer *producer, uint32_t epoch,
					struct text *text)
{
	if (intern_find(&producer->intern, text)) {
		if (text->is_name)
			intern_add_place(&producer->intern, text, epoch);
		return MESSAGE_WRITTEN;
	}
	if (!message_has_room(producer, text->n_bytes))
		return MESSAGE_AGAIN;
	return write_text(producer, epoch, text);
}

static enum message_outcome try_to_write(struct producer *producer, struct message *message,
					 message_fill *fill, const void *data)
{
	uint32_t ids[MESSAGE_MAX_TEXTS], epoch = message_get_epoch(producer);
	struct ring *ring = producer->current;
	void *payload;

	/* message_write_text() sends a text only once, even if it occurs twice in the message. */
	for (size_t i = 0; i < message->n_texts; i++)
		if (message_write_text(producer, epoch, &message->texts[i]) == MESSAGE_AGAIN)
			return MESSAGE_AGAIN;
	if (message->stack && stack_write(producer, epoch, message->stack) == MESSAGE_AGAIN)
		return MESSAGE_AGAIN;
	payload = ring_begin(ring, message->type, message->payload_bytes);
	if (!payload)
		return register_again(producer) ? MESSAGE_AGAIN : MESSAGE_LOST;
	if (message_is_other(producer, epoch)) {
		message_waste(ring, payload, message->payload_bytes);
		return MESSAGE_AGAIN;
	}
	for (size_t i = 0; i < message->n_texts; i++)
		ids[i] = message->texts[i].id;
	fill(payload, ids, data);
	ring_end(ring, payload);
	message_done(producer);
	return MESSAGE_WRITTEN;
}

bool message_write(struct message *message, message_fill *fill, const void *data)
{
	for (int i = 0; i < MESSAGE_TRIES; i++) {
		struct producer *producer = producer_get();
		enum message_outcome outcome =
			producer ? try_to_write(producer, message, fill, data) : MESSAGE_LOST;

		if (outcome != MESSAGE_AGAIN)
			return outcome == MESSAGE_WRITTEN;
	}
	register_count_lost();
	return false;
}
