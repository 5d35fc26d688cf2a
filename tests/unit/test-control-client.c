/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Checks of libcollector/register/control-client.c: valid and invalid values of PROF_CONTROL, and
 * answers. */
#include "base/clock.h"
#include "libcollector/register/control-client.h"
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#define SHORT_NS UINT64_C(50000000)

static const struct control_hello hello = { .magic = CONTROL_HELLO_MAGIC };

static void test_parse(void)
{
	static const char *const bad[] = { "",
					   ",",
					   "unix:",
					   "unix-abstract:",
					   "token:00",
					   "tcp:1",
					   "token:00112233445566778899aabbccddeeff" };
	struct control_addresses addresses = { .n = 77 };
	char long_path[300];

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(!control_parse(bad[i], &addresses));
	memset(long_path, 'x', sizeof(long_path) - 1);
	memcpy(long_path, "unix:", 5);
	long_path[sizeof(long_path) - 1] = 0;
	CHECK(!control_parse(long_path, &addresses));
	CHECK_INT(addresses.n, 77);
	CHECK(control_parse("what:ever,unix:/a/b,,unix-abstract:name,token:"
			    "00112233445566778899aabbccddeeff",
			    &addresses));
	CHECK_INT(addresses.n, 2);
	CHECK_STR(addresses.addresses[0].path, "/a/b");
	CHECK_INT(addresses.addresses[1].path[0], 0);
	CHECK_STR(addresses.addresses[1].path + 1, "name");
	CHECK_INT(addresses.token[15], 0xff);
	CHECK(control_parse("unix:/1,unix:/2,unix:/3,unix:/4,unix:/5,token:0g", &addresses));
	CHECK_INT(addresses.n, CONTROL_MAX_ADDRESSES);
	CHECK_INT(addresses.token[15], 0);
}

/* Listens at a unique address, the second one in *ret_addresses. Nobody listens at the first. */
static int listen_here(struct control_addresses *ret_addresses, int backlog)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	static int n;
	char text[200];
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), size;

	size = snprintf(address.sun_path + 1, 80, "prof-test-%d-%d", getpid(), n++);
	snprintf(text, sizeof(text), "unix:/nonexistent,unix-abstract:%s", address.sun_path + 1);
	CHECK(control_parse(text, ret_addresses));
	CHECK(bind(fd, (const struct sockaddr *)&address,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)size)) == 0);
	CHECK(listen(fd, backlog) == 0);
	return fd;
}

/* The time limit also holds if no peer answers or accepts. */
static void test_silent(void)
{
	struct control_connection connection = { .fd = -1 };
	struct control_addresses addresses;
	int listener = listen_here(&addresses, 0), memfd = -1, r = 0;
	uint64_t start = clock_now();

	/* The backlog has room for one connection; then connect(2) itself fails. */
	for (int i = 0; i < 3; i++) {
		r = control_connect(&addresses, &hello, clock_now() + SHORT_NS, &connection,
				    &memfd);
		CHECK_INT(r, -ETIMEDOUT);
	}
	CHECK(clock_now() - start >= 3 * SHORT_NS);
	CHECK_INT(connection.fd, -1);
	CHECK_INT(memfd, -1);
	close(listener);
	CHECK_INT(control_connect(&addresses, &hello, clock_now() + SHORT_NS, &connection, &memfd),
		  -ECONNREFUSED);
}

struct reply {
	int listener;
	struct control_answer answer;
	size_t n_bytes, n_fds;
	int peer;
};

static void send_answer(int peer, const struct control_answer *answer, size_t n_bytes, size_t n_fds)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(8 * sizeof(int))];
	} control = { 0 };
	struct control_answer data = *answer;
	struct iovec iov = { .iov_base = &data, .iov_len = n_bytes };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };
	int fds[8] = { 0 };

	if (n_fds > 0) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		control.header = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
						   .cmsg_type = SCM_RIGHTS,
						   .cmsg_len = CMSG_LEN(n_fds * sizeof(int)) };
		memcpy(CMSG_DATA(&control.header), fds, n_fds * sizeof(int));
	}
	CHECK_INT(sendmsg(peer, &message, 0), n_bytes);
}

static void *answer_once(void *data)
{
	struct reply *reply = data;
	char buffer[CONTROL_BYTES];

	reply->peer = accept(reply->listener, NULL, NULL);
	CHECK_INT(recv(reply->peer, buffer, sizeof(buffer), 0), CONTROL_BYTES);
	send_answer(reply->peer, &reply->answer, reply->n_bytes, reply->n_fds);
	return NULL;
}

static int n_open_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 1100; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Connects to a peer that sends this answer. The caller owns *ret_peer and, if the result is 0, the
 * connection. */
static int try_reply(struct control_answer answer, size_t n_bytes, size_t n_fds,
		     struct control_connection *ret_connection, int *ret_peer)
{
	struct control_addresses addresses;
	struct reply reply = { .answer = answer, .n_bytes = n_bytes, .n_fds = n_fds };
	pthread_t id;
	int memfd = -1, r;

	reply.listener = listen_here(&addresses, 8);
	CHECK(pthread_create(&id, NULL, answer_once, &reply) == 0);
	r = control_connect(&addresses, &hello, clock_now() + UINT64_C(20000000000), ret_connection,
			    &memfd);
	pthread_join(id, NULL);
	close(reply.listener);
	if (r == 0) {
		CHECK(fcntl(memfd, F_GETFD) == FD_CLOEXEC);
		close(memfd);
	}
	*ret_peer = reply.peer;
	return r;
}

static const struct control_answer good = { .magic = CONTROL_ANSWER_MAGIC,
					    .version = CONTROL_VERSION,
					    .bytes = CONTROL_BYTES };

static void test_surplus(void)
{
	struct control_answer other_magic = good, other_version = good, refusal = good,
			      unknown = good;
	struct {
		const struct control_answer *answer;
		size_t n_bytes, n_fds;
		int result;
	} cases[] = {
		{ &good, 64, 0, -EPROTO },           { &good, 64, 2, -EPROTO },
		{ &good, 64, 8, -EPROTO },           { &good, 63, 1, -EPROTO },
		{ &other_magic, 64, 1, -EPROTO },    { &refusal, 64, 0, CONTROL_LIMIT },
		{ &refusal, 64, 1, CONTROL_LIMIT },  { &other_version, 64, 1, -EPROTO },
		{ &unknown, 64, 0, CONTROL_FAILED },
	};
	int before = n_open_fds();

	other_magic.magic++;
	other_version.version++;
	refusal.status = CONTROL_LIMIT;
	unknown.status = 4711;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct control_connection connection = { .fd = -1 };
		int peer;

		CHECK_INT(try_reply(*cases[i].answer, cases[i].n_bytes, cases[i].n_fds, &connection,
				    &peer),
			  cases[i].result);
		CHECK_INT(connection.fd, -1);
		close(peer);
		CHECK_INT(n_open_fds(), before);
	}
}

/* The program closes the connection, and the descriptor's number is reused for another file. */
static void test_reused(void)
{
	static const struct control_request request = { .magic = CONTROL_REQUEST_MAGIC };
	struct control_connection connection = { .fd = -1 };
	int peer, pair[2], memfd = -1;
	char byte;

	REQUIRE(CHECK_INT(try_reply(good, 64, 1, &connection, &peer), 0));
	CHECK(connection.fd > 100);
	REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair) == 0);
	REQUIRE(dup2(pair[0], connection.fd) == connection.fd);
	CHECK_INT(control_request_arena(&connection, &request, clock_now() + SHORT_NS, &memfd),
		  -EBADF);
	CHECK(recv(pair[1], &byte, 1, 0) < 0 && errno == EAGAIN);
	peer = connection.fd;
	control_disconnect(&connection);
	CHECK_INT(connection.fd, -1);
	CHECK(fcntl(peer, F_GETFD) >= 0);
	close(peer);
	close(pair[0]);
	close(pair[1]);
}

/* control_is_left() detects that the other end is closed, also if an answer was not read yet, but
 * not if the descriptor has become another socket. */
static void test_left(void)
{
	struct control_connection connection = { .fd = -1 };
	int peer, pair[2];

	CHECK(!control_is_left(&connection));
	REQUIRE(CHECK_INT(try_reply(good, 64, 1, &connection, &peer), 0));
	CHECK(!control_is_left(&connection));
	send_answer(peer, &good, 64, 1);
	CHECK(!control_is_left(&connection));
	close(peer);
	CHECK(control_is_left(&connection));
	REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
	REQUIRE(dup2(pair[0], connection.fd) == connection.fd);
	close(pair[1]);
	CHECK(!control_is_left(&connection));
	close(connection.fd);
	close(pair[0]);
}

/* After a timeout, later attempts send no further request, but can receive the late answer. */
static void test_late(void)
{
	static const struct control_request request = { .magic = CONTROL_REQUEST_MAGIC };
	struct control_connection connection = { .fd = -1 };
	int peer, memfd = -1, before;
	char packet[CONTROL_BYTES];
	uint64_t start;

	REQUIRE(CHECK_INT(try_reply(good, 64, 1, &connection, &peer), 0));
	before = n_open_fds();
	start = clock_now();
	CHECK_INT(control_request_arena(&connection, &request, start + SHORT_NS, &memfd),
		  -ETIMEDOUT);
	CHECK(clock_now() - start >= SHORT_NS);
	CHECK_INT(control_request_arena(&connection, &request, 0, &memfd), -ETIMEDOUT);
	CHECK_INT(recv(peer, packet, sizeof(packet), MSG_DONTWAIT), CONTROL_BYTES);
	CHECK(recv(peer, packet, sizeof(packet), MSG_DONTWAIT) < 0 && errno == EAGAIN);
	send_answer(peer, &good, 64, 1);
	CHECK_INT(control_request_arena(&connection, &request, 0, &memfd), 0);
	CHECK_INT(n_open_fds(), before + 1);
	close(memfd);
	control_disconnect(&connection);
	close(peer);
}

/* Returns a limit for RLIMIT_NOFILE that leaves two descriptors free. */
static rlim_t limit_with_two_free(void)
{
	int n = 0, fd = 0;

	for (; n < 2; fd++)
		n += fcntl(fd, F_GETFD) < 0;
	return (rlim_t)fd;
}

/* If a process has no free descriptor for its arena, control_connect() fails, and does not try the
 * next address. */
static void test_no_descriptor_is_left(void)
{
	struct control_connection connection = { .fd = -1 };
	struct control_addresses addresses;
	struct control_address absent;
	struct reply reply = { .answer = good, .n_bytes = 64, .n_fds = 1 };
	struct rlimit before, few;
	pthread_t id;
	int memfd = -1;

	reply.listener = listen_here(&addresses, 8);
	/* Swap the addresses, so that nobody listens at the last one. */
	absent = addresses.addresses[0];
	addresses.addresses[0] = addresses.addresses[1];
	addresses.addresses[1] = absent;
	CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
	few = (struct rlimit){ .rlim_cur = limit_with_two_free(), .rlim_max = before.rlim_max };
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
	CHECK(pthread_create(&id, NULL, answer_once, &reply) == 0);
	/* answer_once() holds one of the two free descriptors, and the connection the other one */
	CHECK_INT(control_connect(&addresses, &hello, clock_now() + UINT64_C(20000000000),
				  &connection, &memfd),
		  -EMFILE);
	pthread_join(id, NULL);
	CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
	close(reply.peer);
	close(reply.listener);
}

int main(void)
{
	RUN(test_parse);
	RUN(test_silent);
	RUN(test_surplus);
	RUN(test_reused);
	RUN(test_late);
	RUN(test_left);
	RUN(test_no_descriptor_is_left);
	return test_end();
}
