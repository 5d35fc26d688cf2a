/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/protocol.h"

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct channel {
	int fd;
	GQueue waiting; /* GBytes that the socket has not accepted yet */
	uint8_t *buffer;
};

struct channel_message {
	uint32_t type;
	uint32_t length;
	const uint8_t *body; /* 8-byte aligned, valid until the next call */
	int fds[MESSAGE_MAX_FDS];
	size_t n_fds;
};

enum channel_result { CHANNEL_MESSAGE, CHANNEL_EMPTY, CHANNEL_CLOSED };

void channel_init(struct channel *channel, int fd);
void channel_done(struct channel *channel);
/* Does not block. The caller owns the descriptors; channel_message_done() closes those that it has
 * not taken (those >= 0). */
enum channel_result channel_receive(struct channel *channel, struct channel_message *ret_message);
void channel_message_done(struct channel_message *message);
/* Does not block: channel_flush() sends what the socket does not accept. `more` follows the
 * body. */
void channel_send(struct channel *channel, enum message_type type, const void *body, size_t length,
		  const void *more, size_t more_length);
/* Returns false if some messages still wait. */
bool channel_flush(struct channel *channel);
/* Sends waiting messages; waits at most timeout_ms each time for room. Then reads all messages,
 * because a socket that is closed with unread data drops what was sent last. */
void channel_end(struct channel *channel, int timeout_ms);
