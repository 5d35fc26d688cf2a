/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "libcollector/ring/ring-arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SYSPROF_RING_MIN_BYTES \
	(256u << 10) /* about the size that sysprof uses; a frame may have up to 64 KiB */

#define SYSPROF_RING_MAX_BYTES (64u << 20)

/* A ring and the engine's state of it. `shared`: the memory shared with a thread, in the format of
 * sysprof's library. */
struct sysprof_ring {
	uint8_t *shared;
	uint32_t size; /* size of the body, which follows the header's page */
	uint32_t head; /* the reader's position */
	uint32_t page;
	uint32_t populated; /* bytes of the body with allocated pages */
};

/* n_bytes: size of the body, a multiple of the page size. Returns 0 or -errno. */
MUST_CHECK int sysprof_ring_make(uint32_t n_bytes, struct sysprof_ring *ret_ring,
				 struct ring_arena_memory *ret_memory, int *ret_fd);
/* Allocates the pages that the writer needs next, unless all are allocated. */
void sysprof_ring_populate(struct sysprof_ring *ring);
/* Stores the number of unread bytes. Returns false if the writer's position is invalid. */
bool sysprof_ring_fill(const struct sysprof_ring *ring, uint32_t *ret_fill);
/* Copies the first n unread bytes. */
void sysprof_ring_copy(const struct sysprof_ring *ring, uint8_t *buffer, uint32_t n);
/* Erases the first n unread bytes and releases them to the writer. */
void sysprof_ring_skip(struct sysprof_ring *ring, uint32_t n);
