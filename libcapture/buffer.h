/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Buffer - a growing array of bytes
 *
 * Header-only. The capacity doubles; if there is no memory, the buffer is unchanged. Setting the
 * size to 0 keeps the memory, so that encoders reuse it.
 */
#pragma once

#include "arch/base.h"

#include <errno.h>

struct buffer {
	uint8_t *data;
	size_t size;
	size_t capacity;
};

static inline void buffer_done(struct buffer *buffer)
{
	free(buffer->data);
	*buffer = (struct buffer){ 0 };
}

/* Reserves room for `more` bytes after `size`. */
MUST_CHECK static inline int buffer_reserve(struct buffer *buffer, size_t more)
{
	size_t need, capacity = MAX_OF(buffer->capacity, (size_t)256);
	uint8_t *data;

	if (__builtin_add_overflow(buffer->size, more, &need) || need > SIZE_MAX / 4)
		return -ENOMEM;
	if (need <= buffer->capacity)
		return 0;
	while (capacity < need)
		capacity *= 2;
	data = realloc(buffer->data, capacity);
	if (!data)
		return -ENOMEM;
	buffer->data = data;
	buffer->capacity = capacity;
	return 0;
}

MUST_CHECK static inline int buffer_add(struct buffer *buffer, const void *data, size_t size)
{
	int r = buffer_reserve(buffer, size);

	if (r)
		return r;
	if (size)
		memcpy(buffer->data + buffer->size, data, size);
	buffer->size += size;
	return 0;
}

/* Adds zeros up to the next multiple of 8. */
MUST_CHECK static inline int buffer_pad8(struct buffer *buffer)
{
	static const uint8_t zeros[8];

	return buffer_add(buffer, zeros, -buffer->size & 7);
}
