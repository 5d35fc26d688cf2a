/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of daemon/broker/control.c with valid and invalid connections.
 */
#include "daemon/broker/control.h"
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

static unsigned n_descriptors; /* number of open descriptors at the start of the test */

struct seen {
	unsigned int n, n_refused;
	struct control_peer peer;
	struct control_hello hello;
	bool is_alive;
	enum control_status answer;
};

static enum control_status take(const struct control_peer *peer, void *data)
{
	struct pollfd item = { .fd = peer->pidfd, .events = POLLIN };
	struct seen *seen = data;

	seen->n++;
	seen->peer = *peer;
	seen->hello = *peer->hello;
	seen->is_alive = poll(&item, 1, 0) == 0;
	return seen->answer;
}

static void on_refused(const struct control_peer *peer, void *data)
{
	struct seen *seen = data;

	seen->n_refused++;
	seen->peer = *peer;
}

/* Returns -1 with EAGAIN if too many connections wait to be accepted. */
static int connect_to(const struct control *control)
{
	const char *address = control_address(control);
	bool is_abstract = g_str_has_prefix(address, "unix-abstract:");
	const char *path = strchr(address, ':') + 1;
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int failed;

	g_strlcpy(name.sun_path + is_abstract, path, sizeof(name.sun_path) - is_abstract);
	if (connect(fd, (const struct sockaddr *)&name,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + is_abstract +
				strlen(path))) == 0) {
		CHECK(fcntl(fd, F_SETFL, 0) == 0);
		return fd;
	}
	failed = errno;
	close(fd);
	errno = failed;
	return -1;
}

/* Runs the main loop while events are ready. A listener that pauses accepts no connections
 * meanwhile. */
static void serve_some(void)
{
	while (g_main_context_iteration(NULL, FALSE))
		;
}

/* Runs the main loop until it was idle for longer than the listener's pause. */
static void serve(void)
{
	for (int n_idle = 0; n_idle < 16; n_idle++) {
		if (g_main_context_iteration(NULL, FALSE))
			n_idle = 0;
		else
			usleep(500);
	}
}

static struct control_hello hello(void)
{
	return (struct control_hello){ .magic = CONTROL_HELLO_MAGIC,
				       .version = CONTROL_VERSION,
				       .bytes = CONTROL_BYTES,
				       .token = { 1, 2, 3 },
				       .wants = CONTROL_WANTS_ALLOCATIONS };
}

/* Returns the status of the answer; -1: closed without an answer; -2: still open. */
static int answer_on(int fd)
{
	struct control_answer answer;
	ssize_t n = recv(fd, &answer, sizeof(answer), MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return -2;
	if (n != sizeof(answer) || answer.magic != CONTROL_ANSWER_MAGIC ||
	    answer.version != CONTROL_VERSION || answer.bytes != CONTROL_BYTES)
		return -1;
	return (int)answer.status;
}

static void test_hello(void)
{
	struct control *control = control_new_private(), *other = control_new_private();
	struct seen seen = { .answer = CONTROL_NO_SESSION };
	struct control_hello said = hello();
	int fd;

	REQUIRE(control && other);
	CHECK(strcmp(control_address(control), control_address(other)) != 0);
	control_free(other);
	control_serve(control, take, on_refused, &seen);
	fd = connect_to(control);
	REQUIRE(send(fd, &said, sizeof(said), 0) == sizeof(said));
	serve();
	CHECK_INT(seen.n, 1);
	CHECK_INT(seen.peer.pid, getpid());
	CHECK_INT(seen.peer.inner_pid, 0);
	CHECK_INT(seen.peer.uid, getuid());
	CHECK(seen.is_alive);
	CHECK(memcmp(&seen.hello, &said, sizeof(said)) == 0);
	CHECK_INT(answer_on(fd), CONTROL_NO_SESSION);
	CHECK_INT(answer_on(fd), -1);
	close(fd);
	/* the answer to another version has our version */
	said.version = 2;
	fd = connect_to(control);
	REQUIRE(send(fd, &said, sizeof(said), 0) == sizeof(said));
	serve();
	CHECK_INT(answer_on(fd), CONTROL_VERSION_UNKNOWN);
	CHECK_INT(seen.n, 1);
	close(fd);
	control_free(control);
}

static void send_fd(int socket, const void *bytes, size_t n)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec part = { (void *)bytes, n };
	struct msghdr header = { .msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control) };
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	/* since Linux 6.16, the kernel refuses the descriptor */
	CHECK(sendmsg(socket, &header, 0) == (ssize_t)n || errno == EPERM);
	close(fd);
}

static unsigned int count_fds(void)
{
	unsigned int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void test_hostile(void)
{
	struct control *control = control_new_private();
	struct seen seen = { .answer = CONTROL_OK };
	struct control_hello said = hello();
	char long_one[sizeof(said) + 1];
	unsigned int n_fds;
	int fd;

	REQUIRE(control);
	control_serve(control, take, on_refused, &seen);
	memcpy(long_one, &said, sizeof(said));
	long_one[sizeof(said)] = 0;
	fd = connect_to(control);
	CHECK_INT(send(fd, &said, 10, 0), 10);
	serve();
	CHECK_INT(answer_on(fd), -1);
	close(fd);
	fd = connect_to(control);
	CHECK_INT(send(fd, long_one, sizeof(long_one), 0), sizeof(long_one));
	serve();
	CHECK_INT(answer_on(fd), -1);
	close(fd);
	said.magic++;
	fd = connect_to(control);
	CHECK_INT(send(fd, &said, sizeof(said), 0), sizeof(said));
	serve();
	CHECK_INT(answer_on(fd), -1);
	close(fd);
	CHECK_INT(seen.n, 0);
	/* a descriptor that is sent along is not received */
	said = hello();
	n_fds = count_fds();
	fd = connect_to(control);
	send_fd(fd, &said, sizeof(said));
	serve();
	CHECK_INT(seen.n, 0);
	close(fd);
	serve();
	/* all sockets are closed soon, including earlier ones */
	for (int i = 0; i < 1000 && count_fds() > n_fds; i++)
		usleep(10000);
	CHECK(count_fds() <= n_fds);
	control_free(control);
}

static void test_silent(void)
{
	struct control *control = control_new_private();
	struct seen seen = { .answer = CONTROL_OK };
	int fd;

	REQUIRE(control);
	control_serve(control, take, on_refused, &seen);
	fd = connect_to(control);
	serve();
	CHECK_INT(answer_on(fd), -2);
	for (int i = 0; i < 1000 && answer_on(fd) == -2; i++) {
		usleep(10000);
		serve();
	}
	CHECK_INT(answer_on(fd), -1);
	CHECK_INT(seen.n, 0);
	close(fd);
	control_free(control);
}

static void test_crowd(void)
{
	struct control *control = control_new_private();
	struct seen seen = { .answer = CONTROL_OK };
	int fds[40], refused = 0;

	REQUIRE(control);
	control_serve(control, take, on_refused, &seen);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		fds[i] = connect_to(control);
		serve_some();
	}
	serve();
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		refused += answer_on(fds[i]) == CONTROL_LIMIT;
		close(fds[i]);
	}
	/* one user has at most 32 pending connections at a time; some may time out meanwhile */
	CHECK(refused >= 1 && refused <= 8);
	CHECK_INT(seen.n_refused, refused);
	CHECK_INT(seen.peer.pid, getpid());
	control_free(control);
}

static int connect_as(const struct control *control, uid_t uid)
{
	int fd, failed;

	do {
		/* change only this thread's effective uid, which the connection gets */
		CHECK(syscall(SYS_setresuid, -1, uid, -1) == 0);
		fd = connect_to(control);
		failed = errno;
		CHECK(syscall(SYS_setresuid, -1, getuid(), -1) == 0);
		if (fd < 0 && failed == EAGAIN)
			serve();
		else
			serve_some();
	} while (fd < 0 && failed == EAGAIN);
	return fd;
}

static void test_users(void)
{
	struct control *control = control_new_private();
	struct seen seen = { .answer = CONTROL_OK };
	struct control_hello said = hello();
	int fds[160], honest;

	REQUIRE(control);
	control_serve(control, take, on_refused, &seen);
	if (getuid() != 0) {
		control_free(control);
		SKIP("needs root");
	}
	for (unsigned i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = connect_as(control, 10001 + i % 5);
	serve();
	seen.n_refused = 0;
	honest = connect_as(control, 10099);
	REQUIRE(send(honest, &said, sizeof(said), 0) == sizeof(said));
	serve();
	CHECK_INT(seen.n, 1);
	CHECK_INT(seen.peer.uid, 10099);
	CHECK_INT(seen.n_refused, 1);
	for (unsigned i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	close(honest);
	control_free(control);
}

/* The name of a private socket is public, but its token is secret. */
static void test_token(void)
{
	struct control *control = control_new_private();
	struct seen seen = { .answer = CONTROL_OK };
	struct control_hello said = hello();
	int fd;

	REQUIRE(control);
	control_serve(control, take, on_refused, &seen);
	memset(said.token, 0, sizeof(said.token));
	fd = connect_to(control);
	REQUIRE(send(fd, &said, sizeof(said), 0) == sizeof(said));
	serve();
	CHECK_INT(answer_on(fd), CONTROL_NO_SESSION);
	CHECK_INT(seen.n, 0);
	close(fd);
	control_free(control);
}

static unsigned count_descriptors(void)
{
	g_autoptr(GDir) folder = g_dir_open("/proc/self/fd", 0, NULL);
	unsigned n = 0;

	while (folder && g_dir_read_name(folder))
		n++;
	return n;
}

/* Waits, because another thread closes connections. */
static void wait_for_descriptors(unsigned n)
{
	for (int i = 0; i < 1000 && count_descriptors() > n; i++)
		usleep(10000);
	REQUIRE(count_descriptors() == n);
}

static void let_in_where_there_are_few(unsigned n_free)
{
	struct control *control = control_new_private();
	struct seen seen = { .answer = CONTROL_OK };
	struct control_hello said = hello();
	struct rlimit before, few;
	unsigned n_turns = 0;
	int fd, lowest;

	REQUIRE(control);
	control_serve(control, take, on_refused, &seen);
	fd = connect_to(control);
	REQUIRE(send(fd, &said, sizeof(said), 0) == sizeof(said));
	getrlimit(RLIMIT_NOFILE, &before);
	few = before;
	lowest = dup(fd);
	close(lowest);
	few.rlim_cur = (rlim_t)lowest + n_free;
	setrlimit(RLIMIT_NOFILE, &few);
	while (n_turns < 1000 && g_main_context_iteration(NULL, FALSE))
		n_turns++;
	CHECK(n_turns < 10);
	CHECK_INT(seen.n, 0);
	setrlimit(RLIMIT_NOFILE, &before);
	for (int i = 0; i < 1000 && seen.n == 0 && seen.n_refused == 0; i++) {
		usleep(10000);
		serve();
	}
	CHECK_INT(seen.n, 1);
	CHECK_INT(seen.n_refused, 0);
	close(fd);
	control_free(control);
}

/* If too few descriptors are free, connections wait without using CPU time. */
static void test_full(void)
{
	for (unsigned n_free = 0; n_free < 4; n_free++) {
		wait_for_descriptors(n_descriptors);
		let_in_where_there_are_few(n_free);
	}
}

/* A hello whose sender has exited is refused. */
static void test_dead(void)
{
	struct control *control = control_new_private();
	struct seen seen = { .answer = CONTROL_OK };
	struct control_hello said = hello();
	pid_t child;

	REQUIRE(control);
	child = fork();
	if (child == 0) {
		int fd = connect_to(control);

		_exit(send(fd, &said, sizeof(said), 0) == sizeof(said) ? 0 : 1);
	}
	waitpid(child, NULL, 0);
	control_serve(control, take, on_refused, &seen);
	serve();
	CHECK_INT(seen.n, 0);
	CHECK_INT(seen.n_refused, 1);
	CHECK_INT(seen.peer.pid, child);
	control_free(control);
}

static void test_path(void)
{
	g_autofree char *root = g_dir_make_tmp("control-XXXXXX", NULL);
	g_autofree char *folder = g_build_filename(root, "profd", NULL);
	g_autofree char *path = g_build_filename(folder, "control", NULL);
	struct control *control, *second;
	struct stat status;

	control = control_new_at(path);
	REQUIRE(control);
	CHECK(stat(path, &status) == 0 && (status.st_mode & 0777) == 0666);
	CHECK(stat(folder, &status) == 0 && (status.st_mode & 0777) == 0755);
	/* a socket that is served is kept; a stale socket is replaced */
	second = control_new_at(path);
	CHECK(!second);
	control_free(control);
	control = control_new_at(path);
	REQUIRE(control);
	close(connect_to(control));
	control_free(control);
	unlink(path);
	rmdir(folder);
	rmdir(root);
}

int main(void)
{
	g_main_context_default(); /* creates some descriptors of its own */
	n_descriptors = count_descriptors();
	RUN(test_hello);
	RUN(test_hostile);
	RUN(test_silent);
	RUN(test_crowd);
	RUN(test_users);
	RUN(test_token);
	RUN(test_full);
	RUN(test_dead);
	RUN(test_path);
	return test_end();
}
