/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Bench-call-tree - measures the cost of a hook's stack, compared with a whole walk (self-unwind)
 * and with libgcc's _Unwind_Backtrace in the same run
 *
 * same: the stack is the same as the previous one. sites: 16 call sites alternate; each calls one
 * of 16 functions, which call the hook; outer frames do not change. recursion: each level calls the
 * hook on the way down and up. new: each stack is new. Each program runs without frame pointers,
 * then with them.
 */
#include "libcollector/hooks/call-tree.h"
#include "tests/unit/ring.h"

#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unwind.h>

#define RUNS 20000
#define ROUNDS 9
#define N_SITES 16

static struct pair pair;
static struct producer *producer;
static const uint32_t never_ended;
static struct self_unwind own;
static uint64_t pcs[SELF_UNWIND_MAX_FRAMES];
static volatile size_t n_frames;
static uint64_t n_hooks;
static void (*volatile hook)(void);

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* ---- Hooks ---- */

static void drain(void)
{
	struct ring_batch batch;
	struct ring_record record;

	do {
		ring_reader_drain(&pair.reader, RING_DRAIN_LIVE, pair.buffer, sizeof(pair.buffer),
				  &batch);
		while (ring_batch_next(&batch, &record))
			;
	} while (batch.is_more);
}

static __attribute__((noinline)) void by_nothing(void)
{
	n_hooks++;
	__asm__ volatile("");
}

static __attribute__((noinline)) void by_call_tree(void)
{
	struct walk_registers caller;

	n_hooks++;
	unwind_cache_get_caller(&caller);
	if (call_tree_get(producer, &caller) == 0)
		drain();
}

static __attribute__((noinline)) void by_self_unwind(void)
{
	struct walk_registers here;
	struct self_unwind_chain chain;

	n_hooks++;
	self_unwind_get_registers(&here);
	self_unwind_walk(&own, &here, pcs, ARRAY_SIZE(pcs), &chain);
	n_frames = chain.n - 1;
}

static _Unwind_Reason_Code add(struct _Unwind_Context *context, void *data)
{
	size_t *n = data;

	pcs[(*n)++] = _Unwind_GetIP(context);
	return *n < SELF_UNWIND_MAX_FRAMES ? _URC_NO_REASON : _URC_END_OF_STACK;
}

static __attribute__((noinline)) void by_libgcc(void)
{
	size_t n = 0;

	n_hooks++;
	_Unwind_Backtrace(add, &n);
}

/* ---- Programs ---- */

#define LEAF(prefix, frame, i)                                         \
	static __attribute__((noinline)) void prefix##_leaf_##i(int n) \
	{                                                              \
		volatile char room[8 * (i + 1)];                       \
                                                                       \
		room[0] = (char)n;                                     \
		__asm__ volatile("" ::"r"(frame));                     \
		hook();                                                \
		room[1] = room[0];                                     \
	}

#define SITE(prefix, i)               \
	case i:                       \
		prefix##_leaf_##i(n); \
		break;

#define PROGRAMS(prefix, frame)                                                                   \
	LEAF(prefix, frame, 0)                                                                    \
	LEAF(prefix, frame, 1)                                                                    \
	LEAF(prefix, frame, 2)                                                                    \
	LEAF(prefix, frame, 3)                                                                    \
	LEAF(prefix, frame, 4)                                                                    \
	LEAF(prefix, frame, 5)                                                                    \
	LEAF(prefix, frame, 6)                                                                    \
	LEAF(prefix, frame, 7)                                                                    \
	LEAF(prefix, frame, 8)                                                                    \
	LEAF(prefix, frame, 9)                                                                    \
	LEAF(prefix, frame, 10)                                                                   \
	LEAF(prefix, frame, 11)                                                                   \
	LEAF(prefix, frame, 12)                                                                   \
	LEAF(prefix, frame, 13)                                                                   \
	LEAF(prefix, frame, 14)                                                                   \
	LEAF(prefix, frame, 15)                                                                   \
                                                                                                  \
	static __attribute__((noinline)) void prefix##_sites(int runs)                            \
	{                                                                                         \
		__asm__ volatile("" ::"r"(frame));                                                \
		for (int n = 0; n < runs; n++)                                                    \
			switch (n * 7 % N_SITES) {                                                \
				SITE(prefix, 0)                                                   \
				SITE(prefix, 1)                                                   \
				SITE(prefix, 2)                                                   \
				SITE(prefix, 3)                                                   \
				SITE(prefix, 4)                                                   \
				SITE(prefix, 5)                                                   \
				SITE(prefix, 6)                                                   \
				SITE(prefix, 7)                                                   \
				SITE(prefix, 8)                                                   \
				SITE(prefix, 9)                                                   \
				SITE(prefix, 10)                                                  \
				SITE(prefix, 11)                                                  \
				SITE(prefix, 12)                                                  \
				SITE(prefix, 13)                                                  \
				SITE(prefix, 14)                                                  \
				SITE(prefix, 15)                                                  \
			}                                                                         \
	}                                                                                         \
                                                                                                  \
	static __attribute__((noinline)) void prefix##_same(int runs)                             \
	{                                                                                         \
		__asm__ volatile("" ::"r"(frame));                                                \
		for (int n = 0; n < runs; n++)                                                    \
			hook();                                                                   \
	}                                                                                         \
                                                                                                  \
	static __attribute__((noinline)) int prefix##_down(int levels)                            \
	{                                                                                         \
		volatile int r = levels;                                                          \
                                                                                                  \
		__asm__ volatile("" ::"r"(frame));                                                \
		hook();                                                                           \
		if (levels > 0)                                                                   \
			r += prefix##_down(levels - 1);                                           \
		hook();                                                                           \
		return r;                                                                         \
	}                                                                                         \
                                                                                                  \
	static __attribute__((noinline)) void prefix##_recursion(int runs)                        \
	{                                                                                         \
		__asm__ volatile("" ::"r"(frame));                                                \
		for (int n = 0; n < runs; n += 20)                                                \
			prefix##_down(9);                                                         \
	}                                                                                         \
                                                                                                  \
	/* Each value of `path` (15 bits) makes a new stack. */                                   \
	static __attribute__((noinline)) int prefix##_path(uint32_t path, int n)                  \
	{                                                                                         \
		volatile int r = 0;                                                               \
                                                                                                  \
		__asm__ volatile("" ::"r"(frame));                                                \
		if (n == 0)                                                                       \
			hook();                                                                   \
		else if (path & 1)                                                                \
			r += prefix##_path(path >> 1, n - 1) + 1;                                 \
		else                                                                              \
			r += prefix##_path(path >> 1, n - 1) - 1;                                 \
		return r;                                                                         \
	}                                                                                         \
                                                                                                  \
	static __attribute__((noinline)) void prefix##_new(int runs)                              \
	{                                                                                         \
		__asm__ volatile("" ::"r"(frame));                                                \
		for (int n = 0; n < runs; n++)                                                    \
			prefix##_path((uint32_t)n, 15);                                           \
	}                                                                                         \
                                                                                                  \
	static __attribute__((noinline)) int prefix##_deep(int n, void (*program)(int), int runs) \
	{                                                                                         \
		volatile char room[40];                                                           \
                                                                                                  \
		room[0] = (char)n;                                                                \
		__asm__ volatile("" ::"r"(frame));                                                \
		if (n == 0)                                                                       \
			program(runs);                                                            \
		return n == 0 ? 0 : prefix##_deep(n - 1, program, runs) + room[0];                \
	}

PROGRAMS(without, 0)
/* __builtin_frame_address() makes the compiler use a frame pointer. */
PROGRAMS(with, (int)(uintptr_t)__builtin_frame_address(0))

struct program {
	const char *name;
	int (*deep)(int n, void (*program)(int), int runs);
	void (*program)(int);
	int n_own; /* number of the program's own frames */
};

static double measure(const struct program *program, int depth, void (*with_hook)(void), int runs)
{
	double best = 1e18;

	for (int round = 0; round < ROUNDS; round++) {
		double start;

		hook = round % 2 ? with_hook : by_nothing;
		n_hooks = 0;
		start = now_ns();
		program->deep(depth, program->program, runs);
		if (hook == with_hook)
			best = MIN_OF(best, (now_ns() - start) / (double)n_hooks);
	}
	return best;
}

static void measure_depth(const struct program *program, int depth)
{
	int n = depth - 5 - program->n_own;
	double none = measure(program, n, by_nothing, RUNS), tree, walk, libgcc;

	hook = by_self_unwind;
	program->deep(n, program->program, 1);
	tree = measure(program, n, by_call_tree, RUNS) - none;
	walk = measure(program, n, by_self_unwind, RUNS / 10) - none;
	libgcc = measure(program, n, by_libgcc, RUNS / 20) - none;
	printf("%-26s %3zu frames  %7.1f ns  self-unwind %7.1f ns  libgcc %8.1f ns\n",
	       program->name, n_frames, tree, walk, libgcc);
}

/* Measures a single round, because a stack is new only once. */
static void measure_new(const struct program *program)
{
	double start;

	hook = by_call_tree;
	program->deep(2, program->program, 1);
	n_hooks = 0;
	start = now_ns();
	program->deep(2, program->program, RUNS);
	printf("%-26s             %7.1f ns\n", program->name, (now_ns() - start) / (double)n_hooks);
	drain();
}

static bool begin(void)
{
	if (self_unwind_setup() < 0 || !pair_init(&pair, 1u << 26, 1, RING_DROP))
		return false;
	producer = mmap(NULL, sizeof(*producer), PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (producer == MAP_FAILED)
		return false;
	producer->ring = producer->current = pair.ring;
	producer->ended = &never_ended;
	producer->n_types = RING_N_TYPES;
	intern_restart(&producer->intern);
	return true;
}

int main(void)
{
	static const struct program programs[] = {
		{ "same", without_deep, without_same, 1 },
		{ "same, frame pointers", with_deep, with_same, 1 },
		{ "sites", without_deep, without_sites, 2 },
		{ "sites, frame pointers", with_deep, with_sites, 2 },
		{ "recursion", without_deep, without_recursion, 2 },
		{ "recursion, frame pointers", with_deep, with_recursion, 2 },
	};
	static const struct program news[] = {
		{ "new", without_deep, without_new, 0 },
		{ "new, frame pointers", with_deep, with_new, 0 },
	};
	static const int depths[] = { 8, 25, 60 };

	if (!begin())
		return 1;
	for (size_t i = 0; i < ARRAY_SIZE(programs); i++)
		for (size_t j = 0; j < ARRAY_SIZE(depths); j++)
			measure_depth(&programs[i], depths[j]);
	for (size_t i = 0; i < ARRAY_SIZE(news); i++)
		measure_new(&news[i]);
	return 0;
}
