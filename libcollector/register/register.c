/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Register - gets each thread of this process a ring, and releases it
 *
 * Rings are claimed with all signals blocked, so that no handler interrupts this or leaves it by
 * siglongjmp(). Every wait is bounded: a thread that needs another thread to finish waits for a
 * limited time or counts its losses. A child of vfork() is another process in this memory, and
 * neither claims rings nor registers. register-process.c holds the process's state and arenas, and
 * chooses rings.
 *
 * Invariants: (1) errno does not change                               [test_collector: zoo]
 *             (2) records without a ring are counted
 *                 [test_collector: few_rings, fork_without_ring]
 *             (3) after the engine was killed, the process can get a new session
 *                 [test_attach: engine_killed]
 */
#include "libcollector/register/register-internal.h"

#include "libcollector/prof-collector.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

#define FIRST_SKIP 64
#define MAX_SKIP (1u << 20)
#define STUCK_RECORDS 1024u
#define KERNEL_SIGSET_BYTES 8L

__thread struct register_thread register_self
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

static pthread_key_t key;
static bool has_key;

/* ---- Signals ---- */

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

/* ---- Losses ---- */

void register_count_lost(void)
{
	uint32_t n = register_count_arenas();

	if (n > 0)
		ring_arena_count_lost(register_process->arenas[n - 1].arena);
	else
		__atomic_fetch_add(&register_process->lost, 1, __ATOMIC_RELAXED);
}

/* ---- Producers ---- */

/* Needs no lock: a ring has one owner, which also owns the ring's producer. */
static struct producer *make_producer(struct arena_entry *entry, struct ring *ring)
{
	struct producer **slot = &entry->producers[ring - entry->arena->rings];
	struct producer *producer = *slot;

	if (!producer)
		producer = *slot = register_map_memory(sizeof(*producer));
	if (!producer)
		return NULL;
	producer->ring = ring;
	producer->current = ring;
	producer->ended = &entry->arena->shared->ended;
	producer->n_types = RING_LOAD(&entry->arena->shared->n_types);
	producer->next_id =
		(uint64_t)__atomic_add_fetch(&register_process->n_owners, 1, __ATOMIC_RELAXED)
		<< 32;
	intern_restart(&producer->intern);
	return producer;
}

static struct producer *claim_producer(void)
{
	uint32_t tid = (uint32_t)syscall(SYS_gettid);
	struct arena_entry *entry;
	struct producer *producer;
	uint32_t flags = register_self.no_syscall || register_is_filtered() ? RING_NO_SYSCALL : 0;
	struct ring *ring = register_get_ring(tid, flags, &entry);

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

	if (!register_process || RING_LOAD(&prof_collector_state) == 0)
		return NULL;
	/* After a failed claim, drop 64 records before the next try, then 128, and so on. */
	if (self->is_inside || self->skip > 0) {
		self->skip -= !self->is_inside;
		register_count_lost();
		return NULL;
	}
	before = register_block_signals();
	self->is_inside = true;
	/* A handler may have claimed a ring meanwhile. */
	producer = is_alive(self->producer) ? self->producer : NULL;
	if (!producer) {
		self->producer = NULL;
		is_own = register_is_this_process();
		producer = is_own && register_is_registered() ? claim_producer() : NULL;
	}
	if (!producer) {
		if (is_own) {
			self->last_skip = self->last_skip == 0
						  ? FIRST_SKIP
						  : MIN_OF(2 * self->last_skip, MAX_SKIP);
			self->skip = self->last_skip;
		}
		register_count_lost();
	}
	self->is_inside = false;
	register_restore_signals(before);
	errno = error;
	return producer;
}

/* Returns whether the last session has ended, or its engine is gone. Does not check this thread's
 * ring, which may belong to an earlier session. */
bool register_is_over(void)
{
	uint32_t n_retired = register_count_retired(), n = register_count_arenas();

	return n > n_retired && register_is_this_process() &&
	       (RING_LOAD(&register_process->arenas[n - 1].arena->shared->ended) != 0 ||
		control_is_left(&register_process->connection));
}

/* Detects a killed engine, which reads no records and does not set `ended`. Checks only every
 * STUCK_RECORDS records, because a check takes system calls. */
static void check_stuck(struct producer *producer)
{
	int error = errno;

	if (producer->n_stuck++ % STUCK_RECORDS == 0 &&
	    !(producer->current->flags & RING_NO_SYSCALL) && !register_is_filtered() &&
	    register_is_over())
		register_leave();
	errno = error;
}

bool register_again(struct producer *producer)
{
	struct register_thread *self = &register_self;

	if (ring_is_alive(producer->ring)) {
		if (__builtin_expect(__atomic_load_n(producer->ended, __ATOMIC_RELAXED) != 0, 0))
			register_ended(producer);
		else if (ring_is_stuck(producer->current))
			check_stuck(producer);
		return false;
	}
	if (self->producer == producer)
		self->producer = NULL;
	return true;
}

static struct producer *claim_bigger(struct producer *producer, uint64_t bytes)
{
	uint32_t tid = (uint32_t)syscall(SYS_gettid);
	struct arena_entry *entry;
	struct producer *bigger;
	struct ring *ring = register_get_bigger_ring(tid, bytes, producer->ring->flags, &entry);

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

/* Does nothing while a record is open, as in a handler, because the interrupted code continues with
 * its ring. */
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
	    producer->current->open[0].sp == 0 && register_is_this_process())
		bigger = claim_bigger(producer, bytes);
	self->is_inside = false;
	register_restore_signals(before);
	errno = error;
	return bigger ? bigger : producer;
}

bool register_is_recorded(void)
{
	struct producer *producer = RING_LOAD(&prof_collector_state) ? producer_get() : NULL;
	int error = errno;

	if (RING_LOAD(&prof_collector_state) && register_is_over())
		register_leave();
	errno = error;
	return producer && RING_LOAD(&prof_collector_state) != 0;
}

bool register_no_syscall(void)
{
	struct producer *producer = producer_get();

	register_self.no_syscall = true;
	if (!producer)
		return false;
	ring_add_flags(producer->ring, RING_NO_SYSCALL);
	/* drops cached stacks, because later walks make no system calls */
	producer->calls_epoch = 0;
	return true;
}

/* ---- Threads that end ---- */

/* If destructors of other keys run later and claim another ring, this destructor runs again and
 * releases it. Rings that are claimed after the last call are swept. */
static void thread_done(void *value)
{
	struct register_thread *self = &register_self;
	struct producer *producer;
	int error = errno;

	/* Keeps handlers from sweeping or claiming the ring that is being released. */
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

void register_watch_threads(void)
{
	has_key = pthread_key_create(&key, thread_done) == 0;
}
