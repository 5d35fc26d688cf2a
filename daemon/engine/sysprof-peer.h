/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/collector-peer.h"

/* A peer of sysprof's protocol: a process, whose threads ask for a ring each. */

/* How late a frame may be published after its time, at most: nothing says that one was begun. */
#define SYSPROF_HOLD_NS RING_BUSY_NS

/* What its frames say that it is called. */
int32_t sysprof_peer_number(const struct peer *peer);
/* Whether an answer would find room: who waits for one without end is not to miss it. */
bool sysprof_peer_can_answer(const struct peer *peer);
/* fd: the ring that was asked for, or -1: there is none. */
void sysprof_peer_answer(struct peer *peer, int fd);
/* n_bytes: of the ring's body. Returns 0 or -errno. */
MUST_CHECK int sysprof_peer_add_ring(struct peer *peer, uint32_t n_bytes, int *ret_fd);

/* What the first frame says of whose it is; 0: there is none. */
int32_t sysprof_arena_pid(const struct peer_arena *arena);
/* Whoever that is should have asked by now. */
bool sysprof_arena_is_overdue(struct peer_arena *arena, uint64_t now_ns);
/* It is this process's. */
void sysprof_arena_bind(struct peer_arena *arena, struct peer *peer);
/* As peer_ring_drain(), of its ring. */
size_t sysprof_arena_drain(struct peer_arena *arena, uint8_t *buffer, size_t n_bytes,
			   uint64_t *ret_fill);
/* A look between two drains: makes the pages that the writer comes to next. Whether so much
 * waits that it has to be drained. */
bool sysprof_arena_look(struct peer_arena *arena);
/* Its thread has ended, and all that it wrote is rows. */
bool sysprof_arena_is_done(const struct peer_arena *arena, uint64_t now_ns);
