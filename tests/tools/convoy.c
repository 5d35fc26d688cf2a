/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Convoy - threads that wait for mutexes, and measure how long they wait and hold them
 *
 *     convoy [FILE]
 *
 * Prints a line "NAME ADDRESS WAITS NANOSECONDS" for each mutex, with the address in hexadecimal,
 * and writes a line "NAME TID BEGIN END" for each hold to FILE.
 *
 * A thread that finds a mutex locked measures the time until it gets the mutex. Both mutexes are
 * held while their holders sleep, so nearly all of that time is spent waiting. If another thread
 * takes the mutex first, the thread waits again within one measurement. A hold lasts until the
 * release has woken a waiter.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define THREADS 4
#define TURNS 100

struct hold {
	uint64_t begin, end;
	long tid;
};

struct lock {
	pthread_mutex_t mutex;
	const char *name;
	uint64_t ns, waits; /* guarded by `mutex` */
	struct hold holds[THREADS * TURNS];
	size_t n_holds; /* guarded by `mutex` */
};

static struct lock slow = { .mutex = PTHREAD_MUTEX_INITIALIZER, .name = "slow" };
static struct lock quick = { .mutex = PTHREAD_MUTEX_INITIALIZER, .name = "quick" };

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

__attribute__((noinline)) static struct hold *acquire(struct lock *lock)
{
	struct hold *hold;
	uint64_t begin;

	if (pthread_mutex_trylock(&lock->mutex) != 0) {
		begin = now();
		pthread_mutex_lock(&lock->mutex);
		lock->ns += now() - begin;
		lock->waits++;
	}
	hold = &lock->holds[lock->n_holds++];
	*hold = (struct hold){ .begin = now(), .tid = syscall(SYS_gettid) };
	return hold;
}

__attribute__((noinline)) static void release(struct lock *lock, struct hold *hold)
{
	pthread_mutex_unlock(&lock->mutex);
	hold->end = now();
}

__attribute__((noinline)) static void hold_slow(void)
{
	struct hold *hold = acquire(&slow);

	nap(2000000);
	release(&slow, hold);
	nap(500000);
}

__attribute__((noinline)) static void hold_quick(void)
{
	struct hold *hold = acquire(&quick);

	nap(300000);
	release(&quick, hold);
	nap(100000);
}

static void *run(void *data)
{
	for (int i = 0; i < TURNS; i++)
		data ? hold_slow() : hold_quick();
	return NULL;
}

int main(int argc, char **argv)
{
	const struct lock *const locks[] = { &slow, &quick };
	FILE *file = argc > 1 ? fopen(argv[1], "we") : NULL;
	pthread_t threads[2 * THREADS];

	if (argc > 1 && !file)
		return 1;
	for (int i = 0; i < 2 * THREADS; i++)
		if (pthread_create(&threads[i], NULL, run, i % 2 ? &slow : NULL) != 0)
			return 1;
	for (int i = 0; i < 2 * THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 2; i++) {
		const struct lock *lock = locks[i];

		printf("%s 0x%lx %lu %lu\n", lock->name, (unsigned long)&lock->mutex,
		       (unsigned long)lock->waits, (unsigned long)lock->ns);
		for (size_t n = 0; file && n < lock->n_holds; n++)
			fprintf(file, "%s %ld %lu %lu\n", lock->name, lock->holds[n].tid,
				(unsigned long)lock->holds[n].begin,
				(unsigned long)lock->holds[n].end);
	}
	return file && fclose(file) != 0;
}
