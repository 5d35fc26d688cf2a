/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Bench-order - 8 threads that preempt each other on two CPUs write 10^8 records, each thread into
 * its own ring, while another thread reads the rings
 *
 * Records are merged as in the engine, by the bounds that each drain returns. Records before the
 * merged bound are counted as late. It is a failure if a record is out of order without being
 * counted, or is neither read nor counted as lost. The last run clears the rings' busy word before
 * each drain, to show what this word prevents.
 */
#include "libcollector/ring/ring-reader.h"
#include "libcollector/ring/ring.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define N_THREADS 8u
#define N_CPUS 2
#define RING_SIZE (UINT64_C(1) << 20)
#define BUFFER_BYTES (1u << 20)
#define WORK 200 /* work within each record, so that threads are often preempted there */

struct result {
	uint64_t records, lost, late, silent; /* silent: out of order, but not counted as late */
	uint64_t ns;
	bool is_whole;
};

static _Alignas(8) uint8_t buffer[BUFFER_BYTES];
static uint64_t per_thread;

static uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void *write_all(void *data)
{
	struct ring *ring = data;

	for (uint64_t i = 0; i < per_thread; i++) {
		struct ring_mark *mark = ring_begin(ring, RING_MARK, sizeof(*mark));

		for (volatile int work = 0; work < WORK; work++)
			;
		if (!mark)
			continue;
		*mark = (struct ring_mark){ .id = i };
		ring_end(ring, mark);
	}
	ring_release(ring);
	return NULL;
}

/* Counts a batch. Records before merged_ns are too late to be merged. */
static void count_batch(struct ring_batch *batch, uint64_t merged_ns, struct result *result)
{
	struct ring_record record;

	while (ring_batch_next(batch, &record)) {
		bool is_late = record.verdict & RING_RECORD_LATE;

		result->late += is_late;
		result->silent += !is_late && record.time_ns < merged_ns;
	}
}

static void merge_all(struct ring_reader *readers, bool is_busy_seen, struct result *result)
{
	uint64_t merged_ns = 0;
	uint32_t open = (1u << N_THREADS) - 1;

	while (open != 0) {
		uint64_t bound_ns = UINT64_MAX;

		for (uint32_t i = 0; i < N_THREADS; i++) {
			struct ring_batch batch;

			if (!is_busy_seen)
				__atomic_store_n(&readers[i].shared->busy, 0, __ATOMIC_RELAXED);
			ring_reader_drain(&readers[i], RING_DRAIN_LIVE, buffer, sizeof(buffer),
					  &batch);
			count_batch(&batch, merged_ns, result);
			bound_ns = MIN_OF(bound_ns, batch.bound_ns);
			if (batch.is_closed || readers[i].fault != RING_FAULT_NONE)
				open &= ~(1u << i);
		}
		merged_ns = MAX_OF(merged_ns, bound_ns);
	}
}

static void sum_up(const struct ring_reader *readers, struct result *result)
{
	result->is_whole = true;
	for (uint32_t i = 0; i < N_THREADS; i++) {
		const struct ring_totals *totals = &readers[i].totals;
		uint64_t lost = 0;

		for (size_t k = 0; k < RING_N_LOST; k++)
			lost += totals->lost[k];
		result->records += totals->records;
		result->lost += lost;
		result->is_whole = result->is_whole && readers[i].fault == RING_FAULT_NONE &&
				   totals->attempted == per_thread &&
				   totals->records + lost == per_thread;
	}
}

static int run(enum ring_policy policy, bool is_busy_seen, struct result *ret_result)
{
	const struct ring_arena_sizes sizes = { { { RING_SIZE, N_THREADS, policy } } };
	struct ring_arena_memory memory;
	struct ring_reader readers[N_THREADS];
	pthread_t ids[N_THREADS];
	struct result result = { 0 };
	struct ring_arena *arena;
	uint64_t begin_ns = clock_ns();
	int fd;

	if (ring_arena_make(&sizes, &memory, &fd) < 0 || ring_arena_map(fd, &arena) < 0)
		return 1;
	for (uint32_t i = 0; i < N_THREADS; i++) {
		ring_reader_init(&readers[i], &memory, i);
		if (pthread_create(&ids[i], NULL, write_all, ring_claim(arena, i, 0, 0)) != 0)
			return 1;
	}
	merge_all(readers, is_busy_seen, &result);
	for (uint32_t i = 0; i < N_THREADS; i++)
		pthread_join(ids[i], NULL);
	sum_up(readers, &result);
	result.ns = clock_ns() - begin_ns;
	*ret_result = result;
	ring_arena_unmap(arena);
	ring_arena_memory_done(&memory);
	close(fd);
	return 0;
}

static int report(const char *name, enum ring_policy policy, bool is_busy_seen)
{
	struct result result;

	if (run(policy, is_busy_seen, &result) != 0)
		return 1;
	printf("%-22s %9" PRIu64 " read %9" PRIu64 " lost %7" PRIu64 " late %7" PRIu64
	       " out of order and not counted, %.0f a second, in %.1f s%s\n",
	       name, result.records, result.lost, result.late, result.silent,
	       (double)(result.late + result.silent) * 1e9 / (double)result.ns,
	       (double)result.ns / 1e9, result.is_whole ? "" : "   NOT WHOLE");
	return !result.is_whole || result.silent != 0;
}

int main(int argc, char **argv)
{
	cpu_set_t cpus;
	int status;

	per_thread = (argc > 1 ? strtoull(argv[1], NULL, 10) : UINT64_C(100000000)) / N_THREADS;
	CPU_ZERO(&cpus);
	for (int i = 0; i < N_CPUS; i++)
		CPU_SET(i, &cpus);
	(void)sched_setaffinity(0, sizeof(cpus), &cpus);
	status = report("lossless", RING_LOSSLESS, true);
	status |= report("drop", RING_DROP, true);
	(void)report("without the busy word", RING_LOSSLESS, false);
	return status;
}
