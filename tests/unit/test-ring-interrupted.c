/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of libcollector/ring/ring.c when a record is interrupted. ptrace() steps through the
 * record. After each instruction, memory is checked as if the process had died there; or the
 * process gets a signal, whose handler writes or never returns.
 */
#include "config.h"
#include "libcollector/ring/ring-inline.h"
#include "tests/unit/ring.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define SMALL 4096u
#define LAP (1u << 16)
#define N_QUIET 80  /* records without checks, until the ring is almost full */
#define N_DEATHS 20 /* records to step through: some fit, some do not, and some begin another lap */
/* The tests interrupt every STRIDE-th instruction of a record. */
#define STRIDE test_stride(PROF_SANITIZED ? 16 : 4)

/* Shared by the tests and the process that is stepped through. */
struct stage {
	volatile int in_record;
	volatile uint64_t started, ended, handled, between;
};

static struct pair pair;
static struct stage *stage;
static struct ring_arena *arena; /* the child's mapping */
static struct ring *own;
static sigjmp_buf escape;
static uint8_t *copy;
static struct tick_clock *ticks; /* NULL: the tests with a stage use the clock instead */

/*
 * Reads the clock with a system call, which is one step. The vDSO retries if the kernel updated the
 * time meanwhile; stepped through, it would take longer than a tick and never end.
 */
static int ask_kernel(clockid_t clock, struct timespec *ret_now)
{
	return (int)syscall(SYS_clock_gettime, clock, ret_now);
}

static int (*get_time)(clockid_t, struct timespec *) = ask_kernel;

/* Returns libc's clock_gettime(), which needs no system call. */
static int (*find_vdso(void))(clockid_t, struct timespec *)
{
	return (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
}

int clock_gettime(clockid_t clock, struct timespec *ret_now)
{
	return get_time(clock, ret_now);
}

static bool start_stage(uint64_t bytes)
{
	stage = mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (!CHECK(stage != MAP_FAILED) || !pair_init(&pair, bytes, 1, RING_DROP))
		return false;
	if (ticks) {
		ring_arena_offer_ticks(&pair.memory);
		ring_reader_use_ticks(&pair.reader, ticks);
	}
	return true;
}

static void end_stage(void)
{
	munmap(stage, sizeof(*stage));
	pair_done(&pair);
}

/* Starts a child that maps the arena like any process. Returns its pid when the child has stopped
 * before `function`; -1 on failure. */
static pid_t start_child(void (*function)(void), uint64_t n_quiet)
{
	pid_t pid;
	int status;

	ring_release(pair.ring);
	ring_reader_drain(&pair.reader, RING_DRAIN_LIVE, pair.buffer, PAIR_BUFFER,
			  &(struct ring_batch){ 0 });
	ring_reader_recycle(&pair.reader);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		if (ring_arena_map(pair.fd, &arena) < 0 || !(own = ring_claim(arena, 2, 0, 0)) ||
		    ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
			_exit(9);
		for (uint64_t i = 1; i <= n_quiet; i++)
			write_mark(own, i);
		raise(SIGSTOP);
		function();
		ring_release(own);
		_exit(0);
	}
	if (!CHECK(waitpid(pid, &status, 0) == pid) || !CHECK(WIFSTOPPED(status)))
		return -1;
	return pid;
}

/* Continues by one instruction, or to the next SIGTRAP. Returns false if the child has ended. */
static bool resume(pid_t pid, int how, int signal)
{
	int status;

	if (!CHECK(ptrace(how, pid, NULL, (void *)(intptr_t)signal) == 0) ||
	    !CHECK(waitpid(pid, &status, 0) == pid))
		return false;
	if (WIFEXITED(status))
		CHECK_INT(WEXITSTATUS(status), 0);
	return WIFSTOPPED(status) && CHECK_INT(WSTOPSIG(status), SIGTRAP);
}

/* ---- Death ---- */

static void write_some(void)
{
	while (stage->started < N_DEATHS) {
		stage->started++;
		stage->in_record = 1;
		write_mark(own, N_QUIET + stage->started);
		stage->in_record = 0;
	}
}

/* Reads a copy of the arena as that of a dead process. */
static void check_death(uint64_t last)
{
	struct ring_reader reader = pair.reader;
	struct ring_batch batch;

	memcpy(copy, pair.memory.base, pair.memory.bytes);
	reader.shared = (void *)(copy + pair.memory.places[0].header_offset);
	reader.data = copy + pair.memory.places[0].data_offset;
	ring_reader_drain(&reader, RING_DRAIN_DEAD, pair.buffer, PAIR_BUFFER, &batch);
	CHECK_INT(reader.fault, RING_FAULT_NONE);
	CHECK(batch.is_closed && reader.totals.unpublished <= 1);
	CHECK_INT(reader.totals.clamped, 0);
	check_law(&reader.totals);
	check_marks(&batch, &last);
}

static void test_death(void)
{
	uint64_t n = 0, last = 0, read = 0;
	int before = atomic_load(&test_failures);
	struct ring_batch batch;
	pid_t pid;

	REQUIRE(start_stage(SMALL));
	copy = mmap(NULL, pair.memory.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		    -1, 0);
	pid = start_child(write_some, N_QUIET);
	REQUIRE(copy != MAP_FAILED && pid > 0);
	while (resume(pid, PTRACE_SINGLESTEP, 0) && atomic_load(&test_failures) == before) {
		if (!stage->in_record)
			continue;
		check_death(last);
		n++;
		if (read == 0 && stage->started == N_DEATHS / 2) {
			ring_reader_drain(&pair.reader, RING_DRAIN_LIVE, pair.buffer, PAIR_BUFFER,
					  &batch);
			read += check_marks(&batch, &last);
		}
	}
	ring_reader_drain(&pair.reader, RING_DRAIN_LIVE, pair.buffer, PAIR_BUFFER, &batch);
	read += check_marks(&batch, &last);
	printf("# %" PRIu64 " instructions, %" PRIu64 " of %d records\n", n, read,
	       N_QUIET + N_DEATHS);
	CHECK(n > 20 * N_DEATHS && read > SMALL / MARK_BYTES && read < N_QUIET + N_DEATHS);
	CHECK_INT(pair.reader.totals.attempted, N_QUIET + N_DEATHS);
	CHECK_INT(pair.reader.totals.unpublished, 0);
	munmap(copy, pair.memory.bytes);
	end_stage();
}

/* ---- A signal at each instruction ---- */

static void handle(int number)
{
	stage->handled++;
	write_mark(own, stage->handled);
}

static void handle_and_leave(int number)
{
	handle(number);
	siglongjmp(escape, 1);
}

/*
 * Sets the child's handler. Writes a record for each instruction to interrupt, and after it a
 * record that detects whether the first one was abandoned. `lap`: the ring's size; other records
 * fill each lap, so a record to interrupt is the first one of the next lap, after a pad. 0: do not
 * fill laps.
 */
static void write_until_all(void (*handler)(int), uint64_t lap)
{
	struct sigaction action = { .sa_handler = handler };
	volatile uint64_t quiet = 0;

	sigaction(SIGUSR1, &action, NULL);
	while (quiet < 3) {
		uint64_t before = stage->handled;

		while (lap && (own->end & (lap - 1)) + MARK_BYTES <= lap)
			write_mark(own, ++stage->between);
		if (sigsetjmp(escape, 1) == 0) {
			stage->started++;
			raise(SIGTRAP);
			stage->in_record = 1;
			write_mark(own, stage->started);
			stage->in_record = 0;
			stage->ended++;
		}
		stage->in_record = 0;
		write_mark(own, ++stage->between);
		quiet = stage->handled == before ? quiet + 1 : 0;
	}
}

static void write_nested(void)
{
	write_until_all(handle, 0);
}

static void write_and_leave(void)
{
	write_until_all(handle_and_leave, 0);
}

static void write_laps_and_leave(void)
{
	write_until_all(handle_and_leave, LAP);
}

/* Steps to the record, and `n` instructions into it. Returns false if the record is shorter. */
static bool step_within(pid_t pid, uint64_t n)
{
	uint64_t steps = 0;

	while (steps < n && (steps == 0 || stage->in_record)) {
		if (!resume(pid, PTRACE_SINGLESTEP, 0))
			return false;
		steps += stage->in_record != 0;
	}
	return steps == n && stage->in_record;
}

static void do_nothing(void)
{
}

/*
 * Interrupts every STRIDEth instruction of a record with a signal, each time in a new record.
 * Between these records, the child runs freely; it raises SIGTRAP before each of them. Returns the
 * number of signals.
 */
static uint64_t interrupt_all(pid_t pid, void (*before_each)(void))
{
	size_t stride = STRIDE, first = 1 + test_start(stride);
	uint64_t n = 0;
	int signal = 0;

	while (resume(pid, PTRACE_CONT, signal)) {
		before_each();
		bool is_within = step_within(pid, first + (stage->started - 1) * stride);

		signal = is_within ? SIGUSR1 : 0;
		n += is_within;
	}
	return n;
}

/* Ids come from two sequences, so their order is not checked. */
static bool drain_marks(void)
{
	struct ring_record record;
	struct ring_batch batch;

	ring_reader_drain(&pair.reader, RING_DRAIN_LIVE, pair.buffer, PAIR_BUFFER, &batch);
	while (ring_batch_next(&batch, &record)) {
		const struct ring_mark *mark = record.payload;

		CHECK(record.type == RING_MARK && mark->id != 0 && mark->duration_ns == ~mark->id);
	}
	CHECK_INT(pair.reader.fault, RING_FAULT_NONE);
	return batch.is_closed;
}

static void drain_lap(void)
{
	CHECK(!drain_marks());
}

static void drain_rest(void)
{
	CHECK(drain_marks());
	CHECK_INT(pair.reader.totals.clamped, 0);
	check_law(&pair.reader.totals);
}

/* All records are written, except the record of a handler that interrupts one of a few critical
 * instructions. That record is counted as lost. */
static void test_nested(void)
{
	struct ring_totals *totals = &pair.reader.totals;
	uint64_t n;
	pid_t pid;

	REQUIRE(start_stage(1u << 20));
	pid = start_child(write_nested, 0);
	REQUIRE(pid > 0);
	n = interrupt_all(pid, do_nothing);
	drain_rest();
	printf("# %" PRIu64 " instructions, %" PRIu64 " handlers were not recorded\n", n,
	       totals->lost[RING_LOST_NESTED]);
	CHECK(n * STRIDE > (PROF_SANITIZED ? 400 : 50) && stage->handled == n);
	CHECK_INT(totals->attempted, stage->started + stage->handled + stage->between);
	CHECK_INT(totals->records, totals->attempted - totals->lost[RING_LOST_NESTED]);
	CHECK_INT(totals->abandoned, 0);
	CHECK_INT(totals->unpublished, 0);
	/* sanitizers lengthen the critical section, so more nested records are lost */
	CHECK(PROF_SANITIZED || totals->lost[RING_LOST_NESTED] < n / 2);
	end_stage();
}

/* The next record detects an abandoned record, and the ring remains usable. */
static void check_left(uint64_t bytes, void (*write)(void), void (*before_each)(void))
{
	struct ring_totals *totals = &pair.reader.totals;
	uint64_t n, sure;
	pid_t pid;

#if PROF_SANITIZED
	SKIP("the sanitizer clears all of the stack's shadow at each siglongjmp(), instruction by instruction");
#endif
	REQUIRE(start_stage(bytes));
	pid = start_child(write, 0);
	REQUIRE(pid > 0);
	n = interrupt_all(pid, before_each);
	drain_rest();
	printf("# %" PRIu64 " instructions, %" PRIu64 " abandoned, %" PRIu64 " unpublished\n", n,
	       totals->abandoned, totals->unpublished);
	CHECK(n * STRIDE > 50 && stage->handled == n);
	sure = stage->ended + stage->handled + stage->between;
	CHECK(totals->attempted <= stage->started + stage->handled + stage->between);
	CHECK(totals->attempted >= sure);
	CHECK(totals->records >= sure - totals->lost[RING_LOST_NESTED]);
	CHECK(totals->abandoned > n / 4 && totals->unpublished < n / 4);
	end_stage();
}

static void test_left(void)
{
	check_left(1u << 20, write_and_leave, do_nothing);
}

static void test_left_laps(void)
{
	check_left(LAP, write_laps_and_leave, drain_lap);
}

/* ---- A sweep ---- */

#define GONE 0x3fffff /* not a thread: the kernel's maximum tid, which is hardly ever in use */

static struct ring *volatile next;

/* Simulates that the checked thread released its ring and ended, and that the ring was drained and
 * claimed by another thread. */
static void hand_over(int number)
{
	uint64_t state = pair.header->state;

	ring_release(own);
	state = pair.header->state;
	if ((uint32_t)state == RING_CLOSED)
		pair.header->state = state >> 32 << 32 | RING_FREE;
	next = ring_claim(arena, (uint32_t)getpid(), 0, 0);
	stage->handled++;
	stage->between += next != NULL;
}

/* Sweeps until a whole sweep was not interrupted. A thread that claimed the ring during a sweep
 * keeps it. */
static void sweep_until_all(void)
{
	struct sigaction action = { .sa_handler = hand_over };
	uint64_t before;

	sigaction(SIGUSR1, &action, NULL);
	ring_release(own);
	do {
		pair.header->state = pair.header->state >> 32 << 32 | RING_FREE;
		own = ring_claim(arena, GONE, 0, 0);
		next = NULL;
		before = stage->handled;
		stage->started++;
		raise(SIGTRAP);
		stage->in_record = 1;
		ring_arena_sweep(arena, (uint32_t)getpid(), 0);
		stage->in_record = 0;
		if (next)
			stage->ended += ring_is_alive(next) && write_mark(next, 1);
		if (next)
			ring_release(next);
		if ((uint32_t)pair.header->state != RING_CLOSED)
			_exit(8);
	} while (stage->handled != before);
}

static void test_sweep(void)
{
	uint64_t n;
	pid_t pid;

	REQUIRE(start_stage(1u << 20));
	pid = start_child(sweep_until_all, 0);
	REQUIRE(pid > 0);
	n = interrupt_all(pid, do_nothing);
	printf("# %" PRIu64 " instructions, %" PRIu64 " rings were handed over, %" PRIu64 " kept\n",
	       n, stage->between, stage->ended);
	CHECK(n * STRIDE > 30 && stage->between * STRIDE > 10);
	CHECK_INT(stage->ended, stage->between);
	end_stage();
}

/* ---- Within a record ---- */

static uint64_t drain_count(void)
{
	struct ring_record record;
	struct ring_batch batch;
	uint64_t n = 0;

	ring_reader_drain(&pair.reader, RING_DRAIN_LIVE, pair.buffer, PAIR_BUFFER, &batch);
	while (ring_batch_next(&batch, &record))
		n++;
	return n;
}

/* Records within a record are published together with it, outermost first. */
static void test_together(void)
{
	struct ring_stack *stack;
	struct ring_alloc *alloc;

	REQUIRE(pair_init(&pair, SMALL, 1, RING_DROP));
	stack = ring_begin(pair.ring, RING_STACK, sizeof(*stack));
	alloc = ring_begin_with(pair.ring, stack, RING_ALLOC, sizeof(*alloc));
	REQUIRE(stack && alloc && (void *)alloc > (void *)stack);
	*stack = (struct ring_stack){ .id = 1 };
	*alloc = (struct ring_alloc){ .stack = 1 };
	ring_end(pair.ring, alloc);
	CHECK_INT(drain_count(), 0);
	ring_end(pair.ring, stack);
	CHECK_INT(drain_count(), 2);
	pair_done(&pair);
}

static void test_depth(void)
{
	void *open[8];
	size_t n = 0;

	REQUIRE(pair_init(&pair, SMALL, 1, RING_DROP));
	for (size_t i = 0; i < ARRAY_SIZE(open); i++) {
		open[i] = ring_begin_with(pair.ring, n ? open[n - 1] : NULL, RING_FREE_BLOCK, 16);
		n += open[i] != NULL;
	}
	for (size_t i = n; i-- > 0;)
		ring_end(pair.ring, open[i]);
	CHECK_INT(drain_count(), n);
	CHECK_INT(pair.reader.totals.lost[RING_LOST_NESTED], ARRAY_SIZE(open) - n);
	CHECK(n >= 2);
	pair_done(&pair);
}

/* Begins a record deep in the stack; the caller abandons it. */
static __attribute__((noinline)) void begin_deep(int n)
{
	volatile char room[256];

	room[0] = (char)n;
	if (n > 0)
		begin_deep(n - 1);
	else
		CHECK(ring_begin(pair.ring, RING_FREE_BLOCK, 16) != NULL);
	room[1] = room[0];
}

static void test_abandoned(void)
{
	REQUIRE(pair_init(&pair, SMALL, 1, RING_DROP));
	begin_deep(4);
	CHECK_INT(drain_count(), 0);
	CHECK(write_mark(pair.ring, 1));
	CHECK_INT(drain_count(), 1);
	CHECK_INT(pair.reader.totals.abandoned, 1);
	begin_deep(4);
	ring_release(pair.ring);
	CHECK_INT(drain_count(), 0);
	CHECK_INT(pair.reader.totals.abandoned, 2);
	check_law(&pair.reader.totals);
	pair_done(&pair);
}

/* ---- Signal stacks ---- */

static uint8_t above[1 << 16] __attribute__((aligned(16)));

static void mark_on_stack(int number)
{
	CHECK((uint8_t *)__builtin_frame_address(0) > above &&
	      (uint8_t *)__builtin_frame_address(0) < above + sizeof(above));
	CHECK(write_mark(pair.ring, 2));
	if (number == SIGUSR2)
		siglongjmp(escape, 1);
}

static void *mark_on_stacks(void *data)
{
	struct sigaction action = { .sa_handler = mark_on_stack, .sa_flags = SA_ONSTACK };
	stack_t stack = { .ss_sp = above, .ss_size = sizeof(above) };
	struct ring_free_block *block;

	sigaltstack(&stack, NULL);
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGUSR2, &action, NULL);
	block = ring_begin(pair.ring, RING_FREE_BLOCK, sizeof(*block));
	raise(SIGUSR1);
	*block = (struct ring_free_block){ 0 };
	ring_end(pair.ring, block);
	CHECK_INT(drain_count(), 2);
	if (sigsetjmp(escape, 1) == 0) {
		CHECK(ring_begin(pair.ring, RING_FREE_BLOCK, sizeof(*block)) != NULL);
		raise(SIGUSR2);
	}
	stack.ss_flags = SS_DISABLE;
	sigaltstack(&stack, NULL);
	return NULL;
}

/* The thread's stack is below the signal stack, so a lower sp does not mean a deeper call. */
static void test_signal_stack(void)
{
	static uint8_t below[1 << 18] __attribute__((aligned(4096)));
	pthread_attr_t attributes;
	pthread_t id;

	REQUIRE(pair_init(&pair, SMALL, 1, RING_DROP));
	pthread_attr_init(&attributes);
	pthread_attr_setstack(&attributes, below, sizeof(below));
	REQUIRE(pthread_create(&id, &attributes, mark_on_stacks, NULL) == 0);
	pthread_join(id, NULL);
	pthread_attr_destroy(&attributes);
	ring_release(pair.ring);
	CHECK_INT(drain_count(), 1);
	CHECK_INT(pair.reader.totals.abandoned, 1);
	check_law(&pair.reader.totals);
	pair_done(&pair);
}

/* ---- Fork ---- */

static void test_fork(void)
{
	struct ring_mark *mark;
	void *start;
	size_t bytes;
	pid_t pid;
	int status;

	REQUIRE(pair_init(&pair, SMALL, 1, RING_DROP));
	mark = ring_begin(pair.ring, RING_MARK, sizeof(*mark));
	REQUIRE(mark);
	ring_arena_range(pair.arena, &start, &bytes);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		if (ring_arena_shield(start, bytes) < 0)
			_exit(1);
		*mark = (struct ring_mark){ .id = 66 };
		ring_end(pair.ring, mark);
		if (write_mark(pair.ring, 67) || ring_claim(pair.arena, 1, 0, 0))
			_exit(2);
		ring_arena_count_lost(pair.arena);
		ring_release(pair.ring);
		ring_arena_unmap(pair.arena);
		_exit(0);
	}
	REQUIRE(waitpid(pid, &status, 0) == pid);
	CHECK_INT(status, 0);
	CHECK_INT(drain_count(), 0);
	*mark = (struct ring_mark){ .id = 1 };
	ring_end(pair.ring, mark);
	CHECK_INT(drain_count(), 1);
	CHECK_INT(pair.header->attempted, 1);
	CHECK_INT(ring_arena_lost(&pair.memory), 0);
	pair_done(&pair);
}

static bool filter_all(void)
{
	struct sock_filter program[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog filter = { ARRAY_SIZE(program), program };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/* A thread continues under a filter that kills it for every system call, even if its ring is
 * full. */
static void test_filter(void)
{
	pid_t pid;
	int status;

	REQUIRE(pair_init(&pair, SMALL, 1, RING_LOSSLESS));
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		pair.header->state = 0;
		get_time = find_vdso();
		if (ring_arena_map(pair.fd, &arena) < 0 ||
		    !(own = ring_claim(arena, 2, 0, RING_NO_SYSCALL)) || !filter_all())
			_exit(1);
		for (uint64_t i = 0; i < 1000; i++)
			write_mark(own, i);
		syscall(SYS_exit, 0);
	}
	REQUIRE(waitpid(pid, &status, 0) == pid);
	CHECK_INT(status, 0);
	CHECK_INT(pair.header->attempted, 1000);
	pair_done(&pair);
}

int main(void)
{
	RUN(test_together);
	RUN(test_depth);
	RUN(test_abandoned);
	RUN(test_signal_stack);
	RUN(test_fork);
	RUN(test_filter);
	RUN(test_death);
	RUN(test_nested);
	RUN(test_left);
	RUN(test_sweep);
	/* With ticks, most records begin in ring_try_begin(). */
	get_time = find_vdso();
	ticks = tick_clock_new();
	get_time = ask_kernel;
	RUN(test_death);
	RUN(test_nested);
	RUN(test_left);
	RUN(test_left_laps);
	return test_end();
}
