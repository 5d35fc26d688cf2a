/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Priority queue - a binary heap in the caller's array
 *
 *     PQUEUE_DEFINE(event, struct event *, is_earlier)
 *
 * defines event_order(), event_sift_down() and event_pop() for arrays of struct event *. items[0]
 * is the first item. The functions are inline because merges run them for each record.
 */
#pragma once

#include <stddef.h>

/* bool before(type a, type b) orders the items. */
#define PQUEUE_DEFINE(name, type, before)                                            \
	/* Restores the order after items[i] was replaced by a later item. */        \
	static inline void name##_sift_down(type *items, size_t n, size_t i)         \
	{                                                                            \
		type moved = items[i];                                               \
		size_t child;                                                        \
                                                                                     \
		while ((child = 2 * i + 1) < n) {                                    \
			if (child + 1 < n && before(items[child + 1], items[child])) \
				child++;                                             \
			if (!before(items[child], moved))                            \
				break;                                               \
			items[i] = items[child];                                     \
			i = child;                                                   \
		}                                                                    \
		items[i] = moved;                                                    \
	}                                                                            \
	/* Makes a heap of items that are in any order. */                           \
	static inline void name##_order(type *items, size_t n)                       \
	{                                                                            \
		for (size_t i = n / 2; i-- > 0;)                                     \
			name##_sift_down(items, n, i);                               \
	}                                                                            \
	/* Removes items[0]. */                                                      \
	static inline void name##_pop(type *items, size_t *n)                        \
	{                                                                            \
		items[0] = items[--*n];                                              \
		if (*n > 1)                                                          \
			name##_sift_down(items, *n, 0);                              \
	}
