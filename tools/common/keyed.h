/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Keyed - GLib hash tables of structs, in which some members of a struct are its key
 *
 *     KEYED_BY(series, struct series, a->instants, (uintptr_t)a->name)
 *
 * defines series_hash() and series_equal(), which use these numbers of a struct `a`. Hashes depend
 * on a per-process seed, so that a file cannot choose keys that collide.
 */
#pragma once

#include "arch/base.h"
#include "base/hash.h"

#include <glib.h>

#define KEYED_BY(name, type, ...)                                                                \
	static guint name##_hash(gconstpointer pointer)                                          \
	{                                                                                        \
		const type *a = pointer;                                                         \
		const uint64_t numbers[] = { __VA_ARGS__ };                                      \
                                                                                                 \
		return keyed_hash(numbers, ARRAY_SIZE(numbers));                                 \
	}                                                                                        \
	static gboolean name##_equal(gconstpointer left, gconstpointer right)                    \
	{                                                                                        \
		const type *a = left;                                                            \
		const uint64_t numbers[] = { __VA_ARGS__ };                                      \
                                                                                                 \
		a = right;                                                                       \
		return memcmp(numbers, (const uint64_t[]){ __VA_ARGS__ }, sizeof(numbers)) == 0; \
	}

extern uint64_t keyed_seed; /* odd; constant in a process */

static inline guint keyed_hash(const uint64_t *numbers, size_t n)
{
	uint64_t hash = keyed_seed;

	for (size_t i = 0; i < n; i++)
		hash = hash_multiply(hash ^ numbers[i], keyed_seed);
	return hash_fold(hash);
}

/* Returns the struct of a set that is equal to `key`. Adds a copy of `key` if the set lacks it. */
void *keyed_at(GHashTable *set, const void *key, size_t size);
/* Returns the index in `all` of the struct that equals `key`. If no struct does, appends `key`.
 * `indexes` maps a copy of each struct, freed with g_free(), to its index. */
uint32_t keyed_index(GHashTable *indexes, GArray *all, const void *key);
/* These return the structs of a set, sorted: keyed_sorted() pointers to them, keyed_copies()
 * copies. */
GPtrArray *keyed_sorted(GHashTable *set, GCompareFunc compare);
GArray *keyed_copies(GHashTable *set, size_t size, GCompareFunc compare);
