/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Internals of collectors.c, collectors-merge.c and collectors-sleep.c. */
#pragma once

#include "base/clock.h"
#include "daemon/engine/peers/collectors.h"

#define MS UINT64_C(1000000)
#define COLLECTORS_BUFFER_BYTES (64u << 10) /* small, to stay in caches until rows are written */
#define COLLECTORS_MAX_INTERVAL_MS 100u     /* between drains */

static inline struct peer *peer_at(const struct collectors *collectors, guint i)
{
	return g_ptr_array_index(collectors->peers, i);
}

/* Called after clearing the memory of arenas, which began at begin_ns. Delays the next clearing, so
 * that clearing takes at most a third of the time. */
static inline void collectors_note_clearing(struct collectors *collectors, uint64_t begin_ns)
{
	uint64_t now_ns = clock_now();

	collectors->arena_until_ns = now_ns + 2 * (now_ns - begin_ns);
}

/* collectors.c: gives each sysprof ring to the process that writes to it, because a process may
 * have received an answer meant for another. */
void collectors_sort_sysprof(struct collectors *collectors, uint64_t now_ns);
/* collectors-merge.c: queues some of the ring's records; all of them if its process is dead. */
void collectors_drain_ring(struct collectors *collectors, struct peer_arena *arena, uint32_t i,
			   enum ring_drain how);
/* collectors-merge.c: called during long steps. Moves records from filling rings to the queues, so
 * that producers do not wait. */
void collectors_keep_up(struct collectors *collectors, uint64_t now_ns);
/* collectors-merge.c: returns the readable bytes in the peer's rings, as far as the rings report
 * them. */
uint64_t collectors_unread(const struct peer *peer);
uint64_t collectors_all_unread(const struct collectors *collectors);
/* collectors-merge.c: called after producers have stopped. drain_rest() takes at most half of the
 * remaining time; emit_rest() emits the queues, as collectors_finish() describes. */
void collectors_drain_rest(struct collectors *collectors, uint64_t until_ns);
void collectors_emit_rest(struct collectors *collectors, uint64_t until_ns);
