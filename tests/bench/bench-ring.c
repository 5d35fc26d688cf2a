/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Bench-ring - measures a record's cost for its thread, compared with clock_gettime() in the same
 * run
 *
 * mark: a mark of 48 bytes, read between rounds. arguments: a mark with two arguments. full: a
 * record that is dropped at once. together: lossless marks while another thread reads them; also
 * counts how many arrive. drain: the reader's cost to copy and check a record.
 */
#include "libcollector/ring/ring-reader.h"
#include "libcollector/ring/ring.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#define RING_SIZE (UINT64_C(1) << 22)
#define RUNS 50000
#define ROUNDS 41
#define N_TOGETHER 2000000

static _Alignas(8) uint8_t buffer[RING_SIZE];
static struct ring_reader reader;
static struct ring *ring;
static volatile uint64_t sink;
static atomic_bool stop;

static uint64_t clock_ns(clockid_t id)
{
	struct timespec now;

	clock_gettime(id, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void drain(void)
{
	struct ring_batch batch;

	do
		ring_reader_drain(&reader, RING_DRAIN_LIVE, buffer, sizeof(buffer), &batch);
	while (batch.is_more);
}

static void write_nothing(void)
{
	sink = 1;
}

static void write_clock(void)
{
	sink = clock_ns(CLOCK_MONOTONIC);
}

static void write_mark(void)
{
	struct ring_mark *mark = ring_begin(ring, RING_MARK, sizeof(*mark));

	if (!mark)
		return;
	*mark = (struct ring_mark){ .kind = RING_MARK_INSTANT, .group = 1, .name = 2 };
	ring_end(ring, mark);
}

static void write_arguments(void)
{
	struct {
		struct ring_mark mark;
		struct ring_argument arguments[2];
	} *record = ring_begin(ring, RING_MARK, sizeof(*record));

	if (!record)
		return;
	record->mark = (struct ring_mark){ .group = 1, .name = 2, .n_arguments = 2 };
	record->arguments[0] = (struct ring_argument){ .name = 3, .value = 4 };
	record->arguments[1] = (struct ring_argument){ .name = 5, .value = 6 };
	ring_end(ring, record);
}

/* Returns the best round in ns per call, without the time of `before`. */
static double measure(void (*function)(void), void (*before)(void))
{
	double best = 1e18;

	for (int round = 0; round < ROUNDS; round++) {
		uint64_t start;

		if (before)
			before();
		start = clock_ns(CLOCK_MONOTONIC);
		for (int i = 0; i < RUNS; i++)
			function();
		best = MIN_OF(best, (double)(clock_ns(CLOCK_MONOTONIC) - start) / RUNS);
	}
	return best;
}

static double measure_drain(void)
{
	double best = 1e18;

	for (int round = 0; round < ROUNDS; round++) {
		uint64_t before, start;

		drain();
		for (int i = 0; i < RUNS; i++)
			write_mark();
		before = reader.totals.records;
		start = clock_ns(CLOCK_MONOTONIC);
		drain();
		best = MIN_OF(best, (double)(clock_ns(CLOCK_MONOTONIC) - start) /
					    (double)(reader.totals.records - before));
	}
	return best;
}

static void *read_along(void *data)
{
	const struct timespec pause = { .tv_nsec = 1000000 };

	while (!atomic_load(&stop)) {
		drain();
		nanosleep(&pause, NULL);
	}
	return NULL;
}

static int measure_together(void)
{
	uint64_t before = reader.totals.records, start;
	double ns;
	pthread_t id;

	if (pthread_create(&id, NULL, read_along, NULL) != 0)
		return 1;
	start = clock_ns(CLOCK_MONOTONIC);
	for (int i = 0; i < N_TOGETHER; i++)
		write_mark();
	ns = (double)(clock_ns(CLOCK_MONOTONIC) - start) / N_TOGETHER;
	atomic_store(&stop, true);
	pthread_join(id, NULL);
	drain();
	printf("together  %6.1f ns   %" PRIu64 " of %d recorded, %" PRIu64 " waits\n", ns,
	       reader.totals.records - before, N_TOGETHER, reader.totals.waits);
	return 0;
}

int main(void)
{
	const struct ring_arena_sizes sizes = { { { RING_SIZE, 1, RING_DROP } } };
	struct ring_arena_memory memory;
	struct ring_arena *arena;
	struct ring_header *header;
	double call, peer, mark, arguments, full;
	int fd;

	if (ring_arena_make(&sizes, &memory, &fd) < 0 || ring_arena_map(fd, &arena) < 0)
		return 1;
	ring = ring_claim(arena, 1, 0, 0);
	ring_reader_init(&reader, &memory, 0);
	measure(write_mark, drain);
	call = measure(write_nothing, NULL);
	peer = measure(write_clock, NULL);
	mark = measure(write_mark, drain);
	arguments = measure(write_arguments, drain);
	for (int i = 0; i < 4 * RUNS; i++)
		write_mark();
	full = measure(write_mark, NULL);
	printf("clock     %6.1f ns\n", peer);
	printf("mark      %6.1f ns   over the clock %5.1f ns (goal 10)\n", mark, mark - peer);
	printf("arguments %6.1f ns   over the clock %5.1f ns (goal 25)\n", arguments,
	       arguments - peer);
	printf("full      %6.1f ns   over a call %5.1f ns (goal 2)\n", full, full - call);
	drain();
	printf("drain     %6.1f ns   a record\n", measure_drain());
	drain();
	header = (void *)(memory.base + memory.places[0].header_offset);
	__atomic_store_n(&header->policy, RING_LOSSLESS, __ATOMIC_RELAXED);
	if (measure_together() != 0)
		return 1;
	if (reader.fault != RING_FAULT_NONE)
		printf("fault: %s\n", ring_fault_name(reader.fault));
	ring_release(ring);
	ring_arena_unmap(arena);
	ring_arena_memory_done(&memory);
	close(fd);
	return reader.fault != RING_FAULT_NONE;
}
