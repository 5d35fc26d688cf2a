/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Format - headers as bytes
 *
 * docs/format.md, sections 3 and 4, defines the layouts. A chunk's header is valid if magic and
 * checksum match. The checksum is salted per file, so that bytes in a string of a profiled program
 * cannot pass for a chunk  [test-capture-reader: forged]
 */
#include "libcapture/format.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static const uint8_t file_magic[8] = { 0x89, 'P', 'R', 'O', 'F', 0x0d, 0x0a, 0x1a };
static const uint8_t chunk_magic[8] = { 0x9f, 'C', 'H', 'U', 'N', 'K', 0x0a, 0xf1 };

enum file_field {
	FILE_MAGIC = 0,
	FILE_VERSION = 8,
	FILE_BYTES = 12,
	FILE_COMPAT = 16,
	FILE_INCOMPAT = 24,
	FILE_UUID = 32,
	FILE_SALT = 48,
	FILE_CHECKSUM = 120,
};
static_assert(FILE_CHECKSUM + 8 == FILE_RECORD_BYTES && 2 * FILE_RECORD_BYTES == FILE_HEADER_BYTES,
	      "the checksum ends a record");

enum chunk_field {
	CHUNK_MAGIC = 0,
	CHUNK_HEADER_CHECKSUM = 8,
	CHUNK_KIND = 16,
	CHUNK_FLAGS = 18,
	CHUNK_TABLE = 20,
	CHUNK_STREAM = 22,
	CHUNK_SEQUENCE = 24,
	CHUNK_SEGMENT = 32,
	CHUNK_EPOCH = 36,
	CHUNK_ROWS = 40,
	CHUNK_GROUPS = 44,
	CHUNK_T_MIN = 48,
	CHUNK_T_MAX = 56,
	CHUNK_STORED = 64,
	CHUNK_RAW = 68,
	CHUNK_CHECKSUM = 72,
	CHUNK_LINK = 80,
	CHUNK_RESERVED = 88,
};
static_assert(CHUNK_RESERVED + 8 == CHUNK_HEADER_BYTES && CHUNK_HEADER_BYTES % 8 == 0,
	      "96 bytes, aligned");

uint64_t format_checksum(const void *data, size_t size, uint64_t salt)
{
	return XXH3_64bits_withSeed(data, size, salt);
}

void file_header_encode(const struct file_header *header, uint8_t bytes[FILE_HEADER_BYTES])
{
	memset(bytes, 0, FILE_HEADER_BYTES);
	memcpy(bytes + FILE_MAGIC, file_magic, sizeof(file_magic));
	store_le32(bytes + FILE_VERSION, header->version);
	store_le32(bytes + FILE_BYTES, FILE_HEADER_BYTES);
	store_le64(bytes + FILE_COMPAT, header->compat);
	store_le64(bytes + FILE_INCOMPAT, header->incompat);
	memcpy(bytes + FILE_UUID, header->uuid, sizeof(header->uuid));
	store_le64(bytes + FILE_SALT, header->salt);
	store_le64(bytes + FILE_CHECKSUM, format_checksum(bytes, FILE_CHECKSUM, 0));
	memcpy(bytes + FILE_RECORD_BYTES, bytes, FILE_RECORD_BYTES);
}

bool file_magic_matches(const uint8_t *bytes, size_t size)
{
	return memcmp(bytes, file_magic, MIN_OF(size, sizeof(file_magic))) == 0;
}

static bool file_record_valid(const uint8_t *record)
{
	return file_magic_matches(record, sizeof(file_magic)) &&
	       load_le64(record + FILE_CHECKSUM) == format_checksum(record, FILE_CHECKSUM, 0);
}

int file_header_decode(const uint8_t bytes[FILE_HEADER_BYTES], struct file_header *ret_header,
		       unsigned int *ret_bad_copies)
{
	const uint8_t *second = bytes + FILE_RECORD_BYTES;
	unsigned int bad = (file_record_valid(bytes) ? 0 : 1) | (file_record_valid(second) ? 0 : 2);
	const uint8_t *record = bad & 1 ? second : bytes;

	if (bad == 3)
		return file_magic_matches(bytes, sizeof(file_magic)) ||
				       file_magic_matches(second, sizeof(file_magic))
			       ? PROF_BAD_HEADER
			       : PROF_NOT_CAPTURE;
	if (load_le64(record + FILE_INCOMPAT) & ~FORMAT_INCOMPAT_KNOWN ||
	    load_le32(record + FILE_BYTES) != FILE_HEADER_BYTES ||
	    load_le32(record + FILE_VERSION) != FORMAT_VERSION)
		return PROF_UNSUPPORTED;
	ret_header->version = load_le32(record + FILE_VERSION);
	ret_header->compat = load_le64(record + FILE_COMPAT);
	ret_header->incompat = load_le64(record + FILE_INCOMPAT);
	memcpy(ret_header->uuid, record + FILE_UUID, sizeof(ret_header->uuid));
	ret_header->salt = load_le64(record + FILE_SALT);
	*ret_bad_copies = bad;
	return 0;
}

void chunk_header_encode(const struct chunk_header *header, uint64_t salt,
			 uint8_t bytes[CHUNK_HEADER_BYTES])
{
	memcpy(bytes + CHUNK_MAGIC, chunk_magic, sizeof(chunk_magic));
	store_le16(bytes + CHUNK_KIND, header->kind);
	store_le16(bytes + CHUNK_FLAGS, header->flags);
	store_le16(bytes + CHUNK_TABLE, header->table);
	store_le16(bytes + CHUNK_STREAM, header->stream);
	store_le64(bytes + CHUNK_SEQUENCE, header->sequence);
	store_le32(bytes + CHUNK_SEGMENT, header->segment);
	store_le32(bytes + CHUNK_EPOCH, header->epoch);
	store_le32(bytes + CHUNK_ROWS, header->rows);
	store_le32(bytes + CHUNK_GROUPS, header->groups);
	store_le64(bytes + CHUNK_T_MIN, header->t_min);
	store_le64(bytes + CHUNK_T_MAX, header->t_max);
	store_le32(bytes + CHUNK_STORED, header->stored);
	store_le32(bytes + CHUNK_RAW, header->raw);
	store_le64(bytes + CHUNK_CHECKSUM, header->checksum);
	store_le64(bytes + CHUNK_LINK, header->link);
	store_le64(bytes + CHUNK_RESERVED, 0);
	store_le64(bytes + CHUNK_HEADER_CHECKSUM,
		   format_checksum(bytes + CHUNK_KIND, CHUNK_HEADER_BYTES - CHUNK_KIND, salt));
}

bool chunk_header_decode(const uint8_t bytes[CHUNK_HEADER_BYTES], uint64_t salt,
			 struct chunk_header *ret_header)
{
	if (memcmp(bytes, chunk_magic, sizeof(chunk_magic)) != 0 ||
	    load_le64(bytes + CHUNK_HEADER_CHECKSUM) !=
		    format_checksum(bytes + CHUNK_KIND, CHUNK_HEADER_BYTES - CHUNK_KIND, salt) ||
	    load_le32(bytes + CHUNK_STORED) > PROF_MAX_PAYLOAD)
		return false;
	*ret_header = (struct chunk_header){
		.kind = load_le16(bytes + CHUNK_KIND),
		.flags = load_le16(bytes + CHUNK_FLAGS),
		.table = load_le16(bytes + CHUNK_TABLE),
		.stream = load_le16(bytes + CHUNK_STREAM),
		.sequence = load_le64(bytes + CHUNK_SEQUENCE),
		.segment = load_le32(bytes + CHUNK_SEGMENT),
		.epoch = load_le32(bytes + CHUNK_EPOCH),
		.rows = load_le32(bytes + CHUNK_ROWS),
		.groups = load_le32(bytes + CHUNK_GROUPS),
		.t_min = load_le64(bytes + CHUNK_T_MIN),
		.t_max = load_le64(bytes + CHUNK_T_MAX),
		.stored = load_le32(bytes + CHUNK_STORED),
		.raw = load_le32(bytes + CHUNK_RAW),
		.checksum = load_le64(bytes + CHUNK_CHECKSUM),
		.link = load_le64(bytes + CHUNK_LINK),
	};
	return true;
}

size_t chunk_magic_find(const uint8_t *data, size_t size, size_t from)
{
	for (size_t at = (from + 7) & ~(size_t)7; at + sizeof(chunk_magic) <= size; at += 8)
		if (memcmp(data + at, chunk_magic, sizeof(chunk_magic)) == 0)
			return at;
	return SIZE_MAX;
}
