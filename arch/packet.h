/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Packet - sends bytes over a socket, optionally with a descriptor
 *
 * Header-only, because tools and daemon share it. Each receiver does its own checks.
 */
#pragma once

#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* Like sendmsg(2), for one packet. Passes `fd` unless it is -1; never raises SIGPIPE. */
static inline ssize_t packet_send(int socket, const struct iovec *parts, size_t n_parts, int fd,
				  int flags)
{
	union {
		struct cmsghdr header;
		unsigned char space[CMSG_SPACE(sizeof(int))];
	} rights = { 0 };
	struct msghdr message = { .msg_iov = (struct iovec *)parts, .msg_iovlen = n_parts };

	if (fd >= 0) {
		message.msg_control = &rights;
		message.msg_controllen = sizeof(rights.space);
		rights.header.cmsg_level = SOL_SOCKET;
		rights.header.cmsg_type = SCM_RIGHTS;
		rights.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&rights.header), &fd, sizeof(int));
	}
	return sendmsg(socket, &message, flags | MSG_NOSIGNAL);
}
