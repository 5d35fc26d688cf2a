/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Datagram - the messages between profd and profd-files: bytes, and at most one descriptor */
#include "daemon/datagram.h"

#include "arch/base.h"
#include "arch/packet.h"

#include <errno.h>
#include <sys/socket.h>

bool datagram_send(int socket, const struct iovec *parts, size_t n_parts, int fd, int flags)
{
	return packet_send(socket, parts, n_parts, fd, flags) >= 0;
}

ssize_t datagram_receive(int socket, void *bytes, size_t size, int flags, int *ret_fd)
{
	union {
		struct cmsghdr header;
		uint8_t space[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec part = { bytes, size };
	struct msghdr header = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	const struct cmsghdr *rights;
	ssize_t n;

	do {
		n = recvmsg(socket, &header, flags | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	rights = n > 0 ? CMSG_FIRSTHDR(&header) : NULL;
	*ret_fd = -1;
	if (rights && rights->cmsg_type == SCM_RIGHTS && rights->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(ret_fd, CMSG_DATA(rights), sizeof(int));
	return n;
}
