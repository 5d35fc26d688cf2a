/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Bytes - reads numbers from the front of a range of bytes; encodes LEB128
 *
 * A read past the end fails, returns 0, and makes all later reads fail, so a parser checks only
 * once, at its end.
 */
#pragma once

#include "arch/base.h"

struct byte_reader {
	const uint8_t *at, *end;
	bool failed;
};

static inline size_t byte_reader_left(const struct byte_reader *bytes)
{
	return (size_t)(bytes->end - bytes->at);
}

static inline const uint8_t *byte_reader_read(struct byte_reader *bytes, uint64_t size)
{
	const uint8_t *read = bytes->at;

	if (size > byte_reader_left(bytes)) {
		bytes->failed = true;
		bytes->at = bytes->end;
		return NULL;
	}
	bytes->at += size;
	return read;
}

static inline uint8_t byte_reader_u8(struct byte_reader *bytes)
{
	const uint8_t *read = byte_reader_read(bytes, 1);

	return read ? *read : 0;
}

static inline uint16_t byte_reader_u16(struct byte_reader *bytes)
{
	const uint8_t *read = byte_reader_read(bytes, 2);

	return read ? load_le16(read) : 0;
}

static inline uint32_t byte_reader_u32(struct byte_reader *bytes)
{
	const uint8_t *read = byte_reader_read(bytes, 4);

	return read ? load_le32(read) : 0;
}

static inline uint64_t byte_reader_u64(struct byte_reader *bytes)
{
	const uint8_t *read = byte_reader_read(bytes, 8);

	return read ? load_le64(read) : 0;
}

#define BYTES_MAX_LEB 10

/* Reads a number in LEB128, without bits above the 64th. Fails if it has more than BYTES_MAX_LEB
 * bytes, because in a hostile file each of many numbers could extend to the file's end. *ret_shift:
 * the number of bits read. *ret_last: the last byte. */
static inline uint64_t byte_reader_leb(struct byte_reader *bytes, unsigned int *ret_shift,
				       uint8_t *ret_last)
{
	const uint8_t *begin = bytes->at;
	uint64_t value = 0;
	unsigned int shift = 0;
	uint8_t byte;

	do {
		byte = byte_reader_u8(bytes);
		if (bytes->at - begin > BYTES_MAX_LEB) {
			bytes->failed = true;
			bytes->at = bytes->end;
			byte = 0;
		}
		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		shift = shift < 64 ? shift + 7 : shift;
	} while (byte & 0x80);
	*ret_shift = shift;
	*ret_last = byte;
	return value;
}

/* LEB128 (DWARF 5, 7.6) */
static inline uint64_t byte_reader_uleb(struct byte_reader *bytes)
{
	unsigned int shift;
	uint8_t last;

	/* Most numbers have one byte. */
	if (bytes->at < bytes->end && *bytes->at < 0x80)
		return *bytes->at++;
	return byte_reader_leb(bytes, &shift, &last);
}

static inline int64_t byte_reader_sleb(struct byte_reader *bytes)
{
	unsigned int shift;
	uint8_t last;
	uint64_t value = byte_reader_leb(bytes, &shift, &last);

	return (int64_t)((last & 0x40) && shift < 64 ? value | UINT64_MAX << shift : value);
}

/* Stores the LEB128 of a number. Returns its length. */
static inline unsigned int bytes_put_uleb(uint8_t at[BYTES_MAX_LEB], uint64_t value)
{
	unsigned int n = 0;

	for (; value >= 0x80; value >>= 7)
		at[n++] = (uint8_t)(value | 0x80);
	at[n++] = (uint8_t)value;
	return n;
}
