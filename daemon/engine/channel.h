/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/protocol.h"

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct channel {
	int fd;
	GQueue waiting; /* GBytes that the socket did not take */
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
/* Does not wait. The descriptors belong to the caller: channel_message_done closes those that
 * nobody took (left >= 0). */
enum channel_result channel_receive(struct channel *channel, struct channel_message *ret_message);
void channel_message_done(struct channel_message *message);
/* Does not wait: what the socket does not take goes with channel_flush. `more` follows the body. */
void channel_send(struct channel *channel, enum message_type type, const void *body, size_t length,
		  const void *more, size_t more_length);
/* False: something still waits. */
bool channel_flush(struct channel *channel);
/* Sends what waits, for at most so long, and takes leave: a socket that is closed with something
 * unread in it would make the peer lose what we sent last. */
void channel_end(struct channel *channel, int timeout_ms);
