/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checkpoint - encodes and decodes the payload of a checkpoint: segments, schema, entries, gaps
 *
 * A checkpoint has everything that a reader needs to continue from there. Its entries are stored as
 * row groups of a separate table, encoded like the rows of every other table. Most checkpoints have
 * one row group; an index of the whole file has the row groups that entries.c made.
 *
 * Invariants: (1) decoded entries ascend, do not overlap, and end at or before `end`, so a file has
 *                 at most size / CHUNK_HEADER_BYTES of them  [fuzz_capture_index]
 *             (2) decoding reads no byte outside the payload                 [fuzz_capture_index]
 */
#include "libcapture/checkpoint.h"

#include <zstd.h>

#define NUMBER(i, n, o)                                                                 \
	{                                                                               \
		.id = (i), .name = (n), .type = PROF_TYPE_UINT, .order = PROF_ORDER_##o \
	}

static const struct prof_column_def entry_columns[] = {
	NUMBER(ENTRY_GAP, "gap", OFFSET),         NUMBER(ENTRY_SEQUENCE, "sequence", DELTA),
	NUMBER(ENTRY_KIND, "kind", OFFSET),       NUMBER(ENTRY_FLAGS, "flags", OFFSET),
	NUMBER(ENTRY_TABLE, "table", OFFSET),     NUMBER(ENTRY_STREAM, "stream", OFFSET),
	NUMBER(ENTRY_SEGMENT, "segment", OFFSET), NUMBER(ENTRY_EPOCH, "epoch", OFFSET),
	NUMBER(ENTRY_ROWS, "rows", OFFSET),       NUMBER(ENTRY_T_MIN, "t_min", OFFSET),
	NUMBER(ENTRY_T_MAX, "t_max", OFFSET),     NUMBER(ENTRY_STORED, "stored", OFFSET),
	NUMBER(ENTRY_RAW, "raw", OFFSET),         NUMBER(ENTRY_LINK, "link", OFFSET),
};
static_assert(ARRAY_SIZE(entry_columns) == ENTRY_COLUMNS, "one definition a column");

const struct prof_table_def entry_table = {
	.name = "entry",
	.columns = entry_columns,
	.n_columns = ENTRY_COLUMNS,
	.id = UINT16_MAX,
};

/* ---- Lists ----------------------------------------------------------------------------------- */

void gap_list_done(struct gap_list *list)
{
	free(list->items);
	*list = (struct gap_list){ 0 };
}

int gap_list_add(struct gap_list *list, uint64_t offset, uint64_t bytes)
{
	size_t capacity = MAX_OF((size_t)64, list->capacity * 2);
	struct gap *items;

	if (list->n == list->capacity) {
		items = reallocarray(list->items, capacity, sizeof(*items));
		if (!items)
			return -ENOMEM;
		list->items = items;
		list->capacity = capacity;
	}
	list->items[list->n++] = (struct gap){ .offset = offset, .bytes = bytes };
	return 0;
}

struct entry entry_of_header(const struct chunk_header *header, uint64_t offset)
{
	return (struct entry){
		.chunk = {
			.offset = offset,
			.sequence = header->sequence,
			.t_min = header->t_min,
			.t_max = header->t_max,
			.first_id = header->link,
			.stored_bytes = header->stored,
			.raw_bytes = header->raw,
			.rows = header->rows,
			.segment = header->segment,
			.epoch = header->epoch,
			.table = header->table,
			.stream = header->stream,
		},
		.kind = header->kind,
		.flags = header->flags,
	};
}

/* ---- Writing --------------------------------------------------------------------------------- */

int entry_block_add(struct prof_block *block, const struct entry *entry, uint64_t end)
{
	const struct prof_chunk *chunk = &entry->chunk;
	const struct prof_value values[ENTRY_COLUMNS] = {
		[ENTRY_GAP] = PROF_NUMBER(chunk->offset - end),
		[ENTRY_SEQUENCE] = PROF_NUMBER(chunk->sequence),
		[ENTRY_KIND] = PROF_NUMBER(entry->kind),
		[ENTRY_FLAGS] = PROF_NUMBER(entry->flags),
		[ENTRY_TABLE] = PROF_NUMBER(chunk->table),
		[ENTRY_STREAM] = PROF_NUMBER(chunk->stream),
		[ENTRY_SEGMENT] = PROF_NUMBER(chunk->segment),
		[ENTRY_EPOCH] = PROF_NUMBER(chunk->epoch),
		[ENTRY_ROWS] = PROF_NUMBER(chunk->rows),
		[ENTRY_T_MIN] = PROF_NUMBER(chunk->t_min),
		[ENTRY_T_MAX] = PROF_NUMBER(chunk->t_max),
		[ENTRY_STORED] = PROF_NUMBER(chunk->stored_bytes),
		[ENTRY_RAW] = PROF_NUMBER(chunk->raw_bytes),
		[ENTRY_LINK] = PROF_NUMBER(chunk->first_id),
	};

	return prof_block_add(block, values);
}

int checkpoint_encode_schema(const struct schema *schema, struct buffer *ret_section)
{
	CLEANUP(buffer_done) struct buffer raw = { 0 };
	size_t packed;
	int r = schema_encode(schema, &raw);

	if (r)
		return r;
	if (raw.size > FORMAT_MAX_SCHEMA)
		return PROF_LIMIT;
	ret_section->size = 0;
	r = buffer_reserve(ret_section, FRAME_BYTES + ZSTD_compressBound(raw.size));
	if (r)
		return r;
	store_le32(ret_section->data, raw.size);
	store_le32(ret_section->data + 4, 0);
	packed = ZSTD_compress(ret_section->data + FRAME_BYTES, ret_section->capacity - FRAME_BYTES,
			       raw.data, raw.size, 9);
	if (ZSTD_isError(packed) || packed >= raw.size) {
		memcpy(ret_section->data + FRAME_BYTES, raw.data, raw.size);
		packed = raw.size;
	}
	ret_section->size = FRAME_BYTES + packed;
	return 0;
}

static int put_section_header(struct buffer *out, enum section_tag tag, size_t bytes)
{
	uint8_t header[SECTION_HEADER_BYTES];

	store_le32(header, tag);
	store_le32(header + 4, bytes);
	return buffer_add(out, header, sizeof(header));
}

static int put_segments(const struct checkpoint_content *content, struct buffer *out)
{
	int r = put_section_header(out, SECTION_SEGMENTS, content->n_segments * SEGMENT_BYTES);

	for (size_t i = 0; !r && i < content->n_segments; i++) {
		const struct prof_segment *segment = &content->segments[i];
		uint8_t record[SEGMENT_BYTES];

		memcpy(record, segment->boot_id, 16);
		store_le64(record + 16, segment->start_monotonic_ns);
		store_le64(record + 24, (uint64_t)segment->wall_ns);
		store_le64(record + 32, segment->wall_error_ns);
		store_le32(record + 40, segment->number);
		store_le32(record + 44, segment->first_epoch);
		r = buffer_add(out, record, sizeof(record));
	}
	return r;
}

static int put_gaps(const struct checkpoint_content *content, struct buffer *out)
{
	int r;

	if (content->n_gaps == 0)
		return 0;
	r = put_section_header(out, SECTION_GAPS, content->n_gaps * GAP_BYTES);
	for (size_t i = 0; !r && i < content->n_gaps; i++) {
		uint8_t record[GAP_BYTES];

		store_le64(record, content->gaps[i].offset);
		store_le64(record + 8, content->gaps[i].bytes);
		r = buffer_add(out, record, sizeof(record));
	}
	return r;
}

/* `out` must have a size that is a multiple of 8. */
int checkpoint_encode(const struct checkpoint_content *content, struct buffer *out)
{
	uint8_t head[FRAME_BYTES];
	int r;

	store_le32(head, content->n_entries);
	store_le32(head + 4, content->n_groups);
	if ((r = put_segments(content, out)) || (r = buffer_pad8(out)) ||
	    (r = put_section_header(out, SECTION_SCHEMA, content->schema->size)) ||
	    (r = buffer_add(out, content->schema->data, content->schema->size)) ||
	    (r = buffer_pad8(out)) ||
	    (r = put_section_header(out, SECTION_ENTRIES, sizeof(head) + content->groups->size)) ||
	    (r = buffer_add(out, head, sizeof(head))) ||
	    (r = buffer_add(out, content->groups->data, content->groups->size)) ||
	    (r = buffer_pad8(out)))
		return r;
	return put_gaps(content, out);
}

/* ---- Reading --------------------------------------------------------------------------------- */

static bool parse_section(struct checkpoint_view *view, uint32_t tag, const uint8_t *data,
			  size_t size)
{
	switch (tag) {
	case SECTION_SEGMENTS:
		view->segments = data;
		view->n_segments = size / SEGMENT_BYTES;
		return size % SEGMENT_BYTES == 0 && view->n_segments > 0 &&
		       view->n_segments <= FORMAT_MAX_SEGMENTS;
	case SECTION_SCHEMA:
		view->schema = data;
		view->schema_bytes = size;
		return size >= FRAME_BYTES && load_le32(data) <= FORMAT_MAX_SCHEMA;
	case SECTION_ENTRIES:
		if (size < FRAME_BYTES)
			return false;
		view->n_entries = load_le32(data);
		view->n_groups = load_le32(data + 4);
		view->groups = data + FRAME_BYTES;
		view->groups_bytes = size - FRAME_BYTES;
		return true;
	case SECTION_GAPS:
		view->gaps = data;
		view->n_gaps = size / GAP_BYTES;
		return size % GAP_BYTES == 0 && view->n_gaps <= FORMAT_MAX_GAPS;
	default:
		return true;
	}
}

int checkpoint_parse(const uint8_t *payload, size_t size, struct checkpoint_view *ret_view)
{
	struct checkpoint_view view = { 0 };
	size_t at = 0;

	while (at < size) {
		uint32_t tag, bytes;

		if (size - at < SECTION_HEADER_BYTES)
			return PROF_DAMAGED;
		tag = load_le32(payload + at);
		bytes = load_le32(payload + at + 4);
		at += SECTION_HEADER_BYTES;
		if (bytes > size - at || !parse_section(&view, tag, payload + at, bytes))
			return PROF_DAMAGED;
		at = MIN_OF((size_t)PADDED(at + bytes), size);
	}
	if (!view.segments || !view.schema || !view.groups)
		return PROF_DAMAGED;
	*ret_view = view;
	return 0;
}

struct prof_segment checkpoint_segment(const struct checkpoint_view *view, size_t i)
{
	const uint8_t *record = view->segments + i * SEGMENT_BYTES;
	struct prof_segment segment = {
		.start_monotonic_ns = load_le64(record + 16),
		.wall_ns = (int64_t)load_le64(record + 24),
		.wall_error_ns = load_le64(record + 32),
		.number = load_le32(record + 40),
		.first_epoch = load_le32(record + 44),
	};

	memcpy(segment.boot_id, record, sizeof(segment.boot_id));
	return segment;
}

struct gap checkpoint_gap(const struct checkpoint_view *view, size_t i)
{
	const uint8_t *record = view->gaps + i * GAP_BYTES;

	return (struct gap){ .offset = load_le64(record), .bytes = load_le64(record + 8) };
}

int checkpoint_decode_schema(const struct checkpoint_view *view, struct schema *schema)
{
	size_t raw_bytes = load_le32(view->schema), stored = view->schema_bytes - FRAME_BYTES;
	const uint8_t *data = view->schema + FRAME_BYTES;
	CLEANUP_FREE uint8_t *raw = NULL;

	if (stored > raw_bytes)
		return PROF_DAMAGED;
	if (stored == raw_bytes)
		return schema_decode(schema, data, stored);
	raw = malloc(raw_bytes);
	if (!raw)
		return -ENOMEM;
	if (ZSTD_decompress(raw, raw_bytes, data, stored) != raw_bytes)
		return PROF_DAMAGED;
	return schema_decode(schema, raw, raw_bytes);
}

struct entry entry_of_row(const struct prof_array *arrays, size_t i, uint64_t position)
{
	return (struct entry){
		.chunk = {
			.offset = position + arrays[ENTRY_GAP].numbers[i],
			.sequence = arrays[ENTRY_SEQUENCE].numbers[i],
			.t_min = arrays[ENTRY_T_MIN].numbers[i],
			.t_max = arrays[ENTRY_T_MAX].numbers[i],
			.first_id = arrays[ENTRY_LINK].numbers[i],
			.stored_bytes = (uint32_t)arrays[ENTRY_STORED].numbers[i],
			.raw_bytes = (uint32_t)arrays[ENTRY_RAW].numbers[i],
			.rows = (uint32_t)arrays[ENTRY_ROWS].numbers[i],
			.segment = (uint32_t)arrays[ENTRY_SEGMENT].numbers[i],
			.epoch = (uint32_t)arrays[ENTRY_EPOCH].numbers[i],
			.table = (uint16_t)arrays[ENTRY_TABLE].numbers[i],
			.stream = (uint16_t)arrays[ENTRY_STREAM].numbers[i],
		},
		.kind = (uint16_t)arrays[ENTRY_KIND].numbers[i],
		.flags = (uint16_t)arrays[ENTRY_FLAGS].numbers[i],
	};
}

/* Returns whether all numbers of a row fit into the members that entry_of_row() sets. */
static bool row_fits(const struct prof_array *arrays, size_t i)
{
	static const uint64_t most[ENTRY_COLUMNS] = {
		[ENTRY_GAP] = UINT64_MAX,     [ENTRY_SEQUENCE] = UINT64_MAX,
		[ENTRY_KIND] = UINT16_MAX,    [ENTRY_FLAGS] = UINT16_MAX,
		[ENTRY_TABLE] = UINT16_MAX,   [ENTRY_STREAM] = UINT16_MAX,
		[ENTRY_SEGMENT] = UINT32_MAX, [ENTRY_EPOCH] = UINT32_MAX,
		[ENTRY_ROWS] = PROF_MAX_ROWS, [ENTRY_T_MIN] = UINT64_MAX,
		[ENTRY_T_MAX] = UINT64_MAX,   [ENTRY_STORED] = PROF_MAX_PAYLOAD,
		[ENTRY_RAW] = UINT32_MAX,     [ENTRY_LINK] = UINT64_MAX,
	};

	for (size_t c = 0; c < ENTRY_COLUMNS; c++)
		if (arrays[c].numbers[i] > most[c])
			return false;
	return true;
}

/* Position in the entries of a checkpoint. */
struct decoding {
	/* as for checkpoint_decode_entries(); link is 0 after the first entry */
	uint64_t link, end;
	uint64_t position;
	uint64_t next_sequence;
};

static int receive_group(struct decoding *at, const struct prof_array *arrays, size_t rows,
			 const struct entry_receiver *receiver)
{
	for (size_t i = 0; i < rows; i++) {
		struct entry entry;
		int r;

		if (!row_fits(arrays, i) ||
		    (!at->link && arrays[ENTRY_GAP].numbers[i] > at->end - at->position))
			return PROF_DAMAGED;
		entry = entry_of_row(arrays, i, at->position);
		if (at->link)
			entry.chunk.offset = at->link;
		if (entry.chunk.offset % 8 != 0 || entry.chunk.offset < FILE_HEADER_BYTES ||
		    entry.chunk.offset > at->end || entry_end(&entry) > at->end ||
		    entry.chunk.sequence < at->next_sequence ||
		    entry.chunk.sequence > format_max_sequence(entry.chunk.offset))
			return PROF_DAMAGED;
		r = receiver->receive(&entry, receiver->data);
		if (r)
			return r;
		at->position = entry_end(&entry);
		at->next_sequence = entry.chunk.sequence + 1;
		at->link = 0;
	}
	return 0;
}

int checkpoint_decode_entries(const struct checkpoint_view *view, struct chunk_decoder *decoder,
			      uint64_t link, uint64_t end, const struct entry_receiver *receiver)
{
	const uint8_t *at = view->groups;
	struct decoding decoding = { .link = link, .end = end, .position = FILE_HEADER_BYTES };

	if (end < decoding.position || link > end ||
	    !chunk_groups_valid(at, view->groups_bytes, view->n_groups, view->n_entries))
		return PROF_DAMAGED;
	for (uint32_t g = 0; g < view->n_groups; g++) {
		const uint8_t *start = at;
		struct chunk_group group;
		int r = chunk_group_next(&at, view->groups + view->groups_bytes, &group)
				? 0
				: PROF_DAMAGED;

		if (!r)
			r = chunk_decode(decoder, &group);
		for (size_t c = 0; !r && c < ENTRY_COLUMNS; c++)
			if (!decoder->arrays[c].numbers)
				r = PROF_DAMAGED;
		if (!r && receiver->group)
			r = receiver->group(start, receiver->data);
		if (!r)
			r = receive_group(&decoding, decoder->arrays, group.rows, receiver);
		if (r)
			return r;
	}
	return 0;
}
