/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Mix - a program that alternates between twenty functions on two threads
 *
 *     mix SECONDS [SLOW PERCENT]      function SLOW, 0 to 19, takes PERCENT longer
 *
 * A call takes about ten microseconds; the order is random. The program ends when each thread has
 * used SECONDS of CPU time, so that the number of samples is the same on a busy machine.
 */
#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define FUNCTIONS 20
#define THREADS 2

static unsigned long turns[FUNCTIONS];
static volatile uint64_t sink;
static double end;

#define WORK(n)                                                                \
	__attribute__((noinline)) static void work_##n(void)                   \
	{                                                                      \
		uint64_t x = (n) + 1;                                          \
                                                                               \
		for (unsigned long i = 0; i < turns[(n)]; i++)                 \
			x = x * UINT64_C(6364136223846793005) + (2 * (n) + 1); \
		sink = x;                                                      \
	}                                                                      \
	static_assert(true, "")

WORK(0);
WORK(1);
WORK(2);
WORK(3);
WORK(4);
WORK(5);
WORK(6);
WORK(7);
WORK(8);
WORK(9);
WORK(10);
WORK(11);
WORK(12);
WORK(13);
WORK(14);
WORK(15);
WORK(16);
WORK(17);
WORK(18);
WORK(19);

static void (*const works[FUNCTIONS])(void) = {
	work_0,  work_1,  work_2,  work_3,  work_4,  work_5,  work_6,  work_7,  work_8,  work_9,
	work_10, work_11, work_12, work_13, work_14, work_15, work_16, work_17, work_18, work_19,
};

static double seconds_run(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void *run(void *seed)
{
	unsigned int state = *(unsigned int *)seed;

	while (seconds_run() < end)
		for (unsigned int i = 0; i < 1000; i++)
			works[(unsigned int)rand_r(&state) % FUNCTIONS]();
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	unsigned int seeds[THREADS];

	if (argc != 2 && argc != 4) {
		fputs("Usage: mix SECONDS [SLOW PERCENT]\n", stderr);
		return 2;
	}
	for (unsigned int i = 0; i < FUNCTIONS; i++)
		turns[i] = 10000;
	if (argc == 4)
		turns[(unsigned int)atoi(argv[2]) % FUNCTIONS] += 100 *
								  (unsigned long)atoi(argv[3]);
	end = atof(argv[1]);
	for (unsigned int i = 0; i < THREADS; i++) {
		seeds[i] = (unsigned int)time(NULL) * 2 + i;
		if (pthread_create(&threads[i], NULL, run, &seeds[i]) != 0)
			return 1;
	}
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
