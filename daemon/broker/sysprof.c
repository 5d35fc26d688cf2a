/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Sysprof - accepts processes that use the protocol of sysprof's collectors
 *
 * A launched command and all its children inherit a socket. Each thread that wants to record sends
 * ten bytes over it, and waits for one byte and the descriptor of a ring. profd reads only the ten
 * bytes and their sender, which the kernel reports with each packet, because many processes inherit
 * the socket. The engine does the rest. The library waits without a time limit, so each request is
 * answered, and the socket is closed when the session ends. All threads wait at the same socket. So
 * a sender may receive another one's answer, and exit, before its own request is read; this request
 * is still valid.
 * Invariants: (1) the kernel reports the sender of a request  [test_sysprof: children]
 *             (2) a packet that is not a request is dropped  [test_sysprof: hostile]
 *             (3) after MAX_A_SECOND requests in a second, nothing is read  [test_sysprof: hostile]
 *             (4) requests that were sent before the session stops are read  [test_sysprof: late]
 *             (5) the kernel refuses packets with descriptors; on older kernels, such a packet
 *                 ends the socket for all senders  [test_attack_sockets: sysprof]
 * Main thread only.
 */
#include "config.h"

#include "arch/errno-text.h"
#include "daemon/broker/sysprof.h"

#include "arch/base.h"
#include "daemon/broker/error.h"
#include "daemon/broker/target.h"
#include "daemon/deferred-close.h"
#include "daemon/stranger.h"

#include <errno.h>
#include <glib-unix.h>
#include <poll.h>
#include <sys/socket.h>

#ifndef SO_PASSPIDFD
#define SO_PASSPIDFD 76 /* asm-generic/socket.h, Linux 6.5 */
#endif
#ifndef SCM_PIDFD
#define SCM_PIDFD 0x04 /* linux/socket.h */
#endif

#define MAX_A_SECOND 2000
#define PAUSE_MS 200

static const char request_text[] = "CreatRing"; /* 10 bytes, with the NUL */

struct sysprof {
	int socket, target_socket;
	bool refuses_descriptors; /* the kernel refuses packets with descriptors */
	bool is_ended;
	guint input, pause;
	control_receiver receive;
	void *data;
	gint64 second;
	unsigned n_in_second;
};

/* The kernel's report about a packet's sender. */
struct sender {
	struct ucred credentials; /* pid 0: not in our PID namespace */
	int pidfd;                /* -1: not reported */
	bool has_descriptors;
};

static void read_control(const struct msghdr *header, struct sender *ret_sender)
{
	struct msghdr *message = (struct msghdr *)header;

	*ret_sender = (struct sender){
		.pidfd = -1,
		.has_descriptors = header->msg_flags & MSG_CTRUNC,
	};
	for (struct cmsghdr *item = CMSG_FIRSTHDR(message); item;
	     item = CMSG_NXTHDR(message, item)) {
		size_t bytes = item->cmsg_len - CMSG_LEN(0);
		int fd;

		if (item->cmsg_level != SOL_SOCKET)
			continue;
		if (item->cmsg_type == SCM_CREDENTIALS && bytes == sizeof(struct ucred)) {
			memcpy(&ret_sender->credentials, CMSG_DATA(item), bytes);
			continue;
		}
		ret_sender->has_descriptors |= item->cmsg_type == SCM_RIGHTS;
		for (size_t at = 0; at + sizeof(fd) <= bytes; at += sizeof(fd)) {
			memcpy(&fd, CMSG_DATA(item) + at, sizeof(fd));
			if (item->cmsg_type == SCM_PIDFD)
				ret_sender->pidfd = fd;
			else if (item->cmsg_type == SCM_RIGHTS)
				close(fd);
		}
	}
}

/* Returns the length of the next packet; -1 if no packet is waiting. */
static ssize_t receive(int fd, void *packet, size_t room, int flags, struct sender *ret_sender)
{
	union {
		struct cmsghdr header;
		uint8_t space[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = { packet, room };
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control.space),
	};
	ssize_t n = recvmsg(fd, &message, flags | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n >= 0)
		read_control(&message, ret_sender);
	return n;
}

static bool receive_sender(struct sysprof *sysprof, const struct sender *sender)
{
	struct control_peer peer = {
		.connection = sysprof->socket,
		.pidfd = sender->pidfd,
		.pid = sender->credentials.pid,
		.uid = sender->credentials.uid,
	};

	if (!target_inner_pid(peer.pid, &peer.inner_pid))
		peer.inner_pid = 0;
	return peer.pid > 0 && sysprof->receive(&peer, sysprof->data) == CONTROL_OK;
}

static gboolean on_request(gint fd, GIOCondition condition, gpointer data);

static gboolean on_pause_over(gpointer data)
{
	struct sysprof *sysprof = data;

	sysprof->pause = 0;
	sysprof->input = g_unix_fd_add(sysprof->socket, G_IO_IN, on_request, sysprof);
	return G_SOURCE_REMOVE;
}

/* Peeks at the packet, because reading it would close its descriptors (stranger.c). Peeking closes
 * only copies. */
static bool has_descriptors(const struct sysprof *sysprof)
{
	char byte;
	struct sender sender = { .pidfd = -1 };

	if (sysprof->refuses_descriptors ||
	    receive(sysprof->socket, &byte, 1, MSG_PEEK, &sender) < 0)
		return false;
	if (sender.pidfd >= 0)
		close(sender.pidfd);
	return sender.has_descriptors;
}

/* Returns false if no packet waits, or after it has shut down the socket. */
static bool receive_request(struct sysprof *sysprof)
{
	char packet[sizeof(request_text) + 1];
	struct sender sender;
	ssize_t n;

	if (has_descriptors(sysprof)) {
		/* Threads that wait for an answer see the end of the socket and continue without a
		 * ring. */
		(void)shutdown(sysprof->socket, SHUT_RDWR);
		sysprof->is_ended = true;
		return false;
	}
	n = receive(sysprof->socket, packet, sizeof(packet), 0, &sender);
	if (n < 0)
		return false;
	if (n == sizeof(request_text) && memcmp(packet, request_text, sizeof(request_text)) == 0) {
		/* Older kernels send no pidfd, so open one while the sender waits and keeps its
		 * pid. */
		if (sender.pidfd < 0 && sender.credentials.pid > 0)
			sender.pidfd = target_open(sender.credentials.pid);
		/* An answer without a descriptor makes the thread continue without a ring. If
		 * sending fails, the thread is not waiting for this answer. */
		if (!receive_sender(sysprof, &sender))
			(void)!send(sysprof->socket, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
	if (sender.pidfd >= 0)
		close(sender.pidfd);
	return true;
}

/* Reads one request per iteration of the main loop, so that the loop also serves other sources. */
static gboolean on_request(gint fd, GIOCondition condition, gpointer data)
{
	struct sysprof *sysprof = data;
	struct pollfd answers = { .fd = sysprof->socket, .events = POLLOUT };
	gint64 second = g_get_monotonic_time() / G_USEC_PER_SEC;

	if (second != sysprof->second)
		sysprof->n_in_second = 0;
	sysprof->second = second;
	/* Read a request only if there is room for the answer, because a thread waits for it. */
	if (poll(&answers, 1, 0) <= 0 || sysprof->n_in_second++ >= MAX_A_SECOND) {
		sysprof->input = 0;
		sysprof->pause = g_timeout_add(PAUSE_MS, on_pause_over, sysprof);
		return G_SOURCE_REMOVE;
	}
	(void)receive_request(sysprof);
	if (!sysprof->is_ended)
		return G_SOURCE_CONTINUE;
	sysprof->input = 0;
	return G_SOURCE_REMOVE;
}

void sysprof_receive_rest(struct sysprof *sysprof)
{
	for (unsigned n = 0; n < MAX_A_SECOND && receive_request(sysprof); n++)
		continue;
}

bool sysprof_new(control_receiver receiver, void *data, struct sysprof **ret_sysprof,
		 GError **error)
{
	struct sysprof *sysprof;
	int sockets[2], on = 1;

	/* Use packets, so that requests sent at the same time stay separate. */
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
		return broker_fail(error, BROKER_ERROR_FAILED, "making a socket failed: %s",
				   ERRNO_TEXT(errno));
	if (setsockopt(sockets[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0) {
		close(sockets[0]);
		close(sockets[1]);
		return broker_fail(error, BROKER_ERROR_FAILED, "SO_PASSCRED failed: %s",
				   ERRNO_TEXT(errno));
	}
	(void)setsockopt(sockets[0], SOL_SOCKET, SO_PASSPIDFD, &on, sizeof(on));
	sysprof = g_new0(struct sysprof, 1);
	sysprof->refuses_descriptors = stranger_refuse_descriptors(sockets[0]);
	sysprof->socket = sockets[0];
	sysprof->target_socket = sockets[1];
	sysprof->receive = receiver;
	sysprof->data = data;
	sysprof->input = g_unix_fd_add(sysprof->socket, G_IO_IN, on_request, sysprof);
	*ret_sysprof = sysprof;
	return true;
}

int sysprof_target_socket(const struct sysprof *sysprof)
{
	return sysprof->target_socket;
}

void sysprof_free(struct sysprof *sysprof)
{
	if (!sysprof)
		return;
	g_clear_handle_id(&sysprof->input, g_source_remove);
	g_clear_handle_id(&sysprof->pause, g_source_remove);
	deferred_close(sysprof->socket);
	close(sysprof->target_socket);
	g_free(sysprof);
}
