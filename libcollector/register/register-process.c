/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Register process - registers this process when it starts, has forked, or is asked to; holds its
 * arenas, and chooses rings for its threads
 *
 * The process's state is in a page that the kernel zeroes in a forked child (MADV_WIPEONFORK). So
 * every fork, with or without libc, creates a child that is not registered. The child's first
 * record registers it, over its own connection.
 *
 * A thread that finds no ring takes one that an exited thread left, or requests another arena from
 * the engine, over the process's connection. A thread that depends on another thread's registration
 * or request waits for it for a limited time, or gets no ring.
 *
 * Invariants: (1) a child does not write where its parent does  [test_collector: fork, raw_clone]
 *             (2) no thread waits longer than its bound; without an answer, a process does not wait
 *                 again  [test-control-client: silent]
 *             (3) errno does not change  [test_collector: zoo]
 *             (4) the program's descriptors are not touched  [test_collector: closefrom]
 *             (5) a thread may still use an arena whose session is over
 *                 [test-register-rings: retired_behind, retired_before]
 */
#include "libcollector/register/register-internal.h"

#include "base/clock.h"
#include "libcollector/prof-collector.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <time.h>

#define MAX_VARIABLE 1024 /* limit for PROF_CONTROL's value */
#define MAX_ENVIRONMENT (1u << 20)
#define MAX_SESSION_ARENAS 16u
#define GROW_RINGS 64u /* number of rings in the first request; later requests double it */
#define MAX_GROW_RINGS 256u
#define GROW_AGAIN_NS UINT64_C(1000000000) /* pause after a refusal */
#define WAIT_STEP_NS 100000L
#define PATIENT_STEPS 20

enum process_state {
	PROCESS_NEW, /* also the state of a forked child */
	PROCESS_BUSY,
	PROCESS_READY,
	PROCESS_INERT,
};

uint32_t prof_collector_state;
uint32_t register_wants;
enum control_reason register_start_reason;
void (*register_on_state)(bool is_on);
struct process *register_process;

static struct control_addresses addresses;
static struct control_connection inherited;
static uint64_t last_generation;
static uint32_t own_tgid, parent_tgid;
static uint32_t is_set_up;

/* Where an arena is mapped. A forked child inherits this, to find its parent's arenas. */
struct range {
	uint64_t generation; /* generation of the process that mapped it; 0: free */
	void *start;
	size_t bytes;
};

static struct range ranges[REGISTER_MAX_ARENAS];

/* ---- Reports why the process is not registered ---- */

/* Never read: see control.h. */
static const uint8_t reason_pages[(CONTROL_N_REASONS - 1) * CONTROL_REASON_PAGE]
	__attribute__((aligned(CONTROL_REASON_PAGE)));

/* Changes errno. */
void register_explain(enum control_reason reason)
{
	size_t bytes = reason * CONTROL_REASON_PAGE;

	syscall(SYS_mprotect, reason_pages, bytes, (long)(PROT_READ | PROT_EXEC));
	syscall(SYS_mprotect, reason_pages, bytes, (long)PROT_READ);
}

static enum control_reason reason_of(int error)
{
	switch (error) {
	case EMFILE:
	case ENFILE:
		return CONTROL_REASON_NO_DESCRIPTORS;
	case ENOMEM:
		return CONTROL_REASON_NO_MEMORY;
	default:
		return CONTROL_REASON_OTHER;
	}
}

/* ---- Arenas ---- */

/* Returns whether the session is over; false under a seccomp filter, which could kill the process
 * for the system calls of the check. */
static bool is_wait_in_vain(void)
{
	return !register_is_filtered() && register_is_over();
}

/* The caller holds `state` or `growing`. */
static int add_arena(int memfd)
{
	uint32_t n = register_process->n_arenas;
	struct arena_entry *entry = &register_process->arenas[n];
	int r;

	if (n == REGISTER_MAX_ARENAS)
		return -ENOSPC;
	r = ring_arena_map(memfd, &entry->arena);
	if (r < 0)
		return r;
	entry->producers = register_map_memory(entry->arena->n_rings * sizeof(*entry->producers));
	if (!entry->producers) {
		ring_arena_unmap(entry->arena);
		return -ENOMEM;
	}
	register_process->budget.is_over = is_wait_in_vain;
	ring_arena_set_budget(entry->arena, &register_process->budget);
	for (size_t i = 0; i < ARRAY_SIZE(ranges); i++) {
		if (ranges[i].generation == register_process->generation)
			continue;
		ring_arena_range(entry->arena, &ranges[i].start, &ranges[i].bytes);
		ranges[i].generation = register_process->generation;
		break;
	}
	ring_arena_join(entry->arena);
	__atomic_store_n(&register_process->n_arenas, n + 1, __ATOMIC_RELEASE);
	for (uint64_t lost = __atomic_exchange_n(&register_process->lost, 0, __ATOMIC_RELAXED);
	     lost > 0; lost--)
		ring_arena_count_lost(entry->arena);
	return 0;
}

/* Retires the arenas of the previous session. A thread that has an open record ends it in private
 * memory; the arena's memory is freed when the engine ends. */
static void retire_arenas(void)
{
	size_t bytes;
	void *start;

	for (uint32_t i = register_count_retired(); i < register_count_arenas(); i++) {
		struct ring_arena *arena = register_process->arenas[i].arena;

		ring_arena_retire(arena);
		ring_arena_range(arena, &start, &bytes);
		if (ring_arena_shield(start, bytes) == 0)
			madvise(start, bytes, MADV_DONTFORK);
		__atomic_store_n(&register_process->n_retired, i + 1, __ATOMIC_RELEASE);
	}
}

/* In a forked child, shields the arenas of the parent, which has this generation. */
static void shield_arenas(uint64_t generation)
{
	for (size_t i = 0; i < ARRAY_SIZE(ranges); i++) {
		if (generation == 0 || ranges[i].generation != generation)
			continue;
		/* A failure affects only a handler that forked within a record. */
		if (ring_arena_shield(ranges[i].start, ranges[i].bytes) == 0)
			ranges[i].generation = 0;
	}
}

/* ---- Rings ---- */

static bool is_realtime(void)
{
	long policy = syscall(SYS_sched_getscheduler, 0L) & ~(long)SCHED_RESET_ON_FORK;

	return policy == SCHED_FIFO || policy == SCHED_RR || policy == SCHED_DEADLINE;
}

static bool is_on_signal_stack(void)
{
	stack_t stack;

	return syscall(SYS_sigaltstack, NULL, &stack) == 0 && (stack.ss_flags & SS_ONSTACK);
}

/* Returns whether the thread may wait. If true, ring_budget_end() must follow. */
static bool may_wait(uint64_t now)
{
	return !is_on_signal_stack() && !is_realtime() &&
	       ring_budget_begin(&register_process->budget, now);
}

static struct ring *claim_ring(uint32_t tid, uint64_t min_bytes, uint32_t flags,
			       struct arena_entry **ret_entry)
{
	for (uint32_t i = register_count_arenas(); i-- > 0;) {
		struct ring *ring =
			ring_claim(register_process->arenas[i].arena, tid, min_bytes, flags);

		if (ring) {
			*ret_entry = &register_process->arenas[i];
			return ring;
		}
	}
	return NULL;
}

/* Claims a flag that one thread holds at a time; no thread waits for it. */
static bool claim(uint32_t *word)
{
	return __atomic_exchange_n(word, 1, __ATOMIC_ACQUIRE) == 0;
}

static void release(uint32_t *word)
{
	__atomic_store_n(word, 0, __ATOMIC_RELEASE);
}

static int request_arena(uint32_t n_arenas, uint64_t min_bytes, uint64_t deadline)
{
	struct control_request request = { .magic = CONTROL_REQUEST_MAGIC,
					   .version = CONTROL_VERSION,
					   .bytes = CONTROL_BYTES,
					   .min_data_bytes = min_bytes,
					   .n_rings = 1 };
	int memfd, r;

	if (min_bytes == 0)
		request.n_rings = n_arenas < 4
					  ? MIN_OF(GROW_RINGS << (n_arenas - 1), MAX_GROW_RINGS)
					  : MAX_GROW_RINGS;
	r = control_request_arena(&register_process->connection, &request, deadline, &memfd);
	if (control_is_left(&register_process->connection))
		register_leave();
	else if (r < 0 && r != -ETIMEDOUT)
		control_disconnect(&register_process->connection);
	if (r != 0)
		return r;
	r = add_arena(memfd);
	syscall(SYS_close, memfd);
	return r;
}

/* Requests another arena. If the answer comes after the deadline, the next request receives it. */
static bool grow(uint64_t min_bytes, uint64_t deadline)
{
	int r = -EAGAIN;
	uint32_t n;

	if (!claim(&register_process->growing))
		return false;
	/* n is 0 before a session's first arena. The thread that registers the process gets that
	 * arena. */
	n = register_count_retired();
	n = register_count_arenas() - n;
	if (n > 0 && n < MAX_SESSION_ARENAS &&
	    clock_now() >= register_process->no_growth_until_ns) {
		r = request_arena(n, min_bytes, deadline);
		if (r != 0 && r != -ETIMEDOUT)
			register_process->no_growth_until_ns = clock_now() + GROW_AGAIN_NS;
	}
	release(&register_process->growing);
	return r == 0;
}

/* Returns whether a closed ring is not read to its end yet. If so, rings the doorbell. */
static bool is_one_closed(void)
{
	bool is_closed = false;

	for (uint32_t i = 0; i < register_count_arenas(); i++)
		is_closed = ring_arena_request_closed(register_process->arenas[i].arena) ||
			    is_closed;
	return is_closed;
}

/* Waits for a ring that an exited thread left, or else for another arena. */
static struct ring *wait_for_ring(uint32_t tid, uint32_t flags, uint64_t deadline,
				  struct arena_entry **ret_entry)
{
	const struct timespec bit = { .tv_nsec = WAIT_STEP_NS };
	struct ring *ring = NULL;

	for (int i = 0; !ring && clock_now() < deadline; i++) {
		bool is_closed = is_one_closed();

		/* Closed rings are typically read within two milliseconds. */
		if ((!is_closed || i >= PATIENT_STEPS) && !grow(0, deadline) && !is_closed &&
		    RING_LOAD(&register_process->growing) == 0)
			break;
		ring = claim_ring(tid, 0, flags, ret_entry);
		if (!ring)
			syscall(SYS_nanosleep, &bit, NULL);
	}
	return ring;
}

/* Waits for a ring for up to RING_WAIT_NS; in a lossless session, up to the process's budget. */
static struct ring *wait_within_budget(uint32_t tid, uint32_t flags, struct arena_entry **ret_entry)
{
	uint32_t n = register_count_arenas();
	bool is_lossless = n > 0 && ring_arena_is_lossless(register_process->arenas[n - 1].arena);
	uint64_t now = clock_now(), left, deadline;
	struct ring *ring;

	do {
		left = ring_budget_left(&register_process->budget, now);
		deadline = now + MIN_OF(left, RING_WAIT_NS);
		ring = wait_for_ring(tid, flags, deadline, ret_entry);
		now = clock_now();
	} while (!ring && is_lossless && now >= deadline && left > RING_WAIT_NS &&
		 !is_wait_in_vain());
	return ring;
}

/* Returns whether the free rings are fewer than half of the rings in the session's first arena. */
static bool is_scarce(void)
{
	uint32_t first = register_count_retired(), n = register_count_arenas(), n_free = 0;

	for (uint32_t i = 0; i < n; i++)
		n_free += ring_arena_count_free(register_process->arenas[i].arena);
	return first < n && n_free < register_process->arenas[first].arena->n_rings / 2;
}

struct ring *register_get_ring(uint32_t tid, uint32_t flags, struct arena_entry **ret_entry)
{
	struct ring *ring = claim_ring(tid, 0, flags, ret_entry);

	if (ring) {
		/* Request another arena before it is needed, so that no thread waits for it. */
		if (!(flags & RING_NO_SYSCALL) && is_scarce() && !is_on_signal_stack())
			grow(0, 0);
		return ring;
	}
	if (flags & RING_NO_SYSCALL)
		return NULL;
	if (claim(&register_process->sweeping)) {
		for (uint32_t i = 0; i < register_count_arenas(); i++)
			ring_arena_sweep(register_process->arenas[i].arena, register_process->tgid,
					 tid);
		release(&register_process->sweeping);
	}
	ring = claim_ring(tid, 0, flags, ret_entry);
	if (ring)
		return ring;
	if (may_wait(clock_now())) {
		ring = wait_within_budget(tid, flags, ret_entry);
		ring_budget_end(&register_process->budget, clock_now());
	} else if (!is_on_signal_stack()) {
		is_one_closed();
		grow(0, 0);
	}
	return ring ? ring : claim_ring(tid, 0, flags, ret_entry);
}

struct ring *register_get_bigger_ring(uint32_t tid, uint64_t bytes, uint32_t flags,
				      struct arena_entry **ret_entry)
{
	struct ring *ring = claim_ring(tid, bytes, flags, ret_entry);
	uint64_t start;
	bool has_grown;

	if (ring)
		return ring;
	start = clock_now();
	if (may_wait(start)) {
		has_grown = grow(bytes, start + RING_WAIT_NS);
		ring_budget_end(&register_process->budget, clock_now());
	} else {
		has_grown = !is_on_signal_stack() && grow(bytes, 0);
	}
	return has_grown ? claim_ring(tid, bytes, flags, ret_entry) : NULL;
}

/* ---- The state ---- */

/* Returns whether the state was on before. */
static bool set_state(bool is_on)
{
	bool was_on = __atomic_exchange_n(&prof_collector_state, is_on, __ATOMIC_RELAXED) != 0;

	if (was_on != is_on && register_on_state)
		register_on_state(is_on);
	return was_on;
}

bool register_is_filtered(void)
{
	return syscall(SYS_prctl, (long)PR_GET_SECCOMP, 0L, 0L, 0L, 0L) != 0;
}

static void set_parent(uint32_t tgid)
{
	if (own_tgid != tgid)
		parent_tgid = own_tgid;
	own_tgid = tgid;
}

static int connect_process(void)
{
	struct control_hello hello = { .magic = CONTROL_HELLO_MAGIC,
				       .version = CONTROL_VERSION,
				       .bytes = CONTROL_BYTES,
				       .wants = register_wants };
	uint64_t wait_ns = is_realtime() ? REGISTER_REALTIME_NS : CONTROL_WAIT_NS;
	uint32_t tgid = (uint32_t)syscall(SYS_getpid);
	int memfd, r;

	control_disconnect(&inherited);
	set_parent(tgid);
	RING_STORE(&register_process->tgid, tgid);
	RING_STORE(&register_process->generation, ++last_generation);
	hello.parent_tgid = parent_tgid;
	if (is_realtime() || register_is_filtered())
		hello.wants |= CONTROL_WANTS_ROOM;
	memcpy(hello.token, addresses.token, sizeof(hello.token));
	r = control_connect(&addresses, &hello, clock_now() + wait_ns,
			    &register_process->connection, &memfd);
	if (r != 0)
		return r;
	r = add_arena(memfd);
	syscall(SYS_close, memfd);
	if (r < 0)
		control_disconnect(&register_process->connection);
	else
		inherited = register_process->connection;
	return r;
}

/* The caller has set PROCESS_BUSY. */
static int become_registered(void)
{
	int r = connect_process();

	if (r != 0) {
		set_state(false);
		if (register_wants & CONTROL_WANTS_ALLOCATIONS)
			register_explain(reason_of(-r));
	}
	__atomic_store_n(&register_process->state, r == 0 ? PROCESS_READY : PROCESS_INERT,
			 __ATOMIC_RELEASE);
	syscall(SYS_futex, &register_process->state, (long)FUTEX_WAKE_PRIVATE, (long)INT_MAX, NULL,
		NULL, 0L);
	return r;
}

bool register_is_registered(void)
{
	struct timespec most = { .tv_nsec = (long)CONTROL_WAIT_NS };
	uint32_t state = PROCESS_NEW;

	if (__atomic_compare_exchange_n(&register_process->state, &state, PROCESS_BUSY, false,
					__ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE))
		return become_registered() == 0;
	if (state == PROCESS_BUSY && !is_realtime())
		syscall(SYS_futex, &register_process->state, (long)FUTEX_WAIT_PRIVATE,
			(long)PROCESS_BUSY, &most, NULL, 0L);
	return __atomic_load_n(&register_process->state, __ATOMIC_ACQUIRE) == PROCESS_READY;
}

void register_ended(struct producer *producer)
{
	int error = errno;

	if (set_state(false) && !(producer->current->flags & RING_NO_SYSCALL))
		control_disconnect(&register_process->connection);
	errno = error;
}

void register_leave(void)
{
	int error = errno;

	if (register_process && set_state(false))
		control_disconnect(&register_process->connection);
	errno = error;
}

/* ---- Forks ---- */

static void before_fork(void)
{
	register_self.forking = RING_LOAD(&register_process->generation);
}

static void after_fork_in_child(void)
{
	int error = errno;

	shield_arenas(register_self.forking);
	control_disconnect(&inherited);
	set_parent((uint32_t)syscall(SYS_getpid));
	RING_STORE(&register_process->tgid, own_tgid);
	/* The child tries to claim a ring immediately, even if its parent pauses after a failed
	 * claim. */
	register_self.skip = register_self.last_skip = 0;
	errno = error;
}

/* ---- The environment ---- */

extern char **environ;
/* Exists since glibc 2.32. False if there may be several threads. */
extern char __libc_single_threaded __attribute__((weak));

struct variable {
	const char *name;
	char *value;
	size_t n_bytes; /* including the NUL */
};

static const char *find_variable(const char *entry, const char *name)
{
	for (; *name; name++, entry++)
		if (*entry != *name)
			return NULL;
	return *entry == '=' ? entry + 1 : NULL;
}

static bool copy_variable(const struct variable *variable, const char *value)
{
	size_t n = 0;

	while (value[n] && n < variable->n_bytes)
		n++;
	if (n == variable->n_bytes)
		return false;
	memcpy(variable->value, value, n + 1);
	return true;
}

/* Reads the environment that the process was started with, because another thread may be changing
 * the current one. */
static bool read_proc(const struct variable *variable)
{
	char *buffer = register_map_memory(MAX_ENVIRONMENT);
	long fd = syscall(SYS_openat, (long)AT_FDCWD, "/proc/self/environ",
			  (long)(O_RDONLY | O_CLOEXEC), 0L);
	bool is_found = false;
	size_t n = 0;
	long got = 1;

	while (buffer && fd >= 0 && got > 0 && n < MAX_ENVIRONMENT - 1) {
		got = syscall(SYS_read, fd, buffer + n, (long)(MAX_ENVIRONMENT - 1 - n));
		n += got > 0 ? (size_t)got : 0;
	}
	if (fd >= 0)
		syscall(SYS_close, fd);
	for (size_t at = 0; buffer && at < n && !is_found; at++) {
		const char *value = find_variable(buffer + at, variable->name);

		is_found = value && copy_variable(variable, value);
		while (at < n && buffer[at])
			at++;
	}
	if (buffer)
		munmap(buffer, MAX_ENVIRONMENT);
	return is_found;
}

/* `environ` is not set yet if the loader allocates before libc starts. */
bool register_read_variable(const char *name, char *ret_value, size_t n_bytes)
{
	const struct variable variable = { name, ret_value, n_bytes };
	bool is_alone = &__libc_single_threaded && __libc_single_threaded;

	if (!is_alone || !environ)
		return read_proc(&variable);
	for (char **entry = environ; *entry; entry++) {
		const char *value = find_variable(*entry, name);

		if (value)
			return copy_variable(&variable, value);
	}
	return false;
}

/* ---- The beginning ---- */

/* Called once for each process image. A forked child inherits everything except the page's
 * content. */
static int set_up(void)
{
	struct process *page = register_map_memory(RING_PAGE);

	if (!page)
		return -ENOMEM;
	if (madvise(page, RING_PAGE, MADV_WIPEONFORK) < 0) {
		int r = -errno;

		munmap(page, RING_PAGE);
		return r;
	}
	page->connection.fd = -1;
	inherited.fd = -1;
	own_tgid = (uint32_t)syscall(SYS_getpid);
	page->tgid = own_tgid;
	register_process = page;
	register_watch_threads();
	return -pthread_atfork(before_fork, NULL, after_fork_in_child);
}

static int set_up_once(void)
{
	static int failed = -EALREADY;

	if (register_process)
		return 0;
	if (__atomic_exchange_n(&is_set_up, 1, __ATOMIC_ACQ_REL) == 0)
		failed = set_up();
	return failed;
}

void register_prepare(void)
{
	int error = errno;

	(void)!set_up_once();
	errno = error;
}

bool register_is_own(void)
{
	return register_process && register_is_this_process();
}

bool register_begin_answer(void)
{
	return __atomic_exchange_n(&register_process->answering, 1, __ATOMIC_ACQUIRE) == 0;
}

void register_end_answer(void)
{
	__atomic_store_n(&register_process->answering, 0, __ATOMIC_RELEASE);
}

__attribute__((constructor(101))) void register_start(void)
{
	static uint32_t is_started;
	static char value[MAX_VARIABLE]; /* static, because the caller's stack may be small */
	int error = errno, r;

	if (__atomic_exchange_n(&is_started, 1, __ATOMIC_ACQ_REL) != 0 || getauxval(AT_SECURE) != 0)
		return;
	if (!register_read_variable(CONTROL_VARIABLE, value, sizeof(value)) ||
	    !control_parse(value, &addresses))
		register_start_reason = CONTROL_REASON_ENVIRONMENT;
	else if ((r = set_up_once()) == 0)
		set_state(true);
	else
		register_start_reason = reason_of(-r);
	errno = error;
}

/* Claims `state` if there was no session before, or if the last one is over. */
static bool claim_state(void)
{
	uint32_t state = __atomic_load_n(&register_process->state, __ATOMIC_ACQUIRE);

	if (state == PROCESS_BUSY ||
	    (state == PROCESS_READY && RING_LOAD(&prof_collector_state) != 0))
		return false;
	return __atomic_compare_exchange_n(&register_process->state, &state, PROCESS_BUSY, false,
					   __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

int register_connect(const char *text)
{
	struct control_addresses parsed;
	int error = errno, r;
	uint64_t before;

	if (getauxval(AT_SECURE) != 0)
		return -EPERM;
	if (!control_parse(text, &parsed))
		return -EINVAL;
	r = set_up_once();
	if (r == 0 && (!register_is_this_process() || !claim_state()))
		r = -EALREADY;
	if (r == 0) {
		before = register_block_signals();
		addresses = parsed;
		retire_arenas();
		set_state(true);
		r = become_registered();
		register_restore_signals(before);
	}
	errno = error;
	return r;
}
