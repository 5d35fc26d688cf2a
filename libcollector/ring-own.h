/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ring own - what a producer keeps for itself, where no consumer can change it; for this folder
 */
#pragma once

#include "libcollector/ring.h"
#include "libcollector/tick.h"

#include <time.h>

#define RING_MAX_OPEN 4 /* a record, and signals in signals */

#define RING_LOAD(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define RING_STORE(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)

/* gcc refuses fences where it looks for races, as it does not know what they order. */
#ifdef __SANITIZE_THREAD__
#define RING_FENCE(order) __atomic_signal_fence(order)
#else
#define RING_FENCE(order) __atomic_thread_fence(order)
#endif

#define RING_LIKELY(x) __builtin_expect(!!(x), 1)
/* What is before is seen by a signal that comes behind it. */
#define RING_SIGNAL_FENCE() __atomic_signal_fence(__ATOMIC_SEQ_CST)

struct open_record {
	volatile uint64_t sp; /* of who began it; 0: not open */
	volatile uint64_t at;
	volatile uint32_t bytes; /* 0: nothing is reserved yet */
};

struct ring {
	const volatile uint32_t *alive; /* 0 there: released, moved, or in a forked child */
	struct ring_header *shared;
	uint8_t *data;
	uint64_t size;
	size_t most_bytes;      /* of a payload */
	volatile uint64_t head; /* published */
	volatile uint64_t end;  /* reserved */
	uint64_t tail;          /* as last seen */
	uint64_t next_check;    /* of how full it is, when head is there */
	uint64_t limit; /* a record that ends there needs no look at those, nor a pad; 0: all do */
	volatile uint64_t nested_ns;
	volatile bool nestable;
	uint16_t time_flags; /* RING_FLAG_TICKS, or 0 */
	struct open_record open[RING_MAX_OPEN];

	struct ring_arena *arena;
	struct ring *bigger;       /* that the thread has moved to */
	uint64_t full_tail;        /* where there was no room for full_bytes, and 1; 0: there was */
	uint32_t full_bytes;       /* of a payload, in a ring that is to drop */
	uint64_t lap_head, lap_ns; /* from which on the next lap is timed */
	bool is_fast;              /* for its size: a bigger one is to be looked for */
	uint64_t stuck_tail;       /* no wait for this one to move, and 1 */
	bool is_waiting;           /* or its wait was left by siglongjmp() */
	uint64_t owner;            /* generation << 32 | tid; 0: none, or somebody closes it */
	uint32_t flags;
	uint32_t kicked; /* the armed word that the doorbell was last rung for */
};

struct ring_arena {
	struct ring_arena_header *shared;
	volatile uint32_t *alive; /* a page that a forked child has as zeros */
	size_t bytes, own_bytes;
	struct ring_budget *budget, own_budget;
	uint32_t n_rings;
	uint16_t time_flags; /* of its rings */
	struct ring rings[];
};

/* As ring_release(), of this owner's only: nothing where somebody else has closed it meanwhile,
 * and whoever claimed it then. */
void ring_release_of(struct ring *ring, uint64_t owner);

/* False: released, or in a forked child. One that a thread has moved on from is not. */
static inline bool ring_is_alive(const struct ring *ring)
{
	while (ring->bigger)
		ring = ring->bigger;
	return *ring->alive != 0;
}

/* The consumer has taken nothing since a wait for it was in vain: no record waits. */
static inline bool ring_is_stuck(const struct ring *ring)
{
	return ring->stuck_tail == ring->tail + 1;
}

/* Ends what was left by siglongjmp(), as somebody there, as deep or less deep in the stack,
 * begins something else. */
void ring_recover(struct ring *ring, uint64_t sp);

/*
 * By a function that the program called, before others that it calls begin records: these are
 * deeper in the stack, and do not see that what one like it began was left.
 */
static inline __attribute__((always_inline)) void ring_enter(struct ring *ring)
{
	if (!RING_LIKELY(ring->open[0].sp == 0))
		ring_recover(ring, (uint64_t)(uintptr_t)__builtin_frame_address(0));
}

/*
 * Before anything is done for a record: whether there is no room for it, as there was none for one
 * that was not larger, and the consumer has taken nothing since. It is counted then. Not where a
 * record is open: ring_begin() sees to that.
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
	/* So that a handler does not count in the middle of this. */
	ring->open[0].sp = (uint64_t)(uintptr_t)__builtin_frame_address(0);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	RING_STORE(&shared->attempted, RING_LOAD(&shared->attempted) + 1);
	__atomic_store_n(&shared->lost[RING_LOST_FULL],
			 RING_LOAD(&shared->lost[RING_LOST_FULL]) + 1, __ATOMIC_RELEASE);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	ring->open[0].sp = 0;
	return true;
}

static inline uint64_t ring_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* glibc 2.32; true also where nobody knows. */
extern char __libc_single_threaded __attribute__((weak));

/*
 * Now, in ticks. They are read behind all that is before them where another thread may have made
 * that so; else nobody knows which of two that are near each other was first, and the consumer has
 * a thread's times not go back.
 */
static inline __attribute__((always_inline)) uint64_t ring_ticks_now(void)
{
	bool is_single = &__libc_single_threaded && __libc_single_threaded;

	return RING_LIKELY(is_single) ? tick_read() : tick_read_ordered();
}

static inline uint64_t ring_now(const struct ring *ring)
{
	return TICK_EXISTS && ring->time_flags ? ring_ticks_now() : ring_now_ns();
}

static inline void ring_add(uint64_t *word, uint64_t n)
{
	RING_STORE(word, RING_LOAD(word) + n);
}

static inline struct ring_record_header *ring_header_at(const struct ring *ring, uint64_t position)
{
	return (void *)(ring->data + (position & (ring->size - 1)));
}

/* ---- The short way: what almost every record takes ---- */

/* bytes says that all of it is reserved, if end is behind it. What is between is a pad already. */
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

/* time_flags: RING_FLAG_TICKS, or 0. A handler that came since the record was reserved has an
 * earlier time, perhaps, but is behind it. */
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
	uint64_t time_ns = TICK_EXISTS && time_flags ? ring_ticks_now() : ring_now_ns(), nested_ns;

	if (!RING_LIKELY(ring->end == at + bytes)) {
		nested_ns = ring->nested_ns;
		time_ns = MIN_OF(time_ns, nested_ns);
	}
	/* in one store */
	__builtin_memcpy(header, &first, sizeof(first));
	header->time_ns = time_ns;
	return header + 1;
}

/* The outermost record, where there is room for it and sp says that it is open. */
static inline __attribute__((always_inline)) void *ring_begin_first(struct ring *ring,
								    uint32_t type, uint64_t at,
								    uint32_t bytes,
								    uint16_t time_flags)
{
	struct ring_header *shared = ring->shared;

	ring_add(&shared->attempted, 1);
	/* Before the clock is read: see find_bound() of ring-reader.c. */
	RING_STORE(&shared->busy, 1);
	ring->nested_ns = UINT64_MAX;
	ring_reserve(ring, 0, at, bytes);
	return ring_write_header(ring, type, at, bytes, time_flags);
}

/*
 * NULL: nothing has happened, and ring_begin() is to be asked. bytes: of the record, a multiple of
 * 8, all of which is written. Where there are ticks this calls nothing, so that a hook that is made
 * of it keeps no registers for later.
 */
static inline __attribute__((always_inline)) void *ring_try_begin(struct ring *ring, uint32_t type,
								  uint32_t bytes)
{
	uint64_t from;

	if (!RING_LIKELY(ring->open[0].sp == 0))
		return NULL;
	ring->open[0].sp = (uint64_t)(uintptr_t)__builtin_frame_address(0);
	RING_SIGNAL_FENCE();
	/* No handler moves on to a bigger one from here on. */
	from = ring->end;
	if (RING_LIKELY(*ring->alive && from + bytes <= ring->limit))
		return ring_begin_first(ring, type, from, bytes, TICK_EXISTS ? RING_FLAG_TICKS : 0);
	ring->open[0].sp = 0;
	return NULL;
}

/* Makes pads of what handlers began and left. Not nestable here. */
void ring_abandon(struct ring *ring, size_t level);
/* Rings where a third is full; a consumer that arms itself late hears of it a sixteenth later. */
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
 * Of the outermost record. False: handlers left something behind it, and ring_end_first() is to be
 * asked. Does not look how full the ring is: one that ring_try_begin() began ends where that is due
 * at the latest, and the next one is not begun by that.
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
