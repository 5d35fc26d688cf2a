/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Register rings - a process's arenas, and the choice of rings for its threads
 *
 * A thread that finds no ring takes one that an exited thread left, or requests another arena from
 * the engine, over the process's connection. A thread that needs another thread to finish waits for
 * a limited time, or gets no ring.
 *
 * Invariants: (1) a child does not write where its parent does  [test_collector: fork, raw_clone]
 *             (2) no thread waits longer than its bound              [test-control-client: silent]
 *             (3) a thread may still use an arena whose session is over
 *                 [test-register-rings: retired_behind, retired_before]
 */
#include "base/clock.h"
#include "libcollector/register/register-internal.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

#define MAX_SESSION_ARENAS 16u
#define GROW_RINGS 64u /* number of rings in the first request; later requests double it */
#define MAX_GROW_RINGS 256u
#define GROW_AGAIN_NS UINT64_C(1000000000) /* pause after a refusal */
#define WAIT_STEP_NS 100000L
#define PATIENT_STEPS 20

/* Where an arena is mapped. A forked child inherits this, to find its parent's arenas. */
struct range {
	uint64_t generation; /* generation of the process that mapped it; 0: free */
	void *start;
	size_t bytes;
};

static struct range ranges[REGISTER_MAX_ARENAS];

/* ---- Arenas ---- */

/* Returns whether the session is over. Does not check under a seccomp filter, which could kill the
 * process for the system calls. */
static bool is_wait_in_vain(void)
{
	return !register_is_filtered() && register_is_over();
}

int register_add_arena(int memfd)
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

void register_retire_arenas(void)
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

void register_shield_arenas(uint64_t generation)
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

static bool is_on_signal_stack(void)
{
	stack_t stack;

	return syscall(SYS_sigaltstack, NULL, &stack) == 0 && (stack.ss_flags & SS_ONSTACK);
}

/* Returns whether the thread may wait. If true, ring_budget_end() must follow. */
static bool may_wait(uint64_t now)
{
	return !is_on_signal_stack() && !register_is_realtime() &&
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
	r = register_add_arena(memfd);
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
	/* n is 0 before the first arena of another session. The thread that registers the process
	 * gets that arena. */
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

/* In a lossless session, waits again as long as the answer is only late. */
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

/* Returns whether the number of free rings is less than half of the first arena's rings. */
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
