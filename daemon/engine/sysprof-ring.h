/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "libcollector/ring-arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SYSPROF_RING_MIN_BYTES \
	(256u << 10) /* about what sysprof makes: 64 KiB is the largest frame */

#define SYSPROF_RING_MAX_BYTES (64u << 20)

/* The memory that a thread shares with us, as sysprof's library wants it. */
struct sysprof_ring {
	uint8_t *shared;
	uint32_t size; /* of the body, which follows the header's page */
	uint32_t head; /* what was read up to */
	uint32_t page;
	uint32_t populated; /* bytes of the body whose pages are there */
};

/* n_bytes: of the body, a multiple of a page. Returns 0 or -errno. */
MUST_CHECK int sysprof_ring_make(uint32_t n_bytes, struct sysprof_ring *ret_ring,
				 struct ring_arena_memory *ret_memory, int *ret_fd);
/* Makes the pages that the writer comes to next, where it has not been once around. */
void sysprof_ring_populate(struct sysprof_ring *ring);
/* Bytes that wait. False: what stands there cannot be. */
bool sysprof_ring_fill(const struct sysprof_ring *ring, uint32_t *ret_fill);
/* Copies the first n of them. */
void sysprof_ring_copy(const struct sysprof_ring *ring, uint8_t *buffer, uint32_t n);
/* They are the writer's again, and erased. */
void sysprof_ring_skip(struct sysprof_ring *ring, uint32_t n);
