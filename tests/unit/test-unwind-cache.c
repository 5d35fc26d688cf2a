/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of libcollector/unwind/unwind-cache.c: whatever a thread does between two walks, and
 * whatever is on its stack, the frames equal those of a whole walk. Needs only libc, so that it
 * also runs on other architectures.
 */
#include "libcollector/unwind/unwind-cache.h"

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
#include <time.h>

#define STACK_BYTES (1u << 18)
#define N_RANDOM (PROF_EMULATED ? 2000 : 40000 / test_stride(8))
#define N_MUTATED (PROF_EMULATED ? 2000 : 60000 / test_stride(6))
#define MAX_DEPTH 60

struct state {
	struct self_unwind own;
	struct unwind_cache *calls, *fresh;
	uint64_t pcs[SELF_UNWIND_MAX_FRAMES];
	uint64_t n_walks, n_frames, n_same, n_whole, n_recalled;
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

static struct unwind_cache *map_calls(void)
{
	void *at = mmap(NULL, sizeof(struct unwind_cache), PROT_READ | PROT_WRITE,
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

/* Compares with self_unwind_walk() called in the same function. */
static bool check_whole(const struct self_unwind_chain *chain)
{
	const struct unwind_cache *calls = state.calls;
	uint32_t n = calls->n;

	if (chain->n + chain->n_cut > UNWIND_CACHE_MAX_FRAMES)
		return CHECK_INT(n, UNWIND_CACHE_MAX_FRAMES) &&
		       CHECK(calls->frames[0].flags & UNWIND_CACHE_CUT);
	if (chain->n_cut != 0)
		return CHECK_INT(n + 1, chain->n + chain->n_cut);
	if (chain->flags & SELF_UNWIND_FOREIGN)
		n = (uint32_t)MIN_OF((size_t)n, chain->n - 1);
	else if (!CHECK_INT(n, chain->n - 1))
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (!CHECK_INT(calls->frames[calls->n - 1 - i].pc, state.pcs[i + 1]))
			return false;
	return CHECK_INT(!(calls->frames[0].flags & UNWIND_CACHE_CUT), chain->stop == WALK_ROOT);
}

/* Compares with a walk that does not use the previous one. */
static bool check_fresh(void)
{
	const struct unwind_cache *calls = state.calls, *fresh = state.fresh;

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

static uint32_t node_of(const struct unwind_cache_frame *frame)
{
	return (uint32_t)(frame->hash >> 13) | 1;
}

/* Checks that each frame has the node that was assigned to it. If a node was recalled before the
 * walk, it must be the right one, too. */
static bool check_nodes(uint32_t recalled)
{
	struct unwind_cache *calls = state.calls;
	bool is_good = true;

	if (recalled != 0 && CHECK(calls->n > 0)) {
		state.n_recalled++;
		is_good &= CHECK_INT(recalled, node_of(&calls->frames[calls->n - 1]));
	}
	for (uint32_t i = 0; i < calls->n; i++) {
		uint32_t expected = node_of(&calls->frames[i]);

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
	uint32_t recalled = unwind_cache_recall(state.calls, caller->pc, caller->sp, caller->fp);

	unwind_cache_walk(state.calls, caller);
	/* The fresh cache keeps the rules of its previous walks, but is cleared before every eighth
	 * walk. */
	state.fresh->n = 0;
	if (state.n_walks % 8 == 0)
		unwind_cache_clear(state.fresh);
	unwind_cache_walk(state.fresh, caller);
	state.n_walks++;
	state.n_frames += state.calls->n;
	state.n_same += state.calls->n_same;
	state.n_whole += !(state.calls->frames[0].flags & UNWIND_CACHE_CUT);
	if (!check_fresh() || !check_nodes(recalled))
		return false;
	if (state.calls->n > 0)
		unwind_cache_remember(state.calls,
				      node_of(&state.calls->frames[state.calls->n - 1]));
	return true;
}

/* AddressSanitizer would keep locals outside of the stack, and drop the locals of running functions
 * when a jump leaves a handler on another stack. */
#define FRAME __attribute__((noinline, no_sanitize("address")))

/* Not inlined, so that both walks have the same caller. */
FRAME static int see(void)
{
	struct walk_registers caller, here;
	struct self_unwind_chain chain;

	unwind_cache_get_caller(&caller);
	errno = 12345;
	compare(&caller);
	CHECK_INT(errno, 12345);
	self_unwind_get_registers(&here);
	self_unwind_walk(&state.own, &here, state.pcs, ARRAY_SIZE(state.pcs), &chain);
	check_whole(&chain);
	return 0;
}

/* ---- Random calls ---- */

static int descend(int depth);

FRAME static int plain(int depth)
{
	volatile char room[24];

	room[0] = (char)depth;
	return descend(depth) + room[0];
}

FRAME static int wide(int depth)
{
	volatile char room[3000];

	room[depth] = (char)depth;
	return descend(depth) + room[depth];
}

FRAME static int with_alloca(int depth)
{
	volatile char *room = alloca(16 + get_random() % 400);

	room[0] = (char)depth;
	return descend(depth) + room[0];
}

FRAME static int by_tail_call(int depth)
{
	return descend(depth);
}

/* __builtin_frame_address() makes the compiler use a frame pointer. */
FRAME static int by_fp(int depth)
{
	void *volatile room[5];

	room[0] = __builtin_frame_address(0);
	return descend(depth) + (room[0] != NULL);
}

/* Puts new values into every callee-saved register. */
FRAME static int in_registers(int depth)
{
	uint64_t a = get_random(), b = get_random(), c = get_random(), d = get_random(),
		 e = get_random(), f = get_random();
	int r = 0;

	for (uint64_t i = 0; i < 1 + get_random() % 3; i++) {
		__asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
		r += descend(depth);
	}
	return r + (int)((a ^ b ^ c ^ d ^ e ^ f) & 1);
}

FRAME static int many_sites(int depth)
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

FRAME static int with_target(int depth)
{
	jmp_buf here, *volatile before = target;

	if (setjmp(here) == 0) {
		target = &here;
		descend(depth);
	}
	target = before;
	return see();
}

FRAME static int leave(int depth)
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

/* Calls through code of libc. */
FRAME static int by_qsort(int depth)
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

FRAME static int by_signal(int depth)
{
	if (get_random() % 8 == 0)
		raise(get_random() % 2 ? SIGUSR1 : SIGUSR2);
	return descend(depth) + see();
}

/* Code with and without a frame pointer; the last bytes are padding. */
#if defined(__x86_64__)
#define N_GENERATED 2
static const uint8_t generated[N_GENERATED][16] = {
	{ 0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3 },
	{ 0x48, 0x83, 0xec, 0x08, 0xff, 0xd7, 0x48, 0x83, 0xc4, 0x08, 0xc3 },
};
#elif defined(__aarch64__)
#define N_GENERATED 1
static const uint32_t generated[N_GENERATED][8] = {
	{ 0xa9bf7bfd, 0x910003fd, 0xd63f0000, 0xa8c17bfd, 0xd65f03c0 },
};
#else
#define N_GENERATED 0
#endif

#if N_GENERATED
static char *generated_code;
static _Thread_local int depth_of_generated;

static bool generate(void)
{
	const size_t size = (size_t)sysconf(_SC_PAGESIZE);
	char *code = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (!CHECK(code != MAP_FAILED))
		return false;
	memcpy(code, generated, sizeof(generated));
	__builtin___clear_cache(code, code + sizeof(generated));
	generated_code = code;
	return CHECK(mprotect(code, size, PROT_READ | PROT_EXEC) == 0);
}

static int from_generated(void)
{
	return descend(depth_of_generated) + see();
}

FRAME static int by_generated(int depth)
{
	char *code = generated_code + get_random() % N_GENERATED * sizeof(generated[0]);

	if (get_random() % 4 != 0)
		return descend(depth) + 1; /* walks through generated code are slow */
	depth_of_generated = depth;
	((void (*)(int (*)(void)))(uintptr_t)code)(from_generated);
	return see();
}
#else
#define by_generated plain

static bool generate(void)
{
	return true;
}
#endif

static int (*const kinds[])(int) = { plain,        wide,       with_alloca,  by_tail_call,
				     by_fp,        by_fp,      in_registers, in_registers,
				     many_sites,   many_sites, with_target,  leave,
				     by_generated, by_qsort,   by_signal };

static _Thread_local int64_t n_left;

FRAME static int descend(int depth)
{
	if (n_left <= 0)
		return 0;
	if (depth <= 0 || get_random() % 16 == 0) {
		n_left--;
		return see();
	}
	return kinds[get_random() % ARRAY_SIZE(kinds)](depth - 1) + 1;
}

FRAME static void *run_random(void *data)
{
	stack_t stack = { .ss_sp = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
					MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
			  .ss_size = STACK_BYTES },
		before;
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_NODEFER };
	int failures = atomic_load(&test_failures);

	if (!make_ready() || !CHECK(stack.ss_sp != MAP_FAILED && sigaltstack(&stack, &before) == 0))
		return NULL;
	random_state ^= (uintptr_t)data * 7919 ^ test_start(SIZE_MAX);
	sigaction(SIGUSR1, &action, NULL);
	action.sa_flags |= SA_ONSTACK;
	action.sa_flags &= ~SA_NODEFER;
	sigaction(SIGUSR2, &action, NULL);
	for (n_left = (int64_t)N_RANDOM; n_left > 0 && atomic_load(&test_failures) == failures;) {
		target = NULL;
		descend(1 + (int)(get_random() % MAX_DEPTH));
	}
	sigaltstack(&before, NULL);
	munmap(stack.ss_sp, STACK_BYTES);
	if (!data)
		printf("# %lu walks, %.1f frames, %.1f of the last time, %.3f whole, %.3f recalled\n",
		       (unsigned long)state.n_walks, (double)state.n_frames / (double)state.n_walks,
		       (double)state.n_same / (double)state.n_walks,
		       (double)state.n_whole / (double)state.n_walks,
		       (double)state.n_recalled / (double)state.n_walks);
	return NULL;
}

static void test_random(void)
{
	run_random(NULL);
	CHECK(state.n_same * 2 > state.n_frames);
	CHECK(state.n_recalled * 100 > state.n_walks);
}

static void test_threads(void)
{
	pthread_t ids[4];

	for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
		REQUIRE(pthread_create(&ids[i], NULL, run_random, (void *)(i + 1)) == 0);
	for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
		pthread_join(ids[i], NULL);
}

/* ---- Words that change ---- */

static uint64_t known_pcs[256];
static bool may_mutate;

static uint64_t bad_word(uint64_t before)
{
	const uint64_t here = (uint64_t)(uintptr_t)__builtin_frame_address(0);
	const uint64_t some[] = { 0,
				  before + 8,
				  before - 8,
				  before + 16 * (get_random() % 64),
				  before ^ UINT64_C(1) << get_random() % 64,
				  get_random(),
				  here + get_random() % 4096 / 8 * 8,
				  here + get_random() % 4096 / 8 * 8,
				  known_pcs[get_random() % ARRAY_SIZE(known_pcs)],
				  known_pcs[get_random() % ARRAY_SIZE(known_pcs)],
				  known_pcs[get_random() % ARRAY_SIZE(known_pcs)],
				  (uint64_t)(uintptr_t)&memcpy + get_random() % 4096,
				  UINT64_MAX - get_random() % 16 };

	return some[get_random() % ARRAY_SIZE(some)];
}

/* Changes some of the words by which see() found its callers, and walks. Then restores the words,
 * and walks again. */
FRAME static int mutate(void)
{
	struct self_unwind_word before[4];
	uint32_t n, n_checks = state.calls->frames[state.calls->n - 1].end;

	see();
	n_checks = state.calls->frames[state.calls->n - 1].end;
	n = 1 + (uint32_t)(get_random() % ARRAY_SIZE(before));
	for (uint32_t i = 0; i < n; i++) {
		/* Prefer inner words. One may be this function's own return address, which is
		 * restored before the return. Words of see() are not guards. */
		uint64_t most = get_random() % 2 ? n_checks : MIN_OF(n_checks, 24u);

		before[i] = state.calls->guards[n_checks - 1 - get_random() % most];
	}
	for (uint32_t i = 0; i < n; i++)
		*(volatile uint64_t *)(uintptr_t)before[i].at = bad_word(before[i].value);
	see();
	if (get_random() % 2)
		see();
	for (uint32_t i = n; i-- > 0;)
		*(volatile uint64_t *)(uintptr_t)before[i].at = before[i].value;
	return see();
}

FRAME static int descend_to_mutate(int depth)
{
	volatile char room[24];
	int r = 0;

	room[0] = (char)depth;
	if (depth <= 0)
		for (int i = 0; i < 20; i++)
			r += may_mutate ? mutate() : see();
	else if (get_random() % 2)
		r = descend_to_mutate(depth - 1) + room[0];
	else
		r = descend_to_mutate(depth - 2) + 1;
	return r;
}

FRAME static int descend_by_fp(int depth)
{
	void *volatile room[3];
	int r;

	room[0] = __builtin_frame_address(0);
	if (depth <= 0)
		r = descend_to_mutate(10) + (room[0] != NULL);
	else if (get_random() % 2)
		r = descend_by_fp(depth - 1) + (room[0] != NULL);
	else
		r = descend_to_mutate(depth / 2) + 1;
	return r;
}

static void test_mutated(void)
{
	int failures = atomic_load(&test_failures);

	REQUIRE(make_ready());
	may_mutate = true;
	state.n_walks = state.n_whole = 0;
	for (int i = 0; i < (int)N_MUTATED && atomic_load(&test_failures) == failures; i += 60)
		descend_by_fp((int)(get_random() % 20));
	printf("# %lu walks, %.3f whole\n", (unsigned long)state.n_walks,
	       (double)state.n_whole / (double)state.n_walks);
}

/* Collects addresses of calls in this program. */
static void test_places(void)
{
	REQUIRE(make_ready());
	for (size_t i = 0; i < ARRAY_SIZE(known_pcs); i++) {
		if (i % 32 == 0)
			descend_by_fp((int)(get_random() % 20));
		known_pcs[i] = state.calls->frames[i % state.calls->n].pc;
	}
}

/* A word that ends with a call instruction if it is read as code. */
#if defined(__x86_64__)
#define CALL_WORD (UINT64_C(0xd0ff) << 48) /* call *%rax */
#elif defined(__aarch64__)
#define CALL_WORD (UINT64_C(0xd63f0000) << 32) /* blr x0 */
#else
#define CALL_WORD UINT64_C(0)
#endif

/* Returns a value for a stack word: often a return address, with or without a call before it. */
static uint64_t made_up_word(uint64_t here)
{
	switch (get_random() % 16) {
	case 0:
	case 1:
		return CALL_WORD;
	case 2:
	case 3:
	case 4:
	case 5:
		return here + get_random() % 64 * 8;
	default:
		return known_pcs[get_random() % ARRAY_SIZE(known_pcs)];
	}
}

/* Walks generated stacks, in which a few words change between walks. */
static void test_made_up(void)
{
	uint64_t words[64], here = (uint64_t)(uintptr_t)words;
	struct walk_registers caller = { 0 };
	int failures = atomic_load(&test_failures);

	REQUIRE(make_ready());
	for (int i = 0; i < (int)N_MUTATED && atomic_load(&test_failures) == failures; i++) {
		uint32_t n = i % 64 ? (uint32_t)(get_random() % 4) : ARRAY_SIZE(words);

		for (uint32_t j = 0; j < n; j++)
			words[n == ARRAY_SIZE(words) ? j : get_random() % 16] = made_up_word(here);
		if (i % 16 == 0) {
			caller.pc = known_pcs[get_random() % ARRAY_SIZE(known_pcs)];
			caller.sp = here + get_random() % 4 * 8;
		}
		if (get_random() % 2)
			caller.fp = here + get_random() % 16 * 8;
		compare(&caller);
	}
	see();
}

/* ---- Other stacks ---- */

static ucontext_t main_context, fiber_contexts[2];
static int at_fiber;

static void switch_fibers(void)
{
	int from = at_fiber;

	at_fiber = (int)(get_random() % 3);
	if (at_fiber != from)
		swapcontext(from == 2 ? &main_context : &fiber_contexts[from],
			    at_fiber == 2 ? &main_context : &fiber_contexts[at_fiber]);
}

FRAME static int on_fiber(int depth)
{
	volatile char room[24];

	room[0] = (char)depth;
	see();
	switch_fibers();
	see();
	if (depth > 0)
		room[1] = (char)on_fiber(depth - 1);
	see();
	switch_fibers();
	return room[0];
}

static void fiber(void)
{
	for (;;)
		on_fiber((int)(get_random() % 20));
}

static void test_fiber(void)
{
	void *stacks[2];

	REQUIRE(make_ready());
	for (size_t i = 0; i < 2; i++) {
		stacks[i] = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		REQUIRE(stacks[i] != MAP_FAILED && getcontext(&fiber_contexts[i]) == 0);
		fiber_contexts[i].uc_stack.ss_sp = stacks[i];
		fiber_contexts[i].uc_stack.ss_size = STACK_BYTES;
		makecontext(&fiber_contexts[i], fiber, 0);
	}
	at_fiber = 2;
	for (int i = 0; i < 300; i++)
		on_fiber((int)(get_random() % 20));
	while (at_fiber != 2)
		switch_fibers();
	for (size_t i = 0; i < 2; i++)
		munmap(stacks[i], STACK_BYTES);
	see();
}

/* ---- Deep ---- */

FRAME static int recurse(int n)
{
	volatile char room[8];

	room[0] = (char)n;
	if (n % 512 == 0)
		see();
	if (n > 0)
		room[1] = (char)recurse(n - 1);
	if (n % 512 == 0)
		see();
	return room[0];
}

static void test_deep(void)
{
	REQUIRE(make_ready());
	recurse(3072);
	recurse(9216);
	CHECK(state.calls->n < 100 && state.calls->n_same > 0);
}

/* ---- Modules that go ---- */

static uint64_t call_module(const char *path)
{
	void *module = dlopen(path, RTLD_NOW);
	int (*call)(int (*)(void)) = NULL;
	uint64_t from;

	if (module)
		call = (int (*)(int (*)(void)))dlsym(module, "own_module_call");
	if (!CHECK(call))
		return 0;
	for (int i = 0; i < 3; i++)
		call(see);
	from = (uint64_t)(uintptr_t)call;
	dlclose(module);
	self_unwind_invalidate();
	return from;
}

static void test_modules(void)
{
	unsigned int n_same = 0;

	REQUIRE(make_ready());
	for (int i = 0; i < 200; i++)
		n_same += call_module(OWN_MODULE_A) == call_module(OWN_MODULE_B);
	if (!PROF_EMULATED)
		CHECK(n_same > 10);
}

/* Must be called with the same stack each time. */
static __attribute__((noinline)) uint32_t recall(bool walks)
{
	struct walk_registers caller;

	unwind_cache_get_caller(&caller);
	if (walks)
		compare(&caller);
	return unwind_cache_recall(state.calls, caller.pc, caller.sp, caller.fp);
}

static __attribute__((noinline)) void change_knowledge(int turn, bool with_modules)
{
	state.calls->is_open = turn == 4;
	state.calls->is_busy = turn == 5;
	if (turn == 6 && with_modules)
		self_unwind_invalidate();
	else if (turn == 6)
		unwind_cache_invalidate_nodes(state.calls);
}

static __attribute__((noinline)) void recall_by_turns(bool with_modules)
{
	volatile int next = 0; /* so that the loop is kept and has one call site */

	unwind_cache_clear(state.calls);
	while (next < 7) {
		int turn = next++;

		change_knowledge(turn, with_modules);
		CHECK_INT(recall(turn < 3) != 0, turn > 0 && turn < 4);
	}
}

/* No node is recalled before the first walk, after modules were unloaded, or if nodes are invalid;
 * nor if the walk's result may have changed although no word did. */
static void test_recalled(void)
{
	REQUIRE(make_ready());
	recall_by_turns(true);
	recall_by_turns(false);
	unwind_cache_clear(state.calls);
}

/* When a generation number is reused, no rule from its previous use exists. */
static void test_generations(void)
{
	struct unwind_cache *calls;
	uint32_t n_rules = 0;

	REQUIRE(make_ready());
	see();
	calls = state.calls;
	for (size_t i = 0; i < WALK_CACHE_SLOTS; i++)
		n_rules += calls->rules.slots[i].generation == calls->rule_generation;
	CHECK(n_rules > 0);
	calls->rule_generation = UINT32_MAX;
	unwind_cache_clear(calls);
	for (size_t i = 0; i < WALK_CACHE_SLOTS; i++)
		CHECK(calls->rules.slots[i].generation != calls->rule_generation);
}

/* ---- Handlers that leave ---- */

static sigjmp_buf out_of_storm;
static volatile sig_atomic_t may_leave;

static void leave_handler(int number)
{
	if (may_leave) {
		may_leave = 0;
		siglongjmp(out_of_storm, 1);
	}
}

/* After a handler left a walk by siglongjmp(), the cache is cleared, and the next walks are
 * right. */
static void test_left(void)
{
	struct sigaction action = { .sa_handler = leave_handler }, before;
	const struct itimerspec often = { { 0, 50000 }, { 0, 50000 } };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF };
	volatile unsigned int n_times = 0;
	struct walk_registers caller;
	timer_t timer;

	REQUIRE(make_ready());
	CHECK(sigaction(SIGPROF, &action, &before) == 0);
	CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 &&
	      timer_settime(timer, 0, &often, NULL) == 0);
	unwind_cache_get_caller(&caller);
	while (n_times < 500 / test_stride(4)) {
		if (sigsetjmp(out_of_storm, 1) != 0)
			n_times++;
		may_leave = 1;
		for (int i = 0; i < 1000 && may_leave; i++) {
			unwind_cache_walk(state.calls, &caller);
			state.calls->n -= (uint32_t)(i % 2);
		}
		may_leave = 0;
		unwind_cache_clear(state.calls);
		see();
		see();
	}
	timer_delete(timer);
	sigaction(SIGPROF, &before, NULL);
}

int main(void)
{
	if (self_unwind_setup() < 0 || !generate())
		return 1;
	RUN(test_random);
	RUN(test_threads);
	RUN(test_places);
	RUN(test_made_up);
	RUN(test_deep);
	RUN(test_modules);
	RUN(test_recalled);
	/* self_unwind_walk() reads words that AddressSanitizer has poisoned; also, ASan does not
	 * know fibers and abandoned frames. */
	if (PROF_SANITIZED)
		return test_end();
	RUN(test_mutated);
	RUN(test_fiber);
	RUN(test_generations);
	RUN(test_left);
	return test_end();
}
