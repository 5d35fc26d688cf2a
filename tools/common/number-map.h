/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Number-map - 64-bit keys to 32-bit values, for millions of entries
 *
 * Open addressing in one array, at most two thirds full. A value is never 0, which means "missing".
 * Keys are hashed with a per-process seed, so that a file cannot choose keys that collide.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct number_map {
	struct number_map_slot *slots;
	size_t n_slots; /* a power of two, or 0 */
	size_t used;
	uint64_t seed;
};

void number_map_init(struct number_map *map);
void number_map_done(struct number_map *map);
void number_map_clear(struct number_map *map);
/* Returns the key's value slot, which is 0 for a new key: the caller must then set it. The pointer
 * is valid until the next call. */
uint32_t *number_map_at(struct number_map *map, uint64_t key);
/* Returns the value, or 0. */
uint32_t number_map_get(const struct number_map *map, uint64_t key);
/* Iterates in no particular order. Set *at to 0 before the first call. Returns false at the end. */
bool number_map_next(const struct number_map *map, size_t *at, uint64_t *ret_key,
		     uint32_t *ret_value);
