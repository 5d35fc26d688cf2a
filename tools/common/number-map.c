/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Number-map - 64-bit keys to 32-bit values, for millions of entries
 *
 * Invariants: (1) a slot is in use exactly when its value is not 0          [test-number-map: grow]
 *             (2) at least a third of the slots are free, so a search ends  [test-number-map: grow]
 */
#include "config.h"

#include "tools/common/number-map.h"

#include <glib.h>

struct number_map_slot {
	uint64_t key;
	uint32_t value;
};

#define FIRST_SLOTS 64

void number_map_init(struct number_map *map)
{
	*map = (struct number_map){ .seed = (uint64_t)g_random_int() << 32 | g_random_int() };
}

void number_map_done(struct number_map *map)
{
	g_free(map->slots);
	*map = (struct number_map){ 0 };
}

void number_map_clear(struct number_map *map)
{
	g_free(map->slots);
	*map = (struct number_map){ .seed = map->seed };
}

/* The finalizer of MurmurHash3. */
static uint64_t mix(uint64_t key)
{
	key ^= key >> 33;
	key *= UINT64_C(0xff51afd7ed558ccd);
	key ^= key >> 33;
	key *= UINT64_C(0xc4ceb9fe1a85ec53);
	return key ^ key >> 33;
}

static struct number_map_slot *find(const struct number_map *map, uint64_t key)
{
	size_t mask = map->n_slots - 1;
	size_t i = mix(key ^ map->seed) & mask;

	while (map->slots[i].value != 0 && map->slots[i].key != key)
		i = (i + 1) & mask;
	return &map->slots[i];
}

static void grow(struct number_map *map)
{
	struct number_map old = *map;

	map->n_slots = old.n_slots ? old.n_slots * 2 : FIRST_SLOTS;
	map->slots = g_new0(struct number_map_slot, map->n_slots);
	for (size_t i = 0; i < old.n_slots; i++)
		if (old.slots[i].value != 0)
			*find(map, old.slots[i].key) = old.slots[i];
	g_free(old.slots);
}

uint32_t *number_map_at(struct number_map *map, uint64_t key)
{
	struct number_map_slot *slot;

	if ((map->used + 1) * 3 > map->n_slots * 2)
		grow(map);
	slot = find(map, key);
	if (slot->value == 0) {
		slot->key = key;
		map->used++;
	}
	return &slot->value;
}

uint32_t number_map_get(const struct number_map *map, uint64_t key)
{
	return map->n_slots ? find(map, key)->value : 0;
}

bool number_map_next(const struct number_map *map, size_t *at, uint64_t *ret_key,
		     uint32_t *ret_value)
{
	while (*at < map->n_slots && map->slots[*at].value == 0)
		++*at;
	if (*at >= map->n_slots)
		return false;
	*ret_key = map->slots[*at].key;
	*ret_value = map->slots[*at].value;
	++*at;
	return true;
}
