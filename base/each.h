/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Each - loops over GLib's containers, to which the body must not add elements. The array of an
 * empty container may be NULL, to which C permits no addition, so the loops check `len` first. */
#pragma once

/* at: a pointer to each element of a GArray, in order */
#define ARRAY_EACH(type, at, array)                    \
	for (type *at = (type *)(void *)(array)->data; \
	     (array)->len > 0 && at < (type *)(void *)(array)->data + (array)->len; at++)

/* at: each pointer of a GPtrArray, in order */
#define POINTER_EACH(type, at, pointers)                                                        \
	for (type *at = NULL, **at##_slot = (type **)(pointers)->pdata;                         \
	     (pointers)->len > 0 && at##_slot < (type **)(pointers)->pdata + (pointers)->len && \
	     ((at = *at##_slot), 1);                                                            \
	     at##_slot++)
