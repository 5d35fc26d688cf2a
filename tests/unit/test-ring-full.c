/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of libcollector/ring/ring.c when a ring is full: losses are counted, waiting times are
 * limited, and later records go to a larger ring.
 */
#include "config.h"

#include "base/clock.h"
#include "libcollector/ring/ring-inline.h"
#include "tests/unit/ring-pair.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>

static void test_full(void)
{
	struct ring_batch batch;
	uint64_t n = 0, last = 0, room = SMALL / MARK_BYTES;

	REQUIRE(pair_init(&pair, SMALL, 1, RING_DROP));
	for (uint64_t i = 1; i <= 1000; i++)
		n += write_mark(pair.ring, i);
	CHECK_INT(n, room);
	CHECK(!ring_begin(pair.ring, RING_MARK, SMALL));
	CHECK(!ring_begin(pair.ring, RING_MARK, SIZE_MAX));
	/* definition records are not counted as attempts */
	CHECK(!ring_begin(pair.ring, RING_CALLS, SMALL / 8));
	CHECK(!ring_begin(pair.ring, RING_STRING, SMALL));
	batch = drain(RING_DRAIN_LIVE);
	CHECK_INT(check_marks(&batch, &last), room);
	CHECK_INT(pair.reader.totals.lost[RING_LOST_FULL], 1000 - room);
	CHECK_INT(pair.reader.totals.lost[RING_LOST_BIG], 2);
	CHECK_INT(pair.reader.totals.attempted, 1002);
	CHECK(write_mark(pair.ring, 1001));
	ring_release(pair.ring);
	batch = drain(RING_DRAIN_LIVE);
	CHECK_INT(check_marks(&batch, &last), 1);
	CHECK_INT(pair.reader.totals.unpublished, 0);
	check_law(&pair.reader.totals);
	pair_done(&pair);
}

/* While the ring is full, a loss that is detected early counts like one detected late. */
static void test_known_full(void)
{
	struct ring_batch batch;
	size_t bytes = sizeof(struct ring_mark);
	uint64_t n = 1, last = 0;

	REQUIRE(pair_init(&pair, 4096, 1, RING_DROP));
	CHECK(!ring_is_full(pair.ring, bytes));
	while (write_mark(pair.ring, n))
		n++;
	for (int i = 0; i < 10; i++)
		CHECK(ring_is_full(pair.ring, bytes));
	/* A smaller record might fit. */
	CHECK(!ring_is_full(pair.ring, bytes - 8));
	ring_reader_drain(&pair.reader, RING_DRAIN_LIVE, pair.buffer, PAIR_BUFFER, &batch);
	CHECK_INT(check_marks(&batch, &last), n - 1);
	CHECK_INT(pair.reader.totals.lost[RING_LOST_FULL], 11);
	CHECK(check_law(&pair.reader.totals));
	CHECK(!ring_is_full(pair.ring, bytes));
	CHECK(write_mark(pair.ring, n));
	pair_done(&pair);
}

/* ---- Lossless ---- */

static void *drain_later(void *data)
{
	uint64_t *n = data, last = 0;

	while (*n == 0 || last < 4 * SMALL / MARK_BYTES) {
		struct ring_batch batch = drain(RING_DRAIN_LIVE);

		*n += check_marks(&batch, &last);
		ring_reader_wake(&pair.reader);
		sched_yield();
	}
	return NULL;
}

/* If the consumer reads, nothing is lost. A write is retried, because it fails if the machine is
 * paused. */
static void test_lossless(void)
{
	uint64_t n = 0, written = 0;
	pthread_t id;

	REQUIRE(pair_init(&pair, SMALL, 1, RING_LOSSLESS));
	REQUIRE(pthread_create(&id, NULL, drain_later, &n) == 0);
	errno = 77;
	for (uint64_t i = 1; i <= 4 * SMALL / MARK_BYTES; i++)
		while (!write_mark(pair.ring, i))
			sched_yield();
	CHECK_INT(errno, 77);
	pthread_join(id, NULL);
	written = 4 * SMALL / MARK_BYTES;
	CHECK_INT(n, written);
	pair_done(&pair);
}

static void *write_one(void *data)
{
	bool *done = data;

	write_mark(pair.ring, 1);
	__atomic_store_n(done, true, __ATOMIC_RELEASE);
	return NULL;
}

/* Lets a writer wait for room in a full ring. Returns how long it waited. */
static uint64_t wait_and_wake(void)
{
	struct ring_batch batch;
	uint64_t before = pair.reader.totals.waited_ns;
	bool done = false;
	pthread_t id;

	for (uint64_t i = 0; i < SMALL / MARK_BYTES; i++)
		write_mark(pair.ring, 1);
	pthread_create(&id, NULL, write_one, &done);
	/* The writer may stop waiting while this thread has no CPU. */
	while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE) &&
	       __atomic_load_n(&pair.reader.shared->waiting, __ATOMIC_RELAXED) == 0)
		sched_yield();
	pause_ms(2); /* now the writer sleeps */
	/* Draining a piece does not wake the writer; draining the rest does. */
	ring_reader_drain(&pair.reader, RING_DRAIN_LIVE, pair.buffer, SMALL / 4, &batch);
	ring_reader_wake(&pair.reader);
	CHECK(pair.reader.gave_room);
	drain(RING_DRAIN_LIVE);
	CHECK(pair.reader.gave_room);
	ring_reader_wake(&pair.reader);
	CHECK(!pair.reader.gave_room);
	pthread_join(id, NULL);
	drain(RING_DRAIN_LIVE);
	return pair.reader.totals.waited_ns - before;
}

/* A waiting producer is woken before its wait times out. Once in 20 tries suffices, because the
 * machine may be paused. */
static void test_wake(void)
{
	uint64_t n_slow = 0;

	REQUIRE(pair_init(&pair, SMALL, 1, RING_LOSSLESS));
	/* If the machine is busy, the consumer may get no CPU while the producer waits. */
	for (int i = 0; i < 20; i++)
		n_slow += wait_and_wake() >= RING_WAIT_NS;
	CHECK(n_slow < 20);
	CHECK(lost_of(&pair.reader.totals) <= n_slow);
	pair_done(&pair);
}

static void *drain_seldom(void *data)
{
	uint64_t *n = data, last = 0;

	while (last < 2 * SMALL / MARK_BYTES) {
		struct ring_batch batch;

		pause_ms(3 * (long)(RING_WAIT_NS / 1000000));
		batch = drain(RING_DRAIN_LIVE);
		*n += check_marks(&batch, &last);
		ring_reader_wake(&pair.reader);
	}
	return NULL;
}

/* If the consumer has no CPU for longer than one wait, the producer waits again while its budget
 * lasts. */
static void test_slow(void)
{
	uint64_t n = 0, written = 2 * SMALL / MARK_BYTES;
	pthread_t id;

	REQUIRE(pair_init(&pair, SMALL, 1, RING_LOSSLESS));
	REQUIRE(pthread_create(&id, NULL, drain_seldom, &n) == 0);
	for (uint64_t i = 1; i <= written; i++)
		CHECK(write_mark(pair.ring, i));
	pthread_join(id, NULL);
	CHECK_INT(n, written);
	CHECK(pair.reader.totals.waited_ns > RING_WAIT_NS);
	CHECK_INT(lost_of(&pair.reader.totals), 0);
	pair_done(&pair);
}

static bool is_over(void)
{
	return true;
}

/* If the consumer is known to be gone, the producer waits once, then not again until the tail
 * moves. */
static void test_gone(void)
{
	struct ring_budget budget = { .is_over = is_over };
	uint64_t room = SMALL / MARK_BYTES;

	REQUIRE(pair_init(&pair, SMALL, 1, RING_LOSSLESS));
	ring_arena_set_budget(pair.arena, &budget);
	errno = 77;
	for (uint64_t i = 1; i <= room + 1000; i++)
		write_mark(pair.ring, i);
	CHECK_INT(errno, 77);
	drain(RING_DRAIN_LIVE);
	CHECK_INT(pair.reader.totals.waits, 1);
	CHECK(pair.reader.totals.waited_ns >= RING_WAIT_NS);
	CHECK_INT(pair.reader.totals.lost[RING_LOST_TIMEOUT], 1);
	CHECK_INT(pair.reader.totals.lost[RING_LOST_FULL], 999);
	for (uint64_t i = 0; i <= room; i++)
		write_mark(pair.ring, i);
	drain(RING_DRAIN_LIVE);
	CHECK_INT(pair.reader.totals.waits, 2);
	ring_add_flags(pair.ring, RING_NO_SYSCALL);
	for (uint64_t i = 0; i <= room; i++)
		write_mark(pair.ring, i);
	drain(RING_DRAIN_LIVE);
	CHECK_INT(pair.reader.totals.waits, 2);
	pair_done(&pair);
}

static uint64_t full_waits(struct ring *ring)
{
	uint64_t before = pair.reader.totals.waits;

	for (uint64_t i = 0; i <= SMALL / MARK_BYTES; i++)
		write_mark(ring, i);
	drain(RING_DRAIN_LIVE);
	return pair.reader.totals.waits - before;
}

/* If the consumer never reads, the producer waits 1 s, then not again until the minute is over. */
static void test_wait_budget(void)
{
	uint64_t waited_ns;

	REQUIRE(pair_init(&pair, SMALL, 1, RING_LOSSLESS));
	CHECK_INT(full_waits(pair.ring), 1);
	waited_ns = pair.reader.totals.waited_ns;
	CHECK(waited_ns > RING_WAIT_BUDGET_NS - RING_WAIT_NS);
	/* may exceed the budget only by the delay of the wake-up */
	CHECK(waited_ns < 2 * RING_WAIT_BUDGET_NS);
	CHECK_INT(full_waits(pair.ring), 0);
	CHECK_INT(pair.reader.totals.waited_ns, waited_ns);
	pair_done(&pair);
}

/* A budget limits the waits of a process's threads in all arenas. Simultaneous waits count once. */
static void test_shared_budget(void)
{
	const uint64_t ms = 1000000, t = clock_now();
	struct ring_budget budget = { 0 };

	REQUIRE(pair_init(&pair, SMALL, 1, RING_LOSSLESS));
	ring_arena_set_budget(pair.arena, &budget);
	/* overlapping waits from 0 to 500 ms */
	CHECK(ring_budget_begin(&budget, t));
	CHECK(ring_budget_begin(&budget, t + 100 * ms));
	ring_budget_end(&budget, t + 200 * ms);
	CHECK(ring_budget_begin(&budget, t + 300 * ms));
	CHECK(ring_budget_left(&budget, t + 400 * ms) / ms - 599 <= 2);
	ring_budget_end(&budget, t + 450 * ms);
	ring_budget_end(&budget, t + 500 * ms);
	/* no waits from 500 to 900 ms */
	CHECK(ring_budget_begin(&budget, t + 900 * ms));
	CHECK(ring_budget_left(&budget, t + 900 * ms) / ms - 499 <= 2);
	CHECK_INT(ring_budget_left(&budget, t + 1401 * ms), 0);
	/* a wait counts before it has ended */
	CHECK(!ring_budget_begin(&budget, t + 1401 * ms));
	ring_budget_end(&budget, t + 1500 * ms);
	CHECK_INT(full_waits(pair.ring), 0);
	/* this thread read the clock before the thread that began the window did */
	CHECK(!ring_budget_begin(&budget, t - 1));
	/* the next window */
	CHECK(ring_budget_begin(&budget, t + RING_WAIT_WINDOW_NS));
	ring_budget_end(&budget, t + RING_WAIT_WINDOW_NS);
	/* a child forked during a wait starts without open waits */
	ring_budget_end(&budget, t + RING_WAIT_WINDOW_NS);
	CHECK(ring_budget_left(&budget, t + RING_WAIT_WINDOW_NS + 900 * ms) > 999 * ms);
	pair_done(&pair);
}

/* Creates a small, claimed ring, and one four times as large. */
static bool pair_init_two(enum ring_policy policy, struct ring_reader *readers)
{
	const struct ring_arena_sizes sizes = { { { SMALL, 1, policy },
						  { 4 * SMALL, 1, policy } } };

	memset(&pair, 0, offsetof(struct pair, buffer));
	if (!CHECK_INT(ring_arena_make(&sizes, &pair.memory, &pair.fd), 0) ||
	    !CHECK_INT(ring_arena_map(pair.fd, &pair.arena), 0))
		return false;
	for (uint32_t i = 0; i < 2; i++)
		ring_reader_init(&readers[i], &pair.memory, i);
	pair.ring = ring_claim(pair.arena, 9, 0, 0);
	return CHECK(pair.ring != NULL);
}

/* A thread moves from a full ring to a larger one. Its earlier records come first. */
static void check_bigger(enum ring_policy policy)
{
	uint64_t room = SMALL / MARK_BYTES, last = 0;
	struct ring_reader readers[2];
	struct ring_batch batch;

	REQUIRE(pair_init_two(policy, readers));
	for (uint64_t i = 1; i <= 4 * room; i++)
		CHECK(write_mark(pair.ring, i));
	ring_release(pair.ring);
	for (uint32_t i = 0; i < 2; i++) {
		ring_reader_drain(&readers[i], RING_DRAIN_LIVE, pair.buffer, PAIR_BUFFER, &batch);
		CHECK_INT(check_marks(&batch, &last), i == 0 ? room : 3 * room);
		CHECK_INT(batch.tid, 9);
		CHECK(batch.is_closed);
		check_law(&readers[i].totals);
	}
	pair_done(&pair);
}

static void test_bigger(void)
{
	check_bigger(RING_LOSSLESS);
	check_bigger(RING_DROP);
}

/* All pages of a larger ring are mapped at once, not one at each fault. */
static void test_mapped(void)
{
	const struct ring_arena_sizes sizes = { { { SMALL, 1, RING_DROP },
						  { 256 * RING_PAGE, 1, RING_DROP } } };
	struct rusage before, after;
	uint64_t i = 0;

	memset(&pair, 0, offsetof(struct pair, buffer));
	REQUIRE(CHECK_INT(ring_arena_make(&sizes, &pair.memory, &pair.fd), 0) &&
		CHECK_INT(ring_arena_map(pair.fd, &pair.arena), 0));
	/* not supported before Linux 5.14 */
	if (madvise(pair.memory.base, pair.memory.bytes, MADV_POPULATE_WRITE) < 0)
		return;
	pair.ring = ring_claim(pair.arena, 9, 0, 0);
	while (i++ < SMALL / MARK_BYTES)
		CHECK(write_mark(pair.ring, i));
	getrusage(RUSAGE_SELF, &before);
	while (i++ < 250 * RING_PAGE / MARK_BYTES)
		CHECK(write_mark(pair.ring, i));
	getrusage(RUSAGE_SELF, &after);
	/* sanitizers have page faults of their own */
	CHECK(PROF_SANITIZED || after.ru_minflt - before.ru_minflt < 100);
	pair_done(&pair);
}

/* A thread fills its ring four times, pausing `lap_ms` before each time, and always has room. The
 * last lap must be in ring `expected`. */
static void check_laps(long lap_ms, uint32_t expected)
{
	struct ring_reader readers[2];
	struct ring_batch batch;
	uint64_t last = 0, id = 0, n = 0;
	uint32_t used = 0;

	REQUIRE(pair_init_two(RING_DROP, readers));
	for (int turn = 0; turn < 4 * 8; turn++) {
		if (turn % 8 == 0)
			pause_ms(lap_ms);
		for (uint64_t i = 0; i < SMALL / 8 / MARK_BYTES; i++)
			CHECK(write_mark(pair.ring, ++id));
		for (uint32_t i = 0; i < 2; i++) {
			uint64_t found;

			ring_reader_drain(&readers[i], RING_DRAIN_LIVE, pair.buffer, PAIR_BUFFER,
					  &batch);
			found = check_marks(&batch, &last);
			used = found ? i : used;
			n += found;
		}
	}
	CHECK_INT(n, id);
	CHECK_INT(used, expected);
	for (uint32_t i = 0; i < 2; i++) {
		check_law(&readers[i].totals);
		CHECK_INT(lost_of(&readers[i].totals), 0);
	}
	pair_done(&pair);
}

/* If a thread fills a ring quickly, it also moves to a larger one, so that the consumer wakes less
 * often. */
static void test_fast(void)
{
	check_laps((long)(RING_LAP_NS / 1000000) + 5, 0);
	check_laps(0, 1);
}

int main(void)
{
	RUN(test_full);
	RUN(test_lossless);
	RUN(test_wake);
	RUN(test_slow);
	RUN(test_gone);
	RUN(test_wait_budget);
	RUN(test_shared_budget);
	RUN(test_bigger);
	RUN(test_mapped);
	RUN(test_fast);
	RUN(test_known_full);
	return test_end();
}
