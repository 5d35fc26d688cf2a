/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Convoy - threads that wait for mutexes, and measure how long
 *
 *     convoy    prints a line "NAME ADDRESS WAITS NANOSECONDS" for each mutex, in hexadecimal
 *
 * A thread that finds a mutex locked measures, with its own clock, the time until it gets the
 * mutex. Both mutexes are held while their holders sleep, so nearly all of that time is spent
 * waiting. If another thread takes the mutex first, the thread waits again within one measurement.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#define THREADS 4
#define TURNS 100

struct lock {
	pthread_mutex_t mutex;
	const char *name;
	uint64_t ns, waits; /* guarded by `mutex` */
	char apart[64];
};

static struct lock slow = { PTHREAD_MUTEX_INITIALIZER, "slow", 0, 0, "" };
static struct lock quick = { PTHREAD_MUTEX_INITIALIZER, "quick", 0, 0, "" };

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void nap(long ns)
{
	nanosleep(&(struct timespec){ .tv_nsec = ns }, NULL);
}

__attribute__((noinline)) static void acquire(struct lock *lock)
{
	uint64_t begin;

	if (pthread_mutex_trylock(&lock->mutex) == 0)
		return;
	begin = now();
	pthread_mutex_lock(&lock->mutex);
	lock->ns += now() - begin;
	lock->waits++;
}

__attribute__((noinline)) static void release(struct lock *lock)
{
	pthread_mutex_unlock(&lock->mutex);
	__asm__ volatile("");
}

__attribute__((noinline)) static void hold_slow(void)
{
	acquire(&slow);
	nap(2000000);
	release(&slow);
	nap(500000);
}

__attribute__((noinline)) static void hold_quick(void)
{
	acquire(&quick);
	nap(300000);
	release(&quick);
	nap(100000);
}

static void *run(void *data)
{
	for (int i = 0; i < TURNS; i++)
		data ? hold_slow() : hold_quick();
	return NULL;
}

int main(void)
{
	const struct lock *const locks[] = { &slow, &quick };
	pthread_t threads[2 * THREADS];

	for (int i = 0; i < 2 * THREADS; i++)
		if (pthread_create(&threads[i], NULL, run, i % 2 ? &slow : NULL) != 0)
			return 1;
	for (int i = 0; i < 2 * THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 2; i++)
		printf("%s 0x%lx %lu %lu\n", locks[i]->name, (unsigned long)&locks[i]->mutex,
		       (unsigned long)locks[i]->waits, (unsigned long)locks[i]->ns);
	return 0;
}
