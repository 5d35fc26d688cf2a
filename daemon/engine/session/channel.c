/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Channel - messages to and from the broker
 *
 * Each datagram is one message. This file checks lengths, so callers receive only whole messages;
 * the caller checks whether a body fits its type. Sending never blocks, because a broker that does
 * not read must not stop the draining.
 * Invariants: (1) every received descriptor is closed or taken once
 *                 [test-engine-session: descriptors]
 *             (2) messages keep their order                         [test-engine-session: waiting]
 *             (3) sent messages arrive, even if received ones were not read
 *                 [test-engine-session: end_unread]
 * Runs on the drain thread only.
 */
#include "daemon/engine/session/channel.h"

#include "arch/base.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#define MAX_WAITING 4096

void channel_init(struct channel *channel, int fd)
{
	*channel = (struct channel){ .fd = fd, .buffer = g_malloc(MESSAGE_MAX_BYTES) };
	g_queue_init(&channel->waiting);
}

void channel_done(struct channel *channel)
{
	g_queue_clear_full(&channel->waiting, (GDestroyNotify)g_bytes_unref);
	g_free(channel->buffer);
	*channel = (struct channel){ .fd = -1 };
}

static void receive_fds(struct msghdr *header, struct channel_message *message)
{
	struct cmsghdr *control;
	size_t n;

	for (control = CMSG_FIRSTHDR(header); control; control = CMSG_NXTHDR(header, control)) {
		if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS)
			continue;
		n = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		n = MIN_OF(n, MESSAGE_MAX_FDS - message->n_fds);
		memcpy(message->fds + message->n_fds, CMSG_DATA(control), n * sizeof(int));
		message->n_fds += n;
	}
}

void channel_message_done(struct channel_message *message)
{
	for (size_t i = 0; i < message->n_fds; i++)
		if (message->fds[i] >= 0)
			close(message->fds[i]);
	message->n_fds = 0;
}

enum channel_result channel_receive(struct channel *channel, struct channel_message *ret_message)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(MESSAGE_MAX_FDS * sizeof(int))];
	} control;
	struct iovec io = { .iov_base = channel->buffer, .iov_len = MESSAGE_MAX_BYTES };
	struct msghdr header = { .msg_iov = &io,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control) };
	struct channel_message message = { 0 };
	struct message head;
	ssize_t length;

	do
		length = recvmsg(channel->fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (length < 0 && errno == EINTR);
	if (length < 0 && errno == EAGAIN)
		return CHANNEL_EMPTY;
	if (length <= 0)
		return CHANNEL_CLOSED;
	receive_fds(&header, &message);
	if ((size_t)length >= sizeof(head))
		memcpy(&head, channel->buffer, sizeof(head));
	if ((size_t)length < sizeof(head) || header.msg_flags & (MSG_TRUNC | MSG_CTRUNC) ||
	    head.length != length - sizeof(head)) {
		channel_message_done(&message);
		return CHANNEL_CLOSED;
	}
	message.type = head.type;
	message.length = head.length;
	message.body = channel->buffer + sizeof(head);
	*ret_message = message;
	return CHANNEL_MESSAGE;
}

bool channel_flush(struct channel *channel)
{
	GBytes *bytes;
	gsize length;
	const void *data;
	ssize_t sent;

	while ((bytes = g_queue_peek_head(&channel->waiting)) != NULL) {
		data = g_bytes_get_data(bytes, &length);
		sent = send(channel->fd, data, length, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (sent < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOBUFS))
			return false;
		/* Any other error means that the broker has ended; the next receive reports it. */
		g_bytes_unref(g_queue_pop_head(&channel->waiting));
	}
	return true;
}

void channel_send(struct channel *channel, enum message_type type, const void *body, size_t length,
		  const void *more, size_t more_length)
{
	struct message head = { .type = type, .length = length + more_length };
	g_autoptr(GByteArray) bytes = NULL;

	if (length + more_length > MESSAGE_MAX_BYTES - sizeof(head))
		return;
	if (g_queue_get_length(&channel->waiting) >= MAX_WAITING && type != MESSAGE_FINISHED)
		return;
	bytes = g_byte_array_sized_new(sizeof(head) + head.length);
	g_byte_array_append(bytes, (const void *)&head, sizeof(head));
	if (length)
		g_byte_array_append(bytes, body, length);
	if (more_length)
		g_byte_array_append(bytes, more, more_length);
	g_queue_push_tail(&channel->waiting, g_byte_array_free_to_bytes(g_steal_pointer(&bytes)));
	channel_flush(channel);
}

void channel_warn(struct channel *channel, const char *code, const char *text)
{
	struct message_warning warning = { 0 };

	g_strlcpy(warning.code, code, sizeof(warning.code));
	g_strlcpy(warning.text, text, sizeof(warning.text));
	channel_send(channel, MESSAGE_WARNING, &warning, sizeof(warning), NULL, 0);
}

void channel_end(struct channel *channel, int timeout_ms)
{
	struct pollfd wait = { .fd = channel->fd, .events = POLLOUT };
	struct channel_message message;

	while (!channel_flush(channel))
		if (poll(&wait, 1, timeout_ms) <= 0)
			break;
	(void)shutdown(channel->fd, SHUT_RD);
	while (channel_receive(channel, &message) == CHANNEL_MESSAGE)
		channel_message_done(&message);
}
