/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Stranger - reads packets from processes that may be hostile
 *
 * A process that reads a packet also receives the descriptors in it, even without room for them:
 * the kernel then closes them before recvmsg() returns. If the sender has closed its own copies,
 * that closes the files, too, which can take as long as the sender likes. New kernels can refuse
 * such packets (SO_PASSRIGHTS). For older kernels, each packet is peeked at before it is read: the
 * peek duplicates the descriptors and closes only the duplicates. A packet with descriptors is
 * never read. A socket must have one reader, so that the reader reads the packet that it peeked at.
 * Invariants: (1) this process closes no file that a stranger sent  [test_attack_sockets]
 */
#include "daemon/stranger.h"

#include <errno.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* asm-generic/socket.h, Linux 6.16 */
#endif

bool stranger_refuse_descriptors(int socket)
{
	int off = 0;

	return setsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off)) == 0;
}

static ssize_t receive(int socket, void *bytes, size_t size, int flags, bool *ret_descriptors)
{
	struct iovec part = { bytes, size };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	ssize_t n;

	do {
		n = recvmsg(socket, &message, flags | MSG_DONTWAIT | MSG_TRUNC);
	} while (n < 0 && errno == EINTR);
	*ret_descriptors = n >= 0 && message.msg_flags & MSG_CTRUNC;
	return n;
}

ssize_t stranger_receive(int socket, void *bytes, size_t size)
{
	bool has_descriptors;
	ssize_t n = receive(socket, bytes, size, MSG_PEEK, &has_descriptors);

	if (!has_descriptors)
		return n > 0 ? receive(socket, bytes, size, 0, &has_descriptors) : n;
	errno = EPROTO;
	return -1;
}
