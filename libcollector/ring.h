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
 * A ring is its thread's, and that of the signal handlers on it. Nothing here allocates, takes a
 * lock, or changes errno. What is begun within a record that is not ended yet, by a handler or by
 * ring_begin_with(), stands behind it and is published with it: so a stack and its first user are
 * seen together or not at all.
 */
#pragma once

#include "libcollector/ring-layout.h"

struct ring;
struct ring_arena;

/* No system call, ever: for threads that a seccomp filter could kill for one. The doorbell is
 * not rung, nothing waits. */
#define RING_NO_SYSCALL 0x01u

#define RING_WAIT_NS UINT64_C(10000000) /* for room, until a thread looks whether to wait on */
#define RING_WAIT_BUDGET_NS UINT64_C(1000000000) /* of a process in RING_WAIT_WINDOW_NS */
#define RING_WAIT_WINDOW_NS UINT64_C(60000000000)
/* Who writes a ring full in less goes on in a bigger one: so a thread rings for its consumer
 * some hundred times a second. */
#define RING_LAP_NS UINT64_C(30000000)

/*
 * How long threads of a process have waited in one window. Time in which several wait counts once,
 * as the process is held up once; so no thread waits longer than the budget either. Begins as
 * zeros.
 */
struct ring_budget {
	uint64_t since_ns, waited_ns;
	uint64_t waiting;      /* how many wait, and up to when waited_ns is counted: see ring.c */
	bool (*is_over)(void); /* the consumer is gone, so a wait is in vain; NULL: nobody knows */
};

/* False: it is spent. Else ring_budget_end() follows the wait, and ring_budget_left() says how
 * long that may go on. */
bool ring_budget_begin(struct ring_budget *budget, uint64_t now_ns);
uint64_t ring_budget_left(const struct ring_budget *budget, uint64_t now_ns);
void ring_budget_end(struct ring_budget *budget, uint64_t now_ns);

/*
 * Maps what the engine made and sealed; the caller closes fd. Three mappings: the arena, which a
 * forked child does not have, and two of the producer's own. Returns 0, -EPROTO for what is no
 * arena of this version, or -errno.
 */
MUST_CHECK int ring_arena_map(int fd, struct ring_arena **ret_arena);
/* All rings are released, and nobody holds one. */
void ring_arena_unmap(struct ring_arena *arena);

/* Where the arena is mapped. */
void ring_arena_range(const struct ring_arena *arena, void **ret_start, size_t *ret_bytes);
/*
 * In a child that was forked by a signal handler in the middle of a record: gives it memory of its
 * own at that place, where the record may end. To be called before the handler returns, as by
 * pthread_atfork(). Returns 0 or -errno.
 */
MUST_CHECK int ring_arena_shield(void *start, size_t bytes);

/* Its rings wait out of that one, which stays, instead of one of the arena. Before any is
 * claimed. */
void ring_arena_set_budget(struct ring_arena *arena, struct ring_budget *budget);

/* Who finds its rings full waits for room. */
bool ring_arena_is_lossless(const struct ring_arena *arena);
/* Rings that nobody has. */
uint32_t ring_arena_count_free(const struct ring_arena *arena);
/* Its process has it, and may write into it. */
void ring_arena_join(struct ring_arena *arena);
/* An attempt for which there was no ring. Any thread. */
void ring_arena_count_lost(struct ring_arena *arena);

/* The smallest free ring of at least min_bytes. NULL: none. flags: RING_NO_SYSCALL. */
struct ring *ring_claim(struct ring_arena *arena, uint32_t tid, uint64_t min_bytes, uint32_t flags);
/* At the thread's end. What is in the ring stays until the engine has taken it. */
void ring_release(struct ring *ring); /* takes NULL */
/*
 * Releases the rings of threads that ended without doing so, as with records of late destructors.
 * own_tid: the caller, who has none; what is owned by that number is of another thread that had it.
 * One thread at a time. errno changes.
 */
void ring_arena_sweep(struct ring_arena *arena, uint32_t tgid, uint32_t own_tid);
/* Whether a ring is closed and not free yet: rings the doorbell then. errno may change. */
bool ring_arena_ask_for_closed(struct ring_arena *arena);
/* No record begins in it from now on, and no ring of it is claimed. Whoever is within one ends
 * it there. */
void ring_arena_retire(struct ring_arena *arena);
/* More RING_NO_SYSCALL, from now on. */
void ring_add_flags(struct ring *ring, uint32_t flags);

/*
 * Room for a record: where its payload goes, 8-aligned, its time taken. Whoever gets it must end
 * it. NULL: counted as lost already; or not counted, as the ring is released, or in a forked child,
 * which has to register anew.
 */
void *ring_begin(struct ring *ring, uint32_t type, size_t payload_bytes);
/* A record that is seen together with `first`, or not at all: that one is open, and of the same
 * code. Never waits. */
void *ring_begin_with(struct ring *ring, const void *first, uint32_t type, size_t payload_bytes);
/* Of a string or log that goes on in the next record. */
void ring_set_flags(void *payload, uint16_t flags);
void ring_end(struct ring *ring, void *payload);
