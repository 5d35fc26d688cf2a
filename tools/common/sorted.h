/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Sorted - sorted arrays; each element begins with its key, a uint64_t */
#pragma once

#include <glib.h>
#include <stdint.h>
#include <string.h>

/* Returns the number of elements with a key of at most `key`. */
static inline size_t sorted_upto(const void *elements, size_t n, size_t size, uint64_t key)
{
	size_t low = 0, high = n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		uint64_t at;

		memcpy(&at, (const char *)elements + middle * size, sizeof(at));
		if (at <= key)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Returns the number of elements with a smaller key. */
static inline size_t sorted_below(const void *elements, size_t n, size_t size, uint64_t key)
{
	return key > 0 ? sorted_upto(elements, n, size, key - 1) : 0;
}

/* Like sorted_upto(); NULL is an empty array. */
static inline guint sorted_array_upto(const GArray *array, size_t size, uint64_t key)
{
	return array ? (guint)sorted_upto(array->data, array->len, size, key) : 0;
}

/* Compares the keys of two elements, for qsort(), and for g_array_sort(), which is stable. */
static inline gint sorted_compare(gconstpointer left, gconstpointer right)
{
	uint64_t a, b;

	memcpy(&a, left, sizeof(a));
	memcpy(&b, right, sizeof(b));
	return (a > b) - (a < b);
}

/* Sorts the array. Keeps only the last of equal elements. */
static inline void sorted_finalize(GArray *array, GCompareFunc compare)
{
	const size_t size = g_array_get_element_size(array);
	guint kept = 0;

	g_array_sort(array, compare);
	for (guint i = 0; i < array->len; i++) {
		const char *element = array->data + i * size;

		kept -= kept > 0 && compare(array->data + (kept - 1) * size, element) == 0;
		memmove(array->data + kept++ * size, element, size);
	}
	g_array_set_size(array, kept);
}
