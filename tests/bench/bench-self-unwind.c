/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Bench-self-unwind - walks 35 frames of this thread's stack, compared with libgcc's
 * _Unwind_Backtrace in the same run
 *
 * hot: every address is cached. invalidated: the cache is empty, as after a dlclose(). new place:
 * the extra cost of an address that is not cached, for addresses all over libc.
 */
#include "libcollector/unwind/modules.h"
#include "libcollector/unwind/self-unwind.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unwind.h>

#define DEPTH 35
#define RUNS 2000
#define ROUNDS 7

static _Thread_local struct self_unwind own;
static uint64_t pcs[SELF_UNWIND_MAX_FRAMES];
static size_t n_frames;

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static _Unwind_Reason_Code add(struct _Unwind_Context *context, void *data)
{
	pcs[n_frames++] = _Unwind_GetIP(context);
	return n_frames < SELF_UNWIND_MAX_FRAMES ? _URC_NO_REASON : _URC_END_OF_STACK;
}

static void walk_by_libgcc(void)
{
	n_frames = 0;
	_Unwind_Backtrace(add, NULL);
}

static void walk(void)
{
	struct walk_registers registers;
	struct self_unwind_chain chain;

	self_unwind_get_registers(&registers);
	self_unwind_walk(&own, &registers, pcs, ARRAY_SIZE(pcs), &chain);
	n_frames = chain.n;
}

static void walk_invalidated(void)
{
	self_unwind_invalidate();
	walk();
}

static double measure(void (*function)(void))
{
	double best = 1e18;

	function();
	for (int round = 0; round < ROUNDS; round++) {
		double start = now_ns();

		for (int i = 0; i < RUNS; i++)
			function();
		best = MIN_OF(best, (now_ns() - start) / RUNS);
	}
	return best;
}

static void measure_all(void)
{
	double peer = measure(walk_by_libgcc), hot, invalidated;
	size_t n_peer = n_frames;

	hot = measure(walk);
	printf("%zu frames (libgcc: %zu)\n", n_frames, n_peer);
	invalidated = measure(walk_invalidated);
	printf("hot       %8.0f ns  libgcc %8.0f ns  ratio %5.1f\n", hot, peer, peer / hot);
	printf("invalidated %8.0f ns  libgcc %8.0f ns  ratio %5.1f\n", invalidated, peer,
	       peer / invalidated);
}

static __attribute__((noinline)) int recurse(int n, void (*function)(void))
{
	volatile char room[40];

	room[0] = (char)n;
	if (n == 0)
		function();
	return n == 0 ? 0 : recurse(n - 1, function) + room[0];
}

static void measure_places(void)
{
	static struct modules modules;
	struct safe_read memory = { .way = SAFE_READ_UNKNOWN };
	uint64_t at = (uint64_t)(uintptr_t)dlsym(RTLD_DEFAULT, "abort");
	struct walk_code code;
	double best = 1e18;
	size_t n_rules = 0;

	for (int round = 0; round < ROUNDS; round++) {
		double start = now_ns();

		n_rules = 0;
		for (uint64_t i = 0; i < RUNS; i++) {
			uint64_t pc = at + i * 7919 % 1000000;

			n_rules += modules_resolve(&modules, &memory, pc, &code) &&
				   code.kind == WALK_CODE_RULE && code.rule.cfa != CFI_CFA_NONE;
		}
		best = MIN_OF(best, (now_ns() - start) / RUNS);
	}
	printf("a new place %7.0f ns  (%zu of %d have a rule)\n", best, n_rules, RUNS);
}

static void *first_walk(void *data)
{
	double start = now_ns();

	walk();
	*(double *)data = now_ns() - start;
	return NULL;
}

int main(void)
{
	double first = 0, best = 1e18;

	if (self_unwind_setup() < 0)
		return 1;
	recurse(DEPTH - 7, measure_all);
	measure_places();
	for (int i = 0; i < 100; i++) {
		pthread_t id;

		if (pthread_create(&id, NULL, first_walk, &first) != 0)
			return 1;
		pthread_join(id, NULL);
		best = MIN_OF(best, first);
	}
	printf("first walk of a thread %8.0f ns\n", best);
	return 0;
}
