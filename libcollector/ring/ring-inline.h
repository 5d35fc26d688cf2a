/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Ring - the producer's private state, which no consumer can change, and the fast path of a write,
 * which is inlined into hooks */
#pragma once

#include "arch/cpu.h"
#include "base/clock.h"
#include "libcollector/ring/ring.h"

#include <time.h>

#define RING_MAX_OPEN 4 /* a record, and those of nested signal handlers */

#define RING_LOAD(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define RING_STORE(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)

/* gcc rejects fences in builds with ThreadSanitizer, because TSan does not model them. */
#ifdef __SANITIZE_THREAD__
#define RING_FENCE(order) __atomic_signal_fence(order)
#else
#define RING_FENCE(order) __atomic_thread_fence(order)
#endif

#define RING_LIKELY(x) __builtin_expect(!!(x), 1)
/* Makes earlier stores visible to signal handlers that run later. */
#define RING_SIGNAL_FENCE() __atomic_signal_fence(__ATOMIC_SEQ_CST)

struct open_record {
	volatile uint64_t sp; /* stack pointer of the function that began the record; 0: not open */
	volatile uint64_t at;
	volatile uint32_t bytes; /* 0: nothing is reserved yet */
};

struct ring {
	const volatile uint32_t *alive; /* 0: released, replaced or retired, or in a forked child */
	struct ring_header *shared;
	uint8_t *data;
	uint64_t size;
	size_t most_bytes;      /* maximum size of a payload */
	volatile uint64_t head; /* end of the published records */
	volatile uint64_t end;  /* end of the reserved records */
	uint64_t tail;          /* last value seen of the consumer's tail */
	uint64_t next_check;    /* head at which the fill level is checked next */
	/* a record that ends at or before this position needs no check and no pad; 0: every record
	 * takes the slow path */
	uint64_t limit;
	volatile uint64_t nested_ns;
	volatile bool nestable;
	uint16_t time_flags; /* RING_FLAG_TICKS, or 0 */
	struct open_record open[RING_MAX_OPEN];

	struct ring_arena *arena;
	struct ring *bigger; /* larger ring that the thread has moved to */
	uint64_t full_tail;  /* tail + 1 at the time when full_bytes did not fit; 0: not full */
	/* size of the payload that did not fit; set only if the policy is to drop */
	uint32_t full_bytes;
	uint64_t lap_head, lap_ns; /* start of the current lap */
	bool is_fast;              /* fills too fast for its size, so look for a larger ring */
	uint64_t stuck_tail;       /* while tail + 1 has this value, no record waits */
	bool is_waiting;           /* stays set if siglongjmp() left the wait */
	uint64_t owner;            /* generation << 32 | tid; 0: none, or being closed */
	uint32_t flags;
	uint32_t kicked; /* value of `armed` for which the doorbell was last rung */
};

struct ring_arena {
	struct ring_arena_header *shared;
	volatile uint32_t *alive;        /* in a page that is zeroed in a forked child */
	const struct ring_place *places; /* in the arena, so their contents may change */
	size_t bytes, own_bytes;
	struct ring_budget *budget, own_budget;
	uint32_t n_rings;
	uint16_t time_flags; /* copied to the rings */
	struct ring rings[];
};

/* Like ring_release(), but does nothing unless `owner` still owns the ring: another thread may have
 * closed the ring meanwhile, and a third may have claimed it. */
void ring_release_of(struct ring *ring, uint64_t owner);

/* Returns false if the ring is released or retired, or in a forked child. A ring that was replaced
 * by a larger one counts as alive as long as the larger one is alive. */
static inline bool ring_is_alive(const struct ring *ring)
{
	while (ring->bigger)
		ring = ring->bigger;
	return *ring->alive != 0;
}

/* Returns whether the consumer has read nothing since a wait ended in vain. Later records do not
 * wait then. */
static inline bool ring_is_stuck(const struct ring *ring)
{
	return ring->stuck_tail == ring->tail + 1;
}

/* Closes records that siglongjmp() left open. Does nothing if `sp`, the caller's stack pointer,
 * shows that the function that began the outermost record is still on the stack. */
void ring_recover(struct ring *ring, uint64_t sp);

/* Closes records that siglongjmp() left open. Call this on entry to a function that the program
 * called, because inner functions are deeper in the stack, and would not detect such records. */
static inline __attribute__((always_inline)) void ring_enter(struct ring *ring)
{
	if (!RING_LIKELY(ring->open[0].sp == 0))
		ring_recover(ring, (uint64_t)(uintptr_t)__builtin_frame_address(0));
}

/*
 * Returns true, and counts a loss, if an earlier record of at most this size did not fit, and the
 * consumer has read nothing since then. Call this before any work for the record is done. Returns
 * false while a record is open: ring_begin() handles that case.
 */
static inline __attribute__((always_inline)) bool ring_is_full(struct ring *ring,
							       size_t payload_bytes)
{
	struct ring_header *shared;

	if (__builtin_expect(ring->full_tail == 0, 1) || !*ring->alive ||
	    payload_bytes < ring->full_bytes || ring->open[0].sp != 0)
		return false;
	shared = ring->shared;
	if (RING_LOAD(&shared->tail) + 1 != ring->full_tail)
		return false;
	/* keeps handlers from changing these counts meanwhile */
	ring->open[0].sp = (uint64_t)(uintptr_t)__builtin_frame_address(0);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	RING_STORE(&shared->attempted, RING_LOAD(&shared->attempted) + 1);
	__atomic_store_n(&shared->lost[RING_LOST_FULL],
			 RING_LOAD(&shared->lost[RING_LOST_FULL]) + 1, __ATOMIC_RELEASE);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	ring->open[0].sp = 0;
	return true;
}

/* Exists since glibc 2.32. False if there may be several threads. */
extern char __libc_single_threaded __attribute__((weak));

/*
 * Returns the time in ticks. If the process has several threads, waits for earlier instructions to
 * complete before it reads the counter. Without that wait, two close events of different threads
 * could get the wrong order, which the consumer cannot correct.
 */
static inline __attribute__((always_inline)) uint64_t ring_ticks_now(void)
{
	bool is_single = &__libc_single_threaded && __libc_single_threaded;

	return RING_LIKELY(is_single) ? cpu_tick() : cpu_tick_ordered();
}

static inline uint64_t ring_now(const struct ring *ring)
{
	return CPU_HAS_TICK && ring->time_flags ? ring_ticks_now() : clock_now();
}

static inline void ring_add(uint64_t *word, uint64_t n)
{
	RING_STORE(word, RING_LOAD(word) + n);
}

static inline struct ring_record_header *ring_header_at(const struct ring *ring, uint64_t position)
{
	return (void *)(ring->data + (position & (ring->size - 1)));
}

/* ---- The fast path of almost every record ---- */

/* Reserves a record. The order matters: `bytes` must mark the record as reserved before `end` moves
 * past the record. If there is a gap before the record, the gap already has a pad. */
static inline __attribute__((always_inline)) void ring_reserve(struct ring *ring, size_t level,
							       uint64_t at, uint32_t bytes)
{
	ring->open[level].at = at;
	ring->open[level].bytes = bytes;
	RING_SIGNAL_FENCE();
	ring->end = at + bytes;
	RING_SIGNAL_FENCE();
	ring->nestable = true;
}

/* time_flags: RING_FLAG_TICKS, or 0. If a handler interrupts this after the reservation, the
 * handler's record is later in the ring, but may have an earlier time. The interrupted record then
 * gets that time, too. */
static inline __attribute__((always_inline)) void *ring_write_header(struct ring *ring,
								     uint32_t type, uint64_t at,
								     uint32_t bytes,
								     uint16_t time_flags)
{
	struct ring_record_header *header = ring_header_at(ring, at);
	struct {
		uint32_t bytes;
		uint16_t type, flags;
	} first = { bytes, (uint16_t)type, time_flags };
	uint64_t time_ns = CPU_HAS_TICK && time_flags ? ring_ticks_now() : clock_now(), nested_ns;

	if (!RING_LIKELY(ring->end == at + bytes)) {
		nested_ns = ring->nested_ns;
		time_ns = MIN_OF(time_ns, nested_ns);
	}
	/* one store */
	__builtin_memcpy(header, &first, sizeof(first));
	header->time_ns = time_ns;
	return header + 1;
}

/* Begins the outermost record. The caller has checked for room, and has set the ring's `sp`, which
 * marks the record as open. */
static inline __attribute__((always_inline)) void *ring_begin_first(struct ring *ring,
								    uint32_t type, uint64_t at,
								    uint32_t bytes,
								    uint16_t time_flags)
{
	struct ring_header *shared = ring->shared;

	ring_add(&shared->attempted, 1);
	/* before the clock is read: see find_bound() of ring-reader.c */
	RING_STORE(&shared->busy, 1);
	ring->nested_ns = UINT64_MAX;
	ring_reserve(ring, 0, at, bytes);
	return ring_write_header(ring, type, at, bytes, time_flags);
}

/*
 * Returns NULL, without effects, if ring_begin() must be called. `bytes`: the record's size, a
 * multiple of 8; the caller writes all of it. With ticks, this calls no function, so hooks save no
 * registers.
 */
static inline __attribute__((always_inline)) void *ring_try_begin(struct ring *ring, uint32_t type,
								  uint32_t bytes)
{
	uint64_t from;

	if (!RING_LIKELY(ring->open[0].sp == 0))
		return NULL;
	ring->open[0].sp = (uint64_t)(uintptr_t)__builtin_frame_address(0);
	RING_SIGNAL_FENCE();
	/* From here on no handler moves the thread to a larger ring. */
	from = ring->end;
	if (RING_LIKELY(*ring->alive && from + bytes <= ring->limit))
		return ring_begin_first(ring, type, from, bytes,
					CPU_HAS_TICK ? RING_FLAG_TICKS : 0);
	ring->open[0].sp = 0;
	return NULL;
}

/* Turns open records into pads, from `level` on, after siglongjmp() left them. `nestable` must be
 * false. */
void ring_abandon(struct ring *ring, size_t level);
/* Rings the doorbell when a third of the ring is full, and again after each further sixteenth, in
 * case the consumer armed the doorbell late. */
void ring_check_fill(struct ring *ring);

static inline __attribute__((always_inline)) void ring_publish(struct ring *ring,
							       struct ring_header *shared)
{
	uint64_t end = ring->end;

	ring->head = end;
	RING_SIGNAL_FENCE();
	/* pairs with ring_reader_drain() */
	__atomic_store_n(&shared->head, end, __ATOMIC_RELEASE);
	__atomic_store_n(&shared->busy, 0, __ATOMIC_RELEASE);
}

/*
 * Ends the outermost record. Returns false if handlers left open records after it; the caller must
 * then call ring_end_first(). Does not call ring_check_fill(), because ring_try_begin() refuses a
 * record that would end after ring->next_check.
 */
static inline __attribute__((always_inline)) bool ring_try_end(struct ring *ring)
{
	RING_SIGNAL_FENCE();
	ring->nestable = false;
	RING_SIGNAL_FENCE();
	if (!RING_LIKELY(ring->open[1].sp == 0))
		return false;
	ring_publish(ring, ring->shared);
	ring->open[0].bytes = 0;
	RING_SIGNAL_FENCE();
	ring->open[0].sp = 0;
	RING_SIGNAL_FENCE();
	return true;
}

static inline __attribute__((always_inline)) void ring_end_first(struct ring *ring)
{
	if (!ring_try_end(ring)) {
		ring_abandon(ring, 1);
		(void)ring_try_end(ring);
	}
	if (!RING_LIKELY(ring->head < ring->next_check))
		ring_check_fill(ring);
}
