/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Truth - a program that measures how much time its functions take
 *
 *     truth SECONDS
 *
 * Four threads call ten functions in random order and for random durations; the shares differ
 * between threads. Four of the functions are inlined into call(). The thread's CPU clock measures
 * each call, so that the result is known without a profiler. It is printed at the end as JSON:
 * nanoseconds by name.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FUNCTIONS 10
#define THREADS 4
#define NS 1000000000ull
#define PAUSE 4 /* a call that takes this many times as long as expected was paused */

/* Takes about n nanoseconds. Different addends keep loops from having the same code. */
#define WORK(n, addend)                       \
	for (uint64_t i_ = 0; i_ < (n); i_++) \
	__asm__ volatile("" : : "r"(i_ * 3 + (addend)) : "memory")
#define OUTLINE(number)                                                 \
	static __attribute__((noinline)) void work_##number(uint64_t n) \
	{                                                               \
		WORK(n, number);                                        \
	}
#define INLINE(number)                                                              \
	static inline __attribute__((always_inline)) void work_##number(uint64_t n) \
	{                                                                           \
		WORK(n, number);                                                    \
	}

OUTLINE(0)
OUTLINE(1)
OUTLINE(2)
OUTLINE(3)
OUTLINE(4)
OUTLINE(5)
INLINE(6)
INLINE(7)
INLINE(8)
INLINE(9)

static __attribute__((noinline)) void call(unsigned function, uint64_t n)
{
	switch (function) {
	case 0:
		work_0(n);
		break;
	case 1:
		work_1(n);
		break;
	case 2:
		work_2(n);
		break;
	case 3:
		work_3(n);
		break;
	case 4:
		work_4(n);
		break;
	case 5:
		work_5(n);
		break;
	case 6:
		work_6(n);
		break;
	case 7:
		work_7(n);
		break;
	case 8:
		work_8(n);
		break;
	default:
		work_9(n);
	}
}

/* Shares in 256ths, by thread. */
static const uint8_t shares[THREADS][FUNCTIONS] = {
	{ 60, 40, 30, 26, 25, 20, 20, 15, 10, 10 },
	{ 10, 20, 50, 0, 40, 36, 60, 20, 10, 10 },
	{ 0, 0, 0, 90, 6, 10, 20, 30, 40, 60 },
	{ 128, 8, 8, 8, 8, 8, 8, 8, 8, 64 },
};

struct thread {
	pthread_t id;
	unsigned number;
	uint64_t wanted_ns, ran_ns;
	uint64_t turns[FUNCTIONS], ns[FUNCTIONS];
};

static uint64_t cpu_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (uint64_t)time.tv_sec * NS + (uint64_t)time.tv_nsec;
}

static uint64_t draw(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state >> 11;
}

static unsigned draw_function(unsigned thread, uint64_t *state)
{
	unsigned left = draw(state) % 256, function = 0;

	while (function < FUNCTIONS - 1 && left >= shares[thread][function])
		left -= shares[thread][function++];
	return function;
}

/*
 * Adds the time of a call. If a virtual machine was paused, the clock advanced without samples.
 * Then the time is computed from the number of turns and the function's usual time per turn.
 */
static void add_call(struct thread *thread, unsigned function, uint64_t turns, uint64_t took_ns)
{
	double expected_ns = thread->turns[function]
				     ? (double)thread->ns[function] /
					       (double)thread->turns[function] * (double)turns
				     : (double)took_ns;

	if ((double)took_ns > PAUSE * expected_ns)
		took_ns = (uint64_t)expected_ns;
	thread->turns[function] += turns;
	thread->ns[function] += took_ns;
	thread->ran_ns += took_ns;
}

static void *run(void *data)
{
	struct thread *thread = data;
	uint64_t state = 88172645463325252ull + thread->number, before = cpu_ns();

	while (thread->ran_ns < thread->wanted_ns) {
		unsigned function = draw_function(thread->number, &state);
		uint64_t turns = 200000 + draw(&state) % 800000, after;

		call(function, turns);
		after = cpu_ns();
		add_call(thread, function, turns, after - before);
		before = after;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct thread threads[THREADS] = { 0 };
	double seconds = argc > 1 ? strtod(argv[1], NULL) : 1;

	for (unsigned i = 0; i < THREADS; i++) {
		threads[i].number = i;
		threads[i].wanted_ns = (uint64_t)(seconds * (double)NS / THREADS);
		if (pthread_create(&threads[i].id, NULL, run, &threads[i]) != 0)
			return 1;
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i].id, NULL);
	for (unsigned f = 0; f < FUNCTIONS; f++) {
		uint64_t sum = 0;

		for (unsigned i = 0; i < THREADS; i++)
			sum += threads[i].ns[f];
		printf("%s\"work_%u\": %" PRIu64, f ? ", " : "{", f, sum);
	}
	printf("}\n");
	return 0;
}
