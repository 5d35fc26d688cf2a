/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Faults - computes, touches pages slowly, then fast; prints the page faults of the last two
 *
 * faults [MILLISECONDS]
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { CALM_PAGES = 300, SLOW_PAGES = 2500, FAST_PAGES = 60000 };

static volatile uint64_t sink;

static long faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt;
}

__attribute__((noinline)) void computes(double ms)
{
	clock_t end = clock() + (clock_t)(ms / 1000 * CLOCKS_PER_SEC);

	while (clock() < end)
		for (int i = 0; i < 10000; i++)
			sink = sink * 3 + 1;
}

static void touch_slowly(char *pages, long size, int n)
{
	for (int i = 0; i < n; i++) {
		pages[i * size] = 1;
		for (int k = 0; k < 300000; k++)
			sink += 1;
	}
}

/* Lets the kernel adapt its sampling period, which has fitted the loading of the program so far. */
__attribute__((noinline)) void calm(char *pages, long size)
{
	touch_slowly(pages, size, CALM_PAGES);
}

__attribute__((noinline)) void slow_toucher(char *pages, long size)
{
	touch_slowly(pages, size, SLOW_PAGES);
}

__attribute__((noinline)) void fast_toucher(char *pages, long size)
{
	for (int i = 0; i < FAST_PAGES; i++)
		pages[i * size] = 1;
}

/* Binds the program to one CPU, because the kernel counts events and adapts the sampling period for
 * each CPU separately. */
static void stay_here(void)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof(one), &one);
}

int main(int argc, char **argv)
{
	long size = sysconf(_SC_PAGESIZE), before, between;
	size_t bytes = (size_t)size * (CALM_PAGES + SLOW_PAGES + FAST_PAGES);
	char *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (pages == MAP_FAILED)
		return 1;
	stay_here();
	madvise(pages, bytes, MADV_NOHUGEPAGE);
	if (argc > 1)
		computes(atof(argv[1]));
	calm(pages, size);
	pages += CALM_PAGES * size;
	before = faults();
	slow_toucher(pages, size);
	between = faults();
	fast_toucher(pages + SLOW_PAGES * size, size);
	printf("%ld %ld\n", between - before, faults() - between);
	return 0;
}
