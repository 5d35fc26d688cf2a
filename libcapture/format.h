/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Format - the bytes of a capture
 *
 * docs/format.md is the specification: headers in sections 3 and 4, row groups and parts in 5,
 * checkpoints in 6, the schema in 7, the conditions that a reader checks in 12.
 */
#pragma once

#include "libcapture/prof-capture.h"

#include "arch/base.h"

#include <assert.h>

#define FORMAT_VERSION 1u
#define FORMAT_INCOMPAT_KNOWN UINT64_C(0)

#define FILE_HEADER_BYTES 256u
#define FILE_RECORD_BYTES 128u
#define CHUNK_HEADER_BYTES 96u
#define GROUP_HEADER_BYTES 32u
#define DESCRIPTOR_BYTES 24u
#define SECTION_HEADER_BYTES 8u
#define SEGMENT_BYTES 48u
#define GAP_BYTES 16u
#define FRAME_BYTES 8u /* header of the schema, and of the list of entries */

/* Returns a payload's length with padding. */
#define PADDED(bytes) (((uint64_t)(bytes) + 7) & ~UINT64_C(7))

#define CHECKPOINT_CHUNKS 64u
#define CHECKPOINT_BYTES (16u << 20)
#define GROUP_ROWS_DEFAULT (1u << 14)
#define FORMAT_MAX_GAPS (1u << 16)
#define FORMAT_MAX_SCHEMA (1u << 20)
/* maximum total bytes of schemas that differ from the previous one */
#define FORMAT_MAX_SCHEMAS (64u << 20)
#define FORMAT_MAX_SEGMENTS (1u << 12)

enum chunk_kind {
	CHUNK_DATA = 1,
	CHUNK_CHECKPOINT = 2,
	CHUNK_TRAILER = 3,
};

#define CHUNK_FULL_INDEX 1u /* flag of a checkpoint */

enum section_tag {
	SECTION_SEGMENTS = 1,
	SECTION_SCHEMA = 2,
	SECTION_ENTRIES = 3,
	SECTION_GAPS = 4,
};

enum part { PART_VALUES = 0, PART_NULLS = 1, PART_LENGTHS = 2, PART_BYTES = 3, PARTS };

struct file_header {
	uint32_t version;
	uint64_t compat;
	uint64_t incompat;
	uint8_t uuid[16];
	uint64_t salt;
};

struct chunk_header {
	uint16_t kind, flags, table, stream;
	uint64_t sequence;
	uint32_t segment, epoch, rows, groups;
	uint64_t t_min, t_max;
	uint32_t stored, raw;
	uint64_t checksum;
	uint64_t link;
};

void file_header_encode(const struct file_header *header, uint8_t bytes[FILE_HEADER_BYTES]);
/* Uses the first undamaged one of the two copies. Returns 0, PROF_NOT_CAPTURE, PROF_BAD_HEADER or
 * PROF_UNSUPPORTED. *ret_bad_copies: bit n is set if copy n is damaged. */
MUST_CHECK int file_header_decode(const uint8_t bytes[FILE_HEADER_BYTES],
				  struct file_header *ret_header, unsigned int *ret_bad_copies);
/* Returns whether the bytes, perhaps fewer than a header, start like the header of a capture. */
bool file_magic_matches(const uint8_t *bytes, size_t size);

void chunk_header_encode(const struct chunk_header *header, uint64_t salt,
			 uint8_t bytes[CHUNK_HEADER_BYTES]);
/* Returns false if magic or checksum is wrong, or the payload is too large for a chunk. */
bool chunk_header_decode(const uint8_t bytes[CHUNK_HEADER_BYTES], uint64_t salt,
			 struct chunk_header *ret_header);
uint64_t format_checksum(const void *data, size_t size, uint64_t salt);
/* Returns the first multiple of 8, from `from` on, with a chunk's magic; or SIZE_MAX. */
size_t chunk_magic_find(const uint8_t *data, size_t size, size_t from);

/* Returns the highest possible sequence number of a chunk at an offset. After a gap, the writer
 * uses this number; without gaps, numbers are lower, because each chunk has more than 8 bytes. */
static inline uint64_t format_max_sequence(uint64_t offset)
{
	return offset / 8;
}

/* Returns the size of header, payload and padding. */
static inline uint64_t chunk_bytes(const struct chunk_header *header)
{
	return CHUNK_HEADER_BYTES + PADDED(header->stored);
}
