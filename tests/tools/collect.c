/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Collect - a program that registers at PROF_CONTROL and writes marks, by control.h and ring.h alone
 *
 *     collect N [STEP …]   writes N marks with ids from 1, then does each step:
 *         fork             a child registers and writes as many, and ends; it is waited for
 *         exec             executes itself with the steps behind
 *         kill             ends itself by SIGKILL
 *         more             asks for another arena
 *         close            closes every descriptor
 *         wait             says "ready", and goes on when stdin has something or is at its end
 *         again            writes N marks more
 * Prints the status of each registration. Exit status 9: it has none.
 */
#include "libcollector/control.h"
#include "libcollector/ring.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#define NAME 1

static struct ring_arena *arena;
static struct ring *ring;
static uint64_t id;
static int connection = -1;

static int connect_to(const char *entry)
{
	static const char path[] = "unix:", name[] = "unix-abstract:";
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	socklen_t length = sizeof(address);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (strncmp(entry, name, strlen(name)) == 0) {
		strncpy(address.sun_path + 1, entry + strlen(name), sizeof(address.sun_path) - 2);
		length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
				     strlen(address.sun_path + 1));
	} else if (strncmp(entry, path, strlen(path)) == 0) {
		strncpy(address.sun_path, entry + strlen(path), sizeof(address.sun_path) - 1);
	}
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, length) == 0)
		return fd;
	close(fd);
	return -1;
}

static void read_token(const char *text, uint8_t *token)
{
	unsigned byte;

	for (size_t i = 0; i < CONTROL_TOKEN_BYTES && sscanf(text + 2 * i, "%2x", &byte) == 1; i++)
		token[i] = (uint8_t)byte;
}

static int receive(int *ret_fd)
{
	struct control_answer answer;
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = { &answer, sizeof(answer) };
	struct msghdr header = { .msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control) };
	struct pollfd item = { .fd = connection, .events = POLLIN };

	if (poll(&item, 1, 10000) <= 0 ||
	    recvmsg(connection, &header, MSG_CMSG_CLOEXEC) != sizeof(answer))
		return -1;
	if (answer.status == CONTROL_OK)
		memcpy(ret_fd, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(*ret_fd));
	return (int)answer.status;
}

static void take_arena(void)
{
	int fd = -1, status = receive(&fd);

	printf("%d\n", status);
	fflush(stdout);
	if (status != CONTROL_OK)
		return;
	if (ring_arena_map(fd, &arena) == 0)
		ring = ring_claim(arena, (uint32_t)syscall(SYS_gettid), 0, 0);
	close(fd);
}

static void register_self(void)
{
	struct control_hello hello = { .magic = CONTROL_HELLO_MAGIC,
				       .version = CONTROL_VERSION,
				       .bytes = CONTROL_BYTES };
	const char *variable = getenv(CONTROL_VARIABLE);
	char *entries = strdup(variable ? variable : ""), *entry;

	connection = -1;
	ring = NULL;
	for (char *rest = entries; (entry = strsep(&rest, ",")) != NULL;)
		if (strncmp(entry, "token:", strlen("token:")) == 0)
			read_token(entry + strlen("token:"), hello.token);
		else if (connection < 0)
			connection = connect_to(entry);
	free(entries);
	if (connection >= 0 &&
	    send(connection, &hello, sizeof(hello), MSG_NOSIGNAL) == sizeof(hello))
		take_arena();
}

static void write_marks(unsigned n)
{
	struct ring_string *string = ring ? ring_begin(ring, RING_STRING, sizeof(*string) + 4)
					  : NULL;

	if (string) {
		*string = (struct ring_string){ NAME, 4 };
		memcpy(string + 1, "step", 4);
		ring_end(ring, string);
	}
	for (unsigned i = 0; ring && i < n; i++) {
		struct ring_mark *mark = ring_begin(ring, RING_MARK, sizeof(*mark));

		if (mark) {
			*mark = (struct ring_mark){ .name = NAME, .id = ++id };
			ring_end(ring, mark);
		}
	}
}

static void fork_child(unsigned n)
{
	pid_t pid = fork();

	if (pid == 0) {
		close(connection);
		id = 0;
		register_self();
		write_marks(n);
		_exit(ring ? 0 : 9);
	}
	waitpid(pid, NULL, 0);
}

static void ask_for_more(void)
{
	const struct control_request request = { .magic = CONTROL_REQUEST_MAGIC,
						 .version = CONTROL_VERSION,
						 .bytes = CONTROL_BYTES,
						 .min_data_bytes = 1u << 20,
						 .n_rings = 2 };

	if (send(connection, &request, sizeof(request), MSG_NOSIGNAL) == sizeof(request))
		take_arena();
}

static void wait_for_stdin(void)
{
	char byte;

	printf("ready\n");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) < 0 && errno == EINTR)
		;
}

int main(int argc, char **argv)
{
	unsigned n = argc > 1 ? (unsigned)atoi(argv[1]) : 0;

	register_self();
	write_marks(n);
	for (int i = 2; i < argc; i++) {
		if (strcmp(argv[i], "fork") == 0)
			fork_child(n);
		else if (strcmp(argv[i], "exec") == 0) {
			argv[i - 1] = argv[1];
			argv[i] = argv[1];
			argv[i - 1] = argv[0];
			execv("/proc/self/exe", argv + i - 1);
		} else if (strcmp(argv[i], "kill") == 0)
			raise(SIGKILL);
		else if (strcmp(argv[i], "more") == 0)
			ask_for_more();
		else if (strcmp(argv[i], "close") == 0)
			close_range(3, ~0u, 0);
		else if (strcmp(argv[i], "wait") == 0)
			wait_for_stdin();
		else if (strcmp(argv[i], "again") == 0)
			write_marks(n);
	}
	return ring ? 0 : 9;
}
