/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What the three files of the collectors share: who they are, what they wrote, when that is due. */
#pragma once

#include "daemon/engine/collectors.h"

#include <time.h>

#define MS UINT64_C(1000000)
#define COLLECTORS_BUFFER_BYTES (64u << 10) /* what is made rows soon after is still in caches */
#define COLLECTORS_MAX_INTERVAL_MS 100u     /* between drains */

static inline uint64_t collectors_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline struct peer *peer_at(const struct collectors *collectors, guint i)
{
	return g_ptr_array_index(collectors->peers, i);
}

/* Memory has been cleared since then: a third of the time at most goes into that. */
static inline void collectors_note_clearing(struct collectors *collectors, uint64_t begin_ns)
{
	uint64_t now_ns = collectors_clock();

	collectors->arena_until_ns = now_ns + 2 * (now_ns - begin_ns);
}

/* collectors.c: rings of sysprof's that are written into by now go to who does so: an answer may
 * have reached another one. */
void collectors_sort_sysprof(struct collectors *collectors, uint64_t now_ns);
/* collectors-merge.c: some of what is in the ring is queued, and all of who is dead. */
void collectors_drain_ring(struct collectors *collectors, struct peer_arena *arena, uint32_t i,
			   enum ring_drain how);
/* collectors-merge.c: amid what may take longer than producers wait, rings that are filling are
 * emptied into their queues. */
void collectors_keep_up(struct collectors *collectors, uint64_t now_ns);
/* collectors-merge.c: bytes in its rings that can be read, as far as it says. */
uint64_t collectors_unread(const struct peer *peer);
/* collectors-merge.c: of producers that have stopped, all that there is half of the time for, by
 * pieces; then the rest of what is queued, as collectors_finish() says. */
void collectors_drain_rest(struct collectors *collectors, uint64_t until_ns);
void collectors_emit_rest(struct collectors *collectors, uint64_t until_ns);
