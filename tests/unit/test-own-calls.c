/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of libcollector/own-calls: whatever a thread does between two walks, and whatever stands on its stack, the frames
 * are those of a whole walk. Needs libc only, so that it runs on other architectures too.
 */
#include "libcollector/own-calls.h"

#include "config.h"
#include "tests/unit/context.h"
#include "tests/unit/test.h"

#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define STACK_BYTES (1u << 18)
#define N_RANDOM (PROF_EMULATED ? 2000 : 40000)
#define N_MUTATED (PROF_EMULATED ? 2000 : 60000)
#define MAX_DEPTH 60

struct state {
	struct own_stack own;
	struct own_calls *calls, *fresh;
	uint64_t pcs[OWN_STACK_MAX_FRAMES];
	uint64_t n_walks, n_frames, n_same, n_whole;
};

static _Thread_local struct state state;
static _Thread_local uint64_t random_state = 88172645463325252;

static uint64_t get_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static struct own_calls *map_calls(void)
{
	void *at = mmap(NULL, sizeof(struct own_calls), PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

static bool make_ready(void)
{
	if (!state.calls)
		state.calls = map_calls();
	if (!state.fresh)
		state.fresh = map_calls();
	return CHECK(state.calls && state.fresh);
}

/* ---- Comparing ---- */

/* With what own_stack_walk() finds, from the same function. */
static bool check_whole(const struct own_stack_chain *chain)
{
	const struct own_calls *calls = state.calls;
	uint32_t n = calls->n;

	if (chain->n_cut != 0)
		return CHECK_INT(n + 1, chain->n + chain->n_cut);
	if (chain->flags & OWN_STACK_FOREIGN)
		n = (uint32_t)MIN_OF((size_t)n, chain->n - 1);
	else if (!CHECK_INT(n, chain->n - 1))
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (!CHECK_INT(calls->frames[calls->n - 1 - i].pc, state.pcs[i + 1]))
			return false;
	return CHECK_INT(!(calls->frames[0].flags & OWN_CALLS_CUT), chain->stop == WALK_ROOT);
}

/* With what is found where nothing is known of the last time. */
static bool check_fresh(void)
{
	const struct own_calls *calls = state.calls, *fresh = state.fresh;

	if (!CHECK_INT(calls->n, fresh->n))
		return false;
	for (uint32_t i = 0; i < fresh->n; i++)
		if (!CHECK_INT(calls->frames[i].pc, fresh->frames[i].pc) ||
		    !CHECK_INT(calls->frames[i].sp, fresh->frames[i].sp) ||
		    !CHECK_INT(calls->frames[i].flags, fresh->frames[i].flags) ||
		    !CHECK_INT(calls->frames[i].hash, fresh->frames[i].hash))
			return false;
	return true;
}

/* Nodes are those that these frames were given. */
static bool check_nodes(void)
{
	struct own_calls *calls = state.calls;
	bool is_good = true;

	for (uint32_t i = 0; i < calls->n; i++) {
		uint32_t expected = (uint32_t)(calls->frames[i].hash >> 13) | 1;

		if (i < calls->n_same)
			is_good &= CHECK_INT(calls->frames[i].node, expected);
		else
			is_good &= CHECK_INT(calls->frames[i].node, 0);
		calls->frames[i].node = expected;
	}
	return is_good;
}

static bool compare(const struct walk_registers *caller)
{
	own_calls_walk(state.calls, caller);
	state.fresh->n = 0;
	own_calls_walk(state.fresh, caller);
	state.n_walks++;
	state.n_frames += state.calls->n;
	state.n_same += state.calls->n_same;
	state.n_whole += !(state.calls->frames[0].flags & OWN_CALLS_CUT);
	return check_fresh() && check_nodes();
}

static __attribute__((noinline)) int see(void)
{
	struct walk_registers caller, here;
	struct own_stack_chain chain;

	own_calls_get_caller(&caller);
	compare(&caller);
	own_stack_get_registers(&here);
	own_stack_walk(&state.own, &here, state.pcs, ARRAY_SIZE(state.pcs), &chain);
	check_whole(&chain);
	return 0;
}

/* ---- Random calls ---- */

static int descend(int depth);

static __attribute__((noinline)) int plain(int depth)
{
	volatile char room[24];

	room[0] = (char)depth;
	return descend(depth) + room[0];
}

static __attribute__((noinline)) int wide(int depth)
{
	volatile char room[3000];

	room[depth] = (char)depth;
	return descend(depth) + room[depth];
}

static __attribute__((noinline)) int with_alloca(int depth)
{
	volatile char *room = alloca(16 + get_random() % 400);

	room[0] = (char)depth;
	return descend(depth) + room[0];
}

static __attribute__((noinline)) int by_tail_call(int depth)
{
	return descend(depth);
}

static __attribute__((noinline, optimize("no-omit-frame-pointer"))) int by_fp(int depth)
{
	volatile char room[40];

	room[0] = (char)depth;
	return descend(depth) + room[0];
}

/* Values of its own in every register that a call keeps. */
static __attribute__((noinline)) int in_registers(int depth)
{
	uint64_t a = get_random(), b = get_random(), c = get_random(), d = get_random(),
		 e = get_random(), f = get_random();
	int r = 0;

	for (uint64_t i = 0; i < 1 + get_random() % 3; i++) {
		__asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
		r += descend(depth);
	}
	return r + (int)(a ^ b ^ c ^ d ^ e ^ f);
}

static __attribute__((noinline)) int many_sites(int depth)
{
	int r = 0;

	switch (get_random() % 4) {
	case 0:
		r += descend(depth) + 1;
		break;
	case 1:
		r += descend(depth) + 2;
		break;
	case 2:
		r += descend(depth) + descend(depth) + 3;
		break;
	default:
		r += see() + descend(depth) + 4;
	}
	return r + see();
}

static _Thread_local jmp_buf *target;

static __attribute__((noinline)) int with_target(int depth)
{
	jmp_buf here, *volatile before = target;

	if (setjmp(here) == 0) {
		target = &here;
		descend(depth);
	}
	target = before;
	return see();
}

static __attribute__((noinline)) int leave(int depth)
{
	if (target && get_random() % 4 == 0)
		longjmp(*target, 1);
	return descend(depth) + 1;
}

static int compare_numbers(const void *a, const void *b)
{
	see();
	return *(const int *)a - *(const int *)b;
}

/* Through code of libc. */
static __attribute__((noinline)) int by_qsort(int depth)
{
	int numbers[] = { 3, 1, 2 };

	qsort(numbers, 3, sizeof(int), compare_numbers);
	return descend(depth) + numbers[0];
}

static void handler(int number)
{
	see();
	if (get_random() % 4 == 0)
		descend(5);
	see();
}

static __attribute__((noinline)) int by_signal(int depth)
{
	if (get_random() % 8 == 0)
		raise(get_random() % 2 ? SIGUSR1 : SIGUSR2);
	return descend(depth) + see();
}

static int (*const kinds[])(int) = { plain,      wide,       with_alloca,  by_tail_call,
				     by_fp,      by_fp,      in_registers, in_registers,
				     many_sites, many_sites, with_target,  leave,
				     by_qsort,   by_signal };

static _Thread_local int64_t n_left;

static __attribute__((noinline)) int descend(int depth)
{
	if (n_left <= 0)
		return 0;
	if (depth <= 0 || get_random() % 16 == 0) {
		n_left--;
		return see();
	}
	return kinds[get_random() % ARRAY_SIZE(kinds)](depth - 1) + 1;
}

static void *run_random(void *data)
{
	stack_t stack = { .ss_sp = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
					MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
			  .ss_size = STACK_BYTES },
		before;
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_NODEFER };
	int failures = atomic_load(&test_failures);

	if (!make_ready() || !CHECK(stack.ss_sp != MAP_FAILED && sigaltstack(&stack, &before) == 0))
		return NULL;
	if (data)
		random_state ^= (uintptr_t)data * 7919;
	sigaction(SIGUSR1, &action, NULL);
	action.sa_flags |= SA_ONSTACK;
	action.sa_flags &= ~SA_NODEFER;
	sigaction(SIGUSR2, &action, NULL);
	for (n_left = N_RANDOM; n_left > 0 && atomic_load(&test_failures) == failures;) {
		target = NULL;
		descend(1 + (int)(get_random() % MAX_DEPTH));
	}
	sigaltstack(&before, NULL);
	munmap(stack.ss_sp, STACK_BYTES);
	if (!data)
		printf("# %lu walks, %.1f frames, %.1f of the last time, %.3f whole\n",
		       (unsigned long)state.n_walks, (double)state.n_frames / (double)state.n_walks,
		       (double)state.n_same / (double)state.n_walks,
		       (double)state.n_whole / (double)state.n_walks);
	return NULL;
}

static void test_random(void)
{
	run_random(NULL);
	CHECK(state.n_same * 2 > state.n_frames);
}

static void test_threads(void)
{
	pthread_t ids[4];

	for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
		REQUIRE(pthread_create(&ids[i], NULL, run_random, (void *)(i + 1)) == 0);
	for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
		pthread_join(ids[i], NULL);
}

int main(void)
{
	if (own_stack_setup() < 0)
		return 1;
	RUN(test_random);
	RUN(test_threads);
	return test_end();
}
