/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Format - the bytes of a capture
 *
 *     file    = file header (256), chunk, chunk, …            every chunk starts at a multiple of 8
 *     chunk   = chunk header (96), payload, zeros up to the next multiple of 8
 *     finished file = …, checkpoint with CHUNK_FULL_INDEX, trailer
 *
 * All numbers are little-endian. Reserved fields are written as 0 and ignored.
 * XXH3 is XXH3_64bits_withSeed(salt).
 *
 * FILE HEADER, 256 bytes: the same record of 128 bytes twice; one valid copy is enough.
 *       0 magic 8      8 version u32   12 header bytes u32 (256)   16 compat u64
 *      24 incompat u64                 32 uuid 16                  48 salt u64
 *      56 reserved 64                 120 XXH3 of bytes 0..119, seed 0
 *
 * CHUNK HEADER, 96 bytes
 *       0 magic u64           8 XXH3 of bytes 16..95    16 kind u16      18 flags u16  20 table u16
 *      22 stream u16         24 sequence u64            32 segment u32   36 epoch u32  40 rows u32
 *      44 groups u32         48 t_min u64               56 t_max u64     64 stored u32 68 raw u32
 *      72 XXH3 of payload    80 link u64                88 reserved u64
 *   sequence rises by one with each chunk, through all segments; after a gap it is the offset / 8,
 *   which no sequence exceeds. stored is the payload without its padding, raw the rows as 8-byte
 *   numbers and bytes. link depends on the kind. Dictionary data: lowest id; checkpoint: offset of
 *   the previous checkpoint or 0; trailer: offset of the checkpoint that ends where the trailer
 *   starts. A reader skips unknown kinds.
 *
 * DATA PAYLOAD: `groups` row groups, one after another, without alignment
 *   group      = rows u32, sub-columns u32, stored bytes u32, reserved u32, t_min u64,
 *                t_max u64 (32 bytes), then that many descriptors, then the bytes of the
 *                sub-columns in the order of their descriptors
 *   descriptor = column id u16, form u8, width u8, stored bytes u32, base u64, step u64 (24 bytes)
 *     form     = order in the low, part in the high four bits
 *     width    = 0..8 in the low four bits, flags in the high four bits
 *   A column of the schema has up to three parts:
 *     scalar          values [nulls]            number of a null: any
 *     LIST            lengths values [nulls]    values: all items; length of a null: 0
 *     TEXT, BINARY    lengths bytes  [nulls]
 *   A column without `nulls` has no null. A column with an unknown order, part or flag, or without
 *   one of its parts, is absent; a column that is not in the schema is skipped. Two parts of one
 *   kind are damage.
 *
 * PARTS are n numbers or n bytes; the reader knows n (rows, or the sum of the lengths), so that no
 * field can claim a size.
 *   raw = n x width bytes: byte k of every residue r is plane k; planes follow one another.
 *   stored == raw: raw itself. stored < raw: one zstd frame of exactly raw bytes. stored > raw:
 *   damage. Bytes: width 1, order 0, base and step 0, no planes, just the bytes.
 *   All arithmetic is mod 2^64. i = 0..n-1:
 *     order 0   v[i] = base + r[i]
 *     order 1   v[0] = base + r[0], v[i] = v[i-1] + step + r[i]
 *     order 2   m = base; v[i] = m - unzigzag(r[i]), m = max(m, v[i]) unsigned
 *     order 3   v[i] = r[i] == 0 ? 0 : (step + i) - r[i]      step = id of the group's first row
 *
 * CHECKPOINT PAYLOAD: sections, each: tag u32, bytes u32, bytes, zeros up to a multiple of 8.
 * A reader skips unknown tags.
 *   SEGMENTS  records of 48 bytes: boot id 16, start u64, wall s64, wall error u64, number u32,
 *             first epoch u32. The current segment; with CHUNK_FULL_INDEX all.
 *   SCHEMA    raw bytes u32, reserved u32, then an encoded schema (schema.c) of that size, plain or
 *             as one zstd frame if that is smaller: all tables declared so far
 *   ENTRIES   entries u32, groups u32, then row groups (as above) of the table `entry`
 *             (checkpoint.c): all chunks from `link` (0: from the first) up to this checkpoint;
 *             with CHUNK_FULL_INDEX from the first
 *   GAPS      records of 16 bytes: offset u64, bytes u64: ranges without chunks, left by a crashed
 *             writer
 *   An entry locates its chunk by the distance from the end of the previous one (0 unless there is
 *   a gap). The first entry of a checkpoint that has a link, and no CHUNK_FULL_INDEX, is the chunk
 *   at that link.
 *
 * WHERE CHECKPOINTS ARE: a segment starts with one; one comes before the first row of a table that
 * was declared later; these two kinds are written twice, so that no single flipped bit loses a
 * schema. More follow every 64 chunks or 16 MiB, and at the end. A writer that appends to a
 * finished capture leaves its index and trailer in place.
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
#define FRAME_BYTES 8u /* header of a schema and of entries */

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
/* Uses the better of the two copies. Returns 0, PROF_NOT_CAPTURE, PROF_BAD_HEADER or
 * PROF_UNSUPPORTED. *ret_bad_copies: bit n is set if copy n is damaged. */
MUST_CHECK int file_header_decode(const uint8_t bytes[FILE_HEADER_BYTES],
				  struct file_header *ret_header, unsigned int *ret_bad_copies);
/* Returns whether a file that is shorter than a header starts like one. */
bool file_magic_matches(const uint8_t *bytes, size_t size);

void chunk_header_encode(const struct chunk_header *header, uint64_t salt,
			 uint8_t bytes[CHUNK_HEADER_BYTES]);
/* Returns false if magic or checksum is wrong, or the payload is too large for a chunk. */
bool chunk_header_decode(const uint8_t bytes[CHUNK_HEADER_BYTES], uint64_t salt,
			 struct chunk_header *ret_header);
uint64_t format_checksum(const void *data, size_t size, uint64_t salt);
/* Returns the first multiple of 8, from `from` on, with a chunk's magic; or SIZE_MAX. */
size_t chunk_magic_find(const uint8_t *data, size_t size, size_t from);

/* Returns the highest possible sequence of a chunk at an offset. Chunks cannot follow each other
 * faster than sequence numbers rise after gaps. */
static inline uint64_t format_max_sequence(uint64_t offset)
{
	return offset / 8;
}

/* Returns the size of header, payload and padding. */
static inline uint64_t chunk_bytes(const struct chunk_header *header)
{
	return CHUNK_HEADER_BYTES + PADDED(header->stored);
}
