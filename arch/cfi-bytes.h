/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * CFI bytes - reads numbers from the front of a range of bytes
 *
 * A read past the end fails, returns 0, and makes all later reads fail, so a parser checks only
 * once, at its end.
 */
#pragma once

#include "arch/base.h"

struct cfi_bytes {
	const uint8_t *at, *end;
	bool failed;
};

static inline size_t cfi_bytes_left(const struct cfi_bytes *bytes)
{
	return (size_t)(bytes->end - bytes->at);
}

static inline const uint8_t *cfi_bytes_read(struct cfi_bytes *bytes, uint64_t size)
{
	const uint8_t *read = bytes->at;

	if (size > cfi_bytes_left(bytes)) {
		bytes->failed = true;
		bytes->at = bytes->end;
		return NULL;
	}
	bytes->at += size;
	return read;
}

static inline uint8_t cfi_bytes_u8(struct cfi_bytes *bytes)
{
	const uint8_t *read = cfi_bytes_read(bytes, 1);

	return read ? *read : 0;
}

static inline uint16_t cfi_bytes_u16(struct cfi_bytes *bytes)
{
	const uint8_t *read = cfi_bytes_read(bytes, 2);

	return read ? load_le16(read) : 0;
}

static inline uint32_t cfi_bytes_u32(struct cfi_bytes *bytes)
{
	const uint8_t *read = cfi_bytes_read(bytes, 4);

	return read ? load_le32(read) : 0;
}

static inline uint64_t cfi_bytes_u64(struct cfi_bytes *bytes)
{
	const uint8_t *read = cfi_bytes_read(bytes, 8);

	return read ? load_le64(read) : 0;
}

/* LEB128 (DWARF 5, 7.6). Bits above the 64th are dropped. */
static inline uint64_t cfi_bytes_uleb(struct cfi_bytes *bytes)
{
	uint64_t value = 0;
	unsigned int shift = 0;
	uint8_t byte;

	do {
		byte = cfi_bytes_u8(bytes);
		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		shift = shift < 64 ? shift + 7 : shift;
	} while (byte & 0x80);
	return value;
}

static inline int64_t cfi_bytes_sleb(struct cfi_bytes *bytes)
{
	uint64_t value = 0;
	unsigned int shift = 0;
	uint8_t byte;

	do {
		byte = cfi_bytes_u8(bytes);
		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		shift = shift < 64 ? shift + 7 : shift;
	} while (byte & 0x80);
	if ((byte & 0x40) && shift < 64)
		value |= UINT64_MAX << shift;
	return (int64_t)value;
}
