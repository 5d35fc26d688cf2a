/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Register - how this process comes to its arenas, and each of its threads to a ring
 *
 * What is a process's stands in a page that a forked child has as zeros (MADV_WIPEONFORK), so that whoever forks, with or
 * without the libc knowing, gets a child that is not registered. Its first record registers it, with a connection of its own.
 * Everything that is not a record is done with all signals blocked: no handler interrupts it, none leaves it by siglongjmp(),
 * and what blocks is bounded. A thread that needs another one to be done waits for a bound or counts what it loses.
 * Where a child of vfork() runs, which has this memory but is another process, nothing is claimed and nothing registered.
 *
 * Invariants: (1) a child does not write where its parent does       [test_collector: fork, raw_clone]
 *             (2) no thread waits longer than its bound, and only once a process [test_collector: stopped, silent]
 *             (3) errno stays                                        [test_collector: all, as zoo.c checks]
 *             (4) what finds no ring is counted                      [test_collector: few_rings]
 *             (5) a descriptor that is not ours is not touched       [test_collector: closefrom, reuse]
 */
#include "libcollector/register.h"

#include "libcollector/control-client.h"
#include "libcollector/prof-collector.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

#define MAX_ARENAS 64 /* of all sessions of a process, one after another */
#define MAX_SESSION_ARENAS 16u
#define MAX_VARIABLE 1024 /* bytes of PROF_CONTROL's value */
#define MAX_ENVIRONMENT (1u << 20)
#define GROW_RINGS 64u /* for the first time; then twice as many each time */
#define MAX_GROW_RINGS 256u
#define GROW_AGAIN_NS UINT64_C(1000000000) /* after a refusal */
#define WAIT_STEP_NS 100000L
#define PATIENT_STEPS 20
#define FIRST_SKIP 64
#define MAX_SKIP (1u << 20)
#define KERNEL_SIGSET_BYTES 8L

enum process_state {
	PROCESS_NEW, /* as a forked child has it */
	PROCESS_BUSY,
	PROCESS_READY,
	PROCESS_INERT,
};

struct arena_entry {
	struct ring_arena *arena;
	struct producer **producers; /* by ring; NULL: never owned */
};

/* Zeros in a forked child. */
struct process {
	uint32_t state; /* futex, private */
	uint32_t tgid;
	uint64_t generation;
	uint64_t lost; /* before there was an arena */
	struct control_connection connection;
	struct ring_budget budget; /* of all waits but the first */
	uint32_t growing;          /* by a thread */
	uint32_t sweeping;
	uint64_t no_growth_until_ns;
	uint32_t n_owners; /* of rings */
	uint32_t n_arenas;
	uint32_t n_retired; /* of them: the first ones, of sessions that are over */
	struct arena_entry arenas[MAX_ARENAS];
};
static_assert(sizeof(struct process) <= RING_PAGE, "process");

/* What a child inherits, as it has to know where its parent's arenas were. */
struct range {
	uint64_t generation; /* of the process that mapped it; 0: free */
	void *start;
	size_t bytes;
};

__thread struct register_thread register_self
	__attribute__((tls_model("initial-exec"), visibility("hidden")));
uint32_t prof_collector_state;
uint32_t register_wants;
void (*register_on_state)(bool is_on);

static struct process *process;
static struct control_addresses addresses;
static struct control_connection inherited;
static struct range ranges[MAX_ARENAS];
static uint64_t last_generation;
static uint32_t own_tgid, parent_tgid;
static uint32_t is_set_up;
static pthread_key_t key;
static bool has_key;

/* Whether it was on. */
static bool set_state(bool is_on)
{
	bool was_on = __atomic_exchange_n(&prof_collector_state, is_on, __ATOMIC_RELAXED) != 0;

	if (was_on != is_on && register_on_state)
		register_on_state(is_on);
	return was_on;
}

/* ---- System calls ---- */

uint64_t register_block_signals(void)
{
	uint64_t all = ~UINT64_C(0), before = 0;

	syscall(SYS_rt_sigprocmask, (long)SIG_SETMASK, &all, &before, KERNEL_SIGSET_BYTES);
	return before;
}

void register_restore_signals(uint64_t before)
{
	syscall(SYS_rt_sigprocmask, (long)SIG_SETMASK, &before, NULL, KERNEL_SIGSET_BYTES);
}

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

/* Where true, RING_WAIT_NS of the budget are taken. */
static bool may_wait(uint64_t now)
{
	return !is_on_signal_stack() && !is_realtime() && ring_budget_take(&process->budget, now);
}

static void *map_memory(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

/* A child of vfork() is another process in this one's memory. */
static bool is_this_process(void)
{
	uint32_t tgid = RING_LOAD(&process->tgid);

	return tgid == 0 || tgid == (uint32_t)syscall(SYS_getpid);
}

/* pairs with add_arena() */
static uint32_t count_arenas(void)
{
	return __atomic_load_n(&process->n_arenas, __ATOMIC_ACQUIRE);
}

/* ---- Losses ---- */

void register_count_lost(void)
{
	uint32_t n = count_arenas();

	if (n > 0)
		ring_arena_count_lost(process->arenas[n - 1].arena);
	else
		__atomic_fetch_add(&process->lost, 1, __ATOMIC_RELAXED);
}

/* What was tried in vain is tried again after 64 attempts, then 128, and so on. */
static bool is_skipped(void)
{
	struct register_thread *self = &register_self;

	if (self->skip == 0)
		return false;
	self->skip--;
	return true;
}

static void skip_some(void)
{
	struct register_thread *self = &register_self;

	self->last_skip = self->last_skip == 0 ? FIRST_SKIP : MIN_OF(2 * self->last_skip, MAX_SKIP);
	self->skip = self->last_skip;
}

/* ---- Arenas ---- */

static void remember_range(struct ring_arena *arena)
{
	for (size_t i = 0; i < ARRAY_SIZE(ranges); i++) {
		if (ranges[i].generation == process->generation)
			continue;
		ring_arena_range(arena, &ranges[i].start, &ranges[i].bytes);
		ranges[i].generation = process->generation;
		return;
	}
}

/* By whoever has `state` or `growing`. */
static int add_arena(int memfd)
{
	uint32_t n = process->n_arenas;
	struct arena_entry *entry = &process->arenas[n];
	int r;

	if (n == MAX_ARENAS)
		return -ENOSPC;
	r = ring_arena_map(memfd, &entry->arena);
	if (r < 0)
		return r;
	entry->producers = map_memory(entry->arena->n_rings * sizeof(*entry->producers));
	if (!entry->producers) {
		ring_arena_unmap(entry->arena);
		return -ENOMEM;
	}
	ring_arena_set_budget(entry->arena, &process->budget);
	remember_range(entry->arena);
	ring_arena_join(entry->arena);
	__atomic_store_n(&process->n_arenas, n + 1, __ATOMIC_RELEASE);
	for (uint64_t lost = __atomic_exchange_n(&process->lost, 0, __ATOMIC_RELAXED); lost > 0;
	     lost--)
		ring_arena_count_lost(entry->arena);
	return 0;
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
	RING_STORE(&process->tgid, tgid);
	RING_STORE(&process->generation, ++last_generation);
	hello.parent_tgid = parent_tgid;
	memcpy(hello.token, addresses.token, sizeof(hello.token));
	r = control_connect(&addresses, &hello, control_now_ns() + wait_ns, &process->connection,
			    &memfd);
	if (r != 0)
		return r;
	r = add_arena(memfd);
	syscall(SYS_close, memfd);
	if (r < 0)
		control_disconnect(&process->connection);
	else
		inherited = process->connection;
	return r;
}

/* By who has made it PROCESS_BUSY. */
static int become_registered(void)
{
	int r = connect_process();

	if (r != 0)
		set_state(false);
	__atomic_store_n(&process->state, r == 0 ? PROCESS_READY : PROCESS_INERT, __ATOMIC_RELEASE);
	syscall(SYS_futex, &process->state, (long)FUTEX_WAKE_PRIVATE, (long)INT_MAX, NULL, NULL,
		0L);
	return r;
}

static void wait_for_other(void)
{
	struct timespec most = { .tv_nsec = (long)CONTROL_WAIT_NS };

	if (!is_realtime())
		syscall(SYS_futex, &process->state, (long)FUTEX_WAIT_PRIVATE, (long)PROCESS_BUSY,
			&most, NULL, 0L);
}

static bool is_registered(void)
{
	uint32_t state = PROCESS_NEW;

	if (__atomic_compare_exchange_n(&process->state, &state, PROCESS_BUSY, false,
					__ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE))
		return become_registered() == 0;
	if (state == PROCESS_BUSY)
		wait_for_other();
	return __atomic_load_n(&process->state, __ATOMIC_ACQUIRE) == PROCESS_READY;
}

/* ---- Rings ---- */

static struct ring *claim_ring(uint32_t tid, uint64_t min_bytes, uint32_t flags,
			       struct arena_entry **ret_entry)
{
	for (uint32_t i = count_arenas(); i-- > 0;) {
		struct ring *ring = ring_claim(process->arenas[i].arena, tid, min_bytes, flags);

		if (ring) {
			*ret_entry = &process->arenas[i];
			return ring;
		}
	}
	return NULL;
}

/* A word that one thread has at a time; nobody waits for it. */
static bool take(uint32_t *word)
{
	return __atomic_exchange_n(word, 1, __ATOMIC_ACQUIRE) == 0;
}

static void give_back(uint32_t *word)
{
	__atomic_store_n(word, 0, __ATOMIC_RELEASE);
}

static void sweep(uint32_t own_tid)
{
	if (!take(&process->sweeping))
		return;
	for (uint32_t i = 0; i < count_arenas(); i++)
		ring_arena_sweep(process->arenas[i].arena, process->tgid, own_tid);
	give_back(&process->sweeping);
}

static uint32_t rings_to_ask_for(void)
{
	uint32_t n = count_arenas() - process->n_retired;

	return n < 4 ? MIN_OF(GROW_RINGS << (n - 1), MAX_GROW_RINGS) : MAX_GROW_RINGS;
}

static int ask_for_arena(uint64_t min_bytes, uint64_t deadline)
{
	struct control_request request = { .magic = CONTROL_REQUEST_MAGIC,
					   .version = CONTROL_VERSION,
					   .bytes = CONTROL_BYTES,
					   .min_data_bytes = min_bytes,
					   .n_rings = min_bytes == 0 ? rings_to_ask_for() : 1 };
	int memfd, r;

	r = control_ask(&process->connection, &request, deadline, &memfd);
	if (r < 0 && r != -ETIMEDOUT)
		control_disconnect(&process->connection);
	if (r != 0)
		return r;
	r = add_arena(memfd);
	syscall(SYS_close, memfd);
	return r;
}

/* An answer that does not come in time is taken by who asks next. */
static bool grow(uint64_t min_bytes, uint64_t deadline)
{
	int r = -EAGAIN;

	if (!take(&process->growing))
		return false;
	if (process->n_arenas - process->n_retired < MAX_SESSION_ARENAS &&
	    control_now_ns() >= process->no_growth_until_ns) {
		r = ask_for_arena(min_bytes, deadline);
		if (r != 0 && r != -ETIMEDOUT)
			process->no_growth_until_ns = control_now_ns() + GROW_AGAIN_NS;
	}
	give_back(&process->growing);
	return r == 0;
}

/* Of threads that ended, whose rings nobody has read to their end yet. Asks for that. */
static bool is_one_closed(void)
{
	bool is_closed = false;

	for (uint32_t i = 0; i < count_arenas(); i++)
		is_closed = ring_arena_ask_for_closed(process->arenas[i].arena) || is_closed;
	return is_closed;
}

/* Half of what the first arena has is not left. */
static bool is_scarce(void)
{
	uint32_t n_free = 0;

	for (uint32_t i = 0; i < count_arenas(); i++)
		n_free += ring_arena_count_free(process->arenas[i].arena);
	return n_free < process->arenas[process->n_retired].arena->n_rings / 2;
}

/* What a thread left that ended, else more. */
static struct ring *wait_for_ring(uint32_t tid, uint32_t flags, uint64_t deadline,
				  struct arena_entry **ret_entry)
{
	const struct timespec bit = { .tv_nsec = WAIT_STEP_NS };
	struct ring *ring = NULL;

	for (int i = 0; !ring && control_now_ns() < deadline; i++) {
		bool is_closed = is_one_closed();

		/* Most often they are read within a millisecond or two. */
		if ((!is_closed || i >= PATIENT_STEPS) && !grow(0, deadline) && !is_closed &&
		    RING_LOAD(&process->growing) == 0)
			break;
		ring = claim_ring(tid, 0, flags, ret_entry);
		if (!ring)
			syscall(SYS_nanosleep, &bit, NULL);
	}
	return ring;
}

/* What is free at once, else what comes free within RING_WAIT_NS, where this thread may wait. */
static struct ring *get_ring(uint32_t tid, uint32_t flags, struct arena_entry **ret_entry)
{
	struct ring *ring = claim_ring(tid, 0, flags, ret_entry);
	uint64_t start;

	if (ring) {
		/* Asked for before it is needed, nobody waits for it. */
		if (!(flags & RING_NO_SYSCALL) && is_scarce() && !is_on_signal_stack())
			grow(0, 0);
		return ring;
	}
	sweep(tid);
	ring = claim_ring(tid, 0, flags, ret_entry);
	if (ring || (flags & RING_NO_SYSCALL))
		return ring;
	start = control_now_ns();
	if (may_wait(start)) {
		ring = wait_for_ring(tid, flags, start + RING_WAIT_NS, ret_entry);
		ring_budget_return(&process->budget, control_now_ns() - start);
	} else if (!is_on_signal_stack()) {
		is_one_closed();
		grow(0, 0);
	}
	return ring ? ring : claim_ring(tid, 0, flags, ret_entry);
}

/* The rings themselves say who has one, so the memory beside each is its owner's without more ado. */
static struct producer *make_producer(struct arena_entry *entry, struct ring *ring)
{
	struct producer **slot = &entry->producers[ring - entry->arena->rings];
	struct producer *producer = *slot;

	if (!producer)
		producer = *slot = map_memory(sizeof(*producer));
	if (!producer)
		return NULL;
	producer->ring = ring;
	producer->current = ring;
	producer->ended = &entry->arena->shared->ended;
	producer->n_types = RING_LOAD(&entry->arena->shared->n_types);
	producer->next_id = (uint64_t)__atomic_add_fetch(&process->n_owners, 1, __ATOMIC_RELAXED)
			    << 32;
	intern_restart(&producer->intern);
	return producer;
}

/* A filter that may kill is one that was seen here; asking takes a call itself, as does all that comes before. */
static uint32_t get_flags(void)
{
	bool is_filtered = syscall(SYS_prctl, (long)PR_GET_SECCOMP, 0L, 0L, 0L, 0L) != 0;

	return register_self.no_syscall || is_filtered ? RING_NO_SYSCALL : 0;
}

static struct producer *claim_producer(void)
{
	uint32_t tid = (uint32_t)syscall(SYS_gettid);
	struct arena_entry *entry;
	struct producer *producer;
	struct ring *ring = get_ring(tid, get_flags(), &entry);

	if (!ring)
		return NULL;
	producer = make_producer(entry, ring);
	if (!producer) {
		ring_release(ring);
		return NULL;
	}
	register_self.producer = producer;
	register_self.last_skip = 0;
	if (has_key)
		pthread_setspecific(key, producer);
	return producer;
}

static bool is_alive(const struct producer *producer)
{
	return producer && ring_is_alive(producer->ring);
}

struct producer *register_producer(void)
{
	struct register_thread *self = &register_self;
	struct producer *producer;
	int error = errno;
	uint64_t before;
	bool is_own = true;

	if (!process || RING_LOAD(&prof_collector_state) == 0)
		return NULL;
	if (self->is_inside || is_skipped()) {
		register_count_lost();
		return NULL;
	}
	before = register_block_signals();
	self->is_inside = true;
	/* A handler may have done all of this in the meantime. */
	producer = is_alive(self->producer) ? self->producer : NULL;
	if (!producer) {
		self->producer = NULL;
		is_own = is_this_process();
		producer = is_own && is_registered() ? claim_producer() : NULL;
	}
	if (!producer) {
		if (is_own)
			skip_some();
		register_count_lost();
	}
	self->is_inside = false;
	register_restore_signals(before);
	errno = error;
	return producer;
}

bool register_again(struct producer *producer)
{
	struct register_thread *self = &register_self;

	if (ring_is_alive(producer->ring)) {
		if (__builtin_expect(__atomic_load_n(producer->ended, __ATOMIC_RELAXED) != 0, 0))
			register_ended(producer);
		return false;
	}
	if (self->producer == producer)
		self->producer = NULL;
	return true;
}

static bool grow_in_time(uint64_t bytes)
{
	uint64_t start = control_now_ns();
	bool is_done;

	if (!may_wait(start))
		return !is_on_signal_stack() && grow(bytes, 0);
	is_done = grow(bytes, start + RING_WAIT_NS);
	ring_budget_return(&process->budget, control_now_ns() - start);
	return is_done;
}

static struct producer *claim_bigger(struct producer *producer, uint64_t bytes)
{
	uint32_t tid = (uint32_t)syscall(SYS_gettid);
	struct arena_entry *entry;
	struct producer *bigger;
	struct ring *ring = claim_ring(tid, bytes, producer->ring->flags, &entry);

	if (!ring && grow_in_time(bytes))
		ring = claim_ring(tid, bytes, producer->ring->flags, &entry);
	if (!ring)
		return NULL;
	bigger = make_producer(entry, ring);
	if (!bigger) {
		ring_release(ring);
		return NULL;
	}
	register_self.producer = bigger;
	ring_release(producer->ring);
	if (has_key)
		pthread_setspecific(key, bigger);
	return bigger;
}

/* Not where a record is open, as a handler finds it: who opened it goes on with the ring that it has. */
struct producer *register_bigger(struct producer *producer, uint64_t bytes)
{
	struct register_thread *self = &register_self;
	struct producer *bigger = NULL;
	int error = errno;
	uint64_t before;

	if (bytes > RING_MAX_BYTES || self->is_inside || self->no_syscall ||
	    (producer->current->flags & RING_NO_SYSCALL))
		return producer;
	before = register_block_signals();
	self->is_inside = true;
	if (self->producer == producer && is_alive(producer) &&
	    producer->current->open[0].sp == 0 && is_this_process())
		bigger = claim_bigger(producer, bytes);
	self->is_inside = false;
	register_restore_signals(before);
	errno = error;
	return bigger ? bigger : producer;
}

void register_ended(struct producer *producer)
{
	int error = errno;

	if (set_state(false) && !(producer->current->flags & RING_NO_SYSCALL))
		control_disconnect(&process->connection);
	errno = error;
}

void register_leave(void)
{
	int error = errno;

	if (process && set_state(false))
		control_disconnect(&process->connection);
	errno = error;
}

bool register_is_recorded(void)
{
	struct producer *producer = RING_LOAD(&prof_collector_state) ? producer_get() : NULL;

	if (producer && __atomic_load_n(producer->ended, __ATOMIC_RELAXED) != 0)
		register_ended(producer);
	return producer && RING_LOAD(&prof_collector_state) != 0;
}

bool register_no_syscall(void)
{
	struct producer *producer = producer_get();

	register_self.no_syscall = true;
	if (!producer)
		return false;
	ring_add_flags(producer->ring, RING_NO_SYSCALL);
	return true;
}

/* ---- Threads and forks ---- */

/* Destructors of other keys that run later claim another ring, and this one again; what comes behind the last is swept. */
static void thread_done(void *value)
{
	struct register_thread *self = &register_self;
	struct producer *producer;
	int error = errno;

	/* A handler that comes now does not sweep, nor claim, what is just being released. */
	self->is_inside = true;
	self->is_done = true;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	producer = self->producer;
	self->producer = NULL;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (producer)
		ring_release(producer->ring);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	self->is_inside = false;
	errno = error;
}

static void before_fork(void)
{
	register_self.forking = RING_LOAD(&process->generation);
}

static void after_fork_in_child(void)
{
	uint64_t generation = register_self.forking;
	int error = errno;

	for (size_t i = 0; i < ARRAY_SIZE(ranges); i++) {
		if (generation == 0 || ranges[i].generation != generation)
			continue;
		/* Without it only a handler that forked within a record would miss something. */
		if (ring_arena_shield(ranges[i].start, ranges[i].bytes) == 0)
			ranges[i].generation = 0;
	}
	control_disconnect(&inherited);
	set_parent((uint32_t)syscall(SYS_getpid));
	RING_STORE(&process->tgid, own_tgid);
	errno = error;
}

/* ---- The beginning ---- */

extern char **environ;
/* glibc 2.32; true also where nobody knows. */
extern char __libc_single_threaded __attribute__((weak));

struct variable {
	const char *name;
	char *value;
	size_t n_bytes; /* that there is room for */
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

static bool read_environ(const struct variable *variable)
{
	for (char **entry = environ; *entry; entry++) {
		const char *value = find_variable(*entry, variable->name);

		if (value)
			return copy_variable(variable, value);
	}
	return false;
}

/* As the process was started with: where there are threads, another one may be in setenv(). */
static bool read_proc(const struct variable *variable)
{
	char *buffer = map_memory(MAX_ENVIRONMENT);
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

/* The libc has no environ yet where the loader allocates before it has begun. */
bool register_read_variable(const char *name, char *ret_value, size_t n_bytes)
{
	const struct variable variable = { name, ret_value, n_bytes };
	bool is_alone = &__libc_single_threaded && __libc_single_threaded;

	return is_alone && environ ? read_environ(&variable) : read_proc(&variable);
}

/* Once a process image. Children inherit all of it but the page's content. */
static int set_up(void)
{
	struct process *page = map_memory(RING_PAGE);

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
	process = page;
	has_key = pthread_key_create(&key, thread_done) == 0;
	return -pthread_atfork(before_fork, NULL, after_fork_in_child);
}

static int set_up_once(void)
{
	int r;

	if (process)
		return 0;
	if (__atomic_exchange_n(&is_set_up, 1, __ATOMIC_ACQ_REL) != 0)
		return -EALREADY;
	r = set_up();
	return r;
}

void register_prepare(void)
{
	int error = errno;

	(void)!set_up_once();
	errno = error;
}

bool register_is_own(void)
{
	return process && is_this_process();
}

__attribute__((constructor(101))) void register_start(void)
{
	static uint32_t is_started;
	char value[MAX_VARIABLE];
	int error = errno;

	if (__atomic_exchange_n(&is_started, 1, __ATOMIC_ACQ_REL) == 0 &&
	    getauxval(AT_SECURE) == 0 &&
	    register_read_variable(CONTROL_VARIABLE, value, sizeof(value)) &&
	    control_parse(value, &addresses) && set_up_once() == 0)
		set_state(true);
	errno = error;
}

/* Has it: what was before is over, or never was. */
static bool take_state(void)
{
	uint32_t state = __atomic_load_n(&process->state, __ATOMIC_ACQUIRE);

	if (state == PROCESS_BUSY ||
	    (state == PROCESS_READY && RING_LOAD(&prof_collector_state) != 0))
		return false;
	return __atomic_compare_exchange_n(&process->state, &state, PROCESS_BUSY, false,
					   __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* Of the session before. A thread that is amid a record ends it in memory of its own; the arena's goes when the engine goes. */
static void retire_arenas(void)
{
	size_t bytes;
	void *start;

	for (uint32_t n = count_arenas(); process->n_retired < n; process->n_retired++) {
		struct ring_arena *arena = process->arenas[process->n_retired].arena;

		ring_arena_retire(arena);
		ring_arena_range(arena, &start, &bytes);
		if (ring_arena_shield(start, bytes) == 0)
			madvise(start, bytes, MADV_DONTFORK);
	}
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
	if (r == 0 && (!is_this_process() || !take_state()))
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
