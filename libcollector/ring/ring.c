/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ring - the producer's half: a thread writes records that profd-engine reads
 *
 * The producer is a thread and the signal handlers that interrupt it, so most of this file deals
 * with interruption. The thread's private struct ring shows, with one store each, whether a record
 * is open (open[0].sp), where the next one may be reserved (end), and how far records are published
 * (head). A handler that finds an open record reserves its own after it, and leaves publishing to
 * the interrupted code. During the few instructions in which that would fail, nestable is false,
 * and the handler's record is counted as lost. If an open record was begun deeper in the stack than
 * the caller, siglongjmp() left it; the next ring_begin() turns it into a pad.
 *
 * A child that was forked in the middle of a record has its own copy of struct ring, so that the
 * interrupted code ends the record in the child's own memory. A word that the kernel zeroes in the
 * child (MADV_WIPEONFORK) prevents new records there.
 *
 * Invariants: (1) only whole records are before head              [test-ring-interrupted: death]
 *             (2) attempted == recorded + lost, while no record is open
 *                 [test-ring: conservation; test-ring-interrupted: left]
 *             (3) times do not go back within a ring                [test-ring-interrupted: nested]
 *             (4) errno does not change  [test-ring-full: lossless, gone]
 *             (5) a record left by siglongjmp() does not hold back later records
 *                 [test_collector, test_heap_zoo: siglongjmp]
 *             (6) neither shared memory nor siglongjmp() makes the producer write outside its
 *                 ring  [test-ring: hostile_consumer; test-ring-interrupted: left_laps]
 * Callers intern strings and register; this file does neither.
 */
#include "base/clock.h"
#include "libcollector/ring/ring-inline.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>

#define LIKELY RING_LIKELY
#define SIGNAL_FENCE RING_SIGNAL_FENCE
#define WAITING_UNIT_NS UINT64_C(4096)
#define FAULT_AROUND_BYTES (64u << 10) /* fault_around_bytes in Linux's mm/memory.c */

static const uint32_t not_alive;

void ring_add_flags(struct ring *ring, uint32_t flags)
{
	for (; ring; ring = ring->bigger)
		ring->flags |= flags;
}

/* ---- Full rings ---- */

/* Counts a lost record. A lost definition is not counted; the event that needed it is. */
static void count_attempt(struct ring_header *shared, enum ring_lost cause, uint32_t type)
{
	if (!ring_type_is_event(type))
		return;
	ring_add(&shared->attempted, 1);
	/* pairs with the consumer, which loads `lost` before `attempted` */
	__atomic_store_n(&shared->lost[cause], RING_LOAD(&shared->lost[cause]) + 1,
			 __ATOMIC_RELEASE);
}

static long futex(uint32_t *word, int operation, uint32_t value, const struct timespec *timeout)
{
	return syscall(SYS_futex, word, operation, value, timeout, NULL, 0);
}

/* Wakes the consumer if it is asleep, but only once for each sleep. */
static void kick(struct ring_arena_header *shared, uint32_t *kicked)
{
	uint32_t armed;

	/* pairs with ring_arena_arm(): either the consumer sees the doorbell, or this thread sees
	 * `armed` */
	__atomic_fetch_add(&shared->doorbell, 1, __ATOMIC_SEQ_CST);
	armed = __atomic_load_n(&shared->armed, __ATOMIC_SEQ_CST);
	if ((armed & 1) && armed != *kicked) {
		*kicked = armed;
		futex(&shared->doorbell, FUTEX_WAKE, INT_MAX, NULL);
	}
}

static void ring_doorbell(struct ring *ring)
{
	int error = errno;

	if (ring->flags & RING_NO_SYSCALL)
		return;
	kick(ring->arena->shared, &ring->kicked);
	errno = error;
}

bool ring_arena_request_closed(struct ring_arena *arena)
{
	uint32_t kicked = 0;

	if (!*arena->alive)
		return false;
	for (uint32_t i = 0; i < arena->n_rings; i++) {
		const struct ring_header *shared = RING_LOAD(&arena->rings[i].shared);

		if (!shared || (uint32_t)RING_LOAD(&shared->state) != RING_CLOSED)
			continue;
		kick(arena->shared, &kicked);
		return true;
	}
	return false;
}

/* Measures how long a lap takes. The consumer wakes up for each third of a ring, so a fast producer
 * moves to a larger ring if one is free. */
static void time_lap(struct ring *ring, uint64_t head)
{
	uint64_t now_ns;

	if (head - ring->lap_head < ring->size)
		return;
	now_ns = clock_now();
	ring->is_fast = now_ns - ring->lap_ns < RING_LAP_NS;
	ring->lap_head = head;
	ring->lap_ns = now_ns;
}

/* Returns the limit for records that begin at `from`. Even with an invalid tail they stay inside
 * the ring. */
static uint64_t find_limit(const struct ring *ring, uint64_t from)
{
	uint64_t lap_end = from + ring->size - (from & (ring->size - 1)),
		 full = from - ring->tail <= ring->size ? ring->tail + ring->size : 0;

	if (CPU_HAS_TICK && !ring->time_flags)
		return 0;
	return MIN_OF(MIN_OF(lap_end, full), ring->next_check);
}

void ring_check_fill(struct ring *ring)
{
	uint64_t head = ring->head;

	ring->tail = __atomic_load_n(&ring->shared->tail, __ATOMIC_ACQUIRE);
	time_lap(ring, head);
	if (head - ring->tail < ring->size / 3) {
		ring->next_check = ring->tail + ring->size / 3;
	} else {
		ring->next_check = head + ring->size / 16;
		ring_doorbell(ring);
	}
	/* Make the next record of a fast producer take the slow path, as if the ring were full. The
	 * slow path moves to a larger ring. */
	if (ring->is_fast)
		ring->tail = head - ring->size;
	ring->limit = find_limit(ring, head);
}

static bool is_realtime(void)
{
	long policy = syscall(SYS_sched_getscheduler, 0L) & ~(long)SCHED_RESET_ON_FORK;

	return policy == SCHED_FIFO || policy == SCHED_RR || policy == SCHED_DEADLINE;
}

/* Changes the number of waiting threads, which is `waiting` modulo WAITING_UNIT_NS. The rest of the
 * word is the time up to which waited_ns is complete; if threads were waiting, adds the time since
 * then to waited_ns. Returns false if the number would leave its range. */
static bool change_waiting(struct ring_budget *budget, uint64_t now_ns, bool is_begin)
{
	uint64_t before = RING_LOAD(&budget->waiting), n, since, now;

	do {
		n = before % WAITING_UNIT_NS;
		since = before - n;
		now = MAX_OF(since, now_ns - now_ns % WAITING_UNIT_NS);
		/* In a child forked by a handler during a wait, the budget lacks that wait. */
		if (n == (is_begin ? WAITING_UNIT_NS - 1 : 0))
			return false;
	} while (!__atomic_compare_exchange_n(&budget->waiting, &before,
					      now + (is_begin ? n + 1 : n - 1), false,
					      __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	if (n > 0)
		__atomic_add_fetch(&budget->waited_ns, now - since, __ATOMIC_RELAXED);
	return true;
}

uint64_t ring_budget_left(const struct ring_budget *budget, uint64_t now_ns)
{
	uint64_t waiting = RING_LOAD(&budget->waiting), n = waiting % WAITING_UNIT_NS,
		 waited = RING_LOAD(&budget->waited_ns);

	if (n > 0 && now_ns > waiting - n)
		waited += now_ns - (waiting - n);
	return RING_WAIT_BUDGET_NS - MIN_OF(waited, RING_WAIT_BUDGET_NS);
}

bool ring_budget_begin(struct ring_budget *budget, uint64_t now_ns)
{
	uint64_t since = RING_LOAD(&budget->since_ns);

	/* Another thread may have begun a window after now_ns was read. */
	if (now_ns >= since && now_ns - since >= RING_WAIT_WINDOW_NS &&
	    __atomic_compare_exchange_n(&budget->since_ns, &since, now_ns, false, __ATOMIC_RELAXED,
					__ATOMIC_RELAXED))
		RING_STORE(&budget->waited_ns, 0);
	return ring_budget_left(budget, now_ns) > 0 && change_waiting(budget, now_ns, true);
}

void ring_budget_end(struct ring_budget *budget, uint64_t now_ns)
{
	(void)change_waiting(budget, now_ns, false);
}

/* Finds where the record goes: after a pad, if it would not fit before the data's end. Needs no
 * division, because size is 2^n. */
static bool find_room(struct ring *ring, uint64_t from, uint32_t bytes, uint64_t *ret_at)
{
	uint64_t rest = ring->size - (from & (ring->size - 1));
	uint64_t at = rest < bytes ? from + rest : from;

	if (!LIKELY(at + bytes - ring->tail <= ring->size)) {
		/* pairs with ring_reader_drain(): the consumer has copied what the record
		 * overwrites */
		ring->tail = __atomic_load_n(&ring->shared->tail, __ATOMIC_ACQUIRE);
		if (at + bytes - ring->tail > ring->size)
			return false;
	}
	*ret_at = at;
	return true;
}

static bool wait_until(struct ring *ring, uint64_t deadline, uint64_t from, uint32_t bytes,
		       uint64_t *ret_at)
{
	struct ring_header *shared = ring->shared;

	for (;;) {
		uint32_t room = __atomic_load_n(&shared->room, __ATOMIC_SEQ_CST);
		uint64_t now = clock_now();
		struct timespec left = { 0 };

		if (find_room(ring, from, bytes, ret_at))
			return true;
		if (now >= deadline)
			return false;
		ring_doorbell(ring);
		left.tv_nsec = (long)MIN_OF(deadline - now, RING_WAIT_NS);
		if (futex(&shared->room, FUTEX_WAIT, room, &left) < 0 && errno != EAGAIN &&
		    errno != EINTR && errno != ETIMEDOUT)
			return false;
	}
}

static void end_wait(struct ring *ring)
{
	RING_STORE(&ring->shared->waiting, 0);
	ring->is_waiting = false;
	ring_budget_end(ring->arena->budget, clock_now());
}

/* Waits up to the process's budget, because the consumer may get no CPU for longer than
 * RING_WAIT_NS. */
static bool wait_for_room(struct ring *ring, uint64_t from, uint32_t bytes, uint64_t *ret_at)
{
	const struct ring_arena *arena = ring->arena;
	struct ring_header *shared = ring->shared;
	uint64_t start, now, left = RING_WAIT_NS;
	int error = errno;
	bool found = false;

	if ((ring->flags & RING_NO_SYSCALL) || ring_is_stuck(ring) || is_realtime())
		return false;
	now = start = clock_now();
	if (!ring_budget_begin(ring->arena->budget, start)) {
		errno = error;
		return false;
	}
	ring->is_waiting = true;
	/* pairs with ring_reader_drain(), which moves the tail, and with ring_reader_wake(), which
	 * then checks for waiters */
	__atomic_exchange_n(&shared->waiting, 1, __ATOMIC_SEQ_CST);
	do {
		left = ring_budget_left(ring->arena->budget, now);
		found = wait_until(ring, now + MIN_OF(left, RING_WAIT_NS), from, bytes, ret_at);
		now = clock_now();
		/* after RING_WAIT_NS, check whether waiting longer is in vain */
	} while (!found && left > RING_WAIT_NS && now - start < RING_WAIT_BUDGET_NS &&
		 *arena->alive && RING_LOAD(&arena->shared->ended) == 0 &&
		 !(arena->budget->is_over && arena->budget->is_over()));
	end_wait(ring);
	ring_add(&shared->waits, 1);
	ring_add(&shared->waited_ns, now - start);
	ring->stuck_tail = found ? 0 : ring->tail + 1;
	errno = error;
	return found;
}

/* Maps all pages of a ring that will be written soon, by reading them: a read also maps the pages
 * around its own (the kernel's fault-around), while a write maps only its own. */
static void map_pages(const struct ring *ring)
{
	for (uint64_t at = 0; at < ring->size; at += FAULT_AROUND_BYTES)
		(void)*(const volatile uint8_t *)&ring->data[at];
}

/* Replaces a ring that is full or fills too fast with a free ring of at least four times its size.
 * Returns false if there is none. */
static bool move_to_bigger(struct ring *ring)
{
	struct ring *bigger;

	if (ring->size > RING_MAX_BYTES / 4)
		return false;
	bigger =
		ring_claim(ring->arena, RING_LOAD(&ring->shared->tid), 4 * ring->size, ring->flags);
	if (!bigger)
		return false;
	map_pages(bigger);
	ring->bigger = bigger;
	SIGNAL_FENCE();
	ring->alive = &not_alive;
	return true;
}

/* ---- Records ---- */

static void write_pad(struct ring *ring, uint64_t at, uint64_t bytes, uint16_t flags)
{
	struct ring_record_header *header = ring_header_at(ring, at);

	header->bytes = (uint32_t)bytes;
	header->type = RING_PAD;
	header->flags = flags;
}

/* Pads the end of the data if the record does not fit there. */
static void write_pad_before(struct ring *ring, uint64_t at)
{
	uint64_t from = ring->end;

	if (at != from)
		write_pad(ring, from, at - from, 0);
}

void ring_abandon(struct ring *ring, size_t level)
{
	for (size_t i = RING_MAX_OPEN; i-- > level;) {
		struct open_record *open = &ring->open[i];
		uint64_t at = open->at;
		uint32_t bytes = open->bytes;

		if (bytes != 0 && at >= ring->head && at + bytes <= ring->end)
			write_pad(ring, at, bytes, RING_FLAG_ABANDONED);
		open->bytes = 0;
		if (i > 0)
			open->sp = 0;
	}
}

/* Recovers after siglongjmp() left the outermost record. From the first store of sp on, this call
 * counts as the open record. */
static void recover(struct ring *ring, struct ring_header *shared, uint64_t sp)
{
	if (ring->is_waiting)
		end_wait(ring);
	ring->nestable = false;
	SIGNAL_FENCE();
	ring->open[0].sp = sp;
	SIGNAL_FENCE();
	ring_abandon(ring, 0);
	ring_publish(ring, shared);
	SIGNAL_FENCE();
	ring->open[0].sp = 0;
}

/* Returns whether the function that began the record is still on the stack. Stacks grow down: code
 * that runs above the frame of that function has left it, unless it runs on another stack. */
static bool is_alive(const struct open_record *open, uint64_t sp, const stack_t *signal_stack)
{
	uint64_t start = (uint64_t)(uintptr_t)signal_stack->ss_sp, size = signal_stack->ss_size;
	bool is_open_there = open->sp - start < size, is_here_there = sp - start < size;

	return is_open_there == is_here_there ? sp < open->sp : is_here_there;
}

/* Clears the last word, which may hold stale bytes after the payload. */
static void clear_last(const struct ring *ring, uint64_t at, uint32_t bytes)
{
	*(uint64_t *)((uint8_t *)ring_header_at(ring, at) + bytes - 8) = 0;
}

/* Begins a record after an open one. Never waits. */
static void *begin_nested(struct ring *ring, size_t level, uint64_t sp, uint32_t type,
			  uint32_t bytes)
{
	struct ring_header *shared = ring->shared;
	enum ring_lost cause = RING_LOST_BIG;
	uint64_t at, nested_ns;
	struct ring_record_header *header;

	if (level == RING_MAX_OPEN || !ring->nestable) {
		/* atomic, because handlers get here at any instruction */
		if (ring_type_is_event(type))
			__atomic_fetch_add(&shared->lost[RING_LOST_NESTED], 1, __ATOMIC_RELEASE);
		return NULL;
	}
	ring->nestable = false;
	SIGNAL_FENCE();
	ring_abandon(ring, level);
	ring->open[level].sp = sp;
	if (bytes != 0 && !find_room(ring, ring->end, bytes, &at)) {
		cause = RING_LOST_FULL;
		bytes = 0;
	}
	if (bytes == 0) {
		count_attempt(shared, cause, type);
		ring->open[level].sp = 0;
		SIGNAL_FENCE();
		ring->nestable = true;
		return NULL;
	}
	ring_add(&shared->attempted, 1);
	write_pad_before(ring, at);
	ring_reserve(ring, level, at, bytes);
	clear_last(ring, at, bytes);
	header = ring_write_header(ring, type, at, bytes, ring->time_flags);
	nested_ns = ring->nested_ns;
	ring->nested_ns = MIN_OF(nested_ns, header[-1].time_ns);
	return header;
}

/* Counts the outermost record as lost. Leaves `nestable` false, as it is while no record is
 * open. */
static void *lose(struct ring *ring, enum ring_lost cause, uint32_t type)
{
	count_attempt(ring->shared, cause, type);
	SIGNAL_FENCE();
	ring->open[0].sp = 0;
	return NULL;
}

static void *begin_at(struct ring *ring, uint32_t type, uint64_t at, uint32_t bytes)
{
	void *payload;

	write_pad_before(ring, at);
	clear_last(ring, at, bytes);
	payload = ring_begin_first(ring, type, at, bytes, ring->time_flags);
	/* Set this after the reservation: if siglongjmp() left this function in between, the next
	 * record begins at `end`, for which a limit in the next lap is not valid. */
	ring->limit = find_limit(ring, at + bytes);
	return payload;
}

static void *begin_bigger(struct ring *ring, uint32_t type, size_t payload_bytes)
{
	ring->open[0].sp = 0;
	return ring_begin(ring->bigger, type, payload_bytes);
}

static __attribute__((noinline)) void *begin_full(struct ring *ring, uint32_t type,
						  size_t payload_bytes, uint32_t bytes)
{
	struct ring_header *shared = ring->shared;
	uint64_t waits = RING_LOAD(&shared->waits), at;

	if (move_to_bigger(ring))
		return begin_bigger(ring, type, payload_bytes);
	if (RING_LOAD(&shared->policy) != RING_LOSSLESS) {
		ring->full_tail = ring->tail + 1;
		ring->full_bytes = (uint32_t)payload_bytes;
		return lose(ring, RING_LOST_FULL, type);
	}
	if (wait_for_room(ring, ring->end, bytes, &at))
		return begin_at(ring, type, at, bytes);
	return lose(ring, RING_LOAD(&shared->waits) != waits ? RING_LOST_TIMEOUT : RING_LOST_FULL,
		    type);
}

/* Returns 0 if the record is too large for rings of this size. */
static uint32_t record_bytes(const struct ring *ring, size_t payload_bytes)
{
	if (payload_bytes > ring->most_bytes)
		return 0;
	return (uint32_t)(payload_bytes + sizeof(struct ring_record_header) + 7) & ~UINT32_C(7);
}

/* Returns the number of open records begun by functions that are still on the stack. */
static size_t count_alive(const struct ring *ring, uint64_t sp)
{
	stack_t signal_stack = { 0 };
	int error = errno;
	size_t level = 0;

	if ((ring->flags & RING_NO_SYSCALL) || syscall(SYS_sigaltstack, NULL, &signal_stack) < 0 ||
	    (signal_stack.ss_flags & SS_DISABLE))
		signal_stack.ss_size = 0;
	errno = error;
	while (level < RING_MAX_OPEN && ring->open[level].sp != 0 &&
	       is_alive(&ring->open[level], sp, &signal_stack))
		level++;
	return level;
}

void ring_recover(struct ring *ring, uint64_t sp)
{
	if (!*ring->alive || ring->open[0].sp == 0 || count_alive(ring, sp) > 0)
		return;
	recover(ring, ring->shared, sp);
}

static __attribute__((noinline)) void *begin_within(struct ring *ring, uint64_t sp, uint32_t type,
						    uint32_t bytes)
{
	size_t level = count_alive(ring, sp);

	if (level > 0)
		return begin_nested(ring, level, sp, type, bytes);
	recover(ring, ring->shared, sp);
	return ring_begin(ring, type,
			  bytes == 0 ? SIZE_MAX / 2 : bytes - sizeof(struct ring_record_header));
}

/* Begins a record that the fast path refused. Reasons: the ring is not alive, perhaps because the
 * thread has moved to a larger one; another record is open; or this record is too large or would
 * end beyond ring->limit. */
static __attribute__((noinline)) void *begin_otherwise(struct ring *ring, uint64_t sp,
						       uint32_t type, size_t payload_bytes,
						       uint32_t bytes)
{
	uint64_t at;

	if (!*ring->alive)
		return ring->bigger ? ring_begin(ring->bigger, type, payload_bytes) : NULL;
	if (ring->open[0].sp != 0)
		return begin_within(ring, sp, type, bytes);
	ring->open[0].sp = sp;
	SIGNAL_FENCE();
	if (bytes == 0)
		return lose(ring, RING_LOST_BIG, type);
	if (ring->is_fast) {
		ring->is_fast = false;
		if (move_to_bigger(ring))
			return begin_bigger(ring, type, payload_bytes);
	}
	if (find_room(ring, ring->end, bytes, &at))
		return begin_at(ring, type, at, bytes);
	return begin_full(ring, type, payload_bytes, bytes);
}

void *ring_begin(struct ring *ring, uint32_t type, size_t payload_bytes)
{
	uint64_t sp = (uint64_t)(uintptr_t)__builtin_frame_address(0);
	uint32_t bytes = record_bytes(ring, payload_bytes);
	void *payload = LIKELY(bytes != 0) ? ring_try_begin(ring, type, bytes) : NULL;

	if (LIKELY(payload))
		clear_last(ring, ring->open[0].at, bytes);
	return LIKELY(payload) ? payload : begin_otherwise(ring, sp, type, payload_bytes, bytes);
}

/* Returns the level of the open record with this payload, or RING_MAX_OPEN. */
static size_t find_level(const struct ring *ring, const void *payload)
{
	size_t i = 0;

	while (i < RING_MAX_OPEN &&
	       (ring->open[i].bytes == 0 || payload != ring_header_at(ring, ring->open[i].at) + 1))
		i++;
	return i;
}

void *ring_begin_with(struct ring *ring, const void *first, uint32_t type, size_t payload_bytes)
{
	uint64_t sp = (uint64_t)(uintptr_t)__builtin_frame_address(0);
	size_t level;

	if (!LIKELY(*ring->alive))
		return ring->bigger ? ring_begin_with(ring->bigger, first, type, payload_bytes)
				    : NULL;
	level = find_level(ring, first);
	if (level == RING_MAX_OPEN)
		return ring_begin(ring, type, payload_bytes);
	return begin_nested(ring, level + 1, sp, type, record_bytes(ring, payload_bytes));
}

void ring_set_flags(void *payload, uint16_t flags)
{
	((struct ring_record_header *)payload)[-1].flags |= flags;
}

static __attribute__((noinline)) void end_nested(struct ring *ring, void *payload)
{
	size_t level = find_level(ring, payload);

	if (level == RING_MAX_OPEN) {
		if (ring->bigger)
			ring_end(ring->bigger, payload);
		return;
	}
	ring->nestable = false;
	SIGNAL_FENCE();
	ring->open[level].bytes = 0;
	ring_abandon(ring, level);
	SIGNAL_FENCE();
	ring->nestable = true;
}

void ring_end(struct ring *ring, void *payload)
{
	if (LIKELY(payload == ring_header_at(ring, ring->open[0].at) + 1))
		ring_end_first(ring);
	else
		end_nested(ring, payload);
}

/* Called by the one thread that has cleared ring->owner. */
static void close_ring(struct ring *ring, uint64_t owner)
{
	struct ring_header *shared = ring->shared;
	uint64_t owned = owner >> 32 << 32 | RING_OWNED;

	ring->alive = &not_alive;
	ring->bigger = NULL;
	if (ring->is_waiting)
		end_wait(ring);
	SIGNAL_FENCE();
	ring->nestable = false;
	ring_abandon(ring, 0);
	ring_publish(ring, shared);
	ring->open[0].sp = 0;
	/* pairs with ring_reader_drain(): head does not change after this */
	__atomic_compare_exchange_n(&shared->state, &owned, owner >> 32 << 32 | RING_CLOSED, false,
				    __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

void ring_release_of(struct ring *ring, uint64_t owner)
{
	/* pairs with ring_init() */
	while (ring && owner != 0 && *ring->arena->alive &&
	       __atomic_compare_exchange_n(&ring->owner, &owner, 0, false, __ATOMIC_ACQUIRE,
					   __ATOMIC_RELAXED)) {
		struct ring *bigger = ring->bigger;

		close_ring(ring, owner);
		ring = bigger;
		owner = ring ? RING_LOAD(&ring->owner) : 0;
	}
}

void ring_release(struct ring *ring)
{
	if (ring)
		ring_release_of(ring, RING_LOAD(&ring->owner));
}
