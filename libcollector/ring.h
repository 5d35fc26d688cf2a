/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ring - the producer's half: a thread writes records that profd-engine takes out
 *
 *     struct ring *ring = ring_claim(arena, tid, 0, 0);
 *     struct ring_mark *mark = ring_begin(ring, RING_MARK, sizeof(*mark));
 *
 *     if (mark) {
 *             *mark = (struct ring_mark){ .name = name };
 *             ring_end(ring, mark);
 *     }
 *
 * A ring belongs to its thread and the signal handlers on it. Nothing here allocates, takes a lock,
 * or changes errno. A record that a handler or ring_begin_with() begins within an open record
 * follows it and is published with it. So the consumer sees a stack and its first user together or
 * not at all.
 */
#pragma once

#include "libcollector/ring-layout.h"

struct ring;
struct ring_arena;

/* No system calls, ever: for threads that a seccomp filter could kill for one. The doorbell is
 * not rung, and nothing waits. */
#define RING_NO_SYSCALL 0x01u

#define RING_WAIT_NS UINT64_C(10000000) /* for room, before the next check whether it is in vain */
#define RING_WAIT_BUDGET_NS UINT64_C(1000000000) /* of a process in RING_WAIT_WINDOW_NS */
#define RING_WAIT_WINDOW_NS UINT64_C(60000000000)
/* A thread that fills a ring in less time moves to a larger one, so that it rings for its consumer
 * at most some hundred times a second. */
#define RING_LAP_NS UINT64_C(30000000)

/*
 * The time that threads of a process have waited in one window. Time in which several wait counts
 * once, because it delays the process once; so no thread waits longer than the budget either.
 * Initialized with zeros.
 */
struct ring_budget {
	uint64_t since_ns, waited_ns;
	uint64_t waiting;      /* number of waiters, and until when waited_ns counts: see ring.c */
	bool (*is_over)(void); /* the consumer is gone, so a wait is in vain; NULL: unknown */
};

/* Returns false if the budget is spent. Otherwise ring_budget_end() must follow the wait, and
 * ring_budget_left() returns how long the wait may take. */
bool ring_budget_begin(struct ring_budget *budget, uint64_t now_ns);
uint64_t ring_budget_left(const struct ring_budget *budget, uint64_t now_ns);
void ring_budget_end(struct ring_budget *budget, uint64_t now_ns);

/*
 * Maps an arena that the engine made and sealed; the caller closes fd. Three mappings: the arena,
 * which a forked child does not have, and two of the producer's own. Returns 0, -EPROTO if it is
 * not an arena of this version, or -errno.
 */
MUST_CHECK int ring_arena_map(int fd, struct ring_arena **ret_arena);
/* All rings must be released. */
void ring_arena_unmap(struct ring_arena *arena);

/* Returns where the arena is mapped. */
void ring_arena_range(const struct ring_arena *arena, void **ret_start, size_t *ret_bytes);
/*
 * For a child that a signal handler forked in the middle of a record: maps private memory at that
 * place, where the record may end. Call it before the handler returns, as with pthread_atfork().
 * Returns 0 or -errno.
 */
MUST_CHECK int ring_arena_shield(void *start, size_t bytes);

/* Makes the arena's rings use that budget, which must outlive them, instead of the arena's own.
 * Call it before any ring is claimed. */
void ring_arena_set_budget(struct ring_arena *arena, struct ring_budget *budget);

/* True if threads wait for room when their ring is full. */
bool ring_arena_is_lossless(const struct ring_arena *arena);
/* Returns the number of free rings. */
uint32_t ring_arena_count_free(const struct ring_arena *arena);
/* Tells the engine that the process has the arena and may write into it. */
void ring_arena_join(struct ring_arena *arena);
/* Counts an attempt for which there was no ring. Any thread. */
void ring_arena_count_lost(struct ring_arena *arena);

/* Returns the smallest free ring of at least min_bytes, or NULL. flags: RING_NO_SYSCALL. */
struct ring *ring_claim(struct ring_arena *arena, uint32_t tid, uint64_t min_bytes, uint32_t flags);
/* At the thread's end. The ring's records stay until the engine has taken them. */
void ring_release(struct ring *ring); /* may be NULL */
/*
 * Releases the rings of threads that ended without releasing them, because late destructors
 * recorded. own_tid: the caller, who has no ring; a ring owned by that number belongs to an ended
 * thread that had the same number. One thread at a time. Changes errno.
 */
void ring_arena_sweep(struct ring_arena *arena, uint32_t tgid, uint32_t own_tid);
/* Returns whether a ring is closed and not free yet; if so, rings the doorbell. May change
 * errno. */
bool ring_arena_request_closed(struct ring_arena *arena);
/* From now on no record begins in the arena, and none of its rings is claimed. Open records end
 * there. */
void ring_arena_retire(struct ring_arena *arena);
/* Adds flags (RING_NO_SYSCALL). */
void ring_add_flags(struct ring *ring, uint32_t flags);

/*
 * Reserves a record and returns its payload, 8-aligned; the record's time is taken now. The caller
 * must end the record. Returns NULL if the record is lost and counted; or, without counting, if the
 * ring is released, or in a forked child, which has to register anew.
 */
void *ring_begin(struct ring *ring, uint32_t type, size_t payload_bytes);
/* Begins a record that is published together with `first` or not at all. `first` must be open, and
 * begun by the same code. Never waits. */
void *ring_begin_with(struct ring *ring, const void *first, uint32_t type, size_t payload_bytes);
/* For a string or log that continues in the next record. */
void ring_set_flags(void *payload, uint16_t flags);
void ring_end(struct ring *ring, void *payload);
