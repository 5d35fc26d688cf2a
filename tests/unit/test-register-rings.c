/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Checks of libcollector/register/register-process.c: while a thread is about to get a ring, the
 * session ends and another one begins. */
#include "libcollector/register/register-internal.h"
#include "tests/unit/ring-pair.h"

#include <errno.h>
#include <sys/socket.h>

static struct process process;

/* Sets up one arena of the previous session. Returns the engine's end of the connection. */
static int set_up(void)
{
	int ends[2] = { -1, -1 };

	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
	CHECK_INT(control_adopt(ends[0], &process.connection), 0);
	process.arenas[0].arena = pair.arena;
	process.n_arenas = process.n_retired = 1;
	register_process = &process;
	return ends[1];
}

static void check_asked_for_none(int end)
{
	char request[CONTROL_BYTES];

	CHECK(recv(end, request, sizeof(request), MSG_DONTWAIT) < 0 && errno == EAGAIN);
	control_disconnect(&process.connection);
	close(end);
}

/* The thread has already claimed a ring when all arenas are retired. */
static void test_retired_behind(void)
{
	struct arena_entry *entry = NULL;
	struct ring *ring;
	int end;

	REQUIRE(pair_init(&pair, SMALL, 2, RING_LOSSLESS));
	end = set_up();
	ring = register_get_ring(1, 0, &entry);
	CHECK(ring && entry == &process.arenas[0]);
	check_asked_for_none(end);
	pair_done(&pair);
}

static void test_retired_before(void)
{
	struct arena_entry *entry = NULL;
	int end;

	REQUIRE(pair_init(&pair, SMALL, 2, RING_LOSSLESS));
	end = set_up();
	ring_arena_retire(pair.arena);
	CHECK(!register_get_ring(1, 0, &entry));
	CHECK(!register_get_bigger_ring(1, SMALL, 0, &entry));
	check_asked_for_none(end);
	pair_done(&pair);
}

int main(void)
{
	RUN(test_retired_behind);
	RUN(test_retired_before);
	return test_end();
}
