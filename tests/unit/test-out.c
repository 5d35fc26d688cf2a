/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "tests/unit/test.h"
#include "tools/common/out.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>

enum { LINES = 200000 };

static void *read_slowly(void *argument)
{
	int fd = *(int *)argument;
	unsigned expected = 0;
	size_t have = 0;
	char line[16];
	char c;
	static char buffer[4096];
	ssize_t n;

	while ((n = read(fd, buffer, sizeof(buffer))) > 0) {
		for (ssize_t i = 0; i < n; i++) {
			c = buffer[i];
			if (c != '\n') {
				line[have++ % sizeof(line)] = c;
				continue;
			}
			line[have] = '\0';
			if (strtoul(line, NULL, 10) == expected)
				expected++;
			have = 0;
		}
	}
	return (void *)(uintptr_t)expected;
}

/* On a non-blocking pipe, writes are often short or fail with EAGAIN. */
static void test_short_writes(void)
{
	struct out out;
	int pipe_fds[2];
	pthread_t thread;
	void *seen;

	REQUIRE(pipe2(pipe_fds, O_CLOEXEC) == 0);
	REQUIRE(fcntl(pipe_fds[1], F_SETFL, O_NONBLOCK) == 0);
	REQUIRE(pthread_create(&thread, NULL, read_slowly, &pipe_fds[0]) == 0);
	out_init(&out, pipe_fds[1]);
	for (unsigned i = 0; i < LINES; i++)
		out_printf(&out, "%u\n", i);
	CHECK_INT(out_flush(&out), 0);
	CHECK(!out_failed(&out));
	out_done(&out);
	close(pipe_fds[1]);
	pthread_join(thread, &seen);
	CHECK_INT((uintptr_t)seen, LINES);
	close(pipe_fds[0]);
}

static void test_full_disk(void)
{
	struct out out;
	CLEANUP_CLOSE int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);

	REQUIRE(fd >= 0);
	out_init(&out, fd);
	out_text(&out, "x");
	CHECK(!out_failed(&out));
	CHECK_INT(out_flush(&out), -ENOSPC);
	CHECK(out_failed(&out));
	out_text(&out, "y");
	CHECK_INT(out.text->len, 0);
	CHECK_INT(out_flush(&out), -ENOSPC);
	out_done(&out);
}

static void test_closed_pipe(void)
{
	struct out out;
	int pipe_fds[2];

	signal(SIGPIPE, SIG_IGN);
	REQUIRE(pipe2(pipe_fds, O_CLOEXEC) == 0);
	close(pipe_fds[0]);
	out_init(&out, pipe_fds[1]);
	out_text(&out, "x");
	CHECK_INT(out_flush(&out), -EPIPE);
	out_done(&out);
	close(pipe_fds[1]);
}

static void test_memory(void)
{
	struct out out;

	out = out_buffer();
	out_text(&out, "ab");
	out_char(&out, 'c');
	out_printf(&out, "%d", 12);
	out_write(&out, "\0x", 2);
	CHECK_INT(out_flush(&out), 0);
	CHECK_INT(out.text->len, 7);
	CHECK_INT(out.bytes, 7);
	CHECK(memcmp(out.text->str, "abc12\0x", 7) == 0);
	out_done(&out);
}

int main(void)
{
	RUN(test_short_writes);
	RUN(test_full_disk);
	RUN(test_closed_pipe);
	RUN(test_memory);
	return test_end();
}
