/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Collect - registers at PROF_CONTROL and writes marks, with control.h and ring.h alone
 *
 *     collect N [STEP …]   writes N marks with ids from 1, then performs each step:
 *         fork             a child registers, writes N marks, and ends; waits for it
 *         exec             executes itself with the remaining steps
 *         kill             kills itself with SIGKILL
 *         more             requests another arena
 *         close            closes every descriptor from 3 on
 *         wait             prints "ready", and continues when stdin has data or ends
 *         again            writes N more marks
 *         slowly           writes N more marks, one per millisecond
 * Prints the status of each registration. Exit status 9: no registration.
 */
#include "libcollector/ring/ring.h"
#include "tests/tools/peer.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define NAME 1

static struct ring_arena *arena;
static struct ring *ring;
static uint64_t id;
static int connection = -1;

static void take_arena(void)
{
	int fd = -1, status = peer_receive(connection, &fd);

	printf("%d\n", status);
	fflush(stdout);
	if (status != CONTROL_OK)
		return;
	if (ring_arena_map(fd, &arena) == 0) {
		ring_arena_join(arena);
		ring = ring_claim(arena, (uint32_t)syscall(SYS_gettid), 0, 0);
	}
	close(fd);
}

static void register_self(void)
{
	struct control_hello hello;

	ring = NULL;
	connection = peer_connect(&hello);
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

static void write_slowly(unsigned n)
{
	const struct timespec pause = { .tv_nsec = 1000000 };

	for (unsigned i = 0; i < n; i++) {
		write_marks(1);
		nanosleep(&pause, NULL);
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
		else if (strcmp(argv[i], "slowly") == 0)
			write_slowly(n);
	}
	return ring ? 0 : 9;
}
