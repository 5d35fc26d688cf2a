/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "tests/unit/test.h"

#include "daemon/deferred-close.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <time.h>

#define MAX_THREADS 64
#define SOCKETS (MAX_THREADS + 16)
#define LINGER_S 60

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

static unsigned count_entries(const char *folder)
{
	DIR *directory = opendir(folder);
	unsigned n = 0;

	while (directory && readdir(directory))
		n++;
	if (directory)
		closedir(directory);
	return n;
}

/* Creates both ends of a TCP connection. close() of the first end blocks until the other end has
 * read all data or is closed. */
static bool connect_pair(int *ret_slow, int *ret_peer)
{
	const struct linger linger = { .l_onoff = 1, .l_linger = LINGER_S };
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 4096;
	socklen_t bytes = sizeof(address);
	static const char block[1 << 16];
	bool done;

	*ret_slow = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	done = bind(listener, (struct sockaddr *)&address, bytes) == 0 &&
	       listen(listener, 1) == 0 &&
	       getsockname(listener, (struct sockaddr *)&address, &bytes) == 0 &&
	       connect(*ret_slow, (struct sockaddr *)&address, bytes) == 0;
	*ret_peer = done ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : -1;
	close(listener);
	setsockopt(*ret_slow, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	while (send(*ret_slow, block, sizeof(block), MSG_DONTWAIT) > 0)
		continue;
	return *ret_peer >= 0;
}

static bool has_closed(unsigned n_descriptors)
{
	int64_t end_ms = now_ms() + 10000;

	while (count_entries("/proc/self/fd") > n_descriptors && now_ms() < end_ms)
		usleep(1000);
	return count_entries("/proc/self/fd") <= n_descriptors;
}

static void test_slow(void)
{
	unsigned n_descriptors = count_entries("/proc/self/fd");
	unsigned n_threads = count_entries("/proc/self/task");
	int slow[SOCKETS], peers[SOCKETS], fast;
	int64_t begin_ms;

	for (int i = 0; i < SOCKETS; i++)
		REQUIRE(connect_pair(&slow[i], &peers[i]));
	begin_ms = now_ms();
	for (int i = 0; i < SOCKETS; i++)
		deferred_close(slow[i]);
	CHECK(now_ms() - begin_ms < LINGER_S * 1000 / 2);
	CHECK_INT(count_entries("/proc/self/task"), n_threads + MAX_THREADS);
	/* All threads are blocked, so this descriptor stays open until a thread is free. */
	fast = open("/dev/null", O_RDONLY | O_CLOEXEC);
	deferred_close(fast);
	usleep(10000);
	CHECK(fcntl(fast, F_GETFD) >= 0);
	for (int i = 0; i < SOCKETS; i++)
		close(peers[i]);
	CHECK(has_closed(n_descriptors));
	CHECK_INT(count_entries("/proc/self/task"), n_threads + MAX_THREADS);
}

static void test_nothing(void)
{
	deferred_close(-1);
}

int main(void)
{
	RUN(test_nothing);
	RUN(test_slow);
	return test_end();
}
