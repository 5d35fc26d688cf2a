/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of libcollector/unwind/self-unwind.c wherever a hook may run: chains equal those of
 * libgcc's unwinder, and a walk does not fault, wait, or use memory of other threads. Needs only
 * libc, so that it also runs on other architectures.
 */
#include "libcollector/unwind/self-unwind.h"

#include "config.h"
#include "libcollector/unwind/safe-read.h"
#include "tests/unit/context.h"
#include "tests/unit/test.h"

#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unwind.h>

#define MAX_FRAMES 4000
#define STACK_BYTES (1u << 18)
#define N_CORRUPT (PROF_EMULATED ? 2000 : 20000)
#define STORM_SECONDS 1

/* On ppc64le, qemu's signal frames have a different form, and no vdso describes it. */
#if defined(__powerpc64__) && PROF_EMULATED
#define HAS_SIGNAL_FRAMES false
#else
#define HAS_SIGNAL_FRAMES true
#endif

/* An emulator's signal trampoline is outside of all modules. */
#define IGNORED_FLAGS (SELF_UNWIND_FP | (PROF_EMULATED ? SELF_UNWIND_JIT : 0))

#if PROF_EMULATED
#define NOT_EMULATED(why) SKIP(why)
#else
#define NOT_EMULATED(why)
#endif

struct expected {
	uint64_t pcs[MAX_FRAMES];
	size_t n;
};

/* A chain, and libgcc's chain from the same function. */
struct seen {
	struct self_unwind_chain chain;
	uint64_t pcs[SELF_UNWIND_MAX_FRAMES];
	struct expected expected;
};

static _Thread_local struct self_unwind own;
static _Thread_local struct seen seen;
static void *sink;

static _Unwind_Reason_Code add_expected(struct _Unwind_Context *context, void *data)
{
	struct expected *expected = data;
	uint64_t pc = _Unwind_GetIP(context);

	if (pc == 0 || expected->n == MAX_FRAMES)
		return _URC_END_OF_STACK;
	expected->pcs[expected->n++] = pc;
	return _URC_NO_REASON;
}

static __attribute__((noinline)) int see(void)
{
	struct walk_registers registers;

	seen.expected.n = 0;
	_Unwind_Backtrace(add_expected, &seen.expected);
	self_unwind_get_registers(&registers);
	self_unwind_walk(&own, &registers, seen.pcs, ARRAY_SIZE(seen.pcs), &seen.chain);
	return 0;
}

/* Compares all but the innermost frame, which differs between the two calls. */
static bool check_pcs(const uint64_t *pcs, const uint64_t *expected, size_t n)
{
	for (size_t i = 1; i < n; i++)
		if (!CHECK_INT(pcs[i], expected[i]))
			return false;
	return true;
}

/* libgcc stops at code without CFI, such as start_thread() on riscv64; our walk continues with the
 * frame pointer. */
static bool check_seen(uint32_t flags)
{
	const struct self_unwind_chain *chain = &seen.chain;

	return CHECK(chain->n == seen.expected.n || chain->n == seen.expected.n + 1) &&
	       CHECK_INT(chain->stop, WALK_ROOT) &&
	       CHECK_INT(chain->flags & ~(uint32_t)IGNORED_FLAGS, flags) &&
	       CHECK_INT(chain->cut_at, chain->n) &&
	       check_pcs(seen.pcs, seen.expected.pcs, seen.expected.n);
}

static __attribute__((noinline)) int check_here(void)
{
	see();
	check_seen(0);
	return 0;
}

/* ---- Calls ---- */

static void test_plain(void)
{
	check_here();
	check_here();
	CHECK(own.low < (uint64_t)(uintptr_t)__builtin_frame_address(0) &&
	      own.high > (uint64_t)(uintptr_t)__builtin_frame_address(0));
}

static __attribute__((noinline)) int recurse(int n, int (*function)(void))
{
	volatile char room[32];

	room[0] = (char)n;
	return n == 0 ? function() : recurse(n - 1, function) + room[0];
}

static void test_deep(void)
{
	CHECK(recurse(800, check_here) != 1);
}

/* A deep stack is cut: the innermost and the outermost frames remain. */
static void test_cut(void)
{
	const struct self_unwind_chain *chain = &seen.chain;

	CHECK(recurse(3000, see) != 1);
	REQUIRE(chain->n == SELF_UNWIND_MAX_FRAMES && chain->n + chain->n_cut >= seen.expected.n);
	CHECK_INT(chain->stop, WALK_ROOT);
	CHECK(chain->cut_at > 0 && chain->cut_at < chain->n);
	check_pcs(seen.pcs, seen.expected.pcs, chain->cut_at);
	CHECK_INT(seen.pcs[chain->cut_at], seen.expected.pcs[chain->cut_at + chain->n_cut]);
}

static void test_room(void)
{
	struct walk_registers registers;
	struct self_unwind_chain chain;
	uint64_t pcs[4] = { 0, 0, 0, 77 };

	self_unwind_get_registers(&registers);
	for (size_t n = 1; n <= 3; n++) {
		self_unwind_walk(&own, &registers, pcs, n, &chain);
		CHECK_INT(chain.n, n);
		CHECK_INT(pcs[0], registers.pc);
		CHECK_INT(chain.stop, WALK_DEPTH);
	}
	CHECK_INT(pcs[3], 77);
}

static volatile bool has_one;

/* Does not also walk with libgcc, for which there is no room on the stack. */
static __attribute__((noinline)) void walk_tightly(void)
{
	struct walk_registers registers;

	self_unwind_get_registers(&registers);
	self_unwind_walk(&own, &registers, seen.pcs, ARRAY_SIZE(seen.pcs), &seen.chain);
	has_one = seen.chain.n == 1 && seen.chain.flags == SELF_UNWIND_BUSY;
}

static __attribute__((noinline)) void with_alloca(size_t size)
{
	sink = alloca(size);
	memset(sink, 1, size);
	check_here();
	sink = NULL;
}

static void test_alloca(void)
{
	with_alloca(10);
	with_alloca(100000);
	with_alloca(2000000);
}

static void *check_in_thread(void *data)
{
	for (int i = 0; i < 20; i++)
		recurse(i * 20, check_here);
	return NULL;
}

/* Walks on stacks without a guard page: one that libc allocated, and one that the program
 * allocated. */
static void test_given_stack(void)
{
	void *stack = mmap(NULL, 1u << 20, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	pthread_attr_t attributes;
	pthread_t id;

	REQUIRE(stack != MAP_FAILED && pthread_attr_init(&attributes) == 0);
	for (int i = 0; i < 2; i++) {
		if (i == 0)
			CHECK(pthread_attr_setguardsize(&attributes, 0) == 0);
		else
			CHECK(pthread_attr_setstack(&attributes, stack, 1u << 20) == 0);
		REQUIRE(pthread_create(&id, &attributes, check_in_thread, NULL) == 0);
		pthread_join(id, NULL);
	}
	pthread_attr_destroy(&attributes);
	munmap(stack, 1u << 20);
}

static struct expected before_generated;

static __attribute__((noinline)) void call_generated(void (*code)(int (*)(void)))
{
	before_generated.n = 0;
	_Unwind_Backtrace(add_expected, &before_generated);
	code(see);
	CHECK(seen.chain.flags & SELF_UNWIND_FP);
}

/* Creates a frame, calls its argument, and returns. The call ends at RETURN_AT. */
#if defined(__x86_64__)
#define RETURN_AT 6
static const uint8_t generated[] = { 0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3 };
#elif defined(__aarch64__)
#define RETURN_AT 12
static const uint32_t generated[] = { 0xa9bf7bfd, 0x910003fd, 0xd63f0000, 0xa8c17bfd, 0xd65f03c0 };
#else
#define RETURN_AT 0
static const uint8_t generated[] = { 0 };
#endif

/* The walk passes through code that has a frame pointer but no CFI, and reaches the caller. libgcc
 * stops at such code. */
static void test_generated(void)
{
	const size_t size = (size_t)sysconf(_SC_PAGESIZE);
	char *code = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (RETURN_AT == 0)
		SKIP("nobody has written the code for this architecture");
	REQUIRE(code != MAP_FAILED);
	memcpy(code, generated, sizeof(generated));
	__builtin___clear_cache(code, code + sizeof(generated));
	REQUIRE(mprotect(code, size, PROT_READ | PROT_EXEC) == 0);
	for (int i = 0; i < 2; i++) {
		call_generated((void (*)(int (*)(void)))(uintptr_t)code);
		REQUIRE(seen.chain.n == before_generated.n + 2);
		CHECK_INT(seen.chain.stop, WALK_ROOT);
		CHECK_INT(seen.chain.flags, SELF_UNWIND_FP | SELF_UNWIND_JIT);
		CHECK_INT(seen.pcs[1], (uintptr_t)code + RETURN_AT);
		check_pcs(seen.pcs + 2, before_generated.pcs, before_generated.n);
	}
	munmap(code, size);
	check_here();
}

static void test_errno(void)
{
	for (int i = 0; i < 2; i++) {
		self_unwind_invalidate();
		errno = 12345;
		see();
		CHECK_INT(errno, 12345);
	}
}

/* ---- Other stacks ---- */

static ucontext_t main_context, fiber_context;

static void shallow_fiber(void)
{
	see();
}

static void deep_fiber(void)
{
	CHECK(recurse(50, see) != 1);
}

static __attribute__((noinline)) void run_fiber(void (*function)(void), void *stack)
{
	REQUIRE(getcontext(&fiber_context) == 0);
	fiber_context.uc_stack.ss_sp = stack;
	fiber_context.uc_stack.ss_size = STACK_BYTES;
	fiber_context.uc_link = &main_context;
	makecontext(&fiber_context, function, 0);
	CHECK(swapcontext(&main_context, &fiber_context) == 0);
}

static void check_fiber(void)
{
	CHECK_INT(seen.chain.flags & ~(uint32_t)IGNORED_FLAGS, SELF_UNWIND_FOREIGN);
	CHECK(seen.chain.n > 1 && seen.chain.n <= SELF_UNWIND_MAX_FOREIGN);
	check_pcs(seen.pcs, seen.expected.pcs, MIN_OF(seen.chain.n, seen.expected.n));
}

static void *map_stack(void)
{
	return mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
}

static void *fibers(void *data)
{
	void *stack = map_stack();
	struct self_unwind before;

	if (!CHECK(stack != MAP_FAILED))
		return NULL;
	run_fiber(shallow_fiber, stack);
	check_fiber();
	before = own;
	run_fiber(deep_fiber, stack);
	CHECK_INT(seen.chain.n, SELF_UNWIND_MAX_FOREIGN);
	check_fiber();
	CHECK(memcmp(&before, &own, sizeof(own)) == 0);
	munmap(stack, STACK_BYTES);
	check_here();
	return NULL;
}

static void test_fiber(void)
{
	fibers(NULL);
}

static void run_thread(void *(*function)(void *))
{
	pthread_t id;

	REQUIRE(pthread_create(&id, NULL, function, NULL) == 0);
	pthread_join(id, NULL);
}

/* The first walk of a thread is on a fiber. */
static void test_fiber_of_thread(void)
{
	run_thread(fibers);
}

static struct expected before_signal;
static sigjmp_buf after_fault;
static volatile bool is_fault;

static void handler(int number, siginfo_t *info, void *context)
{
	const struct walk_registers registers = CONTEXT_REGISTERS(*(ucontext_t *)context);

	self_unwind_walk(&own, &registers, seen.pcs, ARRAY_SIZE(seen.pcs), &seen.chain);
	if (CHECK(seen.chain.n > before_signal.n)) {
		size_t at = seen.chain.n - before_signal.n;

		at -= seen.pcs[at + 1] != before_signal.pcs[1]; /* see check_seen() */
		check_pcs(seen.pcs + at, before_signal.pcs, before_signal.n);
	}
	CHECK_INT(seen.chain.flags & SELF_UNWIND_FOREIGN, 0);
	if (HAS_SIGNAL_FRAMES)
		check_here();
	if (is_fault)
		siglongjmp(after_fault, 1);
}

static __attribute__((noinline)) void raise_with(int flags)
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = flags | SA_SIGINFO };
	struct sigaction before;

	CHECK(sigaction(SIGUSR1, &action, &before) == 0);
	before_signal.n = 0;
	_Unwind_Backtrace(add_expected, &before_signal);
	raise(SIGUSR1);
	sigaction(SIGUSR1, &before, NULL);
}

static void *on_signal_stack(void *data)
{
	void *memory = map_stack();
	stack_t stack = { .ss_sp = memory, .ss_size = STACK_BYTES }, before;

	if (!CHECK(memory != MAP_FAILED && sigaltstack(&stack, &before) == 0))
		return NULL;
	raise_with(SA_ONSTACK);
	raise_with(SA_ONSTACK);
	sigaltstack(&before, NULL);
	munmap(memory, STACK_BYTES);
	return NULL;
}

static void test_signal(void)
{
	raise_with(0);
}

static void test_signal_stack(void)
{
	on_signal_stack(NULL);
}

/* The first walk of a thread is on its signal stack. */
static void test_signal_stack_of_thread(void)
{
	run_thread(on_signal_stack);
}

static __attribute__((noinline)) int overflow(int n)
{
	char room[2000];

	room[0] = (char)n;
	__asm__ volatile("" ::"r"(room) : "memory"); /* keep the whole array */
	return n < 0 ? 0 : overflow(n + 1) + room[0];
}

static void overflow_handler(int number, siginfo_t *info, void *context)
{
	const struct walk_registers registers = CONTEXT_REGISTERS(*(ucontext_t *)context);

	self_unwind_walk(&own, &registers, seen.pcs, ARRAY_SIZE(seen.pcs), &seen.chain);
	siglongjmp(after_fault, 1);
}

static void *overflow_thread(void *data)
{
	struct sigaction action = { .sa_sigaction = overflow_handler,
				    .sa_flags = SA_SIGINFO | SA_ONSTACK };
	void *memory = map_stack();
	stack_t stack = { .ss_sp = memory, .ss_size = STACK_BYTES };
	struct sigaction before;

	if (!CHECK(memory != MAP_FAILED && sigaltstack(&stack, NULL) == 0 &&
		   sigaction(SIGSEGV, &action, &before) == 0))
		return NULL;
	seen.chain.n = 0;
	if (sigsetjmp(after_fault, 1) == 0)
		CHECK(overflow(0) == 0);
	CHECK_INT(seen.chain.n, SELF_UNWIND_MAX_FRAMES);
	CHECK_INT(seen.chain.stop, WALK_ROOT);
	CHECK(seen.chain.n_cut > 0);
	sigaction(SIGSEGV, &before, NULL);
	return NULL;
}

static void test_overflow(void)
{
	NOT_EMULATED("the emulator's stack is another one");
	run_thread(overflow_thread);
}

#define CORNER 2500 /* bytes: enough for the calls, but not for a walk */

/* Uses up the stack, except for CORNER bytes. */
static __attribute__((noinline)) void walk_in_rest(const char *end)
{
	const char *here = __builtin_frame_address(0);

	sink = alloca((size_t)(here - end) - CORNER);
	*(volatile char *)sink = 1;
	walk_tightly();
	sink = NULL;
}

static void *walk_in_corner(void *data)
{
	pthread_attr_t attributes;
	size_t bytes;
	void *end;

	if (!CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0 &&
		   pthread_attr_getstack(&attributes, &end, &bytes) == 0))
		return NULL;
	pthread_attr_destroy(&attributes);
	walk_in_rest(end);
	CHECK(has_one);
	check_here();
	walk_in_rest(end);
	CHECK(has_one);
	return NULL;
}

static char *corner;

static void corner_handler(int number)
{
	walk_in_rest(corner);
}

static void test_small_stacks(void)
{
	struct sigaction action = { .sa_handler = corner_handler, .sa_flags = SA_ONSTACK }, before;
	stack_t stack = { .ss_sp = map_stack(), .ss_size = STACK_BYTES }, stack_before;
	pthread_attr_t attributes;
	pthread_t id;

	REQUIRE(pthread_attr_init(&attributes) == 0 &&
		pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0 &&
		pthread_create(&id, &attributes, walk_in_corner, NULL) == 0);
	pthread_join(id, NULL);
	pthread_attr_destroy(&attributes);
	corner = stack.ss_sp;
	REQUIRE(stack.ss_sp != MAP_FAILED && sigaltstack(&stack, &stack_before) == 0 &&
		sigaction(SIGUSR1, &action, &before) == 0);
	has_one = false;
	raise(SIGUSR1);
	CHECK(has_one);
	sigaction(SIGUSR1, &before, NULL);
	sigaltstack(&stack_before, NULL);
	munmap(stack.ss_sp, STACK_BYTES);
}

/* ---- Children ---- */

static int child_status(pid_t pid)
{
	int status = -1, r;

	do
		r = waitpid(pid, &status, 0);
	while (r < 0 && errno == EINTR);
	return r == pid ? status : -1;
}

static void test_fork(void)
{
	pid_t pid;

	check_here();
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		int before = atomic_load(&test_failures);

		check_here();
		test_fiber();
		run_thread(check_in_thread);
		_exit(atomic_load(&test_failures) != before);
	}
	CHECK_INT(child_status(pid), 0);
	check_here();
}

/* The child's main thread has the stack of a secondary thread, and has not walked before. */
static void *fork_in_thread(void *data)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		int before = atomic_load(&test_failures);

		recurse(100, check_here);
		run_thread(fibers);
		_exit(atomic_load(&test_failures) != before);
	}
	CHECK_INT(child_status(pid), 0);
	return NULL;
}

static void test_fork_of_thread(void)
{
	run_thread(fork_in_thread);
}

static __attribute__((noinline)) pid_t walk_in_vfork(void)
{
	pid_t pid = vfork();

	if (pid == 0) {
		see();
		_exit(0);
	}
	return pid;
}

/* The child uses its parent's stack. The parent can see the result in its memory. */
static void test_vfork(void)
{
	struct self_unwind before;
	pid_t pid;

	NOT_EMULATED("the emulator gives children a memory of their own");
	check_here();
	before = own;
	seen.chain.n = 0;
	pid = walk_in_vfork();
	CHECK_INT(child_status(pid), 0);
	check_seen(0);
	CHECK(memcmp(&before, &own, sizeof(own)) == 0);
	check_here();
}

static int see_in_child(void *data)
{
	recurse(30, see);
	return 0;
}

/* Like posix_spawn(): a child on a separate stack, in its parent's memory and with the parent's
 * thread pointer. */
static void test_spawn(void)
{
	char *stack = map_stack();
	struct self_unwind before;

	NOT_EMULATED("the emulator gives children a memory of their own");
	REQUIRE(stack != MAP_FAILED);
	check_here();
	before = own;
	for (int i = 0; i < 3; i++) {
		pid_t pid = clone(see_in_child, stack + STACK_BYTES,
				  CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);

		CHECK_INT(child_status(pid), 0);
		CHECK_INT(seen.chain.n, SELF_UNWIND_MAX_FOREIGN);
		check_fiber();
		CHECK(memcmp(&before, &own, sizeof(own)) == 0);
		check_here();
	}
	munmap(stack, STACK_BYTES);
}

static atomic_bool has_walked;

static int walk_for_ever(void *data)
{
	struct self_unwind_chain chain;
	struct walk_registers registers;
	uint64_t pcs[8];

	self_unwind_get_registers(&registers);
	for (;; atomic_store(&has_walked, true))
		self_unwind_walk(data, &registers, pcs, ARRAY_SIZE(pcs), &chain);
	return 0;
}

/* Children that are killed while they walk in their parent's memory leave no lock behind. */
static void test_killed(void)
{
	static struct self_unwind of_child;
	char *stack = map_stack();

	NOT_EMULATED("the emulator gives children a memory of their own");
	REQUIRE(stack != MAP_FAILED);
	for (int i = 0; i < 100; i++) {
		pid_t pid;

		atomic_store(&has_walked, false);
		pid = clone(walk_for_ever, stack + STACK_BYTES, CLONE_VM | SIGCHLD, &of_child);
		REQUIRE(pid > 0);
		while (!atomic_load(&has_walked))
			sched_yield();
		kill(pid, SIGKILL);
		CHECK_INT(WTERMSIG(child_status(pid)), SIGKILL);
		check_here();
	}
	munmap(stack, STACK_BYTES);
}

/* ---- Threads and signals ---- */

static void test_threads(void)
{
	for (int i = 0; i < 25; i++) {
		pthread_t ids[8];

		for (size_t t = 0; t < ARRAY_SIZE(ids); t++)
			REQUIRE(pthread_create(&ids[t], NULL, check_in_thread, NULL) == 0);
		for (size_t t = 0; t < ARRAY_SIZE(ids); t++)
			pthread_join(ids[t], NULL);
	}
}

static atomic_uint n_storm, n_storm_whole, n_storm_busy;
static timer_t storm_timer;
static sigjmp_buf out_of_storm;
static volatile sig_atomic_t may_leave;

static void storm_handler(int number, siginfo_t *info, void *context)
{
	const struct walk_registers registers = CONTEXT_REGISTERS(*(ucontext_t *)context);
	struct self_unwind_chain chain;
	uint64_t pcs[128];
	int before = errno;

	self_unwind_walk(&own, &registers, pcs, ARRAY_SIZE(pcs), &chain);
	CHECK(errno == before && chain.n > 0);
	atomic_fetch_add(&n_storm, 1);
	atomic_fetch_add(&n_storm_whole, chain.stop == WALK_ROOT);
	atomic_fetch_add(&n_storm_busy, (chain.flags & SELF_UNWIND_BUSY) != 0);
	if (may_leave && atomic_load(&n_storm) % 4 == 0) {
		may_leave = 0;
		siglongjmp(out_of_storm, 1);
	}
}

static bool has_passed(double seconds, const struct timespec *since)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - since->tv_sec) + (double)(now.tv_nsec - since->tv_nsec) / 1e9 >
	       seconds;
}

static void start_storm(struct sigaction *before)
{
	struct sigaction action = { .sa_sigaction = storm_handler,
				    .sa_flags = SA_SIGINFO | SA_RESTART };
	const struct itimerspec often = { { 0, 100000 }, { 0, 100000 } };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF };

	atomic_store(&n_storm, 0);
	atomic_store(&n_storm_whole, 0);
	atomic_store(&n_storm_busy, 0);
	CHECK(sigaction(SIGPROF, &action, before) == 0);
	CHECK(timer_create(CLOCK_MONOTONIC, &event, &storm_timer) == 0 &&
	      timer_settime(storm_timer, 0, &often, NULL) == 0);
}

static void stop_storm(const struct sigaction *before)
{
	timer_delete(storm_timer);
	sigaction(SIGPROF, before, NULL);
	CHECK(atomic_load(&n_storm) > 10);
	CHECK_INT(atomic_load(&n_storm_busy), 0);
}

static void *churn(void *data)
{
	const struct timespec *start = data;

	while (!has_passed(STORM_SECONDS, start)) {
		void *module = dlopen(OWN_MODULE_A, RTLD_NOW), *block = malloc(5000);
		int (*call)(int (*)(void)) =
			module ? (int (*)(int (*)(void)))dlsym(module, "own_module_call") : NULL;

		if (call)
			CHECK(call(see) == 1);
		free(block);
		if (module)
			dlclose(module);
	}
	return NULL;
}

/* In two threads, handlers interrupt the loader, the allocator, and walks. */
static void test_storm(void)
{
	struct sigaction before;
	struct timespec start;
	pthread_t id;

	clock_gettime(CLOCK_MONOTONIC, &start);
	start_storm(&before);
	REQUIRE(pthread_create(&id, NULL, churn, &start) == 0);
	churn(&start);
	pthread_join(id, NULL);
	stop_storm(&before);
	printf("# %u walks in handlers, %u whole\n", atomic_load(&n_storm),
	       atomic_load(&n_storm_whole));
	if (!PROF_EMULATED)
		CHECK(atomic_load(&n_storm_whole) * 100 >= atomic_load(&n_storm) * 95);
	check_here();
}

static void *walk_in_storm(void *data)
{
	const struct timespec *start = data;

	while (!has_passed(0.3, start))
		recurse(30, see);
	return NULL;
}

/* Locks that other threads held at the fork must not be held in the child. */
static void test_fork_in_storm(void)
{
	struct sigaction before;
	struct timespec start;
	pthread_t ids[3];
	int n_bad = 0;

	clock_gettime(CLOCK_MONOTONIC, &start);
	fflush(stdout);
	start_storm(&before);
	for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
		REQUIRE(pthread_create(&ids[i], NULL, walk_in_storm, &start) == 0);
	while (!has_passed(0.3, &start)) {
		pid_t pid = fork();

		if (pid == 0) {
			int failures = atomic_load(&test_failures);

			for (int i = 0; i < 40; i++)
				check_here();
			_exit(atomic_load(&test_failures) != failures);
		}
		n_bad += child_status(pid) != 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
		pthread_join(ids[i], NULL);
	stop_storm(&before);
	CHECK_INT(n_bad, 0);
}

#define N_FORKED 200

static volatile sig_atomic_t is_forked, may_fork;
static pid_t forked[N_FORKED];
static volatile int n_forked;

/* Forks. Then either the parent or the child, alternately, walks like another hook of the thread,
 * and requests the same cache. */
static void fork_handler(int number, siginfo_t *info, void *context)
{
	const struct walk_registers registers = CONTEXT_REGISTERS(*(ucontext_t *)context);
	static struct self_unwind of_handler;
	struct self_unwind_chain chain;
	uint64_t pcs[128];
	int before = errno;
	pid_t pid;

	atomic_fetch_add(&n_storm, 1);
	if (own.walking == 0 || !may_fork || n_forked == N_FORKED)
		return;
	may_fork = 0; /* so that the next fork is elsewhere in the walk */
	pid = fork();
	if (pid == 0)
		is_forked = 1;
	else if (pid > 0)
		forked[n_forked++] = pid;
	errno = before;
	if (n_forked % 2)
		return;
	of_handler.cache = own.cache;
	self_unwind_walk(&of_handler, &registers, pcs, ARRAY_SIZE(pcs), &chain);
	CHECK(chain.n > 0 && !(chain.flags & SELF_UNWIND_BUSY));
}

static __attribute__((noinline)) int see_often(void)
{
	struct walk_registers registers;

	seen.expected.n = 0;
	_Unwind_Backtrace(add_expected, &seen.expected);
	self_unwind_get_registers(&registers);
	for (int i = 0; i < 100; i++) {
		may_fork |= i == 10 && !is_forked;
		self_unwind_walk(&own, &registers, seen.pcs, ARRAY_SIZE(seen.pcs), &seen.chain);
		if (!check_seen(0))
			break;
	}
	return 0;
}

/* A handler forks within a walk, and the child returns to the walk. */
static void test_fork_in_walk(void)
{
	const struct sigaction action = { .sa_sigaction = fork_handler,
					  .sa_flags = SA_SIGINFO | SA_RESTART };
	int failures = atomic_load(&test_failures), n_bad = 0;
	struct sigaction before;
	struct timespec start;

	fflush(stdout);
	clock_gettime(CLOCK_MONOTONIC, &start);
	start_storm(&before);
	CHECK(sigaction(SIGPROF, &action, NULL) == 0);
	while (!is_forked && n_forked < N_FORKED && !has_passed(10, &start)) {
		self_unwind_invalidate(); /* so that the next walk looks up each frame again */
		recurse(800, see_often);
	}
	if (is_forked) {
		for (int i = 0; i < 3; i++)
			recurse(30, check_here);
		_exit(atomic_load(&test_failures) != failures);
	}
	stop_storm(&before);
	CHECK(n_forked > 10);
	for (int i = 0; i < n_forked; i++)
		n_bad += child_status(forked[i]) != 0;
	CHECK_INT(n_bad, 0);
	check_here();
}

#define N_HELD 48 /* more than there are caches */

static atomic_bool are_released;

/* Keeps the interrupted thread within its walk for a while. */
static void hold_handler(int number)
{
	const struct timespec moment = { .tv_nsec = 1000000 };

	while (own.walking && !atomic_load(&are_released))
		nanosleep(&moment, NULL);
}

static void *walk_until_released(void *data)
{
	while (!atomic_load(&are_released))
		recurse(30, see);
	return NULL;
}

/* Interrupted walks hold all caches. The next walk has only its own frame; the walk does not wait,
 * and reports that it has no cache. */
static void test_none_free(void)
{
	struct sigaction action = { .sa_handler = hold_handler, .sa_flags = SA_RESTART }, before;
	struct timespec start;
	pthread_t ids[N_HELD];
	bool is_busy = false;

	REQUIRE(sigaction(SIGUSR1, &action, &before) == 0);
	atomic_store(&are_released, false);
	for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
		REQUIRE(pthread_create(&ids[i], NULL, walk_until_released, NULL) == 0);
	clock_gettime(CLOCK_MONOTONIC, &start);
	while (!is_busy && !has_passed(20, &start)) {
		for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
			pthread_kill(ids[i], SIGUSR1);
		see();
		is_busy = (seen.chain.flags & SELF_UNWIND_BUSY) != 0;
	}
	CHECK(is_busy && seen.chain.n == 1 && seen.chain.stop == WALK_NO_TABLE);
	atomic_store(&are_released, true);
	for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
		pthread_join(ids[i], NULL);
	sigaction(SIGUSR1, &before, NULL);
	check_here();
}

/* Handlers leave the interrupted function, usually a walk, by siglongjmp(). */
static void test_left(void)
{
	struct sigaction before;
	struct timespec start;
	volatile unsigned int n_left = 0;

	clock_gettime(CLOCK_MONOTONIC, &start);
	start_storm(&before);
	if (sigsetjmp(out_of_storm, 1) != 0)
		n_left++;
	while (!has_passed(0.5, &start)) {
		may_leave = 1;
		recurse(30, see);
		may_leave = 0;
	}
	stop_storm(&before);
	CHECK(n_left > 10);
	check_here();
}

/* ---- Modules that go ---- */

static uint64_t seen_call, seen_from;

static int see_call(void)
{
	check_here();
	seen_from = seen.pcs[2];
	return 0;
}

/* Loads a module, calls its function, and unloads it. Returns the function's address, or 0 if the
 * module could not be loaded. */
static uint64_t call_module(const char *path)
{
	void *module = dlopen(path, RTLD_NOW);
	int (*call)(int (*)(void)) = NULL;

	if (module)
		call = (int (*)(int (*)(void)))dlsym(module, "own_module_call");
	if (!CHECK(call))
		return 0;
	CHECK_INT(call(see_call), 1);
	seen_call = (uint64_t)(uintptr_t)call;
	dlclose(module);
	return seen_call;
}

static void check_modules(void (*between)(void))
{
	unsigned int n_same = 0;

	for (int i = 0; i < 50; i++) {
		uint64_t a, b, from;

		a = call_module(OWN_MODULE_A);
		from = seen_from;
		between();
		b = call_module(OWN_MODULE_B);
		n_same += a != 0 && a == b && from == seen_from;
		between();
	}
	NOT_EMULATED("the emulator maps a file at a new place each time");
	CHECK(n_same > 10);
}

static void nothing(void)
{
}

static void test_same_address(void)
{
	check_modules(nothing);
}

static void test_invalidate(void)
{
	check_modules(self_unwind_invalidate);
}

/* ---- Bad memory ---- */

static uint64_t random_state = 1;

static uint64_t get_random(void)
{
	random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407;
	return random_state >> 16;
}

static uint64_t bad_word(uint64_t here, uint64_t guard)
{
	const uint64_t some[] = { 0,
				  get_random(),
				  get_random() << 48,
				  guard,
				  guard - 8,
				  here + get_random() % 256,
				  (uint64_t)(uintptr_t)&check_pcs + get_random() % 256,
				  (uint64_t)(uintptr_t)&memcpy + get_random() % 4096,
				  (uint64_t)(uintptr_t)&n_storm,
				  UINT64_MAX - get_random() % 16 };

	return some[get_random() % ARRAY_SIZE(some)];
}

static void test_corrupt(void)
{
	void *guard = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t words[64], pcs[64], here = (uint64_t)(uintptr_t)words;
	struct self_unwind_chain chain;

	REQUIRE(guard != MAP_FAILED);
	for (int i = 0; i < N_CORRUPT; i++) {
		struct walk_registers registers;

		for (size_t w = 0; w < ARRAY_SIZE(words); w++)
			words[w] = bad_word(here, (uint64_t)(uintptr_t)guard);
		self_unwind_get_registers(&registers);
		registers.sp = i % 3 ? here : bad_word(here, (uint64_t)(uintptr_t)guard);
		registers.fp = bad_word(here, (uint64_t)(uintptr_t)guard);
		registers.lr = bad_word(here, (uint64_t)(uintptr_t)guard);
		if (i % 2)
			registers.pc = bad_word(here, (uint64_t)(uintptr_t)guard);
		self_unwind_walk(&own, &registers, pcs, ARRAY_SIZE(pcs), &chain);
		if (!CHECK(chain.n > 0 && chain.n <= ARRAY_SIZE(pcs)))
			break;
	}
	munmap(guard, 65536);
	check_here();
}

static void check_memory(void)
{
	uint8_t *pages =
		mmap(NULL, 4 * 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct safe_read memory = { .way = SAFE_READ_UNKNOWN };
	uint64_t at = (uint64_t)(uintptr_t)pages, word = 0;

	REQUIRE(pages != MAP_FAILED);
	memset(pages, 7, 65536);
	mprotect(pages + 65536, 65536, PROT_NONE);
	CHECK(safe_read(&memory, at, &word, 8) && word == 0x0707070707070707);
	CHECK(safe_read(&memory, at + 65536 - 8, &word, 8));
	CHECK(safe_read(&memory, at + 3, &word, 5));
	CHECK(!safe_read(&memory, at + 65536 - 7, &word, 8));
	CHECK(!safe_read(&memory, at + 65536, &word, 8));
	CHECK(safe_read(&memory, at + 2 * 65536 + 4090, &word, 8));
	CHECK(!safe_read(&memory, 0, &word, 8));
	CHECK(!safe_read(&memory, UINT64_MAX - 3, &word, 8));
	CHECK(!safe_read(&memory, UINT64_C(1) << 63, &word, 8));
	CHECK_INT(safe_read_count_below(&memory, at + 4 * 65536, 1000), 32);
	CHECK_INT(safe_read_count_below(&memory, at + 4 * 65536, 20), 20);
	CHECK_INT(safe_read_count_below(&memory, at + 2 * 65536, 20), 0);
	munmap(pages, 4 * 65536);
}

static void test_reading(void)
{
	check_memory();
}

static bool refuse(uint32_t action)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ptrace, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, action),
	};
	const struct sock_fprog program = { ARRAY_SIZE(code), code };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static int in_filtered_child(uint32_t action)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		int before = atomic_load(&test_failures);

		if (!refuse(action))
			_exit(77);
		check_here();
		test_fiber();
		check_memory();
		test_corrupt();
		recurse(500, check_here);
		_exit(atomic_load(&test_failures) != before);
	}
	return child_status(pid);
}

#define KILL_FOR(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), KILL
#define KILL BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

/* Lets the kernel kill the process at any system call that a walk could make; with_probes: also at
 * rt_sigprocmask(). */
static bool refuse_walks(bool with_probes)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		KILL_FOR(SYS_process_vm_readv),
		KILL_FOR(SYS_sigaltstack),
		KILL_FOR(SYS_getpid),
		KILL_FOR(SYS_gettid),
		KILL_FOR(SYS_prctl),
		KILL_FOR(SYS_kill),
		KILL_FOR(with_probes ? SYS_rt_sigprocmask : SYS_kill),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = { ARRAY_SIZE(code), code };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void *walk_silently(void *data)
{
	own.quiet = SELF_UNWIND_SILENT;
	see();
	CHECK(seen.chain.n == 1 && seen.chain.stop == WALK_NO_TABLE);
	CHECK(refuse_walks(true));
	recurse(500, see);
	CHECK(seen.chain.n == 1 && seen.chain.stop == WALK_NO_TABLE);
	return NULL;
}

/* The thread's first walk is under the filter. */
static void *walk_quietly(void *data)
{
	own = (struct self_unwind){ .quiet = SELF_UNWIND_PROBES };
	CHECK(refuse_walks(false));
	check_here();
	recurse(500, check_here);
	test_corrupt();
	return NULL;
}

static void *test_quiet_thread(void *data)
{
	int before = atomic_load(&test_failures);
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		void *(*walk)(void *) = *(void *(*const *)(void *))data;

		walk(NULL);
		_exit(atomic_load(&test_failures) != before);
	}
	CHECK_INT(child_status(pid), 0);
	return NULL;
}

static void test_quiet(void)
{
	static void *(*const walks[])(void *) = { walk_quietly, walk_silently };
	pthread_t id;

	NOT_EMULATED("the emulator has no seccomp filters");
	if (PROF_SANITIZED)
		SKIP("the sanitizer makes calls of its own");
	for (size_t i = 0; i < ARRAY_SIZE(walks); i++) {
		test_quiet_thread((void *)&walks[i]);
		REQUIRE(pthread_create(&id, NULL, test_quiet_thread, (void *)&walks[i]) == 0);
		pthread_join(id, NULL);
	}
}

static void test_seccomp(void)
{
	NOT_EMULATED("the emulator has no seccomp filters");
	CHECK_INT(in_filtered_child(SECCOMP_RET_ERRNO | EPERM), 0);
	CHECK_INT(in_filtered_child(SECCOMP_RET_KILL_PROCESS), 0);
}

/* ---- Memory ---- */

static size_t count_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	size_t n = 0;

	for (int c = maps ? fgetc(maps) : EOF; c != EOF; c = fgetc(maps))
		n += c == '\n';
	if (maps)
		fclose(maps);
	return n;
}

/* Before the setup, a chain has only the innermost frame. */
static void test_setup(void)
{
	size_t before;

	see();
	CHECK_INT(seen.chain.n, 1);
	CHECK_INT(seen.chain.flags, SELF_UNWIND_BUSY);
	before = count_mappings();
	REQUIRE(self_unwind_setup() == 0);
	CHECK(count_mappings() <= before + 2);
	REQUIRE(self_unwind_setup() == 0);
	before = count_mappings();
	for (int i = 0; i < 100; i++)
		recurse(i * 8, see);
	CHECK_INT(count_mappings(), before);
	CHECK(self_unwind_max_bytes() < 32u << 20);
}

int main(void)
{
	RUN(test_setup);
	RUN(test_reading);
	RUN(test_plain);
	RUN(test_deep);
	RUN(test_cut);
	RUN(test_room);
	RUN(test_alloca);
	RUN(test_given_stack);
	RUN(test_generated);
	RUN(test_errno);
	RUN(test_fiber);
	RUN(test_fiber_of_thread);
	RUN(test_signal);
	RUN(test_signal_stack);
	RUN(test_signal_stack_of_thread);
	RUN(test_overflow);
	RUN(test_small_stacks);
	RUN(test_fork);
	RUN(test_fork_of_thread);
	RUN(test_vfork);
	RUN(test_spawn);
	RUN(test_killed);
	RUN(test_threads);
	RUN(test_storm);
	RUN(test_fork_in_storm);
	RUN(test_fork_in_walk);
	RUN(test_none_free);
	RUN(test_left);
	RUN(test_same_address);
	RUN(test_invalidate);
	RUN(test_corrupt);
	RUN(test_seccomp);
	RUN(test_quiet);
	return test_end();
}
