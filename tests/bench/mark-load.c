/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Mark-load - writes marks, for bench_marks.py and bench_mark_peers.py
 *
 *     mark-load flat N [THREADS]      each thread writes N marks, as fast as it can
 *     mark-load arguments N [THREADS] the same, with two arguments
 *     mark-load rate N SECONDS        N marks per second, with two arguments, in a burst each
 *                                     millisecond
 *     mark-load idle THREADS SECONDS  each thread writes marks until one is recorded, then sleeps
 * Prints how many marks were recorded and tried, and the CPU time of a mark in ns.
 */
#include "tests/bench/mark-load.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_THREADS 4096
#define TURNS_A_SECOND 1000
#define MAX_TRIES 20000

struct load {
	unsigned long n, seconds;
	unsigned long recorded, tried;
	uint64_t cpu_ns;
};

static uint64_t cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void mark(struct load *load)
{
	load->recorded += load_mark();
	load->tried++;
}

static void mark_arguments(struct load *load, uint64_t i)
{
	load->recorded += load_arguments(640, i);
	load->tried++;
}

static void *run_flat(void *data)
{
	struct load *load = data;
	uint64_t start;

	/* The first mark of a thread has costs that occur only once. */
	mark(load);
	start = cpu_ns();
	while (load->tried < load->n)
		mark(load);
	load->cpu_ns = cpu_ns() - start;
	return NULL;
}

static void *run_arguments(void *data)
{
	struct load *load = data;
	uint64_t start;

	mark_arguments(load, 0);
	start = cpu_ns();
	while (load->tried < load->n)
		mark_arguments(load, load->tried);
	load->cpu_ns = cpu_ns() - start;
	return NULL;
}

static void *run_rate(void *data)
{
	struct load *load = data;
	uint64_t start = cpu_ns();
	struct timespec next;

	clock_gettime(CLOCK_MONOTONIC, &next);
	for (unsigned long turn = 0; turn < load->seconds * TURNS_A_SECOND; turn++) {
		for (unsigned long i = 0; i < load->n / TURNS_A_SECOND; i++)
			mark_arguments(load, i);
		next.tv_nsec += 1000000000 / TURNS_A_SECOND;
		if (next.tv_nsec >= 1000000000) {
			next.tv_nsec -= 1000000000;
			next.tv_sec++;
		}
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
	}
	load->cpu_ns = cpu_ns() - start;
	return NULL;
}

static void *run_idle(void *data)
{
	struct load *load = data;

	/* After a failure, the library skips some attempts. */
	while (load->recorded == 0 && load->tried < MAX_TRIES) {
		mark(load);
		if (load->tried % 500 == 0)
			usleep(50000);
	}
	sleep((unsigned)load->seconds);
	return NULL;
}

int main(int argc, char **argv)
{
	static struct load loads[MAX_THREADS];
	static pthread_t ids[MAX_THREADS];
	const char *mode = argc > 2 ? argv[1] : "";
	unsigned long first = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
	unsigned long second = argc > 3 ? strtoul(argv[3], NULL, 10) : 1;
	bool is_idle = strcmp(mode, "idle") == 0, is_rate = strcmp(mode, "rate") == 0;
	void *(*run)(void *) = is_idle                          ? run_idle
			       : is_rate                        ? run_rate
			       : strcmp(mode, "arguments") == 0 ? run_arguments
								: run_flat;
	unsigned long n_threads = is_idle ? first : is_rate ? 1 : second;
	struct load all = { 0 };

	if (first == 0 || n_threads == 0 || n_threads > MAX_THREADS)
		return 2;
	for (unsigned long i = 0; i < n_threads; i++) {
		loads[i] = (struct load){ .n = first, .seconds = second };
		if (pthread_create(&ids[i], NULL, run, &loads[i]) != 0)
			return 1;
	}
	for (unsigned long i = 0; i < n_threads; i++) {
		pthread_join(ids[i], NULL);
		all.recorded += loads[i].recorded;
		all.tried += loads[i].tried;
		all.cpu_ns += loads[i].cpu_ns;
	}
	printf("%lu %lu %.2f\n", all.recorded, all.tried, (double)all.cpu_ns / (double)all.tried);
	return 0;
}
