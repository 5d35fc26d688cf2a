/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Heap-pairs - measures malloc() and free() at a given call depth, for benchmarks of preloaded
 * libraries
 *
 *     heap-pairs THREADS PAIRS DEPTH ROUNDS
 *
 * In each round, each of THREADS threads makes PAIRS pairs of calls. Prints the CPU time of the
 * best round, in ns per pair.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MAX_THREADS 64
#define BYTES 64

/* Keeps the compiler from removing the call, and from merging frames. */
#define KEEP(pointer) __asm__ volatile("" : "+r"(pointer) : : "memory")

static int n_pairs, depth;

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static __attribute__((noinline)) void *make_pairs(void)
{
	void *block = NULL;

	for (int i = 0; i < n_pairs; i++) {
		block = malloc(BYTES);
		KEEP(block);
		free(block);
	}
	return NULL;
}

static __attribute__((noinline)) void *descend(int n)
{
	void *result = n > 0 ? descend(n - 1) : make_pairs();

	KEEP(result);
	return result;
}

static void *run(void *data)
{
	return descend(depth);
}

static void run_threads(int n)
{
	pthread_t ids[MAX_THREADS];

	for (int i = 0; i < n; i++)
		if (pthread_create(&ids[i], NULL, run, NULL) != 0)
			exit(1);
	for (int i = 0; i < n; i++)
		pthread_join(ids[i], NULL);
}

int main(int argc, char **argv)
{
	int n_threads = argc == 5 ? atoi(argv[1]) : 0, n_rounds = argc == 5 ? atoi(argv[4]) : 0;
	double best = 1e18;

	if (n_threads < 1 || n_threads > MAX_THREADS)
		return 2;
	n_pairs = atoi(argv[2]);
	depth = atoi(argv[3]);
	for (int i = 0; i < n_rounds; i++) {
		double start = now_ns(), took;

		if (n_threads == 1)
			run(NULL);
		else
			run_threads(n_threads);
		took = (now_ns() - start) / n_pairs / n_threads;
		best = took < best ? took : best;
	}
	printf("%.2f\n", best);
	return 0;
}
