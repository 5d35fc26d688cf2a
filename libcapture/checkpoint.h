/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checkpoint - encodes and decodes the payload of a checkpoint: segments, schema, entries, gaps
 *
 * docs/format.md, section 6, defines the bytes.
 */
#pragma once

#include "libcapture/chunk.h"

/* A chunk of any kind, as an index describes it. chunk.first_id is the header's link. */
struct entry {
	struct prof_chunk chunk;
	uint16_t kind, flags;
};

/* A range of the file that is known not to be a chunk. */
struct gap {
	uint64_t offset, bytes;
};

struct gap_list {
	struct gap *items;
	size_t n, capacity;
};

void gap_list_done(struct gap_list *list);
MUST_CHECK int gap_list_add(struct gap_list *list, uint64_t offset, uint64_t bytes);

struct entry entry_of_header(const struct chunk_header *header, uint64_t offset);
static inline uint64_t entry_end(const struct entry *entry)
{
	return entry->chunk.offset + CHUNK_HEADER_BYTES + PADDED(entry->chunk.stored_bytes);
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* The columns of entry_table, whose row groups store the entries. */
enum entry_column {
	ENTRY_GAP,
	ENTRY_SEQUENCE,
	ENTRY_KIND,
	ENTRY_FLAGS,
	ENTRY_TABLE,
	ENTRY_STREAM,
	ENTRY_SEGMENT,
	ENTRY_EPOCH,
	ENTRY_ROWS,
	ENTRY_T_MIN,
	ENTRY_T_MAX,
	ENTRY_STORED,
	ENTRY_RAW,
	ENTRY_LINK,
	ENTRY_COLUMNS
};
extern const struct prof_table_def entry_table;

/* Adds a row for an entry. `end`: end of the previous chunk. */
MUST_CHECK int entry_block_add(struct prof_block *block, const struct entry *entry, uint64_t end);
/* Encodes the content of the SCHEMA section. */
MUST_CHECK int checkpoint_encode_schema(const struct schema *schema, struct buffer *ret_section);

struct checkpoint_content {
	const struct prof_segment *segments;
	size_t n_segments;
	const struct buffer *schema; /* from checkpoint_encode_schema() */
	const struct buffer *groups; /* row groups of entry_table */
	uint32_t n_entries, n_groups;
	const struct gap *gaps;
	size_t n_gaps;
};
MUST_CHECK int checkpoint_encode(const struct checkpoint_content *content, struct buffer *out);

/* ---- Reading --------------------------------------------------------------------------------- */

/* Sections of a payload, in place and unchecked. */
struct checkpoint_view {
	const uint8_t *segments, *schema, *groups, *gaps;
	size_t n_segments, schema_bytes, groups_bytes, n_gaps;
	uint32_t n_entries, n_groups;
};
MUST_CHECK int checkpoint_parse(const uint8_t *payload, size_t size,
				struct checkpoint_view *ret_view);
struct prof_segment checkpoint_segment(const struct checkpoint_view *view, size_t i);
struct gap checkpoint_gap(const struct checkpoint_view *view, size_t i);
/* Like schema_decode(). */
MUST_CHECK int checkpoint_decode_schema(const struct checkpoint_view *view, struct schema *schema);
/* Returns the entry in row i of a decoded group of entry_table. The row must have been checked.
 * `position`: end of the previous chunk. */
struct entry entry_of_row(const struct prof_array *arrays, size_t i, uint64_t position);
struct entry_receiver {
	int (*receive)(const struct entry *entry, void *data);
	int (*group)(const uint8_t *group,
		     void *data); /* called before the first entry of each group; may be NULL */
	void *data;
};
/* Calls receive() for each entry; entries ascend, do not overlap, and end at or before `end`. Stops
 * with PROF_DAMAGED at an invalid entry, or with a non-zero result of receive() or group(). `link`:
 * offset of the first entry's chunk; 0: computed from the entry's gap. */
MUST_CHECK int checkpoint_decode_entries(const struct checkpoint_view *view,
					 struct chunk_decoder *decoder, uint64_t link, uint64_t end,
					 const struct entry_receiver *receiver);
