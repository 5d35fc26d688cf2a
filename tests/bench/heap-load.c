/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Heap-load - allocates at full speed, for bench_memory
 *
 *     heap-load pairs DEPTH THREADS N  each thread calls malloc and free N times, DEPTH calls deep;
 *                                      prints the CPU ns of a pair; with 0 threads, the main
 *                                      thread does it, and is the only thread
 *     heap-load random N               N times: frees one of 100 000 blocks, and allocates one of
 *                                      random size, from one of 1000 stacks
 *     heap-load shares N               ten functions, each with its own number of allocations;
 *                                      prints the bytes of each
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define N_LIVE 100000u
#define STACK_BITS 10u

/* Keeps the compiler from removing the allocation of `pointer`. */
#define KEEP(pointer) __asm__ volatile("" : "+r"(pointer) : : "memory")
#define OUTLINE __attribute__((noinline))

static unsigned n_deep;
static unsigned long n_each;

static uint64_t cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- Pairs ---- */

static OUTLINE void allocate_all(void)
{
	for (unsigned long i = 0; i < n_each; i++) {
		void *block = malloc(16 + i % 8 * 16);

		KEEP(block);
		free(block);
	}
}

static OUTLINE void go_deep(unsigned n)
{
	if (n == 0)
		allocate_all();
	else
		go_deep(n - 1);
	__asm__ volatile("" : : : "memory");
}

static OUTLINE void *run_thread(void *data)
{
	uint64_t *ret_ns = data, start = cpu_ns();

	/* go_deep(n) adds n + 1 frames; this function, its caller and allocate_all() have one
	 * each */
	go_deep(n_deep > 4 ? n_deep - 4 : 0);
	*ret_ns = cpu_ns() - start;
	return NULL;
}

static int run_pairs(unsigned n_threads)
{
	pthread_t ids[16];
	uint64_t took[16], sum = 0;

	if (n_threads > 16)
		return 2;
	if (n_threads == 0)
		run_thread(&took[0]);
	for (unsigned i = 0; i < n_threads; i++)
		if (pthread_create(&ids[i], NULL, run_thread, &took[i]))
			return 1;
	for (unsigned i = 0; i < n_threads; i++) {
		pthread_join(ids[i], NULL);
		sum += took[i];
	}
	if (n_threads == 0)
		sum = took[n_threads++];
	printf("%.2f\n", (double)sum / n_threads / (double)n_each);
	return 0;
}

/* ---- Random ---- */

static void *live[N_LIVE];

static uint64_t next_random(void)
{
	static uint64_t state = 1;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static void *turn(unsigned n, uint64_t bits, size_t size);

static OUTLINE void *turn_left(unsigned n, uint64_t bits, size_t size)
{
	void *block = turn(n, bits, size);

	KEEP(block);
	return block;
}

static OUTLINE void *turn_right(unsigned n, uint64_t bits, size_t size)
{
	void *block = turn(n, bits, size);

	KEEP(block);
	return block;
}

static OUTLINE void *turn(unsigned n, uint64_t bits, size_t size)
{
	void *block = n == 0     ? malloc(size)
		      : bits & 1 ? turn_left(n - 1, bits >> 1, size)
				 : turn_right(n - 1, bits >> 1, size);

	KEEP(block);
	return block;
}

static int run_random(void)
{
	for (unsigned long i = 0; i < n_each; i++) {
		void **slot = &live[next_random() % N_LIVE];

		free(*slot);
		*slot = turn(STACK_BITS, next_random() % 1000, 1 + next_random() % 4096);
	}
	return 0;
}

/* ---- Shares ---- */

#define SHARE(n)                                                            \
	static OUTLINE void share_##n(void)                                 \
	{                                                                   \
		uint64_t n_bytes = 0;                                       \
                                                                            \
		for (unsigned long i = 0; i < n_each * (n + 5) / 10; i++) { \
			size_t size = 2000 + i % 1000 * 2 * (n + 1);        \
			void *block = malloc(size);                         \
                                                                            \
			KEEP(block);                                        \
			free(block);                                        \
			n_bytes += size;                                    \
		}                                                           \
		printf("share_%u %llu\n", n, (unsigned long long)n_bytes);  \
	}
SHARE(0)
SHARE(1)
SHARE(2)
SHARE(3)
SHARE(4)
SHARE(5)
SHARE(6)
SHARE(7)
SHARE(8)
SHARE(9)

static int run_shares(void)
{
	static void (*const shares[])(void) = { share_0, share_1, share_2, share_3, share_4,
						share_5, share_6, share_7, share_8, share_9 };

	for (size_t i = 0; i < 10; i++)
		shares[i]();
	return 0;
}

int main(int argc, char **argv)
{
	n_each = argc >= 3 ? strtoul(argv[argc - 1], NULL, 10) : 0;
	if (argc == 5 && strcmp(argv[1], "pairs") == 0) {
		n_deep = (unsigned)atoi(argv[2]);
		return run_pairs((unsigned)atoi(argv[3]));
	}
	if (argc == 3 && strcmp(argv[1], "random") == 0)
		return run_random();
	if (argc == 3 && strcmp(argv[1], "shares") == 0)
		return run_shares();
	return 2;
}
