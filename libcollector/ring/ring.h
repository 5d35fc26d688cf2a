/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ring - the producer's half: a thread writes records that profd-engine reads
 *
 *     struct ring *ring = ring_claim(arena, tid, 0, 0);
 *     struct ring_mark *mark = ring_begin(ring, RING_MARK, sizeof(*mark));
 *
 *     if (mark) {
 *             *mark = (struct ring_mark){ .name = name };
 *             ring_end(ring, mark);
 *     }
 *
 * A ring belongs to its thread and the signal handlers on it. The functions do not allocate, take a
 * lock, or change errno, unless stated otherwise. A record that a handler or ring_begin_with()
 * begins within an open record follows that record and is published with it. So the consumer sees
 * both a stack and the first record that uses it, or neither.
 */
#pragma once

#include "libcollector/ring/ring-layout.h"

struct ring;
struct ring_arena;

/* For threads that a seccomp filter could kill for a system call: the ring's functions make none.
 * The doorbell is not rung, and the thread never waits. */
#define RING_NO_SYSCALL 0x01u

/* longest wait for room before the next check whether the wait is in vain */
#define RING_WAIT_NS UINT64_C(10000000)
#define RING_WAIT_BUDGET_NS UINT64_C(1000000000) /* a process's limit per RING_WAIT_WINDOW_NS */
#define RING_WAIT_WINDOW_NS UINT64_C(60000000000)
/* A thread that fills a ring in less time than this moves to a larger ring, if one is free, so that
 * it rings the doorbell at most about a hundred times per second. */
#define RING_LAP_NS UINT64_C(30000000)

/*
 * The time that threads of a process have waited in one window. Time in which several threads wait
 * at once counts once, because it delays the process once. So no single thread waits longer than
 * the budget either. Initialize with zeros.
 */
struct ring_budget {
	uint64_t since_ns, waited_ns;
	/* number of waiting threads, and the time up to which waited_ns is correct: see ring.c */
	uint64_t waiting;
	/* returns whether the consumer is gone, so that a wait is in vain; NULL: unknown */
	bool (*is_over)(void);
};

/* Returns false if the budget is spent. Otherwise ring_budget_end() must follow the wait, and
 * ring_budget_left() returns how long the wait may take. */
bool ring_budget_begin(struct ring_budget *budget, uint64_t now_ns);
uint64_t ring_budget_left(const struct ring_budget *budget, uint64_t now_ns);
void ring_budget_end(struct ring_budget *budget, uint64_t now_ns);

/*
 * Maps an arena that the engine made and sealed; the caller closes fd. Makes three mappings: the
 * arena, which a forked child does not get, and two private ones of the producer. Returns 0,
 * -EPROTO if fd is not an arena of this version, or -errno.
 */
MUST_CHECK int ring_arena_map(int fd, struct ring_arena **ret_arena);
/* All rings must have been released. */
void ring_arena_unmap(struct ring_arena *arena);

void ring_arena_range(const struct ring_arena *arena, void **ret_start, size_t *ret_bytes);
/*
 * For a child that a signal handler forked in the middle of a record: maps private memory in place
 * of the arena, so that the record can end there. Call it before the handler returns, e.g. from
 * pthread_atfork(). Returns 0 or -errno.
 */
MUST_CHECK int ring_arena_shield(void *start, size_t bytes);

/* Makes the arena's rings use `budget` instead of the arena's own. `budget` must outlive them. Call
 * this before any ring is claimed. */
void ring_arena_set_budget(struct ring_arena *arena, struct ring_budget *budget);

/* Returns whether threads wait for room when their ring is full. */
bool ring_arena_is_lossless(const struct ring_arena *arena);
uint32_t ring_arena_count_free(const struct ring_arena *arena);
/* Reports to the engine that the process has the arena and may write to it. */
void ring_arena_join(struct ring_arena *arena);
/* Counts a record that found no ring. Any thread. */
void ring_arena_count_lost(struct ring_arena *arena);

/* Returns the smallest free ring of at least min_bytes, or NULL. flags: RING_NO_SYSCALL. */
struct ring *ring_claim(struct ring_arena *arena, uint32_t tid, uint64_t min_bytes, uint32_t flags);
/* Call this at the thread's end. The ring's records stay until the engine has read them. */
void ring_release(struct ring *ring); /* may be NULL */
/*
 * Releases the rings that late destructors claimed in threads that have exited. `own_tid`: the
 * caller's tid; the caller has no ring, so a ring with that tid belongs to an exited thread that
 * had the same tid. One thread at a time. Changes errno.
 */
void ring_arena_sweep(struct ring_arena *arena, uint32_t tgid, uint32_t own_tid);
/* Returns whether any ring is closed and not free yet. If so, rings the doorbell. May change
 * errno. */
bool ring_arena_request_closed(struct ring_arena *arena);
/* After this, no record begins in the arena, and none of its rings is claimed. Open records still
 * end there. */
void ring_arena_retire(struct ring_arena *arena);
void ring_add_flags(struct ring *ring, uint32_t flags);

/*
 * Reserves a record and returns its payload, 8-aligned. The record gets the time of this call. The
 * caller must end the record. Returns NULL if the record is lost, and counts it if its type is that
 * of an event; also returns NULL, without counting, if the ring is released or retired, or in a
 * forked child, which must register first.
 */
void *ring_begin(struct ring *ring, uint32_t type, size_t payload_bytes);
/* Begins a record that is published together with `first` or not at all. `first` must be open, and
 * begun by the caller, not by code that the caller interrupted. Never waits. */
void *ring_begin_with(struct ring *ring, const void *first, uint32_t type, size_t payload_bytes);
/* Sets flags of an open record: RING_FLAG_MORE if a string or log continues in a later record. */
void ring_set_flags(void *payload, uint16_t flags);
void ring_end(struct ring *ring, void *payload);
