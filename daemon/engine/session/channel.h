/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/protocol.h"

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct channel {
	int fd;
	GQueue waiting; /* GBytes: messages that the socket has not accepted yet */
	uint8_t *buffer;
};

struct channel_message {
	uint32_t type;
	uint32_t length;
	const uint8_t *body; /* 8-byte aligned, valid until the next channel_receive() */
	int fds[MESSAGE_MAX_FDS];
	size_t n_fds;
};

enum channel_result { CHANNEL_MESSAGE, CHANNEL_EMPTY, CHANNEL_CLOSED };

void channel_init(struct channel *channel, int fd);
void channel_done(struct channel *channel);
/* Receives a message without blocking. The caller owns the message's descriptors.
 * channel_message_done() closes those that the caller did not set to -1. */
enum channel_result channel_receive(struct channel *channel, struct channel_message *ret_message);
void channel_message_done(struct channel_message *message);
/* A message that the socket does not accept waits for channel_flush(). If too many messages wait,
 * drops the new one, unless it is FINISHED. Does not block. `more` is appended to the body. */
void channel_send(struct channel *channel, enum message_type type, const void *body, size_t length,
		  const void *more, size_t more_length);
void channel_warn(struct channel *channel, const char *code, const char *text);
/* Sends the waiting messages without blocking. Returns whether the socket has accepted all. */
bool channel_flush(struct channel *channel);
/* Sends the waiting messages; each wait for room in the socket takes at most timeout_ms. Then reads
 * all messages, because closing a socket with unread data discards the data sent last. */
void channel_end(struct channel *channel, int timeout_ms);
