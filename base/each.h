/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Each - loops over GLib's containers, to which the body must not add elements */
#pragma once

/* at: a pointer to each element of a GArray, in order */
#define ARRAY_EACH(type, at, array)                    \
	for (type *at = (type *)(void *)(array)->data; \
	     at < (type *)(void *)(array)->data + (array)->len; at++)

/* at: each pointer of a GPtrArray, in order */
#define POINTER_EACH(type, at, pointers)                                                         \
	for (type *at = NULL, **at##_slot = (type **)(pointers)->pdata;                          \
	     at##_slot < (type **)(pointers)->pdata + (pointers)->len && ((at = *at##_slot), 1); \
	     at##_slot++)

/* Sets `at`, a variable, to each value of a GHashTable, or each element of a set. */
#define VALUE_EACH(at, table)                              \
	for (GHashTableIter at##_iter = EACH_BEGIN(table); \
	     g_hash_table_iter_next(&at##_iter, NULL, (gpointer *)&(at));)
#define EACH_BEGIN(table)                               \
	({                                              \
		GHashTableIter begin_;                  \
		g_hash_table_iter_init(&begin_, table); \
		begin_;                                 \
	})
