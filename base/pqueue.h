/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Priority queue - a binary heap in the caller's array
 *
 *     PQUEUE_DEFINE(event, struct event *, is_earlier)
 *
 * defines event_order(), event_sift_down(), event_push() and event_pop() for arrays of struct
 * event *. items[0] is the first item. The functions are inline because merges run them for each
 * record.
 */
#pragma once

#include <stddef.h>

#define PQUEUE_INLINE static inline __attribute__((unused))

/* bool before(type a, type b) orders the items. */
#define PQUEUE_DEFINE(name, type, before)                                            \
	/* Restores the order after items[i] was replaced by a later item. */        \
	PQUEUE_INLINE void name##_sift_down(type *items, size_t n, size_t i)         \
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
	PQUEUE_INLINE void name##_order(type *items, size_t n)                       \
	{                                                                            \
		for (size_t i = n / 2; i-- > 0;)                                     \
			name##_sift_down(items, n, i);                               \
	}                                                                            \
	/* Adds an item. The array has room for it. */                               \
	PQUEUE_INLINE void name##_push(type *items, size_t *n, type item)            \
	{                                                                            \
		size_t i = (*n)++, parent;                                           \
                                                                                     \
		while (i > 0 && before(item, items[parent = (i - 1) / 2])) {         \
			items[i] = items[parent];                                    \
			i = parent;                                                  \
		}                                                                    \
		items[i] = item;                                                     \
	}                                                                            \
	/* Removes items[0]. */                                                      \
	PQUEUE_INLINE void name##_pop(type *items, size_t *n)                        \
	{                                                                            \
		items[0] = items[--*n];                                              \
		if (*n > 1)                                                          \
			name##_sift_down(items, *n, 0);                              \
	}
