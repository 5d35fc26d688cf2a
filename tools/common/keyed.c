/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/common/keyed.h"

uint64_t keyed_seed;

__attribute__((constructor)) static void choose_seed(void)
{
	keyed_seed = (uint64_t)g_random_int() << 32 | g_random_int() | 1;
}

void *keyed_at(GHashTable *set, const void *key, size_t size)
{
	void *at = g_hash_table_lookup(set, key);

	if (!at) {
		at = g_memdup2(key, size);
		g_hash_table_add(set, at);
	}
	return at;
}

uint32_t keyed_index(GHashTable *indexes, GArray *all, const void *key)
{
	gpointer index;

	if (!g_hash_table_lookup_extended(indexes, key, NULL, &index)) {
		index = GUINT_TO_POINTER(all->len);
		g_hash_table_insert(indexes, g_memdup2(key, g_array_get_element_size(all)), index);
		g_array_append_vals(all, key, 1);
	}
	return GPOINTER_TO_UINT(index);
}

GPtrArray *keyed_sorted(GHashTable *set, GCompareFunc compare)
{
	GPtrArray *all = g_ptr_array_sized_new(g_hash_table_size(set));
	GHashTableIter iter;
	gpointer at;

	g_hash_table_iter_init(&iter, set);
	while (g_hash_table_iter_next(&iter, &at, NULL))
		g_ptr_array_add(all, at);
	g_ptr_array_sort(all, compare);
	return all;
}

GArray *keyed_copies(GHashTable *set, size_t size, GCompareFunc compare)
{
	GArray *all = g_array_sized_new(FALSE, FALSE, (guint)size, g_hash_table_size(set));
	GHashTableIter iter;
	gpointer at;

	g_hash_table_iter_init(&iter, set);
	while (g_hash_table_iter_next(&iter, &at, NULL))
		g_array_append_vals(all, at, 1);
	g_array_sort(all, compare);
	return all;
}
