/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/peers/collector-peer.h"

/* A peer that uses sysprof's protocol: a process whose threads request one ring each. */

/* Maximum delay from a frame's time to its publication. A frame in progress is not visible. */
#define SYSPROF_HOLD_NS RING_BUSY_NS

/* Returns the process's pid in its own PID namespace, as in its frames. */
int32_t sysprof_peer_number(const struct peer *peer);
/* Returns whether an answer can be sent. The process waits for it without a timeout and must not
 * miss it. */
bool sysprof_peer_can_answer(const struct peer *peer);
/* Answers a request. `fd`: the requested ring, or -1. */
void sysprof_peer_answer(struct peer *peer, int fd);
/* Makes a ring. n_bytes: size of its body. Returns 0 or -errno. */
MUST_CHECK int sysprof_peer_add_ring(struct peer *peer, uint32_t n_bytes, int *ret_fd);

/* Returns the pid in the first frame; 0: no frame yet. */
int32_t sysprof_arena_pid(const struct peer_arena *arena);
/* Returns whether the request of the ring's writer should have arrived by now. */
bool sysprof_arena_is_overdue(struct peer_arena *arena, uint64_t now_ns);
/* Assigns the ring to this process. */
void sysprof_arena_bind(struct peer_arena *arena, struct peer *peer);
/* Like peer_ring_drain(), for the arena's ring. */
size_t sysprof_arena_drain(struct peer_arena *arena, uint8_t *buffer, size_t n_bytes,
			   uint64_t *ret_fill);
/* Called between two drains. Allocates the pages that the writer needs next. Returns whether the
 * ring is full enough to be drained. */
bool sysprof_arena_look(struct peer_arena *arena);
/* Returns whether the ring's thread has ended and all its records have become rows. */
bool sysprof_arena_is_done(const struct peer_arena *arena, uint64_t now_ns);
