/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Control client - the process's end of the connection that delivers its arenas
 *
 * The program may close the connection's descriptor or reuse its number. So each use first compares
 * the socket's cookie (SO_COOKIE, unique since boot). The descriptor is moved out of the low
 * numbers, because programs rely on getting the lowest free one.
 * Invariants: (1) no wait exceeds the deadline              [test-control-client: silent]
 *             (2) a file that reuses the socket's number is not written or closed
 *                 [test-control-client: reused, left]
 *             (3) unexpected descriptors are closed
 *                 [test-control-client: surplus]
 */
#include "libcollector/register/control-client.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>

#define RETRY_NS UINT64_C(2000000) /* pause before another try if the listener's backlog is full */
#define MAX_FDS 4                  /* descriptors received per packet; surplus ones are closed */

static const int high_fds[] = { 1000, 200 };

/* ---- Addresses ---- */

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool parse_token(const char *text, size_t n, uint8_t *ret_token)
{
	uint8_t token[CONTROL_TOKEN_BYTES];

	if (n != 2 * sizeof(token))
		return false;
	for (size_t i = 0; i < sizeof(token); i++) {
		int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		token[i] = (uint8_t)(high << 4 | low);
	}
	memcpy(ret_token, token, sizeof(token));
	return true;
}

static void add_address(struct control_addresses *addresses, const char *text, size_t n,
			bool is_abstract)
{
	struct control_address *address = &addresses->addresses[addresses->n];

	if (addresses->n == CONTROL_MAX_ADDRESSES || n == 0 || n >= CONTROL_MAX_PATH)
		return;
	*address = (struct control_address){ .n_bytes = (uint32_t)n + 1 };
	memcpy(address->path + (is_abstract ? 1 : 0), text, n);
	addresses->n++;
}

static bool is_prefix(const char *text, size_t n, const char *prefix, size_t n_prefix)
{
	return n >= n_prefix && memcmp(text, prefix, n_prefix) == 0;
}

static void parse_entry(const char *text, size_t n, struct control_addresses *addresses)
{
	static const char path[] = "unix:", name[] = "unix-abstract:", token[] = "token:";

	if (is_prefix(text, n, path, sizeof(path) - 1))
		add_address(addresses, text + sizeof(path) - 1, n - (sizeof(path) - 1), false);
	else if (is_prefix(text, n, name, sizeof(name) - 1))
		add_address(addresses, text + sizeof(name) - 1, n - (sizeof(name) - 1), true);
	else if (is_prefix(text, n, token, sizeof(token) - 1))
		parse_token(text + sizeof(token) - 1, n - (sizeof(token) - 1), addresses->token);
}

bool control_parse(const char *text, struct control_addresses *ret_addresses)
{
	struct control_addresses addresses = { 0 };

	while (*text) {
		size_t n = 0;

		while (text[n] && text[n] != ',')
			n++;
		parse_entry(text, n, &addresses);
		text += n + (text[n] ? 1 : 0);
	}
	if (addresses.n == 0)
		return false;
	*ret_addresses = addresses;
	return true;
}

/* ---- Packets ---- */

/* Waits for `events`. If fd is -1, waits for RETRY_NS. */
static int wait_for(int fd, short events, uint64_t deadline_ns)
{
	struct pollfd polled = { .fd = fd, .events = events };
	uint64_t now = clock_now(), left;
	struct timespec timeout;

	if (now >= deadline_ns)
		return -ETIMEDOUT;
	left = fd < 0 ? MIN_OF(deadline_ns - now, RETRY_NS) : deadline_ns - now;
	timeout = clock_timespec(left);
	if (syscall(SYS_ppoll, &polled, fd < 0 ? 0L : 1L, &timeout, NULL, 0L) < 0 && errno != EINTR)
		return -errno;
	return 0;
}

int control_send(int fd, const void *packet, size_t bytes, uint64_t deadline_ns)
{
	for (;;) {
		long n = syscall(SYS_sendto, fd, packet, (long)bytes,
				 (long)(MSG_NOSIGNAL | MSG_DONTWAIT), NULL, 0L);
		int r;

		if (n == (long)bytes)
			return 0;
		if (n >= 0)
			return -EPROTO;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		r = wait_for(fd, POLLOUT, deadline_ns);
		if (r < 0)
			return r;
	}
}

/* Collects the descriptors of a packet. The kernel discards those that exceed MAX_FDS. */
static size_t get_fds(struct msghdr *message, int *ret_fds)
{
	size_t n = 0;

	for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at; at = CMSG_NXTHDR(message, at)) {
		size_t bytes = at->cmsg_len - CMSG_LEN(0);

		if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS ||
		    bytes > (MAX_FDS - n) * sizeof(int))
			continue;
		memcpy(ret_fds + n, CMSG_DATA(at), bytes);
		n += bytes / sizeof(int);
	}
	return n;
}

/* Returns -EAGAIN if no packet is available. */
static int receive_packet(int fd, void *packet, size_t bytes, int *ret_fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(MAX_FDS * sizeof(int))];
	} control;
	struct iovec data = { .iov_base = packet, .iov_len = bytes };
	struct msghdr message = { .msg_iov = &data,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control) };
	int fds[MAX_FDS];
	long n = syscall(SYS_recvmsg, fd, &message, (long)(MSG_DONTWAIT | MSG_CMSG_CLOEXEC));
	size_t n_fds;

	if (n < 0)
		return -errno;
	n_fds = get_fds(&message, fds);
	if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC) || n != (long)bytes || n_fds > 1) {
		for (size_t i = 0; i < n_fds; i++)
			syscall(SYS_close, fds[i]);
		/* The kernel delivers no descriptor if the process has no free one. */
		if (n == (long)bytes && n_fds == 0)
			return -EMFILE;
		return n == 0 ? -EPIPE : -EPROTO;
	}
	*ret_fd = n_fds == 1 ? fds[0] : -1;
	return 0;
}

int control_receive(int fd, void *packet, size_t bytes, uint64_t deadline_ns, int *ret_fd)
{
	for (;;) {
		int r = receive_packet(fd, packet, bytes, ret_fd);

		if (r != -EAGAIN && r != -EINTR)
			return r;
		r = wait_for(fd, POLLIN, deadline_ns);
		if (r < 0)
			return r;
	}
}

/* Returns 0, the status of a refusal, or -EPROTO. An answer with CONTROL_OK must carry a memfd. */
static int check_answer(const struct control_answer *answer, int fd)
{
	if (answer->magic != CONTROL_ANSWER_MAGIC || answer->bytes != CONTROL_BYTES)
		return -EPROTO;
	if (answer->status != CONTROL_OK)
		return answer->status < CONTROL_N_STATUSES ? (int)answer->status : CONTROL_FAILED;
	return answer->version == CONTROL_VERSION && fd >= 0 ? 0 : -EPROTO;
}

static int receive_answer(int fd, uint64_t deadline_ns, int *ret_memfd)
{
	struct control_answer answer;
	int memfd, r = control_receive(fd, &answer, sizeof(answer), deadline_ns, &memfd);

	if (r < 0)
		return r;
	r = check_answer(&answer, memfd);
	if (r == 0)
		*ret_memfd = memfd;
	else if (memfd >= 0)
		syscall(SYS_close, memfd);
	return r;
}

/* ---- The connection ---- */

static int connect_to(const struct control_address *address, uint64_t deadline_ns, int *ret_fd)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	long fd = syscall(SYS_socket, (long)AF_UNIX,
			  (long)(SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK), 0L);
	/* The length ends an abstract name; a path also needs its NUL. */
	size_t n_bytes = offsetof(struct sockaddr_un, sun_path) + address->n_bytes;
	int r = 0;

	if (fd < 0)
		return -errno;
	memcpy(name.sun_path, address->path, address->n_bytes);
	while (r == 0) {
		if (syscall(SYS_connect, fd, &name, (long)n_bytes) == 0) {
			*ret_fd = (int)fd;
			return 0;
		}
		/* If the backlog is full, AF_UNIX returns EAGAIN immediately, and poll(2) cannot
		 * wait for room. */
		r = errno == EAGAIN || errno == EINTR ? wait_for(-1, 0, deadline_ns) : -errno;
	}
	syscall(SYS_close, fd);
	return r;
}

static bool get_cookie(int fd, uint64_t *ret_cookie)
{
	uint64_t cookie;
	socklen_t bytes = sizeof(cookie);

	if (syscall(SYS_getsockopt, fd, (long)SOL_SOCKET, (long)SO_COOKIE, &cookie, &bytes) < 0 ||
	    bytes != sizeof(cookie))
		return false;
	*ret_cookie = cookie;
	return true;
}

static int move_up(int fd)
{
	for (size_t i = 0; i < ARRAY_SIZE(high_fds); i++) {
		long high = syscall(SYS_fcntl, fd, (long)F_DUPFD_CLOEXEC, (long)high_fds[i]);

		if (high >= 0) {
			syscall(SYS_close, fd);
			return (int)high;
		}
	}
	return fd;
}

int control_adopt(int fd, struct control_connection *ret_connection)
{
	struct control_connection connection = { .fd = move_up(fd) };

	if (!get_cookie(connection.fd, &connection.cookie)) {
		int r = -errno;

		syscall(SYS_close, connection.fd);
		return r;
	}
	*ret_connection = connection;
	return 0;
}

bool control_is_open(const struct control_connection *connection)
{
	uint64_t cookie;

	return connection->fd >= 0 && get_cookie(connection->fd, &cookie) &&
	       cookie == connection->cookie;
}

/* Polls for POLLRDHUP, which is reported even if packets are unread. */
bool control_is_left(const struct control_connection *connection)
{
	struct pollfd polled = { .fd = connection->fd, .events = POLLRDHUP };
	struct timespec at_once = { 0 };

	return control_is_open(connection) &&
	       syscall(SYS_ppoll, &polled, 1L, &at_once, NULL, 0L) == 1 &&
	       (polled.revents & POLLRDHUP);
}

static int connect_one(const struct control_address *address, const struct control_hello *hello,
		       uint64_t deadline_ns, struct control_connection *ret_connection,
		       int *ret_memfd)
{
	struct control_connection connection;
	int fd = -1, r = connect_to(address, deadline_ns, &fd);

	if (r < 0)
		return r;
	r = control_adopt(fd, &connection);
	if (r < 0)
		return r;
	r = control_send(connection.fd, hello, CONTROL_BYTES, deadline_ns);
	if (r == 0)
		r = receive_answer(connection.fd, deadline_ns, ret_memfd);
	if (r != 0)
		control_disconnect(&connection);
	else
		*ret_connection = connection;
	return r;
}

int control_connect(const struct control_addresses *addresses, const struct control_hello *hello,
		    uint64_t deadline_ns, struct control_connection *ret_connection, int *ret_memfd)
{
	int r = -ENOENT;

	for (uint32_t i = 0; i < addresses->n; i++) {
		r = connect_one(&addresses->addresses[i], hello, deadline_ns, ret_connection,
				ret_memfd);
		/* Try the next address after most failures, but not after a refusal or a timeout,
		 * and not if this process lacks descriptors or memory. */
		if (r >= 0 || r == -ETIMEDOUT || r == -EMFILE || r == -ENFILE || r == -ENOMEM)
			break;
	}
	return r;
}

int control_request_arena(struct control_connection *connection,
			  const struct control_request *request, uint64_t deadline_ns,
			  int *ret_memfd)
{
	int r = 0;

	if (!control_is_open(connection))
		return -EBADF;
	if (!connection->is_requested)
		r = control_send(connection->fd, request, CONTROL_BYTES, deadline_ns);
	if (r != 0)
		return r;
	connection->is_requested = true;
	r = receive_answer(connection->fd, deadline_ns, ret_memfd);
	connection->is_requested = r == -ETIMEDOUT;
	return r;
}

void control_disconnect(struct control_connection *connection)
{
	if (control_is_open(connection))
		syscall(SYS_close, connection->fd);
	connection->fd = -1;
}
