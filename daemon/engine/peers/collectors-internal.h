/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Functions of collectors-merge.c for collectors.c. */
#pragma once

#include "daemon/engine/peers/collectors.h"

#define MS UINT64_C(1000000)
#define COLLECTORS_MAX_INTERVAL_MS 100u /* between drains */

/* struct peer_type.drain for profd's own rings. */
size_t collectors_drain_own(struct collectors *collectors, struct peer_arena *arena, uint32_t i,
			    enum ring_drain how, uint64_t *ret_fill);
/* Gives each arena to the process that writes to it. */
void collectors_sort(struct collectors *collectors, uint64_t now_ns);
void collectors_drain_ring(struct collectors *collectors, struct peer_arena *arena, uint32_t i,
			   enum ring_drain how);
/* Called between the pieces of long steps. Moves records from filling rings to the queues, so that
 * producers do not wait. */
void collectors_keep_up(struct collectors *collectors, uint64_t now_ns);
/* Return the number of unread bytes in the rings, as their positions show it. */
uint64_t collectors_unread(const struct peer *peer);
uint64_t collectors_all_unread(const struct collectors *collectors);
/* Called after producers have stopped, to drain the rings and then to emit the queues: see
 * collectors_finish(). collectors_drain_rest() takes at most half of the remaining time. */
void collectors_drain_rest(struct collectors *collectors, uint64_t until_ns);
void collectors_emit_rest(struct collectors *collectors, uint64_t until_ns);
