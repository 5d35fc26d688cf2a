/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Base - helpers for every directory
 *
 * Header-only, libc headers only, no state: cleanup attributes, checked arithmetic, little-endian
 * loads and stores. Everything here is async-signal-safe except the cleanup of heap memory.
 */
#pragma once

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* Each argument is evaluated only once, so it may be a call. Not for constant expressions. */
#define MIN_OF(a, b) BASE_PICK(<, a, b, __COUNTER__)
#define MAX_OF(a, b) BASE_PICK(>, a, b, __COUNTER__)
#define BASE_PICK(is, a, b, n) BASE_PICK_ONCE(is, a, b, n)
#define BASE_PICK_ONCE(is, a, b, n)             \
	({                                      \
		__auto_type a_##n = (a);        \
		__auto_type b_##n = (b);        \
		a_##n is b_##n ? a_##n : b_##n; \
	})

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))
#define CLEANUP(f) __attribute__((cleanup(f)))

/* CLEANUP_FREE char *p = NULL; frees p at the end of its scope. */
#define CLEANUP_FREE CLEANUP(base_free_ptr)
/* CLEANUP_CLOSE int fd = -1; closes fd at the end of its scope. */
#define CLEANUP_CLOSE CLEANUP(base_close_fd)

static inline void base_free_ptr(void *pointer)
{
	free(*(void **)pointer);
}

static inline void base_close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

/* Transfers ownership: returns the resource and leaves the variable empty. */
static inline int steal_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

static inline void *base_steal_ptr(void *pointer)
{
	void *taken = *(void **)pointer;

	*(void **)pointer = NULL;
	return taken;
}
#define steal_ptr(pointer) ((__typeof__(*(pointer)))base_steal_ptr(pointer))

/* Checked arithmetic: returns true and sets *ret_sum if the result fits. */
static inline bool add_u64(uint64_t a, uint64_t b, uint64_t *ret_sum)
{
	uint64_t sum;

	if (__builtin_add_overflow(a, b, &sum))
		return false;
	*ret_sum = sum;
	return true;
}

static inline bool mul_u64(uint64_t a, uint64_t b, uint64_t *ret_product)
{
	uint64_t product;

	if (__builtin_mul_overflow(a, b, &product))
		return false;
	*ret_product = product;
	return true;
}

/* Prefetches the cache line at an address, which need not be valid. The empty asm keeps the call:
 * gcc would drop calls of a function without side effects [lint-prefetch]. */
static inline void prefetch_line(const void *at)
{
	__builtin_prefetch(at);
	__asm__ volatile("");
}

/* Unaligned little-endian loads and stores, for files and rings. */
static inline uint16_t load_le16(const void *at)
{
	uint16_t v;

	memcpy(&v, at, sizeof(v));
	return le16toh(v);
}

static inline uint32_t load_le32(const void *at)
{
	uint32_t v;

	memcpy(&v, at, sizeof(v));
	return le32toh(v);
}

static inline uint64_t load_le64(const void *at)
{
	uint64_t v;

	memcpy(&v, at, sizeof(v));
	return le64toh(v);
}

static inline void store_le16(void *at, uint16_t v)
{
	v = htole16(v);
	memcpy(at, &v, sizeof(v));
}

static inline void store_le32(void *at, uint32_t v)
{
	v = htole32(v);
	memcpy(at, &v, sizeof(v));
}

static inline void store_le64(void *at, uint64_t v)
{
	v = htole64(v);
	memcpy(at, &v, sizeof(v));
}
