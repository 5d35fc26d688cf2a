/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Probed - functions and static probes, whose calls this program counts and measures itself
 *
 *     probed     prints lines "NAME COUNT NANOSECONDS"
 */
#include "tests/tools/static-probe.h"

#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define CALLS 200
#define NAPS 20
#define DEPTH 5

/* The kernel counts the users of the probe "guarded" here. */
unsigned short demo_guarded_semaphore __attribute__((section(".probes"), used));

#define KEPT __attribute__((noinline, used, externally_visible))

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

int probed_add(int a, int b);
void probed_nap(void);
int probed_deep(int depth);
int probed_jump(int a);
long probed_red_zone(long a);

KEPT int probed_add(int a, int b)
{
	__asm__ volatile("");
	return a + b;
}

KEPT void probed_nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
	__asm__ volatile("");
}

KEPT int probed_deep(int depth)
{
	int below = depth > 1 ? probed_deep(depth - 1) : 0;

	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	return below + 1;
}

KEPT int probed_jump(int a)
{
	jmp_buf place;

	if (setjmp(place) == 0)
		longjmp(place, 1);
	return a;
}

#if defined(__x86_64__)
/* The function's first instruction has a prefix that the kernel refuses to probe. */
void probed_locked(int *number);
__asm__(".text\n.globl probed_locked\n.type probed_locked, @function\n"
	"probed_locked: lock incl (%rdi)\nret\n.size probed_locked, . - probed_locked\n");

/* Has data in the red zone below the stack pointer while it executes a static probe of 5 bytes. */
KEPT long probed_red_zone(long a)
{
	/* fills the 128 bytes below the stack pointer, except for a margin */
	volatile long data[15];
	long sum = 0;

	for (int i = 0; i < 15; i++)
		data[i] = a;
	STATIC_PROBE(".byte 0x0f, 0x1f, 0x44, 0, 0", "long_nop", "0", "-8@%0", "r"(a));
	for (int i = 0; i < 15; i++)
		sum += data[i];
	return sum / 15;
}
#else
void probed_locked(int *number);
KEPT void probed_locked(int *number)
{
	++*number;
}
KEPT long probed_red_zone(long a)
{
	return a;
}
#endif

static int chosen(void)
{
	return 1;
}

static int (*choose(void))(void)
{
	return chosen;
}

int probed_chosen(void) __attribute__((ifunc("choose")));

int main(void)
{
	uint64_t start, sum = 0, guarded = 0, deep;
	int number = 0;

	for (int i = 0; i < CALLS; i++) {
		sum += (uint64_t)probed_add(i, 1);
		STATIC_PROBE("nop", "work", "0", "-4@%0 8@%1", "nor"(i), "nor"(sum));
		if (i % 2)
			STATIC_PROBE("nop", "work", "0", "-4@%0 8@%1", "nor"(-i), "nor"(sum));
		if (*(volatile unsigned short *)&demo_guarded_semaphore) {
			guarded++;
			STATIC_PROBE("nop", "guarded", "demo_guarded_semaphore", "8@%0",
				     "nor"(guarded));
		}
		sum += (uint64_t)probed_red_zone(i);
		probed_locked(&number);
	}
	start = now();
	for (int i = 0; i < NAPS; i++)
		probed_nap();
	printf("probed_nap %d %llu\n", NAPS, (unsigned long long)(now() - start));
	start = now();
	deep = (uint64_t)probed_deep(DEPTH);
	printf("probed_deep %llu %llu\n", (unsigned long long)deep,
	       (unsigned long long)(now() - start));
	printf("probed_add %d 0\n", CALLS);
	printf("work %d 0\n", CALLS + CALLS / 2);
	printf("guarded %llu 0\n", (unsigned long long)guarded);
	printf("sum %llu 0\n",
	       (unsigned long long)(sum + (uint64_t)(number + probed_jump(1) + probed_chosen())));
	return 0;
}
